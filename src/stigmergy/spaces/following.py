"""Following a space: what is said, changed and taken back, who comes and goes and how far they have read, which agents are at
work there, what waits there for the reader; who is writing; and, for who asks, the text that agents write while they write it.

What is in the journal comes from there: each change once, in order, from any position on. Who is writing and text come over the
bus and may be lost. Text is what an agent thinks aloud, and no message: what it sends comes as one. So it is for whom the run
belongs to, and not for the other members. A follower who is not a member any more is sent away.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Literal

import msgspec

from stigmergy.kernel.bus import Bus
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Follower, edges
from stigmergy.kernel.journal import Change
from stigmergy.kernel.transaction import Scope, Snapshot
from stigmergy.runs.model import RUNS, WAITS, JsonObject, Run, Wait
from stigmergy.runs.pieces import Piece, asking_topic, stream_topic
from stigmergy.spaces import queries
from stigmergy.spaces.model import Membership, SpaceMessage
from stigmergy.spaces.queries import Message, shown

Kind = Literal[
    "message.created",
    "message.updated",
    "message.deleted",
    "member.joined",
    "member.left",
    "member.read",
    "agent.active",
    "agent.inactive",
    "wait.opened",
    "wait.closed",
    "typing",
    "text",
    "text.withdrawn",
]
COLLECTIONS = ("space_messages", "memberships", "runs", "waits")
# What waits for a reader who is slow; more is read when it has taken that.
BACKLOG = 256

AT_WORK = RUNS.query(
    "at_work_in",
    """{by:runs_agent} WHERE tenant = :tenant AND active_space_id = :space_id AND status = 'running' AND agent IN (
           SELECT e.agent FROM memberships m JOIN entities e ON e.tenant = m.tenant AND e.id = m.entity_id
           WHERE m.tenant = :tenant AND m.space_id = :space_id AND e.agent IS NOT NULL)""",
)
WAITING_FOR = WAITS.query(
    "for_entity_in",
    """{by:waits_inbox} WHERE tenant = :tenant AND for_entity = :entity_id AND space_id = :space_id AND status = 'open'
       ORDER BY created_at, id LIMIT 100""",
)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened in a space. `seq` is its position in the journal, to go on after; what comes over the bus, and what
    was so already when the reader came, has none."""

    kind: Kind
    seq: int | None = None
    message: Message | None = None
    entity_id: str | None = None
    run_id: str | None = None
    status: str | None = None
    last_processed_seq: int | None = None
    stream_id: str | None = None
    offset: int | None = None
    text: str | None = None
    wait_id: str | None = None
    wait_kind: str | None = None
    call_id: str | None = None
    question: str | None = None
    details: JsonObject | None = None


class _Typing(msgspec.Struct):
    entity_id: str
    active: bool


def typing_topic(tenant: str, space_id: str) -> str:
    return f"typing/{tenant}/{space_id}"


def say_typing(bus: Bus, tenant: str, space_id: str, entity_id: str, *, active: bool = True) -> None:
    """Tell those who follow a space that somebody in it is writing, or no more."""
    bus.publish(typing_topic(tenant, space_id), msgspec.json.encode(_Typing(entity_id, active)))


class Following:
    """One reader of one space. `position` is where to go on after: everything up to there was told."""

    def __init__(self, database: Database, reader: str, space_id: str, scope: Scope, *, text: bool = False) -> None:
        self._database = database
        self._reader = reader
        self._space_id = space_id
        self._scope = scope
        self._text = text
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(BACKLOG)
        self._listening: dict[str, asyncio.Task[None]] = {}
        self._told = 0
        self._follower: Follower | None = None

    @property
    def position(self) -> int:
        if self._follower is None or not self._queue.empty():
            return self._told
        return max(self._told, self._follower.cursor)

    async def events(self, after: int | None = None) -> AsyncGenerator[Event]:
        """From now on, or after a position of the journal. What is so at that moment is told first: who is at work, and what
        waits for the reader."""
        start, at_work, waiting = await self._database.read(_beginning, self._reader, self._space_id, scope=self._scope)
        self._told = start if after is None else after
        self._follower = Follower(self._database, after=self._told, scope=self._scope, collections=COLLECTIONS)
        reading = asyncio.create_task(self._read(self._follower), name=f"space {self._space_id}")
        typing = asyncio.create_task(self._hear_typing(), name=f"typing in {self._space_id}")
        try:
            for run in at_work:
                yield self._active(run)
            for wait in waiting:
                yield _of_wait(wait)
            while (event := await self._queue.get()) is not None:
                self._told = event.seq or self._told
                yield event
            await reading  # says why it ended, if that was an error
        finally:
            tasks = [reading, typing, *self._listening.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, follower: Follower) -> None:
        """Until the reader is a member no more."""
        try:
            async for change in follower:
                event = self._event(change)
                if event is not None:
                    await self._queue.put(event)
                if self._is_let_go(change) and not await self._database.read(self._is_back, scope=self._scope):
                    break
        except Exception:
            await self._queue.put(None)
            raise
        await self._queue.put(None)

    def _event(self, change: Change) -> Event | None:
        record = change.record
        if isinstance(record, SpaceMessage) and record.space_id == self._space_id:
            return _of_message(record, change)
        if isinstance(record, Membership) and record.space_id == self._space_id:
            return _of_member(record, change)
        if isinstance(record, Run) and self._space_id in (record.active_space_id, _space_before(change)):
            return self._of_run(record, change)
        if isinstance(record, Wait) and record.space_id == self._space_id and record.for_entity == self._reader:
            return _of_wait(record, change.seq)
        return None

    def _of_run(self, run: Run, change: Change) -> Event | None:
        before = change.before if isinstance(change.before, Run) else None
        was = before is not None and before.active_space_id == self._space_id and before.status == "running"
        now = run.active_space_id == self._space_id and run.status == "running"
        if was == now:
            return None
        if now:
            return self._active(run, change.seq)
        if (task := self._listening.pop(run.id, None)) is not None:
            task.cancel()
        return Event(kind="agent.inactive", seq=change.seq, entity_id=run.entity_id, run_id=run.id, status=run.status)

    def _active(self, run: Run, seq: int | None = None) -> Event:
        """An agent begins to work, or goes on: from now on its text is listened for, where that is wanted."""
        if self._text and run.owner_id == self._reader and run.id not in self._listening:
            self._listening[run.id] = asyncio.create_task(self._hear(run), name=f"text of {run.id}")
        return Event(kind="agent.active", seq=seq, entity_id=run.entity_id, run_id=run.id, status=run.status)

    async def _hear(self, run: Run) -> None:
        """Text on its way. What was written before this reader came is asked for."""
        bus, tenant = self._database.bus, self._scope.tenant
        with bus.listen(stream_topic(tenant, run.id)) as listener:
            bus.publish(asking_topic(tenant, run.id))
            while True:
                for payload in await listener.wait():
                    piece = msgspec.json.decode(payload, type=Piece)
                    if piece.kind != "done":
                        await self._queue.put(_of_piece(piece, run))

    async def _hear_typing(self) -> None:
        with self._database.bus.listen(typing_topic(self._scope.tenant, self._space_id)) as listener:
            while True:
                for payload in await listener.wait():
                    said = msgspec.json.decode(payload, type=_Typing)
                    if said.entity_id != self._reader:
                        status = "active" if said.active else "inactive"
                        await self._queue.put(Event(kind="typing", entity_id=said.entity_id, status=status))

    def _is_let_go(self, change: Change) -> bool:
        gone = change.event == "delete" and isinstance(change.record, Membership)
        return gone and change.id == f"{self._space_id}/{self._reader}"

    async def _is_back(self, tx: Snapshot) -> bool:
        """Whether a reader who was let go in the part of the journal that is read has been let in again since."""
        return await tx.get(Membership, self._space_id, self._reader) is not None


async def _beginning(tx: Snapshot, reader: str, space_id: str) -> tuple[int, list[Run], list[Wait]]:
    await queries.roster(tx, reader, space_id)
    waiting = await tx.find(WAITING_FOR, entity_id=reader, space_id=space_id)
    return (await edges(tx)).last, await tx.find(AT_WORK, space_id=space_id), waiting


def _space_before(change: Change) -> str | None:
    return change.before.active_space_id if isinstance(change.before, Run) else None


def _of_message(message: SpaceMessage, change: Change) -> Event:
    kind: Kind = "message.created" if change.event == "create" else "message.deleted" if message.deleted else "message.updated"
    return Event(kind=kind, seq=change.seq, message=shown(message), entity_id=message.author, run_id=message.run_id)


def _of_member(membership: Membership, change: Change) -> Event:
    kind: Kind = "member.joined" if change.event == "create" else "member.left" if change.event == "delete" else "member.read"
    read = membership.last_processed_pos if kind == "member.read" else None
    return Event(kind=kind, seq=change.seq, entity_id=membership.entity_id, last_processed_seq=read)


def _of_piece(piece: Piece, run: Run) -> Event:
    kind: Kind = "text.withdrawn" if piece.kind == "withdrawn" else "text"
    return Event(
        kind=kind, entity_id=run.entity_id, run_id=run.id, stream_id=piece.stream_id, offset=piece.offset, text=piece.text
    )


def _of_wait(wait: Wait, seq: int | None = None) -> Event:
    return Event(
        kind="wait.opened" if wait.status == "open" else "wait.closed",
        seq=seq,
        run_id=wait.run_id,
        status=wait.status,
        wait_id=wait.id,
        wait_kind=wait.kind,
        call_id=wait.call_id,
        question=wait.question,
        details=wait.details,
    )
