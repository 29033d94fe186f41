"""What comes of a tool call: its result in the log, and whether the run can go on. The caller has locked the run's head."""

from collections.abc import Sequence
from typing import Any

import msgspec

from stigmergy.agents.models.port import Image
from stigmergy.kernel.faults import point
from stigmergy.kernel.timers import cancel_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import log, store
from stigmergy.runs.commands import make_ready, move_run, move_task
from stigmergy.runs.model import CALL_TRANSITIONS, WAITING, CallStatus, JsonObject, Run, RunMessage, ToolCall, check_transition
from stigmergy.runs.texts import sound

WAIT = "run.wait"


class Settled(msgspec.Struct, frozen=True):
    """A call with its result, and the message that the model reads of it."""

    call: ToolCall
    message: RunMessage


async def settle_call(
    tx: Transaction,
    run: Run,
    call: ToolCall,
    status: CallStatus,
    *,
    result: Any = None,
    error: str | None = None,
    duration_ms: int | None = None,
    model: str = "",
    images: Sequence[Image] = (),
    pos: int | None = None,
) -> Settled:
    """Record what came of a call, and what the model is told of it; at a position and the next, if the caller took them."""
    check_transition(CALL_TRANSITIONS, f"tool call {call.id}", call.status, status)
    error = None if error is None else sound(error)
    text = f"error: {error}" if status != "success" else log.as_text(result)
    whole = await log.kept(tx, text)
    parts = [*(whole.parts or ()), *await log.pictured(tx, images)]
    if pos is None:
        pos = await store.advance(tx, run.id, 2)
    settled = await tx.update(
        call,
        status=status,
        result=whole.reference if whole.reference is not None and status == "success" else result,
        error=error,
        settled_pos=pos,
        duration_ms=duration_ms,
    )
    point("result.half")
    message = await log.say(
        tx,
        run,
        pos + 1,
        "tool",
        whole.content,
        step=call.step,
        name=call.tool_name,
        tool_call_id=call.id,
        parts=parts or None,
        model=model,
    )
    return Settled(settled, message)


async def proceed(tx: Transaction, run: Run, step: int) -> Run:
    """After somebody else than its worker settled a call: when it was the last of its step, the run goes on."""
    ((still_open,),) = await tx.rows(store.COUNT_OPEN, run_id=run.id, step=step)
    return run if still_open else await resume(tx, run)


async def resume(tx: Transaction, run: Run) -> Run:
    """What it waited for is there."""
    if run.status in WAITING:
        run = await move_run(tx, run, "running")
        await move_task(tx, run, "running")
        point("resume.half")
    await make_ready(tx, run)
    return run


async def end_timer(tx: Transaction, run_id: str, call_id: str) -> None:
    await cancel_timer(tx, WAIT, timer_id(run_id, call_id))


def timer_id(run_id: str, call_id: str) -> str:
    return f"{run_id}/{call_id}"


def child_result(status: str, task_id: str | None, run_id: str, result: Any, error: str | None) -> JsonObject:
    """What a parent sees of a child: its end, never its monologue."""
    seen: JsonObject = {"task_id": task_id, "run_id": run_id, "status": status}
    if error is not None:
        seen["error"] = error
    else:
        seen["result"] = result
    return seen
