"""What may leave the store leaves it, and never what somebody still needs."""

import pytest

from stigmergy.errors import CursorExpired
from stigmergy.kernel import retention
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import edges, read_page, save_cursor
from stigmergy.kernel.history import read_history
from stigmergy.kernel.retention import Policy, pin, sweep, unpin
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from support.notes import NOTES, Note
from support.stores import OpenStore


async def grow(tx: Transaction, id: str, times: int) -> None:
    note = await tx.lock(Note, id) or await tx.insert(Note(id=id, text="1"))
    for _ in range(times):
        note = await tx.update(note, text=str(note.version + 1))


async def kept(store: Database, tenant: str = "main") -> list[int]:
    reach = await store.read(edges, scope=Scope(tenant))
    return [change.seq for change in await store.read(read_page, reach.oldest - 1, scope=Scope(tenant))]


async def test_old_changes_go_and_a_cursor_before_them_is_told_so(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    await store.write(grow, "n", 4)
    clock.advance(100)
    await store.write(grow, "n", 3)
    assert (await sweep(store, Policy(max_age_ms=50_000))).changes == 5
    assert await kept(store) == [6, 7, 8]
    with pytest.raises(CursorExpired) as refused:
        await store.read(read_page, 2)
    assert refused.value.oldest == 6
    assert [change.seq for change in await store.read(read_page, 5)] == [6, 7, 8]
    await store.close()


async def test_only_so_many_changes_are_kept_of_each_tenant(store: Database) -> None:
    for tenant, times in (("a", 9), ("b", 2)):
        await store.write(grow, "n", times, scope=Scope(tenant))
    await sweep(store, Policy(max_changes=4))
    assert (await kept(store, "a"), await kept(store, "b")) == ([7, 8, 9, 10], [1, 2, 3])


async def test_a_journal_of_which_nothing_is_left_goes_on_where_it_was(store: Database) -> None:
    await store.write(grow, "n", 2)
    await sweep(store, Policy(max_changes=0))
    assert await kept(store) == []
    await store.write(grow, "n", 1)
    assert await kept(store) == [4]


async def test_a_registered_follower_keeps_the_journal_up_to_its_lag(store: Database) -> None:
    await store.write(grow, "n", 19)
    await store.write(save_cursor, "near", 15, 10)
    await sweep(store, Policy(max_changes=1))
    assert (await kept(store))[0] == 16
    await store.write(save_cursor, "far", 0, 3)
    await store.write(save_cursor, "near", 20, 10)
    await sweep(store, Policy(max_changes=1))
    assert (await kept(store))[0] == 18


async def test_what_a_part_still_needs_stays(store: Database) -> None:
    async def keeper(tx: Snapshot) -> int | None:
        return 2 if tx.tenant == "a" else None

    for tenant in ("a", "b"):
        await store.write(grow, "n", 4, scope=Scope(tenant))
    await sweep(store, Policy(max_changes=0), [keeper])
    assert (await kept(store, "a"), await kept(store, "b")) == ([3, 4, 5], [])


async def test_old_versions_go_by_their_collections_policy_unless_they_are_pinned(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NOTES, "keep_versions", 3)
    monkeypatch.setattr(retention, "CHUNK", 4)
    for id in ("n", "m"):
        await store.write(grow, id, 9)
    await store.write(pin, "notes", "n", 2, "a run")

    async def versions(tx: Snapshot, id: str) -> list[int]:
        return [note.version for note in await read_history(tx, Note, id)]

    assert (await sweep(store, Policy())).versions == 13
    assert await store.read(versions, "n") == [10, 9, 8, 2]
    assert await store.read(versions, "m") == [10, 9, 8]
    await store.write(unpin, "a run")
    await sweep(store, Policy())
    assert await store.read(versions, "n") == [10, 9, 8]


async def test_a_version_that_a_follower_will_still_be_shown_stays(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NOTES, "keep_versions", 1)
    await store.write(grow, "n", 5)
    await store.write(save_cursor, "late", 3, 100)
    await sweep(store, Policy())
    page = await store.read(read_page, 3)
    assert [(c.record.text, c.before.text) for c in page if isinstance(c.record, Note) and isinstance(c.before, Note)] == [
        ("4", "3"),
        ("5", "4"),
        ("6", "5"),
    ]
