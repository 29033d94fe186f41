"""What a unit of work is given: a snapshot to read, or a transaction to read and write.

The record operations are written once, here, on two primitives that an engine supplies: run a statement now, or some
time before the unit's next read. A unit awaits nothing else, catches no database error, and takes time and ids from here,
so that it means the same on both engines and may be run again.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from stigmergy.errors import UnitError, VersionConflict
from stigmergy.kernel.faults import point
from stigmergy.kernel.ids import check_tenant, new_id
from stigmergy.kernel.journal import BURY, KEEP_VERSION, UNBURY, Change, Event
from stigmergy.kernel.query import Query, Row, Statement
from stigmergy.kernel.record import COLLECTIONS, Collection, Record, collection_of

R = TypeVar("R", bound=Record)


class Scope(msgspec.Struct, frozen=True):
    """On whose behalf a unit runs: the tenant whose rows it sees, who acts, and which change led to it."""

    tenant: str = "main"
    actor: str = "system"
    cause: int | None = None
    depth: int = 0

    def __post_init__(self) -> None:
        if self.tenant != SHARED:
            check_tenant(self.tenant)


# The tenant whose rules hold for every tenant. No tenant can have this name.
SHARED = "*"
# The positions of the last change of a tenant's own rules, and of the shared ones.
RuleVersions = tuple[int, int]


class Rules(Protocol):
    async def fire(self, tx: "Transaction", fresh: list[Change]) -> None:
        """Start whatever these changes set off, in this transaction."""
        ...


class Snapshot:
    """One consistent view of a tenant's rows."""

    def __init__(self, scope: Scope, now: int) -> None:
        self.scope = scope
        self.tenant = scope.tenant
        self.now = now

    async def _run(self, statement: Statement, values: Row) -> list[Row]:
        raise NotImplementedError

    def expect_work(self) -> None:
        """Say that much will be computed here, so that it is done where it holds up no event loop."""

    async def rows(self, statement: Statement, **given: Any) -> list[Row]:
        return await self._run(statement, statement.bind(given, self.tenant))

    async def find(self, query: Query[R], **given: Any) -> list[R]:
        decode = query.decode
        return [decode(row) for row in await self._run(query, query.bind(given, self.tenant))]

    async def get(self, record: type[R], *key: str | int) -> R | None:
        collection = collection_of(record)
        rows = await self._run(collection.get_sql, (self.tenant, *key))
        return collection.decode(rows[0]) if rows else None


class Transaction(Snapshot):
    """A snapshot that writes. Every record it changes becomes a change in the journal, whatever the caller does."""

    def __init__(self, scope: Scope, now: int) -> None:
        super().__init__(scope, now)
        self.actor = scope.actor
        self.cause = scope.cause
        self.depth = scope.depth
        self.changes: list[Change] = []
        self.topics: set[str] = set()
        self.further_firings = 0
        self.reused: list[tuple[str, str]] = []
        self._issued: set[str] = set()
        self._erased: dict[tuple[str, str], int] = {}

    def new_id(self) -> str:
        made = new_id()
        self._issued.add(made)
        return made

    async def _post(self, statement: Statement, values: Row) -> None:
        """Run a statement whose rows nobody asks for, before the unit's next read at the latest."""
        raise NotImplementedError

    async def _post_insert(self, collection: Collection[Any], record: Record) -> None:
        """The same for a record's own row. It is encoded when it is sent: its `seq` may be known only then."""
        raise NotImplementedError

    def _next_seq(self) -> int:
        """The position that the next change will have, or 0 where the engine gives it out at the end of the unit."""
        raise NotImplementedError

    def _take_seq(self) -> int:
        """The same, and it is used now."""
        raise NotImplementedError

    def rule_versions(self) -> RuleVersions:
        raise NotImplementedError

    @contextmanager
    def caused_by(self, change: Change) -> Generator[None]:
        """What is written inside is caused by this change, and one deeper in its chain."""
        before = self.cause, self.depth
        self.cause, self.depth = change.seq, change.depth + 1
        try:
            yield
        finally:
            self.cause, self.depth = before

    async def lock(self, record: type[R], *key: str | int) -> R | None:
        """Get a record and keep others from changing it until this unit ends."""
        collection = collection_of(record)
        rows = await self._run(collection.lock_sql, (self.tenant, *key))
        return collection.decode(rows[0]) if rows else None

    async def run(self, statement: Statement, **given: Any) -> None:
        """A write to the engine's own bookkeeping, which is not journalled."""
        await self._post(statement, statement.bind(given, self.tenant))

    def wake(self, topic: str) -> None:
        """Publish on the bus once this is committed."""
        self.topics.add(topic)

    async def insert(self, record: R) -> R:
        """Write a new record. One that was deleted comes back with the next version. Gives the record as stored."""
        collection = collection_of(type(record))
        stamped = self._stamped(record, await self._first_version(collection, record))
        self._note(collection, stamped, None, "create")
        await self._post_insert(collection, stamped)
        return stamped

    async def insert_new(self, record: R) -> R | None:
        """The same, but None and nothing written when the key is taken already."""
        collection = collection_of(type(record))
        if await self._run(collection.get_sql, (self.tenant, *collection.key_of(record))):
            return None
        stamped = self._stamped(record, await self._first_version(collection, record))
        rows = await self._run(collection.insert_new_sql, collection.encode(stamped))
        if not rows:
            return None
        self._note(collection, stamped, None, "create")
        return stamped

    async def update(self, record: R, **fields: Any) -> R:
        """Change these fields, if the stored record still has this record's version. Gives the record as stored."""
        collection = collection_of(type(record))
        if not collection.versioned:
            raise UnitError(
                f"{collection.name} are written once; add a new record instead of changing {collection.id_of(record)}"
            )
        after = replace(record, **fields, version=record.version + 1, seq=self._next_seq(), updated_at=self.now)
        statement, values = collection.update_sql(tuple(fields))
        if not await self._run(statement, values(record, after)):
            raise _lost(collection, record)
        self._note(collection, after, record, "update")
        return after

    async def delete(self, record: Record) -> None:
        """Remove a record, if it still has this version. Its last body stays in the history; its number goes on."""
        collection = collection_of(type(record))
        if not await self._run(collection.delete_sql, collection.delete_values(record)):
            raise _lost(collection, record)
        self._note(collection, record, record, "delete")

    def erase(self, collection: Collection[Any], id: str) -> None:
        """Keep no body of what this unit has replaced or removed of a record so far."""
        self._erased[collection.name, id] = len(self.changes)

    async def settle(self, rules: Rules) -> None:
        """Number what the unit wrote, keep what it replaced, start what it set off; and so on for what that wrote."""
        settled = 0
        while settled < len(self.changes):
            await self._number(settled)
            point("unit.numbered")
            fresh = self.changes[settled:]
            for place, change in enumerate(fresh, settled):
                if change.before is not None:
                    await self._keep(change, change.before, erased=place < self._erased.get((change.collection, change.id), 0))
                if (derive := COLLECTIONS[change.collection].derive) is not None:
                    await derive(self, change)
            settled += len(fresh)
            await rules.fire(self, fresh)

    async def _number(self, settled: int) -> None:
        """Give every change from this place of the list on its position, if the engine has not done so yet."""
        raise NotImplementedError

    async def _keep(self, change: Change, before: Record, *, erased: bool) -> None:
        collection = COLLECTIONS[change.collection]
        if before.seq <= 0:
            force_setattr(before, "seq", self._seq_of(change.collection, change.id, before.version))
        body = None if erased else collection.encode_body(before)
        await self._post(KEEP_VERSION, (self.tenant, change.collection, change.id, before.version, before.seq, body))
        if change.event == "delete" and not self._made_again(change):
            await self._post(BURY, (self.tenant, change.collection, change.id, change.version, change.seq))

    def _seq_of(self, collection: str, id: str, version: int) -> int:
        """The position of a version that this unit wrote and read again before it was numbered."""
        written = (each.seq for each in self.changes if (each.collection, each.id, each.version) == (collection, id, version))
        return next(written, 0)

    def _stamped(self, record: R, version: int) -> R:
        now = self.now
        return replace(record, tenant=self.tenant, version=version, seq=self._next_seq(), created_at=now, updated_at=now)

    async def _first_version(self, collection: Collection[R], record: R) -> int:
        """1, or what follows the deletion of this key. A key that this unit made cannot have been used before."""
        if not collection.comes_back or not self._issued.isdisjoint(collection.key_of(record)):
            return 1
        id = collection.id_of(record)
        version = 1 + await self._last_version(collection, id)
        self.reused.append((collection.name, id))
        return version

    async def _last_version(self, collection: Collection[Any], id: str) -> int:
        """The version at which this key was deleted, 0 if it never was. Its tombstone is taken away."""
        for change in reversed(self.changes):
            if change.id == id and change.collection == collection.name:
                return change.version
        buried = await self._run(UNBURY, (self.tenant, collection.name, id))
        return buried[0][0] if buried else 0

    def _made_again(self, deletion: Change) -> bool:
        later = self.changes[self.changes.index(deletion) + 1 :]
        return any(change.id == deletion.id and change.collection == deletion.collection for change in later)

    def _note(self, collection: Collection[Any], record: Record, before: Record | None, event: Event) -> None:
        deleted = event == "delete"
        self.changes.append(
            Change(
                self.tenant,
                self._take_seq(),
                collection.name,
                collection.id_of(record),
                record.version + 1 if deleted else record.version,
                event,
                self.actor,
                self.now,
                self.cause,
                self.depth,
                record,
                before,
            )
        )


Unit = Callable[..., Awaitable[Any]]


def _lost(collection: Collection[Any], record: Record) -> VersionConflict:
    return VersionConflict(
        f"{collection.name} {collection.id_of(record)} is not at version {record.version} any more; read it again and repeat"
    )
