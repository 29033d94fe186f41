"""What programs outside do with the tasks and runs that are theirs to execute (`executor: external`).

The engine leaves these alone: no worker claims them, nothing resumes them but what is said here. What they write goes the ways of
the engine's own: the same transitions, the same positions of the log, task and run in one transaction, the deadline, the parent
that is told. Each function is one unit of work; `if_match` is the version that the caller has seen.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from stigmergy.agents.checking import check_definition
from stigmergy.agents.model import Definition
from stigmergy.agents.store import Pinned, UnknownAgent, named
from stigmergy.agents.tokens import count_tokens
from stigmergy.errors import Conflict, Invalid, NotFound, VersionConflict
from stigmergy.kernel.timers import Timer, cancel_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import log, store
from stigmergy.runs.commands import (
    UNDEFINED,
    LimitReached,
    Start,
    hear,
    lock_with_parent,
    move_run,
    move_task,
    open_run,
    wake,
)
from stigmergy.runs.delegation import TASK_DEADLINE, agent_of
from stigmergy.runs.endings import end_run
from stigmergy.runs.model import (
    CALL_TRANSITIONS,
    ENDED,
    RUN_TRANSITIONS,
    SUB_AGENT_STATUS,
    TASK_TRANSITIONS,
    CallStatus,
    Cause,
    JsonObject,
    Role,
    Run,
    RunMessage,
    RunStatus,
    Task,
    TaskStatus,
    ToolCall,
    Usage,
    check_transition,
)
from stigmergy.runs.settling import proceed, settle_call
from stigmergy.runs.steps import NewCall, checkpoint, open_call

# The queue that no worker claims from.
NOWHERE = "external"
OVER: frozenset[TaskStatus] = frozenset({"success", "failed"})
# Where the run of a task goes when the task is moved.
RUN_OF_TASK: dict[TaskStatus, RunStatus] = {
    "running": "running",
    "waiting": "waiting_reply",
    "success": "completed",
    "failed": "failed",
}


class NotExternal(Conflict):
    """This run is worked on by the engine, not by a program outside."""

    code = "not_external"


class TakeUp(msgspec.Struct, frozen=True, kw_only=True):
    """A run for a task. Instructions and limits are those of the agent's definition where there is one and they are not given."""

    task_id: str
    id: str | None = None
    instructions: str | None = None
    max_steps: int | None = None
    deadline_ms: int | None = None
    metadata: JsonObject = msgspec.field(default_factory=JsonObject)


class Taken(NamedTuple):
    run: Run
    created: bool


class Outcome(NamedTuple):
    """Where a task, a run or a call goes, and what came of it."""

    status: Any = None
    result: Any = None
    error: str | None = None


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the log of a run. An assistant's is a step, with the calls that it asks for."""

    role: Role
    content: str
    name: str | None = None
    tool_call_id: str | None = None
    calls: Sequence[NewCall] = ()
    model: str | None = None
    usage: Usage | None = None


# ---- tasks ----


async def take_up(tx: Transaction, wanted: TakeUp) -> Taken:
    """Begin a task: its run, with one system and one user message, and the task running, at once. Asked again, the run it has."""
    task = await tx.lock(Task, wanted.task_id)
    if task is None:
        raise NotFound(f"no task {wanted.task_id}")
    _check_external(f"task {task.id}", task.executor)
    if task.run_id is not None:
        return Taken(await _claimed(tx, task.run_id), False)
    check_transition(TASK_TRANSITIONS, f"task {task.id}", task.status, "running")
    start = Start(
        id=wanted.id,
        agent=agent_of(task.name),
        instruction=task.instruction,
        owner_id=task.owner_id,
        space_id=task.space_id,
        cause=Cause("external", message_id=task.trigger_message_id),
        cause_key=f"task:{task.id}",
        parent=None if task.parent_run_id is None else await store.the_run(tx, task.parent_run_id),
        task=task,
        metadata=wanted.metadata,
    )
    run = await open_run(tx, start, await _pinned(tx, start.agent, wanted))
    await tx.update(task, run_id=run.id, status="running")
    await cancel_timer(tx, TASK_DEADLINE, task.id)
    return Taken(await move_run(tx, run, "running", attempts=1, started_at=tx.now), True)


async def _claimed(tx: Transaction, run_id: str) -> Run:
    """The run that a task has. One that was started for an agent outside is begun by whoever comes for it first."""
    run = await store.locked_run(tx, run_id)
    return await move_run(tx, run, "running", attempts=1, started_at=tx.now) if run.status == "queued" else run


async def _pinned(tx: Transaction, agent: str, wanted: TakeUp) -> Pinned:
    try:
        record = await named(tx, agent)
        definition, version, shared = record.definition, record.version, record.tenant != tx.tenant
    except UnknownAgent:
        definition, version, shared = check_definition(Definition(name=agent, model=NOWHERE)), UNDEFINED, False
    given = {"max_steps": wanted.max_steps, "deadline_ms": wanted.deadline_ms}
    limits = msgspec.structs.replace(definition.limits, **{name: value for name, value in given.items() if value is not None})
    instructions = definition.instructions if wanted.instructions is None else wanted.instructions
    definition = msgspec.structs.replace(definition, executor="external", limits=limits, instructions=instructions)
    return Pinned(definition, version, shared, NOWHERE)


async def change_task(tx: Transaction, id: str, outcome: Outcome, *, if_match: int | None = None) -> Task:
    """Move a task, and its run with it; or, without a status, put the result of one that is over right."""
    seen = await tx.get(Task, id)
    if seen is None:
        raise NotFound(f"no task {id}")
    _check_external(f"task {id}", seen.executor)
    run = None if seen.run_id is None else await _locked(tx, seen.run_id, ends=True)
    task = await tx.lock(Task, id)
    assert task is not None
    _check_version(f"task {id}", task.version, if_match)
    if task.run_id != seen.run_id:
        raise VersionConflict(f"task {id} has been taken up meanwhile; read it again and repeat")
    if outcome.status is None:
        _check_outcome(outcome, task.status)
        return await tx.update(task, result=outcome.result, error=outcome.error)
    check_transition(TASK_TRANSITIONS, f"task {id}", task.status, outcome.status)
    _check_outcome(outcome, outcome.status)
    if run is not None:
        await _move(tx, run, Outcome(RUN_OF_TASK[outcome.status], outcome.result, outcome.error))
        return await tx.get(Task, id) or task
    return await _move_alone(tx, task, outcome)


async def _move_alone(tx: Transaction, task: Task, outcome: Outcome) -> Task:
    """A task that its executor does without a run."""
    over = outcome.status in OVER
    if over:
        await cancel_timer(tx, TASK_DEADLINE, task.id)
    return await tx.update(
        task, status=outcome.status, result=outcome.result, error=outcome.error, completions=task.completions + over
    )


async def pass_task_deadline(tx: Transaction, timer: Timer) -> None:
    """The effect of the timer of a task that nobody took up, or that is done without a run."""
    task = await tx.lock(Task, timer.id)
    if task is not None and task.run_id is None and task.status not in OVER:
        seconds = (tx.now - task.created_at) / 1000
        await _move_alone(tx, task, Outcome("failed", error=f"deadline: nobody was done with it within {seconds:g} s"))


# ---- runs ----


async def change_run(tx: Transaction, id: str, outcome: Outcome, *, if_match: int | None = None) -> Run:
    """Move a run, and its task with it. `active` and `waiting_for_user` are accepted for `running` and `waiting_reply`."""
    status = {"active": "running", "waiting_for_user": "waiting_reply"}.get(outcome.status, outcome.status)
    run = await _locked(tx, id, ends=True)
    _check_version(f"run {id}", run.version, if_match)
    return await _move(tx, run, outcome._replace(status=status))


async def _move(tx: Transaction, run: Run, outcome: Outcome) -> Run:
    """The caller has locked the run, and its parent before it."""
    status: RunStatus = outcome.status
    check_transition(RUN_TRANSITIONS, f"run {run.id}", run.status, status)
    _check_outcome(outcome, "success" if status == "completed" else status)
    if status in ENDED:
        error = outcome.error or ("canceled" if status == "canceled" else None)
        return await end_run(tx, run, status, result=outcome.result, error=error)
    if run.status == "completed":
        return await wake(tx, run)
    first = {"attempts": 1, "started_at": tx.now} if run.status == "queued" else {}
    run = await move_run(tx, run, status, **first)
    await move_task(tx, run, "waiting" if status == "waiting_reply" else "running")
    return run


async def speak(tx: Transaction, run_id: str, spoken: Spoken, *, if_match: int | None = None) -> RunMessage:
    """Put a message into the log. A user's answers a run that waits for one and wakes a completed one; an assistant's is a step,
    which changes the run's version, so that of two who think the same thought one is refused; a tool's settles its call."""
    run = await _locked(tx, run_id)
    _check_version(f"run {run_id}", run.version, if_match)
    if spoken.role != "assistant" and spoken.calls:
        raise Invalid("only an assistant asks for tools", "tool_calls")
    if spoken.role == "tool":
        return await _answer_call(tx, run, spoken)
    if spoken.tool_call_id is not None:
        raise Invalid("only a message of the role `tool` answers a call", "tool_call_id")
    if spoken.role == "assistant":
        return await _step(tx, run, spoken)
    if spoken.role == "user":
        message = await hear(tx, run_id, spoken.content, name=spoken.name)
        if run.status == "waiting_reply":
            await _move(tx, run, Outcome("running"))
        return message
    _check_live(run)
    whole = await log.kept(tx, spoken.content)
    pos = await store.advance(tx, run_id, 1)
    return await log.say(tx, run, pos, spoken.role, whole.content, name=spoken.name, parts=whole.parts)


async def _step(tx: Transaction, run: Run, spoken: Spoken) -> RunMessage:
    if run.status != "running":
        check_transition(RUN_TRANSITIONS, f"run {run.id}", run.status, "running")
        raise Conflict(f"run {run.id} is {run.status}; move it to running before it goes on")
    if run.step >= run.max_steps:
        raise LimitReached(f"run {run.id} has made its {run.max_steps} steps; end it, as completed or as failed")
    number = run.step + 1
    whole = await log.kept(tx, spoken.content)
    first = await store.advance(tx, run.id, 1 + len(spoken.calls))
    message = await tx.insert(
        RunMessage(
            run_id=run.id,
            pos=first,
            owner_id=run.owner_id,
            space_id=run.space_id,
            step=number,
            role="assistant",
            content=whole.content,
            parts=whole.parts,
            name=spoken.name,
            token_count=count_tokens(whole.content, spoken.model or ""),
            model=spoken.model,
            usage=spoken.usage,
        )
    )
    for place, call in enumerate(spoken.calls, 1):
        await open_call(tx, run, first + place, number, call)
    used = 0 if spoken.usage is None else spoken.usage.input_tokens + spoken.usage.output_tokens
    after = await tx.update(run, step=number, tokens_used=run.tokens_used + used)
    await checkpoint(tx, after, "step_complete", pos=first + len(spoken.calls))
    return message


async def _answer_call(tx: Transaction, run: Run, spoken: Spoken) -> RunMessage:
    if spoken.tool_call_id is None:
        raise Invalid("name the call that this is the result of", "tool_call_id")
    call = await _call(tx, run.id, spoken.tool_call_id)
    settled = await settle_call(tx, run, call, "success", result=spoken.content)
    await _go_on(tx, run, call)
    return settled.message


# ---- tool calls ----


async def add_call(tx: Transaction, run_id: str, call: NewCall) -> ToolCall:
    """Open one more call of the run's last step."""
    run = await _locked(tx, run_id)
    _check_live(run)
    return await open_call(tx, run, await store.advance(tx, run_id, 1), run.step, call)


async def change_call(
    tx: Transaction,
    run_id: str,
    id: str,
    outcome: Outcome,
    *,
    duration_ms: int | None = None,
    if_match: int | None = None,
) -> ToolCall:
    """Begin a call, or settle it: with the message of its result, in one unit."""
    run = await _locked(tx, run_id)
    call = await _call(tx, run_id, id)
    _check_version(f"tool call {id}", call.version, if_match)
    status: CallStatus = outcome.status
    check_transition(CALL_TRANSITIONS, f"tool call {id}", call.status, status)
    _check_outcome(outcome, status)
    if status == "running":
        return await tx.update(call, status="running", attempts=call.attempts + 1)
    error = outcome.error or ("canceled" if status == "canceled" else None)
    settled = await settle_call(tx, run, call, status, result=outcome.result, error=error, duration_ms=duration_ms)
    await _go_on(tx, run, call)
    return settled.call


async def _go_on(tx: Transaction, run: Run, call: ToolCall) -> None:
    """A run that waited for its tools has them all."""
    if run.status == "waiting_tool":
        await proceed(tx, run, call.step)


async def _call(tx: Transaction, run_id: str, id: str) -> ToolCall:
    call = await tx.get(ToolCall, run_id, id)
    if call is None:
        raise NotFound(f"run {run_id} has no tool call {id}")
    return call


# ---- what all of these ask first ----


async def _locked(tx: Transaction, run_id: str, *, ends: bool = False) -> Run:
    """A run outside, locked; before it its parent, where it may end."""
    if ends:
        await lock_with_parent(tx, await store.the_run(tx, run_id))
    run = await store.locked_run(tx, run_id)
    _check_external(f"run {run_id}", run.executor)
    return run


def _check_external(what: str, executor: str) -> None:
    if executor != "external":
        raise NotExternal(f"{what} is the engine's to execute; it may be cancelled, and its own tools and questions answered")


def _check_version(what: str, version: int, if_match: int | None) -> None:
    if if_match is not None and version != if_match:
        raise VersionConflict(f"{what} is at version {version}, not {if_match}; read it again and repeat")


def _check_live(run: Run) -> None:
    if run.status in ENDED:
        raise Conflict(f"run {run.id} is {run.status}; nothing is added to it. A user's message wakes a completed one")


def _check_outcome(outcome: Outcome, status: str) -> None:
    if outcome.result is not None and status != "success":
        raise Invalid("a result goes with what was a success", "result")
    if outcome.error is not None and status not in ("failed", "canceled"):
        raise Invalid("an error goes with what has failed", "error")
    if status == "failed" and not outcome.error:
        raise Invalid("say why it failed", "error")


def sub_agent_status(run: Run) -> str:
    """A run's status in the four words of other programs."""
    return SUB_AGENT_STATUS[run.status]
