"""What a unit of work means, the same on both engines."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from stigmergy.errors import AlreadyExists, UnitAwaited, UnitError, VersionConflict
from stigmergy.kernel.database import Database, mergeable
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.history import read_history
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from support.notes import Entry, Note


async def add(tx: Transaction, text: str = "", id: str | None = None) -> Note:
    return await tx.insert(Note(id=id or tx.new_id(), text=text))


async def rewrite(tx: Transaction, note: Note, text: str) -> Note:
    return await tx.update(note, text=text)


async def remove(tx: Transaction, id: str) -> None:
    note = await tx.get(Note, id)
    assert note is not None
    await tx.delete(note)


async def test_a_written_record_is_read_back_as_it_was_stored(store: Database) -> None:
    async def unit(tx: Transaction) -> Note:
        data = {"n": 1.5, "deep": {"x": [None, True]}}
        return await tx.insert(Note(id=tx.new_id(), text="é\n", tags=["a"], data=data, done=True))

    written = await store.write(unit, scope=Scope("acme", "mia"))
    assert written.version == 1
    assert written.seq == 1
    assert written.tenant == "acme"
    assert await store.get(Note, written.id, scope=Scope("acme")) == written


async def test_every_change_is_journalled_with_who_and_why(store: Database) -> None:
    scope = Scope("acme", "mia", cause=7, depth=2)
    note = await store.write(add, "one", scope=scope)
    note = await store.write(rewrite, note, "two", scope=scope)
    await store.write(remove, note.id, scope=scope)
    changes = await store.read(read_page, 0, scope=scope)
    assert [(c.seq, c.event, c.version, c.collection, c.id) for c in changes] == [
        (1, "create", 1, "notes", note.id),
        (2, "update", 2, "notes", note.id),
        (3, "delete", 3, "notes", note.id),
    ]
    assert {(c.actor, c.cause, c.depth) for c in changes} == {("mia", 7, 2)}
    bodies: list[Any] = [(c.record, c.before) for c in changes]
    assert [(r.text, b and b.text) for r, b in bodies] == [("one", None), ("two", "one"), ("two", "two")]


async def test_an_update_of_an_older_version_is_refused_and_writes_nothing(store: Database) -> None:
    note = await store.write(add, "one")
    await store.write(rewrite, note, "two")
    with pytest.raises(VersionConflict):
        await store.write(rewrite, note, "lost")
    stored = await store.get(Note, note.id)
    assert stored is not None
    assert (stored.text, stored.version, stored.seq) == ("two", 2, 2)
    assert len(await store.read(read_page, 0)) == 2


async def test_a_taken_key_is_refused(store: Database) -> None:
    await store.write(add, "one", "same")
    with pytest.raises(AlreadyExists):
        await store.write(add, "two", "same")


async def test_a_deleted_record_comes_back_with_the_next_version(store: Database) -> None:
    await store.write(add, "one", "n")
    await store.write(remove, "n")
    assert await store.get(Note, "n") is None
    again = await store.write(add, "three", "n")
    assert again.version == 3

    async def history(tx: Snapshot) -> list[tuple[int, str]]:
        return [(note.version, note.text) for note in await read_history(tx, Note, "n")]

    assert await store.read(history) == [(3, "three"), (1, "one")]


async def test_a_record_removed_and_made_again_in_one_unit_leaves_no_tombstone(store: Database) -> None:
    await store.write(add, "one", "n")

    async def unit(tx: Transaction) -> Note:
        await remove(tx, "n")
        return await add(tx, "again", "n")

    assert (await store.write(unit)).version == 3
    await store.write(remove, "n")
    assert (await store.write(add, "more", "n")).version == 5


async def test_a_raising_unit_leaves_nothing_and_does_not_touch_those_beside_it(store: Database) -> None:
    async def bad(tx: Transaction) -> None:
        await add(tx, "bad")
        raise LookupError("no")

    results = await asyncio.gather(
        *(store.write(bad) if n % 3 == 0 else store.write(add, str(n)) for n in range(30)), return_exceptions=True
    )
    assert sum(isinstance(result, LookupError) for result in results) == 10
    changes = await store.read(read_page, 0)
    assert [change.seq for change in changes] == list(range(1, 21))
    assert "bad" not in {change.record.text for change in changes}  # type: ignore[union-attr]


async def test_a_unit_that_awaits_something_else_is_refused(store: Database) -> None:
    async def sleeps(tx: Transaction) -> None:
        await add(tx)
        await asyncio.sleep(0.01)

    async def yields(tx: Transaction) -> None:
        await add(tx)
        await asyncio.sleep(0)

    for unit in (sleeps, yields):
        with pytest.raises(UnitAwaited, match=unit.__name__):
            await store.write(unit)
    assert await store.read(read_page, 0) == []


async def test_an_error_of_the_database_cannot_be_swallowed(store: Database) -> None:
    await store.write(add, "one", "n")

    async def swallows(tx: Transaction) -> None:
        try:
            await add(tx, "two", "n")
            await tx.get(Note, "n")
        except Exception:
            pass

    with pytest.raises(AlreadyExists):
        await store.write(swallows)


@pytest.mark.parametrize("beside", [0, 3])
async def test_what_went_wrong_first_is_the_outcome_of_a_unit(store: Database, beside: int) -> None:
    await store.write(add, "one", "taken")

    async def gives_up(tx: Transaction) -> None:
        await add(tx, "two", "taken")
        raise LookupError("of its own")

    async def gives_up_later(tx: Transaction) -> None:
        with suppress(Exception):
            await add(tx, "three", "taken")
        raise KeyboardInterrupt

    async def goes_elsewhere(tx: Transaction) -> None:
        with suppress(Exception):
            await add(tx, "five", "taken")
        await asyncio.sleep(0)

    for unit in (gives_up, mergeable(gives_up_later), goes_elsewhere):
        outcomes = await asyncio.gather(
            store.write(unit), *(store.write(add, "beside") for _ in range(beside)), return_exceptions=True
        )
        assert type(outcomes[0]) is AlreadyExists
        assert all(isinstance(outcome, Note) for outcome in outcomes[1:])
    assert {change.record.text for change in await store.read(read_page, 0)} <= {"one", "beside"}  # type: ignore[union-attr]


async def test_what_is_written_once_cannot_be_changed(store: Database) -> None:
    async def unit(tx: Transaction) -> None:
        entry = await tx.insert(Entry(note_id="n", pos=1))
        await tx.update(entry, text="other")

    with pytest.raises(UnitError):
        await store.write(unit)


async def test_a_unit_reads_what_it_wrote(store: Database) -> None:
    async def unit(tx: Transaction) -> Note | None:
        note = await add(tx, "one")
        note = await rewrite(tx, note, "two")
        await tx.insert(Entry(note_id=note.id, pos=1, text="x"))
        return await tx.get(Note, note.id)

    note = await store.write(unit)
    assert note is not None
    assert (note.text, note.version) == ("two", 2)
    stored = await store.get(Note, note.id)
    assert stored is not None
    assert stored.seq == 2


async def test_many_merged_inserts_are_each_answered_and_numbered(store: Database) -> None:
    @mergeable
    async def insert(tx: Transaction, n: int) -> Note:
        if n == 13:
            raise LookupError("no")
        return await tx.insert(Note(id=tx.new_id(), text=str(n)))

    results = await asyncio.gather(*(store.write(insert, n, scope=Scope(f"t{n % 3}")) for n in range(60)), return_exceptions=True)
    assert isinstance(results.pop(13), LookupError)
    for tenant in ("t0", "t1", "t2"):
        changes = await store.read(read_page, 0, scope=Scope(tenant))
        assert [change.seq for change in changes] == list(range(1, len(changes) + 1))
        mine = {(note.id, note.seq) for note in results if note.tenant == tenant}  # type: ignore[union-attr]
        assert {(change.id, change.seq) for change in changes} == mine


async def test_a_tenant_sees_only_its_own(store: Database) -> None:
    note = await store.write(add, "secret", scope=Scope("acme"))
    assert await store.get(Note, note.id, scope=Scope("other")) is None
    assert await store.read(read_page, 0, scope=Scope("other")) == []
    assert await store.tenants() == ["acme"]


async def test_a_row_changed_beside_the_journal_cannot_be_committed(store: Database) -> None:
    note = await store.write(add, "one")
    behind = Statement("test.behind", "UPDATE notes SET text = 'behind' WHERE tenant = :tenant AND id = :id")

    async def unit(tx: Transaction) -> None:
        await tx.run(behind, id=note.id)

    with pytest.raises(Exception, match=r"."):
        await store.write(unit)
    stored = await store.get(Note, note.id)
    assert stored is not None
    assert stored.text == "one"
