"""The journal: one row for every durable change of a record, in the transaction that made it.

`changes` is thin: who changed which record to which version, when and why. Bodies are elsewhere: the current one is the
record's row, superseded ones are in `versions`, and a record that never changes is its own body. Positions (`seq`) are
gapless per tenant and given in commit order, so that a cursor is one integer.
"""

from functools import cached_property
from typing import Any, Literal

import msgspec

from stigmergy.kernel.query import Row, Statement
from stigmergy.kernel.record import COLLECTIONS, Record

Event = Literal["create", "update", "delete"]


class Change(msgspec.Struct):
    """One entry of the journal. `record` is the body it led to (for a delete: the last one), `before` the one it replaced;
    either is None where it was not asked for or is gone."""

    tenant: str
    seq: int
    collection: str
    id: str
    version: int
    event: Event
    actor: str
    at: int
    cause: int | None
    depth: int
    record: Record | None = None
    before: Record | None = None


def change_row(change: Change) -> Row:
    return (
        change.tenant,
        change.seq,
        change.collection,
        change.id,
        change.version,
        change.event,
        change.actor,
        change.at,
        change.cause,
        change.depth,
    )


CHANGE_COLUMNS = "tenant, seq, collection, id, version, event, actor, at, cause, depth"

INSERT_CHANGE = Statement(
    "changes.insert",
    f"""INSERT INTO changes ({CHANGE_COLUMNS})
        VALUES (:tenant, :seq, :collection, :id, :version, :event, :actor, :at, :cause, :depth)""",
)
READ_HEAD = Statement("heads.read", "SELECT seq, rules FROM heads WHERE tenant = :of")
WRITE_HEAD = Statement(
    "heads.write",
    """INSERT INTO heads (tenant, seq, rules) VALUES (:of, :seq, :rules)
       ON CONFLICT (tenant) DO UPDATE SET seq = excluded.seq, rules = excluded.rules""",
)
KEEP_VERSION = Statement(
    "versions.keep",
    """INSERT INTO versions (tenant, collection, id, version, seq, body)
       VALUES (:tenant, :collection, :id, :version, :seq, :body)
       ON CONFLICT (tenant, collection, id, version) DO UPDATE SET seq = excluded.seq, body = excluded.body""",
)
BURY = Statement(
    "tombstones.bury",
    """INSERT INTO tombstones (tenant, collection, id, version, seq) VALUES (:tenant, :collection, :id, :version, :seq)
       ON CONFLICT (tenant, collection, id) DO UPDATE SET version = excluded.version, seq = excluded.seq""",
)
UNBURY = Statement(
    "tombstones.unbury",
    "DELETE FROM tombstones WHERE tenant = :tenant AND collection = :collection AND id = :id RETURNING version",
)


class Seen:
    """A change as conditions and selectors see it; what costs something is worked out when a rule asks for it."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.collection = change.collection
        self.event = change.event
        self.id = change.id
        self.version = change.version
        self.actor = change.actor
        self.cause = change.cause
        self.depth = change.depth
        self._of = COLLECTIONS[change.collection]

    @cached_property
    def path(self) -> str:
        return self._of.path_of(self.change.record)

    @cached_property
    def schema_name(self) -> str:
        name = self._of.schema_name
        return name if isinstance(name, str) else name(self.change.record)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._of.tags(self.change.record)) if self._of.tags is not None else ()

    @cached_property
    def context(self) -> dict[str, Any]:
        return self._of.context(self.change.record) if self._of.context is not None else self.data

    @cached_property
    def data(self) -> dict[str, Any]:
        return msgspec.to_builtins(self.change.record)

    @cached_property
    def before(self) -> dict[str, Any] | None:
        return None if self.change.before is None else msgspec.to_builtins(self.change.before)
