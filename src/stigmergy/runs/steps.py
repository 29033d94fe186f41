"""What a worker writes: it begins a run, records a step whole, settles the step's calls, and lets go of the run to wait.

Each of these is one unit, begins with the lock on the run's head, and is refused when the worker is not the run's any more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stigmergy.agents import store as agents
from stigmergy.agents.model import Definition, Execution, OutputSpec, Visibility
from stigmergy.agents.models.port import Image
from stigmergy.kernel.blocks import put_block
from stigmergy.kernel.faults import point
from stigmergy.kernel.leases import Claim, finish, hold, release
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs import log, store
from stigmergy.runs.answering import write_answer
from stigmergy.runs.commands import lock_with_parent, make_room, move_run, move_task
from stigmergy.runs.endings import end_run
from stigmergy.runs.model import (
    ENDED,
    WAITING,
    CallStatus,
    Checkpoint,
    CheckpointReason,
    JsonObject,
    Run,
    RunMessage,
    RunStatus,
    StepPrompt,
    Thought,
    ThoughtType,
    ToolCall,
    Usage,
    Wait,
)
from stigmergy.runs.settling import Settled, settle_call
from stigmergy.runs.texts import sound
from stigmergy.runs.tools import Acting, Refused, Unit, Waiting
from stigmergy.runs.waits import open_waits, pause_of, pauses_of

# The name of a message that is not a user's but the engine's, about an answer.
REMARK = "engine"
# The name of what a person said who was asked to approve.
PERSON = "approval"


class NewCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a step opens: begun with it, or waiting for approval."""

    id: str
    tool_name: str
    args: Any
    execution_type: Execution
    visibility: Visibility
    begun: bool = True
    approval: Waiting | None = None


class NewThought(msgspec.Struct, frozen=True, kw_only=True):
    type: ThoughtType
    content: str
    confidence: float | None = None
    reasoning: str | None = None
    metadata: JsonObject | None = None


class Ending(NamedTuple):
    """How a run ends with a step."""

    status: RunStatus
    result: Any = None
    error: str | None = None
    output: OutputSpec | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one model call brought, written in one transaction or not at all. `remark` is what the model is told
    of an answer that will not do."""

    text: str
    tokens: int
    prompt: StepPrompt
    usage: Usage
    thoughts: Sequence[NewThought] = ()
    calls: Sequence[NewCall] = ()
    blocks: Mapping[str, bytes] = msgspec.field(default_factory=dict[str, bytes])
    stream_id: str | None = None
    model: str | None = None
    ending: Ending | None = None
    pause: Waiting | None = None
    checkpoint: CheckpointReason | None = "step_complete"
    metadata: JsonObject | None = None
    remark: str | None = None
    kept: JsonObject | None = None


class Written(msgspec.Struct, frozen=True):
    """A step as it stands in the store. `gap`: somebody else wrote to the log since the prompt was made."""

    run: Run
    message: RunMessage
    calls: list[ToolCall]
    remark: RunMessage | None
    pos: int
    gap: bool


class Loaded(msgspec.Struct, frozen=True):
    """A run as its worker needs it: the end of its log, the calls in there, what it waits for, and what it is."""

    run: Run
    definition: Definition
    messages: list[RunMessage]
    calls: list[ToolCall]
    waits: list[Wait]
    pos: int


async def begin(tx: Transaction, worker: str, claim: Claim) -> Loaded | None:
    """Take up a run that was claimed. None when there is nothing to do, or when its agent does as much as it may already."""
    head = await store.lock_head(tx, claim.id)
    await hold(tx, worker, claim)
    run = await tx.get(Run, claim.id)
    if run is None or run.status in ENDED:
        await finish(tx, worker, claim)
        return None
    definition = await agents.pinned(tx, run.agent, run.agent_version, shared=run.agent_shared)
    if not head.active:
        if not await _has_room(tx, run, definition):
            await tx.run(store.MARK, run_id=run.id, active=False, parked=True)
            await finish(tx, worker, claim)
            return None
        await tx.run(store.MARK, run_id=run.id, active=True, parked=False)
    if run.status == "queued":
        run = await move_run(tx, run, "running", attempts=1, started_at=tx.now)
        point("begin.half")
        await move_task(tx, run, "running")
    elif head.active:  # whoever had it is gone in the middle of something
        run = await tx.update(run, attempts=run.attempts + 1)
    elif run.status in WAITING:  # an answer came while it was still in hand, before it waited for the next one
        run = await move_run(tx, run, "running")
        await move_task(tx, run, "running")
    return await load(tx, run, definition, head.pos)


async def _has_room(tx: Transaction, run: Run, definition: Definition) -> bool:
    """Whether its agent may do one more run at once."""
    await tx.rows(store.LOCK_AGENT, agent=run.agent)
    ((active,),) = await tx.rows(store.ACTIVE, agent=run.agent, run_id=run.id)
    most = definition.limits.concurrent_runs
    return active < most or len(await tx.rows(store.LOCK_ACTIVE, agent=run.agent, run_id=run.id)) < most


async def load(tx: Snapshot, run: Run, definition: Definition, pos: int) -> Loaded:
    messages = await tx.find(store.LAST_MESSAGES, run_id=run.id, after=0, upto=pos, limit=definition.window + 1)
    messages.reverse()
    if run.step and not any(message.role == "assistant" and message.step == run.step for message in messages):
        messages = await _last_step(tx, run, pos)
    first_step = min((message.step for message in messages if message.role != "system"), default=0)
    calls = await tx.find(store.CALLS_FROM, run_id=run.id, step=first_step) if run.step else []
    waits: list[Wait] = []
    if run.step or run.attempts:
        pause, before = pauses_of(run.step)
        waits = await tx.find(store.WAITS_OF_STEP, run_id=run.id, step=run.step, pause=pause, before=before)
    if messages and messages[0].role != "system" and messages[0].pos > 1:
        messages[:0] = await tx.find(store.SYSTEM_MESSAGE, run_id=run.id)
    return Loaded(run, definition, messages, calls, waits, pos)


async def _last_step(tx: Snapshot, run: Run, upto: int) -> list[RunMessage]:
    """The log from the last thing that the assistant said on, with what was said to it meanwhile: no window is smaller."""
    (assistant,) = await tx.find(store.OF_STEP, run_id=run.id, step=run.step)
    seen = assistant.pos - 1 if assistant.prompt is None else assistant.prompt.upto
    return await tx.find(store.MESSAGES_FROM, run_id=run.id, after=seen, upto=upto, limit=upto - seen)


async def reload(tx: Snapshot, run_id: str, definition: Definition) -> Loaded:
    """The run as it is now, for the worker that has it."""
    run = await store.the_run(tx, run_id)
    ((pos,),) = await tx.rows(store.POSITION, run_id=run_id)
    return await load(tx, run, definition, pos)


async def write_step(tx: Transaction, worker: str, claim: Claim, run: Run, step: Step, known: int) -> Written:
    """The assistant's message, its thoughts and calls, the checkpoint, what it cost, and where the run is now."""
    if step.ending is not None:
        await lock_with_parent(tx, run)
    taken = len(step.thoughts) + 1 + len(step.calls) + (step.remark is not None)
    first = await store.advance_held(tx, worker, claim, taken)
    number = run.step + 1
    for hash_, body in step.blocks.items():
        if await put_block(tx, body, "text/plain") != hash_:
            raise AssertionError("a block is kept under the hash of its body")
    pos = first
    for thought in step.thoughts:
        await _think(tx, run, pos, number, thought)
        pos += 1
    message = await tx.insert(
        RunMessage(
            run_id=run.id,
            pos=pos,
            owner_id=run.owner_id,
            space_id=run.space_id,
            step=number,
            role="assistant",
            content=step.text,
            token_count=step.tokens,
            stream_id=step.stream_id,
            model=step.model,
            prompt=step.prompt,
            usage=step.usage,
            kept=step.kept,
        )
    )
    point("step.half")
    calls = [await open_call(tx, run, pos + place, number, call) for place, call in enumerate(step.calls, 1)]
    remark = None
    if step.remark is not None:
        remark = await log.say(tx, run, first + taken - 1, "user", step.remark, step=number, name=REMARK)
    gap = first != known + 1
    after = await _after(tx, run, number, step, heard=gap and await _heard(tx, run.id, step.prompt.upto))
    if step.checkpoint is not None:
        await checkpoint(tx, after, step.checkpoint, pos=first + taken - 1)
    if step.pause is not None:
        await open_waits(tx, after, pause_of(number), step.pause)
    return Written(after, message, calls, remark, first + taken - 1, gap)


async def _after(tx: Transaction, run: Run, number: int, step: Step, *, heard: bool) -> Run:
    """The run after the step. What was said to it while it thought its last thought is not lost: then it goes on."""
    used = step.usage.input_tokens + step.usage.output_tokens
    cost = run.cost if step.usage.cost is None else (run.cost or 0.0) + step.usage.cost
    fields: dict[str, Any] = {"step": number, "tokens_used": run.tokens_used + used, "cost": cost}
    if step.metadata is not None:
        fields["metadata"] = step.metadata
    run = await tx.update(run, **fields)
    if step.ending is None or (heard and step.ending.status == "completed"):
        return run
    return await _end(tx, run, step.ending)


async def _end(tx: Transaction, run: Run, ending: Ending) -> Run:
    """The run's end, and its answer as the breadcrumb that its agent makes of answers."""
    if ending.status == "completed" and ending.output is not None:
        await write_answer(tx, run, ending.output, ending.result)
    return await end_run(tx, run, ending.status, result=ending.result, error=ending.error)


async def _heard(tx: Transaction, run_id: str, upto: int) -> bool:
    return bool(await tx.rows(store.HEARD_SINCE, run_id=run_id, after=upto))


async def _think(tx: Transaction, run: Run, pos: int, step: int, thought: NewThought) -> Thought:
    return await tx.insert(
        Thought(
            run_id=run.id,
            pos=pos,
            step=step,
            type=thought.type,
            content=sound(thought.content),
            reasoning=thought.reasoning,
            confidence=thought.confidence,
            metadata=thought.metadata,
        )
    )


async def open_call(tx: Transaction, run: Run, pos: int, step: int, call: NewCall) -> ToolCall:
    """Put a call into the log of a run that the caller has locked, at a position that it took."""
    opened = await tx.insert(
        ToolCall(
            run_id=run.id,
            id=call.id,
            owner_id=run.owner_id,
            space_id=run.space_id,
            opened_pos=pos,
            step=step,
            tool_name=call.tool_name,
            args=call.args,
            execution_type=call.execution_type,
            visibility=call.visibility,
            status="running" if call.begun else "pending",
            attempts=1 if call.begun else 0,
        )
    )
    if call.approval is not None:
        await open_waits(tx, run, call.id, call.approval)
    return opened


async def checkpoint(
    tx: Transaction, run: Run, reason: CheckpointReason, *, pos: int, name: str | None = None, description: str | None = None
) -> Checkpoint:
    """Mark this position of the log."""
    return await tx.insert(
        Checkpoint(
            id=tx.new_id(),
            run_id=run.id,
            pos=pos,
            step=run.step,
            reason=reason,
            tokens_used=run.tokens_used,
            duration_ms=max(0, tx.now - (run.started_at or tx.now)),
            name=name,
            description=description,
        )
    )


async def record_result(
    tx: Transaction,
    worker: str,
    claim: Claim,
    run: Run,
    call: ToolCall,
    status: CallStatus,
    *,
    result: Any = None,
    error: str | None = None,
    duration_ms: int | None = None,
    model: str = "",
    images: Sequence[Image] = (),
    mark_error: bool = False,
    pause: Waiting | None = None,
    thoughts: Sequence[NewThought] = (),
) -> Settled:
    """What came of a call that the worker made; with an error a checkpoint, and a pause when a person is to decide."""
    pos = await store.advance_held(tx, worker, claim, 2)
    settled = await settle_call(
        tx, run, call, status, result=result, error=error, duration_ms=duration_ms, model=model, images=images, pos=pos
    )
    if mark_error and status == "failed":
        await checkpoint(tx, run, "tool_error", pos=settled.message.pos)
    if pause is not None and not await tx.find(store.WAITS_OF_CALL, run_id=run.id, call_id=pause_of(call.step)):
        await open_waits(tx, run, pause_of(call.step), pause)
    for thought in thoughts:
        await think(tx, run, thought)
    return settled


class Called(msgspec.Struct, frozen=True):
    """What came of a call that is a unit of work: settled, or open until somebody answers. `run` is as the unit left it."""

    run: Run
    settled: Settled | None = None
    waits: list[Wait] = msgspec.field(default_factory=list[Wait])


async def call_builtin(
    tx: Transaction,
    worker: str,
    claim: Claim,
    definition: Definition,
    call: ToolCall,
    unit: Unit,
    args: JsonObject,
    *,
    thoughts: Sequence[NewThought] = (),
) -> Called:
    """A tool that writes, and what came of it, in one transaction. It locks what it hangs on itself, a space before runs."""
    acting = Acting(await store.the_run(tx, claim.id), definition, call)
    outcome = await unit(tx, acting, args)
    await store.lock_head(tx, claim.id)
    await hold(tx, worker, claim)
    run = await store.the_run(tx, claim.id)
    for thought in thoughts:
        await think(tx, run, thought)
    if isinstance(outcome, Waiting):
        waits = await open_waits(tx, run, call.id, outcome)
        return Called(run, None, waits)
    if isinstance(outcome, Refused):
        return Called(run, await settle_call(tx, run, call, "failed", error=outcome.error, model=definition.model))
    return Called(run, await settle_call(tx, run, call, "success", result=outcome.result, model=definition.model))


async def complete(tx: Transaction, worker: str, claim: Claim, run: Run, ending: Ending, known: int) -> Run:
    """The run has its answer from a tool or a person, with no more thinking; unless somebody spoke to it meanwhile."""
    await lock_with_parent(tx, run)
    now = await store.locked_run(tx, run.id)
    await hold(tx, worker, claim)
    if await _heard(tx, run.id, known):
        return now
    return await _end(tx, now, ending)


async def start_call(tx: Transaction, worker: str, claim: Claim, call: ToolCall, args: Any) -> ToolCall:
    """A call that was not begun with its step is begun now, or tried again: known before it runs."""
    await store.lock_head(tx, call.run_id)
    await hold(tx, worker, claim)
    return await tx.update(call, status="running", args=args, attempts=call.attempts + 1)


async def think(tx: Transaction, run: Run, thought: NewThought) -> Thought:
    """A thought that comes between steps: recorded with the `think` tool, or by a hook."""
    pos = await store.advance(tx, run.id, 1)
    return await _think(tx, run, pos, run.step, thought)


async def suspend(tx: Transaction, worker: str, claim: Claim) -> Run | None:
    """Let go of a run that waits. None when what it waited for came meanwhile: then it goes on at once."""
    run_id = claim.id
    await store.lock_head(tx, run_id)
    await hold(tx, worker, claim)
    run = await store.the_run(tx, run_id)
    waits = await tx.find(store.WAITS_OF_RUN, run_id=run_id)
    if not waits:
        return None
    ((still_open,),) = await tx.rows(store.COUNT_OPEN, run_id=run_id, step=run.step)
    if not still_open and not any(wait.call_id in pauses_of(run.step) for wait in waits):
        return None
    asks = any(wait.kind in ("reply", "approval") for wait in waits)
    run = await move_run(tx, run, "waiting_reply" if asks else "waiting_tool")
    point("suspend.half")
    if asks:
        await move_task(tx, run, "waiting")
    await finish(tx, worker, claim)
    await make_room(tx, run.id, run.agent)
    return run


async def stop(tx: Transaction, worker: str, claim: Claim, run: Run, ending: Ending, thoughts: Sequence[NewThought] = ()) -> Run:
    """End a run that cannot go on, or shall not."""
    await lock_with_parent(tx, run)
    now = await store.locked_run(tx, run.id)
    await hold(tx, worker, claim)
    if now.status in ENDED:
        return now
    for thought in thoughts:
        await think(tx, now, thought)
    return await end_run(tx, now, ending.status, error=ending.error)


async def ask(
    tx: Transaction, worker: str, claim: Claim, under: str, waiting: Waiting, thoughts: Sequence[NewThought] = ()
) -> list[Wait]:
    """Open a question that the run waits for."""
    run = await store.locked_run(tx, claim.id)
    await hold(tx, worker, claim)
    for thought in thoughts:
        await think(tx, run, thought)
    return await open_waits(tx, run, under, waiting)


async def hold_result(
    tx: Transaction, worker: str, claim: Claim, call: ToolCall, whole: bytes, waiting: Waiting, thoughts: Sequence[NewThought]
) -> list[Wait]:
    """A call was made, and somebody is to say whether its result may be seen: until then it is a block."""
    await put_block(tx, whole, "application/json")
    return await ask(tx, worker, claim, call.id, waiting, thoughts)


async def think_again(tx: Transaction, worker: str, claim: Claim, pause: Wait, reason: str, told: str) -> None:
    """A person wants a step thought over: what it wanted to call is not called, and the model hears why. Once."""
    run = await store.locked_run(tx, claim.id)
    await hold(tx, worker, claim)
    await tx.update(pause, details={**(pause.details or {}), "done": True})
    for call in await tx.find(store.OPEN_CALLS, run_id=run.id, step=run.step):
        await settle_call(tx, run, call, "canceled", error=reason)
    pos = await store.advance(tx, run.id, 1)
    await log.say(tx, run, pos, "user", told, name=PERSON)


async def give_back(tx: Transaction, worker: str, claim: Claim, *, after_ms: int = 0) -> None:
    """Let any worker go on with a run, now or later. Another of its agent may use the time."""
    head = await store.lock_head(tx, claim.id)
    await release(tx, worker, claim, tx.now + after_ms)
    await make_room(tx, claim.id, head.agent)
