"""The versions of a record: each is there with its own body until it is erased, and its number for good."""

import asyncio
from typing import Any

import pytest

from stigmergy.errors import Erased, NotFound, VersionConflict
from stigmergy.kernel.database import Database
from stigmergy.kernel.history import purge, read_history, read_version
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from support.notes import Entry, Note
from support.units import add, remove, rewrite, there, whole_journal

VERSIONS = Statement(
    "test.versions", "SELECT version, seq, body FROM versions WHERE tenant = :tenant AND id = :id ORDER BY version"
)
TOMBSTONES = Statement("test.tombstones", "SELECT id, version FROM tombstones WHERE tenant = :tenant ORDER BY id")


async def grow(store: Database, id: str, upto: int, **scope: Any) -> Note:
    note = await store.write(add, id, text="1", **scope)
    for n in range(2, upto + 1):
        note = await store.write(rewrite, note, text=str(n), **scope)
    return note


async def kept(tx: Snapshot, id: str) -> list[tuple[int, int, bool]]:
    return [(version, seq, body is not None) for version, seq, body in await tx.rows(VERSIONS, id=id)]


async def test_every_version_is_read_with_its_own_body_and_stamps(store: Database) -> None:
    await grow(store, "n", 5)
    for version in range(1, 6):
        note = await store.read(read_version, Note, "n", version=version)
        assert (note.version, note.seq, note.text, note.id, note.tenant) == (version, version, str(version), "n", "main")
    for version in (0, -1, 6):
        with pytest.raises(NotFound, match=f"notes n .*{version}") as caught:
            await store.read(read_version, Note, "n", version=version)
        assert not isinstance(caught.value, Erased)


async def test_history_comes_newest_first_in_pages(store: Database) -> None:
    await grow(store, "n", 7)
    seen: list[int] = []
    below = 100
    while page := await store.read(read_history, Note, "n", below=below, limit=3):
        assert len(page) <= 3
        seen += [note.version for note in page]
        below = page[-1].version
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    assert await store.read(read_history, Note, "nobody") == []


async def test_the_history_outlives_the_record(store: Database) -> None:
    await grow(store, "n", 2)
    await store.write(remove, "n")
    assert [note.text for note in await store.read(read_history, Note, "n")] == ["2", "1"]
    with pytest.raises(NotFound):
        await store.read(read_version, Note, "n", version=3)
    await store.write(add, "n", text="4")
    assert [(note.version, note.text) for note in await store.read(read_history, Note, "n")] == [(4, "4"), (2, "2"), (1, "1")]


async def test_a_purge_erases_every_body_and_keeps_the_numbers(store: Database) -> None:
    await grow(store, "n", 3)
    await grow(store, "other", 2)
    await store.write(purge, Note, "n")
    assert await store.get(Note, "n") is None
    assert await store.read(read_history, Note, "n") == []
    for version in (1, 2, 3):
        with pytest.raises(Erased, match=f"version {version} was erased"):
            await store.read(read_version, Note, "n", version=version)
    with pytest.raises(NotFound) as caught:
        await store.read(read_version, Note, "n", version=4)
    assert not isinstance(caught.value, Erased)
    assert await store.read(kept, "n") == [(1, 1, False), (2, 2, False), (3, 3, False)]
    assert len(await store.read(read_history, Note, "other")) == 2
    assert (await whole_journal(store))[-1].event == "delete"


async def test_a_purged_key_goes_on_with_the_next_number_and_new_bodies(store: Database) -> None:
    await grow(store, "n", 2)
    await store.write(purge, Note, "n")
    note = await store.write(add, "n", text="new")
    assert note.version == 4
    await store.write(rewrite, note, text="newer")
    assert [(note.version, note.text) for note in await store.read(read_history, Note, "n")] == [(5, "newer"), (4, "new")]
    with pytest.raises(Erased):
        await store.read(read_version, Note, "n", version=2)


async def test_a_purge_of_what_is_deleted_already_erases_its_history(store: Database) -> None:
    await grow(store, "n", 2)
    await store.write(remove, "n")
    await store.write(purge, Note, "n")
    await store.write(purge, Note, "n")
    await store.write(purge, Note, "never was")
    assert await store.read(kept, "n") == [(1, 1, False), (2, 2, False)]
    assert len(await whole_journal(store)) == 3


async def test_a_purge_erases_what_its_own_unit_wrote_before_and_not_after(store: Database) -> None:
    await store.write(add, "n", text="secret 1")

    async def unit(tx: Transaction) -> None:
        note = await rewrite(tx, await there(tx, "n"), text="secret 2")
        await rewrite(tx, note, text="secret 3")
        await purge(tx, Note, "n")
        note = await add(tx, "n", text="open 5")
        await rewrite(tx, note, text="open 6")

    await store.write(unit)
    assert await store.read(kept, "n") == [(1, 1, False), (2, 2, False), (3, 3, False), (5, 5, True)]
    assert [note.text for note in await store.read(read_history, Note, "n")] == ["open 6", "open 5"]


async def test_a_purge_after_a_deletion_in_one_unit_leaves_no_body(store: Database) -> None:
    await store.write(add, "n", text="secret")

    async def unit(tx: Transaction) -> None:
        await remove(tx, "n")
        await purge(tx, Note, "n")

    await store.write(unit)
    assert await store.read(kept, "n") == [(1, 1, False)]


async def test_a_unit_that_fails_after_a_purge_erased_nothing(store: Database) -> None:
    await grow(store, "n", 2)

    async def unit(tx: Transaction) -> None:
        await purge(tx, Note, "n")
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(unit)
    assert [note.text for note in await store.read(read_history, Note, "n")] == ["2", "1"]


async def test_a_purge_and_an_update_at_once_leave_no_secret_unless_the_update_came_later(store: Database) -> None:
    for n in range(10):
        id = f"n{n}"
        note = await grow(store, id, 2)
        updated, purged = await asyncio.gather(
            store.write(rewrite, note, text="3"), store.write(purge, Note, id), return_exceptions=True
        )
        # on PostgreSQL the purge may lose to the update, and is to be repeated
        assert isinstance(updated, Note | VersionConflict)
        if isinstance(purged, VersionConflict):
            await store.write(purge, Note, id)
        assert await store.read(read_history, Note, id) == []
        assert not any(there for *_, there in await store.read(kept, id))


async def test_a_composite_key_names_its_history(store: Database) -> None:
    async def write(tx: Transaction) -> None:
        for note_id, pos in (("a", 1), ("a", 11), ("a/1", 1), ("b", 1)):
            await tx.insert(Entry(note_id=note_id, pos=pos, text=f"{note_id}:{pos}"))

    await store.write(write)
    entry = await store.get(Entry, "a", 1)
    assert entry is not None
    assert entry.text == "a:1"
    assert [change.id for change in await whole_journal(store)] == ["a/1", "a/11", "a/1/1", "b/1"]
    await store.write(purge, Entry, "a", 1)
    assert await store.get(Entry, "a", 1) is None
    with pytest.raises(Erased):
        await store.read(read_version, Entry, "a", 1, version=1)
    left = [change.record.text for change in await whole_journal(store) if isinstance(change.record, Entry)]
    assert left == ["a:11", "a/1:1", "b:1"]
    assert [entry.text for entry in await store.read(read_history, Entry, "a/1", 1)] == ["a/1:1"]


async def test_a_removed_record_that_is_written_once_keeps_its_body_in_the_journal(store: Database) -> None:
    async def write(tx: Transaction) -> None:
        await tx.insert(Entry(note_id="n", pos=1, text="once"))

    async def take_away(tx: Transaction) -> None:
        entry = await tx.get(Entry, "n", 1)
        assert entry is not None
        await tx.delete(entry)

    await store.write(write)
    await store.write(take_away)
    changes = await whole_journal(store)
    assert [(c.event, c.version, c.record and c.record.version) for c in changes] == [("create", 1, 1), ("delete", 2, 1)]
    assert [entry.text for entry in await store.read(read_history, Entry, "n", 1)] == ["once"]


async def test_a_key_that_is_written_once_starts_anew_when_it_is_made_again_after_a_purge(store: Database) -> None:
    async def write(tx: Transaction) -> None:
        await tx.insert(Entry(note_id="n", pos=1))

    for _ in range(2):
        await store.write(write)
        await store.write(purge, Entry, "n", 1)
    assert [change.version for change in await whole_journal(store)] == [1, 2, 1, 2]


async def test_tenants_share_no_history_and_no_tombstone(store: Database) -> None:
    acme, other = Scope("acme"), Scope("other")
    await grow(store, "n", 3, scope=acme)
    await grow(store, "n", 2, scope=other)
    await store.write(purge, Note, "n", scope=other)
    assert [note.text for note in await store.read(read_history, Note, "n", scope=acme)] == ["3", "2", "1"]
    assert (await store.write(add, "n", scope=Scope("third"))).version == 1

    async def tombstones(tx: Snapshot) -> list[tuple[str, int]]:
        return [(id, version) for id, version in await tx.rows(TOMBSTONES)]

    assert await store.read(tombstones, scope=acme) == []
    assert await store.read(tombstones, scope=other) == [("n", 3)]


async def test_a_body_of_any_text_is_kept_in_the_history_as_it_was(store: Database) -> None:
    text = "é\n\t\"quoted\" 'single' \\ back \U0001f41c \u2028 " + "x" * 100_000
    data = {"nested": [{"a": None, "b": [1, 2.5, True]}], "": "empty", "big": 2**53}
    note = await store.write(add, "n", text=text, data=data, tags=["ü", ""])
    await store.write(rewrite, note, text="", data={}, tags=[])
    assert await store.read(read_version, Note, "n", version=1) == note
