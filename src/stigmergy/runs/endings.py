"""How runs end: with an answer, with a reason, or because somebody stopped them. Task and parent hear of it in the same unit."""

from typing import Any

from stigmergy.errors import NotFound
from stigmergy.kernel.faults import point
from stigmergy.kernel.timers import Timer, cancel_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import log, store
from stigmergy.runs.commands import DEADLINE, leave_queue, limits_of, lock_with_parent, move_run, move_task, tree_of, wake
from stigmergy.runs.model import ENDED, Run, RunStatus, Task, TaskStatus
from stigmergy.runs.settling import settle_call
from stigmergy.runs.texts import sound
from stigmergy.runs.waits import answer_child, cancel_waits

# Who works on a run that was stopped from outside is told here to look.
STOPPED = "runs/stopped"


def ended_topic(run_id: str) -> str:
    """Who waits for the end of a run is told here to look."""
    return f"run-ended/{run_id}"


TASK_END: dict[RunStatus, TaskStatus] = {"completed": "success", "failed": "failed", "canceled": "failed"}


async def end_run(tx: Transaction, run: Run, status: RunStatus, *, result: Any = None, error: str | None = None) -> Run:
    """A run is over. The caller has locked its parent's head, then its own, and read it after that."""
    error = None if error is None else sound(error)
    if status != "completed":
        await _break_off(tx, run, error or status)
    ended = await move_run(tx, run, status, result=result, error=error, ended_at=tx.now)
    point("end.half")
    await cancel_timer(tx, DEADLINE, run.id)
    await leave_queue(tx, run)
    tx.wake(ended_topic(run.id))
    task = await move_task(tx, ended, TASK_END[status], **_outcome(result, error))
    if run.parent_run_id is not None:
        await _tell_parent(tx, ended, task)
        point("parent.half")
    return ended


def _outcome(result: Any, error: str | None) -> dict[str, Any]:
    return {"error": error} if error is not None else {"result": result}


async def _break_off(tx: Transaction, run: Run, reason: str) -> None:
    """What was under way is under way no more: its calls, its waits, its children."""
    await cancel_waits(tx, run)
    for call in await tx.find(store.OPEN_CALLS, run_id=run.id, step=run.step):
        await settle_call(tx, run, call, "canceled", error=reason)
    await _stop_under(tx, run, reason)


async def _stop_under(tx: Transaction, run: Run, reason: str) -> None:
    for child in await tree_of(tx, run):
        if child.id != run.id and child.status not in ENDED:
            await _stop(tx, await store.locked_run(tx, child.id), reason)


async def _stop(tx: Transaction, run: Run, reason: str) -> Run:
    """One run of a tree that is stopped as a whole: nobody needs to be told but its own task."""
    if run.status in ENDED:
        return run
    await cancel_waits(tx, run)
    for call in await tx.find(store.OPEN_CALLS, run_id=run.id, step=run.step):
        await settle_call(tx, run, call, "canceled", error=reason)
    ended = await move_run(tx, run, "canceled", error=reason, ended_at=tx.now)
    point("stop.half")
    tx.wake(STOPPED)
    tx.wake(ended_topic(run.id))
    await cancel_timer(tx, DEADLINE, run.id)
    await leave_queue(tx, run)
    await move_task(tx, ended, "failed", error=reason)
    return ended


async def _tell_parent(tx: Transaction, run: Run, task: Task | None) -> None:
    """A parent that waits gets the result of its call; one that went on hears of it in a message, which wakes it."""
    parent = await tx.get(Run, run.parent_run_id or "")
    if parent is None or parent.status in ("failed", "canceled"):
        return
    if await answer_child(tx, parent, run, TASK_END[run.status], run.result, run.error):
        return
    if task is None:
        return
    what = f"failed: {run.error}" if run.error is not None else f"is done: {log.as_text(run.result)}"
    whole = await log.kept(tx, f"[task {task.id}, {task.name}] {what}")
    pos = await store.advance(tx, parent.id, 1)
    # named after the task and how often it has ended, so that it is one message per completion
    await log.say(tx, parent, pos, "user", whole.content, parts=whole.parts, name=f"task:{task.id}:{task.completions}")
    if parent.status == "completed":
        await wake(tx, parent)


async def cancel_run(tx: Transaction, run_id: str, reason: str = "canceled") -> Run:
    """Stop a run and everything under it. One that is over already stays as it is, and what it left at work ends."""
    run = await tx.get(Run, run_id)
    if run is None:
        raise NotFound(f"no run {run_id}")
    reason = sound(reason)
    await lock_with_parent(tx, run)
    run = await store.locked_run(tx, run_id)
    tx.wake(STOPPED)
    if run.status not in ENDED:
        return await end_run(tx, run, "canceled", error=reason)
    await _stop_under(tx, run, reason)
    return run


async def fail_run(tx: Transaction, run_id: str, reason: str) -> Run:
    """End a run with a reason."""
    run = await tx.get(Run, run_id)
    if run is None:
        raise NotFound(f"no run {run_id}")
    await lock_with_parent(tx, run)
    run = await store.locked_run(tx, run_id)
    tx.wake(STOPPED)
    return run if run.status in ENDED else await end_run(tx, run, "failed", error=reason)


async def pass_deadline(tx: Transaction, timer: Timer) -> None:
    """The effect of the deadline's timer."""
    run = await tx.get(Run, timer.id)
    if run is not None and run.status not in ENDED:
        given_ms = run.deadline - (run.started_at or run.created_at)
        if run.executor == "engine":
            given_ms = (await limits_of(tx, run)).deadline_ms
        await fail_run(tx, run.id, f"deadline: it was not done within {given_ms / 1000:g} s")
