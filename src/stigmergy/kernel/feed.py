"""Following the journal: every change once, in order, from any position on, whatever the bus loses.

A follower is woken by the bus and reads from its own cursor. Bodies are those of the change's version, found in the
record's row while it is current and in `versions` once it was superseded; an erased body is None.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, NamedTuple

from stigmergy.errors import CursorExpired
from stigmergy.kernel.bus import Listener, LocalBus, changes_topic
from stigmergy.kernel.database import MAIN, Database
from stigmergy.kernel.journal import CHANGE_COLUMNS, Change, Seen
from stigmergy.kernel.query import Statement
from stigmergy.kernel.record import COLLECTIONS, Record, collection_of
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction

PAGE = 500
# How long a follower sleeps at the most, should the bus have lost its wake.
POLL_SECONDS = 5.0
# What a tail keeps at the most: changes, and bytes of their bodies.
TAIL_CHANGES = 1_000
TAIL_BYTES = 16 * 1024 * 1024

READ_EDGES = Statement(
    "changes.edges",
    """SELECT (SELECT seq FROM heads WHERE tenant = :tenant),
              (SELECT seq FROM changes WHERE tenant = :tenant ORDER BY tenant, seq LIMIT 1)""",
)
READ_CHANGES = Statement(
    "changes.read",
    f"""SELECT {CHANGE_COLUMNS} FROM changes
        WHERE tenant = :tenant AND seq > :after ORDER BY tenant, seq LIMIT :limit""",
)
READ_BODIES = Statement(
    "changes.bodies",
    """SELECT v.collection, v.id, v.version, v.body FROM changes c
       JOIN versions v ON v.tenant = c.tenant AND v.collection = c.collection AND v.id = c.id
                      AND (v.version = c.version OR v.version = c.version - 1)
       WHERE c.tenant = :tenant AND c.seq > :after AND c.seq <= :upto""",
)
SAVE_CURSOR = Statement(
    "followers.save",
    """INSERT INTO followers (tenant, name, cursor, max_lag, seen_at) VALUES (:tenant, :name, :cursor, :max_lag, :now)
       ON CONFLICT (tenant, name) DO UPDATE
       SET cursor = excluded.cursor, max_lag = excluded.max_lag, seen_at = excluded.seen_at""",
)
READ_CURSOR = Statement("followers.read", "SELECT cursor FROM followers WHERE tenant = :tenant AND name = :name")
DROP_CURSOR = Statement("followers.drop", "DELETE FROM followers WHERE tenant = :tenant AND name = :name")

Wanted = Callable[[Any], bool]


class Edges(NamedTuple):
    """The ends of a tenant's journal: the last position given out, and the oldest that is still there."""

    last: int
    oldest: int


async def edges(tx: Snapshot) -> Edges:
    ((last, oldest),) = await tx.rows(READ_EDGES)
    last = last or 0
    return Edges(last, last + 1 if oldest is None else oldest)


async def read_page(tx: Snapshot, after: int, limit: int = PAGE) -> list[Change]:
    """The changes after a position, with their bodies. `CursorExpired` when the journal no longer reaches back to it."""
    reach = await edges(tx)
    if after < reach.oldest - 1:
        raise CursorExpired(f"position {after} is older than the journal, which starts at {reach.oldest}", reach.oldest)
    if after > reach.last:
        raise CursorExpired(f"position {after} is ahead of the journal, which ends at {reach.last}", reach.oldest)
    changes = [Change(*row) for row in await tx.rows(READ_CHANGES, after=after, limit=limit)]
    if changes:
        await _load_bodies(tx, changes)
    return changes


async def _load_bodies(tx: Snapshot, changes: list[Change]) -> None:
    first, last = changes[0].seq - 1, changes[-1].seq
    bodies: dict[tuple[str, str, int], Record] = {}
    for collection, id, version, body in await tx.rows(READ_BODIES, after=first, upto=last):
        if body is not None:
            bodies[collection, id, version] = COLLECTIONS[collection].decode_body(body)
    current: dict[int, Record] = {}
    for name in {change.collection for change in changes if change.event != "delete"}:
        for record in await tx.find(COLLECTIONS[name].between_sql, after=first, upto=last):
            current[record.seq] = record
    for change in changes:
        change.before = bodies.get((change.collection, change.id, change.version - 1))
        if change.event == "delete":
            change.record = change.before
        else:
            change.record = current.get(change.seq) or bodies.get((change.collection, change.id, change.version))


class Follower:
    """`async for change in Follower(database, after=0)`. `cursor` is the position up to which everything was seen."""

    def __init__(
        self,
        database: Database,
        *,
        after: int,
        scope: Scope = MAIN,
        wanted: Wanted | None = None,
        collections: Iterable[str] | None = None,
        page: int = PAGE,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.cursor = after
        self._database = database
        self._scope = scope
        self._wanted = wanted
        self._collections = None if collections is None else frozenset(collections)
        self._page = page
        self._poll_seconds = poll_seconds

    async def __aiter__(self) -> AsyncIterator[Change]:
        with self._database.bus.listen(changes_topic(self._scope.tenant)) as listener:
            while True:
                changes = await self._database.read(read_page, self.cursor, self._page, scope=self._scope)
                for change in changes:
                    self.cursor = change.seq
                    if self._is_wanted(change):
                        yield change
                if len(changes) < self._page:
                    await listener.wait(self._poll_seconds)
                else:
                    await asyncio.sleep(0)  # a read may not suspend; others in this loop want to live meanwhile

    def _is_wanted(self, change: Change) -> bool:
        if self._collections is not None and change.collection not in self._collections:
            return False
        return self._wanted is None or (change.record is not None and self._wanted(Seen(change)))


class Tail:
    """The last changes of a tenant, read once for everybody who is at the end of its journal.

    `run` reads until it is cancelled. Who asks for what the tail does not hold, or no longer holds, reads the journal instead;
    so the tail may forget what it likes, and does so beyond its bounds.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        after: int,
        *,
        most: int = TAIL_CHANGES,
        most_bytes: int = TAIL_BYTES,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.cursor = after
        # the position of the last change of each collection that this tail has read
        self.last: dict[str, int] = {}
        self._database = database
        self._scope = scope
        self._most = most
        self._most_bytes = most_bytes
        self._poll_seconds = poll_seconds
        self._changes: list[Change] = []
        self._sizes: list[int] = []
        self._newest: dict[tuple[str, str], Change] = {}
        self._readers = LocalBus()
        self._runs = True

    def since(self, after: int, limit: int) -> list[Change] | None:
        """Some changes after a position, in order; None where the journal must be asked."""
        place = len(self._changes) - (self.cursor - after)
        if not self._runs or place < 0 or after > self.cursor:
            return None
        return self._changes[place : place + limit]

    def newest(self, change: Change) -> Change:
        """The last change of the same record, as far as the tail has read."""
        return self._newest[change.collection, change.id]

    def listen(self) -> Listener:
        """Woken when the tail has read something, and when it ends."""
        return self._readers.listen("")

    def wake(self) -> None:
        self._readers.publish_all()

    async def run(self) -> None:
        """Read whatever is written, until cancelled or until the store fails. Then `since` gives nothing more."""
        try:
            with self._database.bus.listen(changes_topic(self._scope.tenant)) as listener:
                while True:
                    changes = await self._database.read(read_page, self.cursor, self._most, scope=self._scope)
                    if changes:
                        self._take(changes)
                        self.wake()
                    if len(changes) < self._most:
                        await listener.wait(self._poll_seconds)
                    else:
                        await asyncio.sleep(0)
        finally:
            self._runs = False
            self.wake()

    def _take(self, changes: list[Change]) -> None:
        for change in changes:
            self._changes.append(change)
            self._sizes.append(_size(change.record) + _size(change.before))
            self._newest[change.collection, change.id] = change
            self.last[change.collection] = change.seq
        self.cursor = changes[-1].seq
        gone = max(0, len(self._changes) - self._most)
        held = sum(self._sizes[gone:])
        while held > self._most_bytes:
            held -= self._sizes[gone]
            gone += 1
        for change in self._changes[:gone]:
            if self._newest[change.collection, change.id] is change:
                del self._newest[change.collection, change.id]
        del self._changes[:gone], self._sizes[:gone]


def _size(record: Record | None) -> int:
    return 0 if record is None else len(collection_of(type(record)).encode_body(record))


async def save_cursor(tx: Transaction, name: str, cursor: int, max_lag: int) -> None:
    """Remember how far a named follower has come. The journal is kept for it, up to `max_lag` changes back."""
    await tx.run(SAVE_CURSOR, name=name, cursor=cursor, max_lag=max_lag, now=tx.now)


async def read_cursor(tx: Snapshot, name: str) -> int | None:
    rows = await tx.rows(READ_CURSOR, name=name)
    return rows[0][0] if rows else None


async def drop_cursor(tx: Transaction, name: str) -> None:
    await tx.run(DROP_CURSOR, name=name)
