"""What may be done with runs: start, end, cancel, speak to one, wake one up. One unit of work each.

Task and run move together, in one transaction. Whoever writes to a run holds its head locked: first the space where one is
concerned, then runs by their ids (a parent's is lower than its child's), then the tenant's head.
"""

import msgspec

from stigmergy.agents import store as agents
from stigmergy.agents.model import Definition, Limits, entity_of
from stigmergy.agents.store import Pinned
from stigmergy.errors import Conflict, Invalid
from stigmergy.kernel.faults import point
from stigmergy.kernel.leases import enqueue, withdraw
from stigmergy.kernel.timers import set_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import log, store
from stigmergy.runs.model import (
    RUN_TRANSITIONS,
    TASK_TRANSITIONS,
    Cause,
    JsonObject,
    Run,
    RunMessage,
    RunStatus,
    Task,
    TaskStatus,
    check_transition,
)
from stigmergy.runs.texts import check_sound
from stigmergy.telemetry import traceparent

DEADLINE = "run.deadline"
LONGEST_INSTRUCTION = 1 << 20
# The version of an agent that is executed outside and has no definition here.
UNDEFINED = 0


class LimitReached(Conflict):
    """A limit of the agent or of its run is used up."""

    code = "limit_reached"


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is started with. `cause_key` makes it one run, however often it is asked for."""

    agent: str
    owner_id: str
    space_id: str
    instruction: str | None = None
    active_space_id: str | None = None
    cause: Cause = Cause("api")
    cause_key: str | None = None
    parent: Run | None = None
    task: Task | None = None
    assembly: str | None = None
    metadata: JsonObject = msgspec.field(default_factory=JsonObject)
    id: str | None = None


async def start_run(tx: Transaction, start: Start) -> Run:
    """Put a run into the queue. The same cause gets the run that it started before."""
    before = await started_before(tx, start.cause_key)
    if before is not None:
        return before
    record = await agents.named(tx, start.agent)
    pinned = Pinned(record.definition, record.version, record.tenant != tx.tenant, record.queue)
    return await open_run(tx, start, pinned)


async def started_before(tx: Transaction, cause_key: str | None) -> Run | None:
    """The run that a cause has started already."""
    found = [] if cause_key is None else await tx.find(store.OF_CAUSE, cause_key=cause_key)
    return found[0] if found else None


async def open_run(tx: Transaction, start: Start, pinned: Pinned) -> Run:
    """A run with the first messages of its log, as a definition says."""
    check_sound(start.instruction or "", "instruction")
    if start.instruction is not None and len(start.instruction) > LONGEST_INSTRUCTION:
        raise Invalid(f"an instruction has at most {LONGEST_INSTRUCTION:,} characters; put the rest into a block", "instruction")
    definition = pinned.definition
    nesting = 0 if start.parent is None else start.parent.nesting + 1
    if start.parent is not None and nesting > definition.limits.nesting:
        raise LimitReached(
            f"{nesting} runs inside one another are more than the {definition.limits.nesting} that {start.agent} may be"
        )
    id = start.id or tx.new_id()
    cause, trace = start.cause, traceparent()
    run = await tx.insert(
        Run(
            id=id,
            owner_id=start.owner_id,
            space_id=start.space_id,
            agent=start.agent,
            agent_version=pinned.version,
            agent_shared=pinned.shared,
            entity_id=entity_of(start.agent),
            task_id=None if start.task is None else start.task.id,
            parent_run_id=None if start.parent is None else start.parent.id,
            root_id=id if start.parent is None else start.parent.root_id,
            nesting=nesting,
            depth=tx.depth if start.parent is None else start.parent.depth + 1,
            cause=cause if trace is None else msgspec.structs.replace(cause, traceparent=trace),
            cause_key=start.cause_key,
            max_steps=definition.limits.max_steps,
            active_space_id=start.active_space_id,
            assembly=start.assembly,
            metadata=start.metadata,
            executor=definition.executor,
            deadline=tx.now + definition.limits.deadline_ms,
        )
    )
    point("start.half")
    await _open(tx, run, definition, pinned.queue, start.instruction)
    return run


async def _open(tx: Transaction, run: Run, definition: Definition, queue: str, instruction: str | None) -> None:
    """The log's first messages, the deadline, and the place in the queue."""
    said = [("system", definition.instructions)] if definition.instructions else []
    said += [("user", instruction)] if instruction is not None else []
    for pos, (role, text) in enumerate(said, 1):
        whole = await log.kept(tx, text)
        await log.say(
            tx, run, pos, "system" if role == "system" else "user", whole.content, parts=whole.parts, model=definition.model
        )
    await tx.run(store.ADD_HEAD, run_id=run.id, pos=len(said), agent=run.agent, queue=queue)
    await set_timer(tx, DEADLINE, run.id, run.deadline)
    if run.executor == "engine":
        await enqueue(tx, queue, run.id)


async def hear(tx: Transaction, run_id: str, text: str, *, name: str | None = None, wakes: bool = True) -> RunMessage:
    """Say something to a run as its user. A completed one goes on with it; one that waits or works finds it at its next step."""
    check_sound(text, "text")
    run = await store.locked_run(tx, run_id)
    if run.status in ("failed", "canceled"):
        check_transition(RUN_TRANSITIONS, f"run {run.id}", run.status, "running")
    whole = await log.kept(tx, text)
    pos = await store.advance(tx, run.id, 1)
    message = await log.say(tx, run, pos, "user", whole.content, parts=whole.parts, name=name)
    if run.status == "completed" and wakes:
        await wake(tx, run)
    return message


async def wake(tx: Transaction, run: Run) -> Run:
    """Let a completed run go on, with a new deadline and as many steps again. Its task is running again with it."""
    check_transition(RUN_TRANSITIONS, f"run {run.id}", run.status, "running")
    limits = await limits_of(tx, run)
    deadline = tx.now + limits.deadline_ms
    run = await tx.update(
        run, status="running", deadline=deadline, max_steps=run.step + limits.max_steps, result=None, ended_at=None
    )
    point("wake.half")
    await move_task(tx, run, "running", result=None)
    await set_timer(tx, DEADLINE, run.id, deadline)
    await make_ready(tx, run)
    return run


async def limits_of(tx: Transaction, run: Run) -> Limits:
    """What its definition says, or what holds for a run outside whose agent has none here."""
    if run.agent_version == UNDEFINED:
        return Limits()
    return (await agents.pinned(tx, run.agent, run.agent_version, shared=run.agent_shared)).limits


async def make_ready(tx: Transaction, run: Run) -> None:
    """Have a worker go on with a run. One that is executed outside is told nothing: who executes it has triggers."""
    if run.executor == "external":
        return
    head = await store.lock_head(tx, run.id)
    await enqueue(tx, head.queue, run.id)


async def move_task(tx: Transaction, run: Run, status: TaskStatus, **fields: object) -> Task | None:
    """Bring the task of a run to where the run is, if it is not there."""
    if run.task_id is None:
        return None
    task = await tx.lock(Task, run.task_id)
    if task is None or task.status == status:
        return task
    check_transition(TASK_TRANSITIONS, f"task {task.id}", task.status, status)
    over = status in ("success", "failed")
    return await tx.update(task, status=status, completions=task.completions + over, **fields)


async def move_run(tx: Transaction, run: Run, status: RunStatus, **fields: object) -> Run:
    """A transition of a run, and nothing else."""
    check_transition(RUN_TRANSITIONS, f"run {run.id}", run.status, status)
    return await tx.update(run, status=status, **fields)


async def leave_queue(tx: Transaction, run: Run) -> None:
    """Nobody works on it from now on, and another run of its agent may begin."""
    head = await store.lock_head(tx, run.id)
    await withdraw(tx, head.queue, run.id)
    await make_room(tx, run.id, run.agent)


async def make_room(tx: Transaction, run_id: str, agent: str) -> None:
    """A run does not count any longer against what its agent may do at once: the next that waits for that is ready."""
    await tx.run(store.MARK, run_id=run_id, active=False, parked=False)
    for next_id, queue in await tx.rows(store.PARKED, agent=agent):
        await tx.run(store.MARK, run_id=next_id, active=False, parked=False)
        await enqueue(tx, queue, next_id)


async def lock_with_parent(tx: Transaction, run: Run) -> None:
    """Before a run may end: its parent hears of it, and is locked first."""
    if run.parent_run_id is not None:
        await store.lock_head(tx, run.parent_run_id)


async def tree_of(tx: Transaction, run: Run) -> list[Run]:
    """A run and everything under it, parents first."""
    found = await tx.find(store.OF_TREE, root_id=run.root_id)
    inside = {run.id}
    for each in found:
        if each.parent_run_id in inside:
            inside.add(each.id)
    return [each for each in found if each.id in inside]
