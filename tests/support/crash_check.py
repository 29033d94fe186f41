"""What must be true of a store whatever happened to who wrote it, worked out from its tables alone."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stigmergy.kernel.database import Database
from stigmergy.kernel.query import Query, Statement
from stigmergy.kernel.record import COLLECTIONS, Record
from stigmergy.kernel.transaction import Scope, Snapshot
from support import notes  # noqa: F401  # declares the collections

HEAD = Statement("check.head", "SELECT seq FROM heads WHERE tenant = :tenant")
CHANGES = Statement(
    "check.changes", "SELECT seq, collection, id, version, event FROM changes WHERE tenant = :tenant ORDER BY seq"
)
VERSIONS = Statement("check.versions", "SELECT collection, id, version, seq, body FROM versions WHERE tenant = :tenant")
TOMBSTONES = Statement("check.tombstones", "SELECT collection, id, version, seq FROM tombstones WHERE tenant = :tenant")
ROWS = {name: collection.query("check", "WHERE tenant = :tenant") for name, collection in COLLECTIONS.items()}

Place = tuple[str, str, int]
"""Collection, id and version of a record."""


class Step(NamedTuple):
    seq: int
    collection: str
    id: str
    version: int
    event: str

    @property
    def place(self) -> Place:
        return self.collection, self.id, self.version


class Journal(NamedTuple):
    """A tenant's journal and every body that it speaks of."""

    steps: list[Step]
    bodies: dict[Place, Any]


async def check_journal(store: Database, rows: Mapping[str, Query[Any]] = ROWS) -> dict[str, Journal]:
    """Fail unless journal, rows, versions and tombstones of every tenant say the same; give what they say."""
    return {tenant: await store.read(check_tenant, rows, scope=Scope(tenant)) for tenant in await store.tenants()}


async def check_tenant(tx: Snapshot, queries: Mapping[str, Query[Any]]) -> Journal:
    """The same of the tenant whose transaction it is."""
    ((head,),) = await tx.rows(HEAD)
    steps = [Step(*row) for row in await tx.rows(CHANGES)]
    assert [step.seq for step in steps] == list(range(1, head + 1)), (
        f"{tx.tenant}: the journal has gaps, or not this head: {head}"
    )

    last = _last_steps(steps)
    rows: dict[Place, Record] = {}
    for name, query in queries.items():
        for record in await tx.find(query):
            rows[name, COLLECTIONS[name].id_of(record), record.version] = record
    living = {step.place: step.seq for step in last.values() if step.event != "delete"}
    assert {place: row.seq for place, row in rows.items()} == living, f"{tx.tenant}: rows and their last changes differ"

    versions = {(row[0], row[1], row[2]): (row[3], row[4]) for row in await tx.rows(VERSIONS)}
    superseded = {step.place: step.seq for step in steps if step.event != "delete" and step.place not in living}
    assert {place: seq for place, (seq, _) in versions.items()} == superseded, f"{tx.tenant}: versions and changes differ"

    tombstones = {(row[0], row[1], row[2]): row[3] for row in await tx.rows(TOMBSTONES)}
    deleted = {step.place: step.seq for step in last.values() if step.event == "delete"}
    assert tombstones == deleted, f"{tx.tenant}: tombstones and deletions differ"

    kept = {place: COLLECTIONS[place[0]].decode_body(body) for place, (_, body) in versions.items() if body is not None}
    return Journal(steps, kept | rows)


def _last_steps(steps: Iterable[Step]) -> dict[tuple[str, str], Step]:
    """Each record's last step, after a check that its versions count up and its events can follow each other."""
    last: dict[tuple[str, str], Step] = {}
    for step in steps:
        before = last.get((step.collection, step.id))
        assert step.version == (before.version + 1 if before else 1), f"{step} follows {before}"
        assert (step.event == "create") == (before is None or before.event == "delete"), f"{step} follows {before}"
        last[step.collection, step.id] = step
    return last
