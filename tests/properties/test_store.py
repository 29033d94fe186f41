"""The store against a model in plain Python: whatever is written, in whatever order, both hold the same."""

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from stigmergy.errors import AlreadyExists, Erased, NotFound, VersionConflict
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Edges, Follower, edges, read_cursor, read_page, save_cursor
from stigmergy.kernel.history import purge, read_history, read_version
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from support.notes import ENTRIES, NOTES, Entry, Note
from support.stores import postgres_opener, sqlite_opener
from support.units import take, whole_journal

IDS = ("a", "b", "c")
ALL_NOTES = NOTES.query("all", "WHERE tenant = :tenant ORDER BY id")
ALL_ENTRIES = ENTRIES.query("all", "WHERE tenant = :tenant ORDER BY note_id, pos")
ALL_VERSIONS = Statement(
    "test.all_versions",
    "SELECT id, version, seq, body FROM versions WHERE tenant = :tenant AND collection = 'notes' ORDER BY id, version",
)


class Stop(Exception):
    """A unit that gives up in the middle."""


@dataclass
class Body:
    version: int
    seq: int
    text: str | None


@dataclass
class Entered:
    """A change as the model remembers it."""

    collection: str
    id: str
    version: int
    event: str


@dataclass
class Model:
    """One tenant's rows, superseded versions, tombstones and journal."""

    rows: dict[str, Body] = field(default_factory=dict[str, Body])
    versions: dict[tuple[str, int], Body] = field(default_factory=dict[tuple[str, int], Body])
    tombstones: dict[str, int] = field(default_factory=dict[str, int])
    entries: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    journal: list[Entered] = field(default_factory=list[Entered])

    def enter(self, collection: str, id: str, version: int, event: str) -> int:
        self.journal.append(Entered(collection, id, version, event))
        return len(self.journal)

    def insert(self, id: str, text: str) -> None:
        if id in self.rows:
            raise AlreadyExists
        version = self.tombstones.pop(id, 0) + 1
        self.rows[id] = Body(version, self.enter("notes", id, version, "create"), text)

    def insert_new(self, id: str, text: str) -> None:
        if id not in self.rows:
            self.insert(id, text)

    def put(self, id: str, text: str) -> None:
        self.insert_new(id, text) if id not in self.rows else self.update(id, text)

    def update(self, id: str, text: str) -> None:
        if id in self.rows:
            version = self.superseded(id) + 1
            self.rows[id] = Body(version, self.enter("notes", id, version, "update"), text)

    def delete(self, id: str, text: str) -> None:
        if id in self.rows:
            version = self.superseded(id) + 1
            del self.rows[id]
            self.tombstones[id] = version
            self.enter("notes", id, version, "delete")

    def superseded(self, id: str) -> int:
        before = self.rows[id]
        self.versions[id, before.version] = before
        return before.version

    def stale_update(self, id: str, text: str) -> None:
        raise VersionConflict

    def stale_delete(self, id: str, text: str) -> None:
        raise VersionConflict

    def purge(self, id: str, text: str) -> None:
        self.delete(id, text)
        for (of, _), body in self.versions.items():
            body.text = None if of == id else body.text

    def entry(self, id: str, text: str) -> None:
        key = (id, len(text))
        if key in self.entries:
            raise AlreadyExists
        self.entries[key] = text
        self.enter("entries", f"{id}/{len(text)}", 1, "create")

    def look(self, id: str, text: str) -> None:
        """Reading the journal in the middle of a unit shows what was committed before, and changes nothing."""

    def body(self, id: str, version: int) -> str | None:
        current = self.rows.get(id)
        if current is not None and current.version == version:
            return current.text
        kept = self.versions.get((id, version))
        return None if kept is None else kept.text


Operation = tuple[str, str, str]
RARE = ("insert", "stale_update", "stale_delete", "purge", "entry", "look")  # most of these end their unit, or a record
OFTEN = ("put", "put", "insert_new", "update", "delete") * 4  # these do nothing where there is nothing to do
operations = st.tuples(st.sampled_from(OFTEN + RARE), st.sampled_from(IDS), st.text("xyé", max_size=3))


class Unit:
    """Some operations, and perhaps a failure after them."""

    def __init__(self, tenant: int, operations: list[Operation], stops: bool) -> None:
        self.tenant = tenant
        self.operations = operations
        self.stops = stops

    def __repr__(self) -> str:
        return f"Unit({self.tenant}, {self.operations}, stops={self.stops})"

    def on(self, model: Model) -> tuple[Model, type[Exception] | None]:
        """What should come of it: the model afterwards and the error."""
        after = deepcopy(model)
        try:
            for name, id, text in self.operations:
                getattr(after, name)(id, text)
        except (AlreadyExists, VersionConflict) as error:
            return model, type(error)
        return (model, Stop) if self.stops else (after, None)

    async def __call__(self, tx: Transaction) -> None:
        for name, id, text in self.operations:
            await self._one(tx, name, id, text)
        if self.stops:
            raise Stop

    async def _one(self, tx: Transaction, name: str, id: str, text: str) -> None:
        stored = await tx.get(Note, id)
        stale = replace(stored, version=stored.version - 1) if stored is not None else Note(id=id, version=1)
        match name:
            case "insert":
                await tx.insert(Note(id=id, text=text))
            case "put" if stored is None:
                await tx.insert(Note(id=id, text=text))
            case "insert_new":
                await tx.insert_new(Note(id=id, text=text))
            case "update" | "put":
                stored = stored and await tx.update(stored, text=text)
            case "delete":
                if stored is not None:
                    await tx.delete(stored)
            case "stale_update":
                await tx.update(stale, text=text)
            case "stale_delete":
                await tx.delete(stale)
            case "purge":
                await purge(tx, Note, id)
            case "entry":
                await tx.insert(Entry(note_id=id, pos=len(text), text=text))
            case _:
                page = await read_page(tx, 0)
                assert [change.seq for change in page] == list(range(1, len(page) + 1))


units = st.builds(Unit, st.integers(0, 1), st.lists(operations, max_size=5), st.sampled_from((False, False, False, True)))


class StoreMachine(RuleBasedStateMachine):
    """Runs on tenants that no example before had."""

    numbers = count()
    store: Database
    runner: asyncio.Runner
    ordered: bool

    @initialize()
    def begin(self) -> None:
        number = next(self.numbers)
        self.scopes = [Scope(f"{number}-{side}", "machine") for side in ("left", "right")]
        self.models = [Model(), Model()]
        self.followers: list[tuple[int, Follower]] = []
        self.touched = {0, 1}

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def read(self, tenant: int, unit: Any, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.store.read(unit, *args, scope=self.scopes[tenant], **kwargs))

    @rule(unit=units)
    def write(self, unit: Unit) -> None:
        self.write_together([unit])

    @rule(batch=st.lists(units, min_size=2, max_size=6))
    def write_a_batch(self, batch: list[Unit]) -> None:
        """On SQLite they share transactions, in this order."""
        if self.ordered:
            self.write_together(batch)
        else:
            for unit in batch:
                self.write_together([unit])

    def write_together(self, batch: list[Unit]) -> None:
        async def written() -> list[Any]:
            return await asyncio.gather(
                *(self.store.write(unit, scope=self.scopes[unit.tenant]) for unit in batch), return_exceptions=True
            )

        for unit, result in zip(batch, self.run(written()), strict=True):
            self.models[unit.tenant], error = unit.on(self.models[unit.tenant])
            self.touched.add(unit.tenant)
            assert (None if result is None else type(result)) is error, result

    @rule(tenant=st.integers(0, 1), id=st.sampled_from(IDS), below=st.integers(1, 12), limit=st.integers(1, 5))
    def read_a_history(self, tenant: int, id: str, below: int, limit: int) -> None:
        model = self.models[tenant]
        numbers = [version for version in range(below - 1, 0, -1) if model.body(id, version) is not None]
        found = self.read(tenant, read_history, Note, id, below=below, limit=100)
        assert [(note.version, note.text) for note in found] == [(version, model.body(id, version)) for version in numbers]
        page = self.read(tenant, read_history, Note, id, below=below, limit=limit)
        assert len(page) <= limit
        assert page == found[: len(page)]

    @rule(tenant=st.integers(0, 1), id=st.sampled_from(IDS), version=st.integers(0, 12))
    def read_one_version(self, tenant: int, id: str, version: int) -> None:
        model = self.models[tenant]
        body = model.body(id, version)
        if body is not None:
            assert self.read(tenant, read_version, Note, id, version=version).text == body
        else:
            expected = Erased if (id, version) in model.versions else NotFound
            with pytest.raises(NotFound) as caught:
                self.read(tenant, read_version, Note, id, version=version)
            assert caught.type is expected

    @rule(tenant=st.integers(0, 1), after=st.integers(0, 20), page=st.integers(1, 7))
    def follow(self, tenant: int, after: int, page: int) -> None:
        after = min(after, len(self.models[tenant].journal))
        self.followers.append((tenant, Follower(self.store, after=after, scope=self.scopes[tenant], page=page)))

    @precondition(lambda self: bool(self.followers))
    @rule(data=st.data(), wanted=st.integers(1, 12))
    def follow_on(self, data: st.DataObject, wanted: int) -> None:
        tenant, follower = data.draw(st.sampled_from(self.followers))
        left = self.models[tenant].journal[follower.cursor :][:wanted]
        if left:
            first = follower.cursor + 1
            seen = self.run(take(follower, len(left)))
            assert [change.seq for change in seen] == list(range(first, first + len(left)))
            assert [(change.id, change.version, change.event) for change in seen] == [(e.id, e.version, e.event) for e in left]

    @rule(tenant=st.integers(0, 1), cursor=st.integers(0, 50))
    def remember_a_cursor(self, tenant: int, cursor: int) -> None:
        self.run(self.store.write(save_cursor, "mirror", cursor, 100, scope=self.scopes[tenant]))
        assert self.read(tenant, read_cursor, "mirror") == cursor

    @invariant()
    def both_hold_the_same(self) -> None:
        for tenant in self.touched:
            self.rows_are_the_models(tenant)
            self.journal_is_the_models(tenant)
        self.touched.clear()

    def rows_are_the_models(self, tenant: int) -> None:
        model = self.models[tenant]

        async def everything(tx: Snapshot) -> tuple[list[Note], list[Entry], list[Any]]:
            return await tx.find(ALL_NOTES), await tx.find(ALL_ENTRIES), await tx.rows(ALL_VERSIONS)

        notes, entries, versions = self.read(tenant, everything)
        assert [(note.id, note.version, note.seq, note.text) for note in notes] == [
            (id, body.version, body.seq, body.text) for id, body in sorted(model.rows.items())
        ]
        assert {(entry.note_id, entry.pos): entry.text for entry in entries} == model.entries
        kept = {(id, version): (seq, None if body is None else NOTES.decode_body(body)) for id, version, seq, body in versions}
        assert {key: (seq, note and (note.version, note.seq, note.text)) for key, (seq, note) in kept.items()} == {
            (id, version): (body.seq, None if body.text is None else (version, body.seq, body.text))
            for (id, version), body in model.versions.items()
        }

    def journal_is_the_models(self, tenant: int) -> None:
        model = self.models[tenant]
        assert self.read(tenant, edges) == Edges(len(model.journal), 1)
        changes = self.run(whole_journal(self.store, self.scopes[tenant], page=7))
        assert [change.seq for change in changes] == list(range(1, len(model.journal) + 1))
        for change, entered in zip(changes, model.journal, strict=True):
            assert (change.collection, change.id, change.version, change.event) == (
                entered.collection,
                entered.id,
                entered.version,
                entered.event,
            )
            if change.collection == "notes":
                shown = change.version - (change.event == "delete")
                assert (change.record and change.record.text) == model.body(change.id, shown)
                assert (change.before and change.before.text) == model.body(change.id, change.version - 1)


def check(opened: Any, *, ordered: bool, examples: int) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(opened)
        try:
            machine = type("Machine", (StoreMachine,), {"store": store, "runner": runner, "ordered": ordered})
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=20,
                    deadline=None,
                    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
                    suppress_health_check=[HealthCheck.too_slow],
                ),
            )
        finally:
            runner.run(store.close())


@pytest.mark.parametrize("examples", [150, pytest.param(5_000, marks=pytest.mark.soak)])
def test_the_sqlite_store_is_its_model(tmp_path: Path, examples: int) -> None:
    check(sqlite_opener(tmp_path / "store.db")(synchronous="OFF"), ordered=True, examples=examples)


@pytest.mark.postgres
@pytest.mark.parametrize("examples", [30, pytest.param(1_000, marks=pytest.mark.soak)])
def test_the_postgres_store_is_its_model(postgres_database: Any, examples: int) -> None:
    check(postgres_opener(postgres_database)(), ordered=False, examples=examples)
