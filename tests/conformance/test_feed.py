"""Followers: every change once, in order, with its own body, from any position on, whatever the bus does."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import pytest

from stigmergy.errors import CursorExpired, StoreClosed
from stigmergy.kernel.bus import LocalBus
from stigmergy.kernel.database import MAIN, Database
from stigmergy.kernel.feed import Edges, Follower, drop_cursor, edges, read_cursor, read_page, save_cursor
from stigmergy.kernel.history import purge
from stigmergy.kernel.journal import Change
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Transaction
from support.notes import Entry, Note
from support.stores import OpenStore
from support.units import PATIENCE, add, increment, remove, rewrite, take, until, whole_journal

T = TypeVar("T")

WRITERS = 8
EACH = 30


class DeafBus(LocalBus):
    """Loses everything."""

    def publish(self, topic: str, payload: bytes = b"") -> None:
        pass

    def publish_all(self) -> None:
        pass


class StutteringBus(LocalBus):
    """Says everything three times, and wakes those who are not meant."""

    def publish(self, topic: str, payload: bytes = b"") -> None:
        super().publish(topic, payload)
        super().publish(topic, payload)
        self.publish_all()


async def write_much(store: Database, writers: int = WRITERS, each: int = EACH, scope: Scope = MAIN) -> None:
    """Writers beside each other; each makes notes, changes them and removes some: two or three changes for each turn."""

    async def writer(number: int) -> None:
        for turn in range(each):
            note = await store.write(add, f"{number}-{turn}", text="0", scope=scope)
            note = await store.write(rewrite, note, text="1", scope=scope)
            if turn % 3 == 0:
                await store.write(remove, note.id, scope=scope)

    await asyncio.gather(*(writer(number) for number in range(writers)))


async def beside(writing: Awaitable[Any], *readers: Awaitable[T]) -> list[T]:
    """What readers bring home while others write."""
    reading = [asyncio.ensure_future(reader) for reader in readers]
    await writing
    return list(await asyncio.gather(*reading))


CHANGES = WRITERS * (2 * EACH + EACH // 3)


def thin(changes: list[Change]) -> list[tuple[Any, ...]]:
    return [(change.seq, change.collection, change.id, change.version, change.event) for change in changes]


async def test_readers_that_stop_and_resume_miss_nothing_and_see_nothing_twice(store: Database) -> None:
    async def reader(seed: int) -> list[Change]:
        choose = random.Random(seed)
        seen: list[Change] = []
        while len(seen) < CHANGES:
            follower = Follower(store, after=seen[-1].seq if seen else 0, page=choose.choice([1, 3, 50, 500]))
            seen += await take(follower, min(choose.randint(1, 60), CHANGES - len(seen)))
            assert follower.cursor == seen[-1].seq
        return seen

    all_seen = await beside(write_much(store), *(reader(seed) for seed in range(4)))
    journal = thin(await whole_journal(store))
    assert [row[0] for row in journal] == list(range(1, CHANGES + 1))
    for seen in all_seen:
        assert thin(seen) == journal


async def test_one_follower_that_is_iterated_again_goes_on_where_it_was(store: Database) -> None:
    follower = Follower(store, after=0)
    for n in range(6):
        await store.write(add, f"n{n}")
    assert [change.id for change in await take(follower, 2)] == ["n0", "n1"]
    assert [change.id for change in await take(follower, 3)] == ["n2", "n3", "n4"]
    assert follower.cursor == 5


async def test_every_event_shows_the_body_of_its_own_version_while_the_record_moves_on(store: Database) -> None:
    await store.write(add, "n")

    async def writer() -> None:
        for _ in range(60):
            await store.write(increment, "n")

    (live,) = await beside(asyncio.gather(writer(), writer()), take(Follower(store, after=0, page=7), 121))
    for changes in (live, await take(Follower(store, after=0, page=1), 121)):
        for n, change in enumerate(changes):
            assert isinstance(change.record, Note)
            assert (change.version, change.record.version, change.record.seq) == (n + 1, n + 1, n + 1)
            assert change.record.data.get("n", 0) == n
            assert (change.before.version if change.before else 0) == n


async def test_a_unit_that_changes_a_record_often_shows_every_version(store: Database) -> None:
    async def unit(tx: Transaction) -> None:
        note = await add(tx, "n", text="1")
        note = await rewrite(tx, note, text="2")
        again = await tx.get(Note, "n")
        assert again is not None
        note = await rewrite(tx, again, text="3")
        await remove(tx, "n")

    await store.write(unit)
    changes = await store.read(read_page, 0)
    bodies = [(c.event, c.version, c.record.text, c.record.version, c.record.seq) for c in changes if isinstance(c.record, Note)]
    assert bodies == [
        ("create", 1, "1", 1, 1),
        ("update", 2, "2", 2, 2),
        ("update", 3, "3", 3, 3),
        ("delete", 4, "3", 3, 3),
    ]


async def test_a_record_that_is_changed_removed_and_made_again_in_one_unit_keeps_its_last_position(
    store: Database, request: pytest.FixtureRequest
) -> None:

    async def unit(tx: Transaction) -> None:
        note = await add(tx, "n", text="1")
        await rewrite(tx, note, text="2")
        await remove(tx, "n")
        await add(tx, "n", text="4")

    await store.write(unit)
    changes = await store.read(read_page, 0)
    bodies = [(c.event, c.version, c.record.text, c.record.seq) for c in changes if isinstance(c.record, Note)]
    assert bodies == [("create", 1, "1", 1), ("update", 2, "2", 2), ("delete", 3, "2", 2), ("create", 4, "4", 4)]


async def test_a_purged_record_has_no_body_in_any_event(store: Database) -> None:
    note = await store.write(add, "n", text="secret")
    await store.write(rewrite, note, text="secret too")
    await store.write(purge, Note, "n")
    changes = await store.read(read_page, 0)
    assert [(change.event, change.version) for change in changes] == [("create", 1), ("update", 2), ("delete", 3)]
    assert all(change.record is None and change.before is None for change in changes)


async def test_a_selective_follower_moves_past_what_it_does_not_want(store: Database) -> None:
    for n in range(10):
        await store.write(add, f"n{n}", text="odd" if n % 2 else "even")
    odd = Follower(store, after=0, wanted=lambda seen: seen.data["text"] == "odd", page=3)
    none = Follower(store, after=0, collections=["entries"], page=3)
    assert [change.id for change in await take(odd, 5)] == ["n1", "n3", "n5", "n7", "n9"]
    waiting = asyncio.create_task(take(none, 1))

    async def entry(tx: Transaction) -> Entry:
        return await tx.insert(Entry(note_id="n1", pos=7))

    await store.write(entry)
    (change,) = await waiting
    assert (change.id, change.seq, none.cursor) == ("n1/7", 11, 11)


async def test_a_follower_who_wants_nothing_moves_its_cursor_all_the_same(store: Database) -> None:
    await write_much(store, writers=2, each=9)
    last = (await store.read(edges)).last
    follower = Follower(store, after=0, wanted=lambda seen: False, page=5)
    reading = asyncio.create_task(take(follower, 1))
    await until(lambda: follower.cursor >= last)
    assert follower.cursor == last
    reading.cancel()


async def test_a_follower_that_catches_up_lets_others_in_its_loop_live(store: Database) -> None:
    async def many(tx: Transaction) -> None:
        for n in range(200):
            await tx.insert(Entry(note_id="n", pos=n))

    await store.write(many)
    turns = 0
    follower = Follower(store, after=0, wanted=lambda seen: False, page=1)
    reading = asyncio.create_task(take(follower, 1))
    async with asyncio.timeout(PATIENCE):
        while follower.cursor < 200:
            turns += 1
            await asyncio.sleep(0)
    reading.cancel()
    assert turns >= 100


@pytest.mark.parametrize(("bus", "poll_seconds"), [(DeafBus, 0.02), (StutteringBus, 30)])
async def test_whatever_the_bus_does_every_change_comes_once(
    open_store: OpenStore, bus: type[LocalBus], poll_seconds: float
) -> None:
    store = await open_store(bus=bus())
    followers = [Follower(store, after=0, poll_seconds=poll_seconds) for _ in range(3)]
    seen = await beside(write_much(store, writers=4, each=15), *(take(follower, 140) for follower in followers))
    journal = thin(await whole_journal(store))
    assert all(thin(each) == journal for each in seen)
    await store.close()


async def test_a_follower_is_woken_long_before_it_would_look_by_itself(store: Database) -> None:
    follower = Follower(store, after=0, poll_seconds=1000)
    reading = asyncio.create_task(take(follower, 20))
    for n in range(20):
        await store.write(add, f"n{n}")
        await until(lambda n=n: follower.cursor == n + 1)
    assert len(await reading) == 20


async def test_a_follower_of_a_store_that_is_closed_ends_at_once(open_store: OpenStore) -> None:
    store = await open_store()
    await store.write(add, "n")
    follower = Follower(store, after=0, poll_seconds=1000)
    reading = asyncio.create_task(take(follower, 2))
    await until(lambda: follower.cursor == 1)
    async with asyncio.timeout(PATIENCE):
        await store.close()
        with pytest.raises(StoreClosed):
            await reading


async def test_followers_of_other_tenants_see_only_their_own(store: Database) -> None:
    scopes = [Scope(f"t{n}") for n in range(3)]
    for scope in scopes[:2]:
        await store.write(add, f"note-of-{scope.tenant}", scope=scope)
    followers = [take(Follower(store, after=0, scope=scope), 71) for scope in scopes[:2]]
    nobody = Follower(store, after=0, scope=scopes[2], poll_seconds=0.01)
    waiting = asyncio.create_task(take(nobody, 1))
    seen = await beside(asyncio.gather(*(write_much(store, 3, 10, scope) for scope in scopes[:2])), *followers)
    for scope, changes in zip(scopes[:2], seen, strict=True):
        assert {change.tenant for change in changes} == {scope.tenant}
        assert [change.seq for change in changes] == list(range(1, 72))
        assert changes[0].id == f"note-of-{scope.tenant}"
    assert nobody.cursor == 0
    waiting.cancel()


DROP = Statement("test.drop", "DELETE FROM changes WHERE tenant = :tenant AND seq <= :upto")


async def drop_until(tx: Transaction, upto: int) -> None:
    await tx.run(DROP, upto=upto)


async def test_a_position_that_the_journal_has_not_is_refused_with_the_oldest_it_has(store: Database) -> None:
    assert await store.read(edges) == Edges(0, 1)
    assert await store.read(read_page, 0) == []
    with pytest.raises(CursorExpired) as ahead:
        await store.read(read_page, 1)
    assert ahead.value.oldest == 1
    for n in range(10):
        await store.write(add, f"n{n}")
    await store.write(drop_until, 4)
    assert await store.read(edges) == Edges(10, 5)
    assert [change.seq for change in await store.read(read_page, 4)] == list(range(5, 11))
    for position in (-1, 0, 3, 11, 1000):
        with pytest.raises(CursorExpired) as caught:
            await store.read(read_page, position)
        assert caught.value.oldest == 5
        assert str(position) in str(caught.value)
        with pytest.raises(CursorExpired):
            await take(Follower(store, after=position), 1)
    await store.write(drop_until, 10)
    assert await store.read(edges) == Edges(10, 11)
    assert await store.read(read_page, 10) == []
    with pytest.raises(CursorExpired):
        await store.read(read_page, 9)
    await store.write(add, "next")
    assert [change.seq for change in await store.read(read_page, 10)] == [11]


async def test_a_follower_that_falls_behind_the_journal_is_told_and_keeps_its_cursor(store: Database) -> None:
    for n in range(10):
        await store.write(add, f"n{n}")
    follower = Follower(store, after=0, page=2)
    await take(follower, 2)
    await store.write(drop_until, 8)
    with pytest.raises(CursorExpired):
        await take(follower, 1)
    assert follower.cursor == 2


async def test_a_named_follower_finds_its_cursor_again(open_store: OpenStore) -> None:
    store = await open_store()
    assert await store.read(read_cursor, "mirror") is None
    await store.write(save_cursor, "mirror", 7, 100)
    await store.write(save_cursor, "other", 1, 100)
    await store.write(save_cursor, "mirror", 9, 100, scope=Scope("acme"))
    await store.close()
    store = await open_store()
    assert await store.read(read_cursor, "mirror") == 7
    await store.write(save_cursor, "mirror", 8, 100)
    assert await store.read(read_cursor, "mirror") == 8
    assert await store.read(read_cursor, "mirror", scope=Scope("acme")) == 9
    await store.write(drop_cursor, "mirror")
    assert await store.read(read_cursor, "mirror") is None
    assert await store.read(read_cursor, "other") == 1
    assert await whole_journal(store) == []
    await store.close()


async def test_two_stores_on_one_place_hear_each_other(open_store: OpenStore) -> None:
    here, there = await open_store(), await open_store()
    follower = Follower(here, after=0, poll_seconds=1000)
    reading = asyncio.create_task(take(follower, 2 * 70))
    await asyncio.gather(write_much(there, 3, 10), write_much(here, 3, 10, Scope("other")))
    await write_much(there, 3, 10, Scope("third"))

    async def second(tx: Transaction, n: int) -> Note:
        return await add(tx, f"more-{n}")

    for n in range(70):
        await there.write(second, n)
    assert [change.seq for change in await reading] == list(range(1, 141))
    await here.close()
    await there.close()


async def test_a_consumer_that_fails_leaves_no_listener(open_store: OpenStore) -> None:
    bus = LocalBus()
    store = await open_store(bus=bus)
    await store.write(add, "n")

    async def reads(stream: AsyncIterator[Change]) -> None:
        async for _ in stream:
            raise LookupError

    for _ in range(5):
        stream = aiter(Follower(store, after=0))
        with pytest.raises(LookupError):
            await reads(stream)
        await stream.aclose()  # type: ignore[attr-defined]
    assert not bus._listeners  # pyright: ignore[reportPrivateUsage]
    await store.close()
