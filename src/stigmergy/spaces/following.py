"""Following a space: what is said, changed and taken back, who comes and goes and how far they have read, which agents are at
work there; and, for who asks, the text that agents write while they write it.

The messages come from the journal: each once, in order, from any position on. Text comes over the bus and may be lost; it is
what an agent thinks aloud, and no message: what it sends comes as one. A follower who is not a member any more is sent away.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Follower, edges
from stigmergy.kernel.journal import Change
from stigmergy.kernel.transaction import Scope, Snapshot
from stigmergy.runs.model import RUNS, Run
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
    "text",
    "text.withdrawn",
]
COLLECTIONS = ("space_messages", "memberships", "runs")
# What waits for a reader who is slow; more is read when it has taken that.
BACKLOG = 256

AT_WORK = RUNS.query(
    "at_work_in",
    """WHERE tenant = :tenant AND status IN ('queued', 'running') AND id IN (
           SELECT r.id FROM runs r JOIN memberships m ON m.tenant = r.tenant AND m.entity_id = r.entity_id
           WHERE m.tenant = :tenant AND m.space_id = :space_id AND r.active_space_id = :space_id
             AND r.status IN ('queued', 'running'))""",
)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened in a space. `seq` is its position in the journal, to go on after; text has none."""

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


async def follow(
    database: Database, reader: str, space_id: str, scope: Scope, *, after: int | None = None, text: bool = False
) -> AsyncIterator[Event]:
    """From now on, or after a position of the journal. Who is at work at that moment is told first."""
    start, at_work = await database.read(_beginning, reader, space_id, scope=scope)
    following = _Following(database, reader, space_id, scope, text=text)
    reading = asyncio.create_task(following.read(start if after is None else after), name=f"space {space_id}")
    try:
        for run in at_work:
            yield following.active(run)
        while (event := await following.queue.get()) is not None:
            yield event
        await reading  # says why it ended, if that was an error
    finally:
        tasks = [reading, *following.listening.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _beginning(tx: Snapshot, reader: str, space_id: str) -> tuple[int, list[Run]]:
    await queries.roster(tx, reader, space_id)
    return (await edges(tx)).last, await tx.find(AT_WORK, space_id=space_id)


class _Following:
    def __init__(self, database: Database, reader: str, space_id: str, scope: Scope, *, text: bool) -> None:
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue(BACKLOG)
        self.listening: dict[str, asyncio.Task[None]] = {}
        self._database = database
        self._reader = reader
        self._space_id = space_id
        self._scope = scope
        self._text = text

    async def read(self, after: int) -> None:
        """Until the reader is a member no more."""
        try:
            async for change in Follower(self._database, after=after, scope=self._scope, collections=COLLECTIONS):
                event = self._event(change)
                if event is not None:
                    await self.queue.put(event)
                if self._is_sent_away(change):
                    return
        finally:
            await self.queue.put(None)

    def _event(self, change: Change) -> Event | None:
        record = change.record
        if isinstance(record, SpaceMessage) and record.space_id == self._space_id:
            return _of_message(record, change)
        if isinstance(record, Membership) and record.space_id == self._space_id:
            return _of_member(record, change)
        if isinstance(record, Run) and self._space_id in (record.active_space_id, _space_before(change)):
            return self._of_run(record, change)
        return None

    def _of_run(self, run: Run, change: Change) -> Event | None:
        before = change.before if isinstance(change.before, Run) else None
        was = before is not None and before.active_space_id == self._space_id and before.status == "running"
        now = run.active_space_id == self._space_id and run.status == "running"
        if was == now:
            return None
        if now:
            return self.active(run, change.seq)
        if (task := self.listening.pop(run.id, None)) is not None:
            task.cancel()
        return Event(kind="agent.inactive", seq=change.seq, entity_id=run.entity_id, run_id=run.id, status=run.status)

    def active(self, run: Run, seq: int | None = None) -> Event:
        """An agent begins to work, or goes on: from now on its text is listened for, where that is wanted."""
        if self._text and run.id not in self.listening:
            self.listening[run.id] = asyncio.create_task(self._hear(run), name=f"text of {run.id}")
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
                        await self.queue.put(_of_piece(piece, run))

    def _is_sent_away(self, change: Change) -> bool:
        gone = change.event == "delete" and isinstance(change.record, Membership)
        return gone and change.id == f"{self._space_id}/{self._reader}"


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
