"""Watching runs: everything that happens to a run and to those under it, in order, with the text of answers while it comes."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Literal, NamedTuple

import msgspec

from stigmergy.errors import NotFound, StigmergyError
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Follower, edges
from stigmergy.kernel.journal import Change
from stigmergy.kernel.transaction import Scope, Snapshot
from stigmergy.runs import store
from stigmergy.runs.endings import ended_topic
from stigmergy.runs.model import ENDED, Run, RunMessage, ToolCall, Wait, WaitKind
from stigmergy.runs.pieces import Piece, asking_topic, stream_topic

EventKind = Literal["status", "message", "call", "result", "wait", "text", "withdrawn"]
COLLECTIONS = ("runs", "run_messages", "run_tool_calls", "waits")
POLL_SECONDS = 2.0


class RunFailed(StigmergyError):
    """The run ended without an answer; the message is its reason."""

    code = "run_failed"
    status = 409


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened in a tree of runs. `seq` is its position in the journal; text that is on its way has none.
    `tokens_used` are a run's so far, `tokens` those of the step whose message this is."""

    kind: EventKind
    run_id: str
    agent: str = ""
    seq: int | None = None
    status: str | None = None
    role: str | None = None
    text: str | None = None
    stream_id: str | None = None
    offset: int | None = None
    call_id: str | None = None
    tool: str | None = None
    args: Any = None
    result: Any = None
    error: str | None = None
    question: str | None = None
    wait_id: str | None = None
    wait_kind: WaitKind | None = None
    parent_run_id: str | None = None
    tokens_used: int | None = None
    tokens: int | None = None
    step: int | None = None


async def until_ended(database: Database, run_id: str, scope: Scope, timeout: float | None = None) -> Run:
    """The run when it is over. `TimeoutError` when that takes longer."""
    async with asyncio.timeout(timeout):
        with database.bus.listen(ended_topic(run_id)) as listener:
            while True:
                run = await database.get(Run, run_id, scope=scope)
                if run is None:
                    raise NotFound(f"no run {run_id}")
                if run.status in ENDED:
                    return run
                await listener.wait(POLL_SECONDS)


class Watch:
    """What happens to a run and its children, from a position of the journal on (the run's beginning, if none is given), until
    the run has ended. `cursor` is the position up to which everything was told."""

    def __init__(self, database: Database, run_id: str, scope: Scope, *, after: int | None = None) -> None:
        self.cursor = after or 0
        self._after = after
        self._database = database
        self._run_id = run_id
        self._scope = scope
        self._queue: asyncio.Queue[RunEvent | None] = asyncio.Queue(maxsize=1_000)

    async def events(self) -> AsyncGenerator[RunEvent]:
        beginning = await self._database.read(_beginning, self._run_id, scope=self._scope)
        self.cursor = beginning.start if self._after is None else self._after
        run = beginning.run
        if run.status in ENDED and run.seq <= self.cursor:
            # its end was told, or is older than the journal: nothing more will come
            yield _status(run, run.seq)
            return
        tree = _Tree(self._run_id, beginning.agents)
        reading = asyncio.create_task(self._read(tree))
        listening: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                for id in tree.agents.keys() - listening.keys():
                    listening[id] = asyncio.create_task(_hear(self._database, self._scope, id, self._queue))
                event = await self._queue.get()
                if event is None:
                    await reading  # says why, if it was an error
                    return
                if event.seq is not None:
                    self.cursor = event.seq
                yield event
                if _is_end(event, run):
                    return
        finally:
            for task in (reading, *listening.values()):
                task.cancel()
            await asyncio.gather(reading, *listening.values(), return_exceptions=True)

    async def _read(self, tree: "_Tree") -> None:
        try:
            async for change in Follower(self._database, after=self.cursor, scope=self._scope, collections=COLLECTIONS):
                if tree.holds(change) and (event := event_of(change, tree.agents)) is not None:
                    await self._queue.put(event)
                if self._queue.empty():  # all before it was told, or it is of no concern here
                    self.cursor = max(self.cursor, change.seq)
        except Exception:
            await self._queue.put(None)  # then it is asked why
            raise


def _is_end(event: RunEvent, run: Run) -> bool:
    """Whether the run, as it was when the watching began, is over with this. One that ended and went on is not."""
    return event.kind == "status" and event.run_id == run.id and event.status in ENDED and (event.seq or 0) >= run.seq


class _Tree:
    """The runs that are watched; it grows as they start others."""

    def __init__(self, run_id: str, agents: dict[str, str]) -> None:
        self.root = run_id
        self.agents = agents

    def holds(self, change: Change) -> bool:
        record = change.record
        if isinstance(record, Run):
            if record.parent_run_id in self.agents or record.id == self.root:
                self.agents[record.id] = record.agent
            return record.id in self.agents
        return getattr(record, "run_id", None) in self.agents


class _Beginning(NamedTuple):
    """The position before the run's first change that the journal still has, the run as it is, and it with those under it."""

    start: int
    run: Run
    agents: dict[str, str]


async def _beginning(tx: Snapshot, run_id: str) -> _Beginning:
    run = await store.the_run(tx, run_id)
    reach = await edges(tx)
    ((first,),) = await tx.rows(store.FIRST_CHANGE, run_id=run_id)
    names = {run.id: run.agent}
    for each in await tx.find(store.OF_TREE, root_id=run.root_id):
        if each.parent_run_id in names:
            names[each.id] = each.agent
    return _Beginning(max((first or reach.last + 2) - 2, reach.oldest - 1), run, names)


async def _hear(database: Database, scope: Scope, run_id: str, queue: "asyncio.Queue[RunEvent | None]") -> None:
    """Text on its way. What was said before this reader came is asked for."""
    with database.bus.listen(stream_topic(scope.tenant, run_id)) as listener:
        database.bus.publish(asking_topic(scope.tenant, run_id))
        while True:
            for payload in await listener.wait():
                piece = msgspec.json.decode(payload, type=Piece)
                kind: EventKind = "withdrawn" if piece.kind == "withdrawn" else "text"
                if piece.kind != "done":
                    await queue.put(
                        RunEvent(kind=kind, run_id=run_id, stream_id=piece.stream_id, offset=piece.offset, text=piece.text)
                    )


def event_of(change: Change, agents: dict[str, str]) -> RunEvent | None:
    """A change of a run's rows in the words of those who watch."""
    record = change.record
    if isinstance(record, Run):
        before = change.before
        if isinstance(before, Run) and before.status == record.status:
            return None
        return _status(record, change.seq)
    agent = agents.get(getattr(record, "run_id", ""), "")
    if isinstance(record, RunMessage):
        if record.role in ("system", "tool"):
            return None
        return RunEvent(
            kind="message",
            run_id=record.run_id,
            agent=agent,
            seq=change.seq,
            role=record.role,
            text=record.content,
            stream_id=record.stream_id,
            tokens=None if record.usage is None else record.usage.input_tokens + record.usage.output_tokens,
            step=record.step,
        )
    if isinstance(record, ToolCall):
        return _of_call(record, agent, change)
    if isinstance(record, Wait) and change.event == "create" and record.kind != "child":
        return RunEvent(
            kind="wait",
            run_id=record.run_id,
            agent=agent,
            seq=change.seq,
            question=record.question,
            wait_id=record.id,
            wait_kind=record.kind,
            call_id=record.call_id,
        )
    return None


def _status(run: Run, seq: int) -> RunEvent:
    return RunEvent(
        kind="status",
        run_id=run.id,
        agent=run.agent,
        seq=seq,
        status=run.status,
        result=run.result,
        error=run.error,
        parent_run_id=run.parent_run_id,
        tokens_used=run.tokens_used,
        step=run.step,
    )


def _of_call(call: ToolCall, agent: str, change: Change) -> RunEvent:
    settled = call.settled_pos is not None
    return RunEvent(
        kind="result" if settled else "call",
        run_id=call.run_id,
        agent=agent,
        seq=change.seq,
        call_id=call.id,
        tool=call.tool_name,
        args=call.args,
        status=call.status,
        result=call.result,
        error=call.error,
        step=call.step,
    )
