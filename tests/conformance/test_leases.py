"""Workers and what they hold: nobody works on the same thing, the dead lose it, and nothing that was made ready is lost."""

import asyncio

import pytest

from stigmergy.errors import LeaseLost
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.history import read_history
from stigmergy.kernel.leases import (
    Claim,
    Watch,
    beat,
    bury,
    claim,
    enlist,
    enqueue,
    finish,
    hold,
    living,
    ready_topic,
    release,
    retire,
)
from stigmergy.kernel.transaction import Scope, Transaction
from support.notes import Note
from support.stores import OpenStore
from support.units import PATIENCE, add, increment, whole_journal

LEASE = 10.0


async def claim_one(store: Database, worker: str, queue: str = "runs") -> Claim:
    (taken,) = await store.write(claim, queue, worker)
    return taken


async def claim_soon(store: Database, worker: str, queue: str = "runs") -> Claim:
    """On PostgreSQL a writer that is just being refused still holds the row, and a claim passes by what is held."""
    async with asyncio.timeout(PATIENCE):
        while not (taken := await store.write(claim, queue, worker)):
            pass
    return taken[0]


async def bury_at_sight(store: Database, worker: str) -> bool:
    return await store.write(bury, worker, dict(await store.read(living))[worker])


async def step(tx: Transaction, worker: str, held: Claim, text: str) -> Note:
    """What a worker does: prove that it may, then write."""
    await hold(tx, worker, held)
    note = await tx.lock(Note, held.id)
    assert note is not None
    return await tx.update(note, text=text)


async def test_a_worker_is_dead_when_its_counter_stands_still_for_a_lease_of_the_watcher(store: Database) -> None:
    clock = ManualClock()
    watch = Watch(clock, LEASE)
    idle, busy = await store.write(enlist, "idle"), await store.write(enlist, "busy")

    async def expired() -> list[str]:
        return [worker for worker, _ in watch.expired(await store.read(living))]

    assert await expired() == []
    for _ in range(3):
        clock.advance(LEASE / 4)
        await store.write(beat, busy)
        assert await expired() == []
    clock.advance(LEASE / 4)
    assert await expired() == [idle]
    clock.advance(LEASE)
    assert sorted(await expired()) == sorted([idle, busy])
    await store.write(beat, idle)
    assert await expired() == [busy]


@pytest.mark.parametrize("seconds", [1e9, -1e9])
async def test_a_wall_clock_that_jumps_kills_nobody_and_saves_nobody(open_store: OpenStore, seconds: float) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    worker = await store.write(enlist)
    watch = Watch(clock, LEASE)
    watch.expired(await store.read(living))
    clock.jump(seconds)
    assert watch.expired(await store.read(living)) == []
    clock.advance(LEASE - 0.1)
    assert watch.expired(await store.read(living)) == []
    clock.advance(0.2)
    assert watch.expired(await store.read(living)) == [(worker, 0)]
    await store.close()


async def test_a_watcher_that_looks_for_the_first_time_gives_a_whole_lease(store: Database) -> None:
    clock = ManualClock()
    await store.write(enlist)
    clock.advance(100 * LEASE)
    watch = Watch(clock, LEASE)
    assert watch.expired(await store.read(living)) == []
    clock.advance(LEASE)
    assert len(watch.expired(await store.read(living))) == 1


async def test_a_worker_that_vanished_from_the_list_starts_anew_for_the_watcher(store: Database) -> None:
    clock = ManualClock()
    watch = Watch(clock, LEASE)
    assert watch.expired([("w", 3)]) == []
    clock.advance(LEASE)
    assert watch.expired([]) == []
    assert watch.expired([("w", 3)]) == []


async def test_a_beat_between_the_observation_and_the_burial_saves_the_worker(store: Database) -> None:
    worker = await store.write(enlist)
    await store.write(enqueue, "runs", "r")
    held = await claim_one(store, worker)
    ((_, counter),) = await store.read(living)
    assert await store.write(beat, worker) == [held]
    assert not await store.write(bury, worker, counter)
    assert await store.write(beat, worker) == [held]
    await store.write(hold, worker, held)


async def test_a_buried_worker_can_neither_beat_nor_claim_and_is_buried_once(store: Database) -> None:
    worker = await store.write(enlist)
    await store.write(enqueue, "runs", "r")
    assert await bury_at_sight(store, worker)
    assert not await store.write(bury, worker, 0)
    with pytest.raises(LeaseLost):
        await store.write(beat, worker)
    with pytest.raises(LeaseLost):
        await store.write(claim, "runs", worker)
    assert await store.read(living) == []
    with pytest.raises(LeaseLost):
        await store.write(beat, "nobody")


async def test_a_worker_is_buried_by_one_of_many_watchers_or_lives(store: Database) -> None:
    for _ in range(10):
        worker = await store.write(enlist)
        await store.write(enqueue, "runs", worker)
        await claim_one(store, worker)
        *buried, beaten = await asyncio.gather(
            *(store.write(bury, worker, 0) for _ in range(5)), store.write(beat, worker), return_exceptions=True
        )
        if isinstance(beaten, LeaseLost):
            assert buried.count(True) == 1
            (again,) = await store.write(claim, "runs", await store.write(enlist))
            assert again.fence == 2
        else:
            assert buried == [False] * 5


async def test_a_claim_and_the_burial_of_its_worker_at_once_leave_nothing_with_the_dead(store: Database) -> None:
    for n in range(20):
        worker = await store.write(enlist)
        await store.write(enqueue, "runs", f"r{n}")
        claimed, buried = await asyncio.gather(
            store.write(claim, "runs", worker), store.write(bury, worker, 0), return_exceptions=True
        )
        assert buried is True
        assert isinstance(claimed, LeaseLost | list)
        other = await store.write(enlist)
        assert [each.id for each in await store.write(claim, "runs", other)] == [f"r{n}"]
        await store.write(retire, other)
        (left,) = await store.write(claim, "runs", await store.write(enlist))
        await store.write(finish, (await store.read(living))[-1][0], left)


async def test_the_write_of_a_worker_thought_dead_is_refused(store: Database) -> None:
    await store.write(add, "r")
    a, b = await store.write(enlist, "a"), await store.write(enlist, "b")
    await store.write(enqueue, "runs", "r")
    old = await claim_one(store, a)
    await store.write(step, a, old, "by a")
    assert await bury_at_sight(store, a)
    with pytest.raises(LeaseLost):
        await store.write(step, a, old, "before b came")
    new = await claim_one(store, b)
    assert new.fence == old.fence + 1
    for unit in (hold, finish, release):
        with pytest.raises(LeaseLost):
            await store.write(unit, a, old)
        with pytest.raises(LeaseLost):  # not with a stolen fence either
            await store.write(unit, a, new)
        with pytest.raises(LeaseLost):
            await store.write(unit, b, old)
    with pytest.raises(LeaseLost):
        await store.write(step, a, old, "lost")
    await store.write(step, b, new, "by b")
    assert [note.text for note in await store.read(read_history, Note, "r")] == ["by b", "by a", ""]


async def test_of_a_worker_and_its_successor_who_write_at_once_one_history_remains(store: Database) -> None:
    for n in range(25):
        id = f"r{n}"
        await store.write(add, id)
        a, b = await store.write(enlist), await store.write(enlist)
        await store.write(enqueue, "runs", id)
        held = await claim_one(store, a)

        async def take_over(a: str = a, b: str = b) -> Claim:
            assert await bury_at_sight(store, a)
            taken = await claim_soon(store, b)
            await store.write(step, b, taken, "by b")
            return taken

        results = await asyncio.gather(
            *(store.write(step, a, held, f"by a {turn}") for turn in range(3)), take_over(), return_exceptions=True
        )
        texts = [note.text for note in reversed(await store.read(read_history, Note, id))]
        assert texts[-1] == "by b"
        allowed = [result.text for result in results[:3] if isinstance(result, Note)]
        assert sorted(texts[1:-1]) == sorted(allowed)
        assert all(isinstance(result, Note | LeaseLost) for result in results[:3])
        taken = results[3]
        assert isinstance(taken, Claim)
        await store.write(finish, b, taken)


async def test_no_two_workers_get_the_same_item(store: Database) -> None:
    async def many(tx: Transaction) -> None:
        for n in range(100):
            await enqueue(tx, "runs", f"r{n}")

    for tenant in ("a", "b"):
        await store.write(many, scope=Scope(tenant))

    async def worker(limit: int) -> list[Claim]:
        me = await store.write(enlist)
        mine: list[Claim] = []
        while taken := await store.write(claim, "runs", me, limit):
            assert len(taken) <= limit
            mine += taken
        assert sorted(await store.write(beat, me)) == sorted(mine)
        return mine

    async with asyncio.timeout(PATIENCE):
        all_taken = await asyncio.gather(*(worker(1 + n % 4) for n in range(20)))
    taken = [(each.tenant, each.id) for mine in all_taken for each in mine]
    assert len(taken) == len(set(taken)) == 200
    assert {each.fence for mine in all_taken for each in mine} == {1}


async def test_what_was_due_the_longest_comes_first_whoever_it_belongs_to(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    worker = await store.write(enlist)
    now = clock.now()
    for tenant, id, due in (("b", "2", -20), ("a", "3", -10), ("c", "1", -30), ("a", "5", 1000), ("a", "4", 0)):
        await store.write(enqueue, "runs", id, now + due, scope=Scope(tenant))
    await store.write(enqueue, "other", "x", now - 50)
    order = [(await claim_one(store, worker)) for _ in range(4)]
    assert [(each.tenant, each.id) for each in order] == [("c", "1"), ("b", "2"), ("a", "3"), ("a", "4")]
    assert await store.write(claim, "runs", worker) == []
    clock.advance(1)
    assert (await claim_one(store, worker)).id == "5"
    await store.close()


async def test_what_is_made_ready_again_keeps_the_earlier_moment(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    worker = await store.write(enlist)
    await store.write(enqueue, "runs", "r", clock.now() + 5_000)
    await store.write(enqueue, "runs", "r", clock.now() + 9_000)
    await store.write(enqueue, "runs", "s", clock.now() + 5_000)
    await store.write(enqueue, "runs", "s", clock.now() + 2_000)
    clock.advance(2)
    assert [each.id for each in await store.write(claim, "runs", worker, 5)] == ["s"]
    clock.advance(3)
    assert [each.id for each in await store.write(claim, "runs", worker, 5)] == ["r"]
    await store.close()


async def test_what_is_finished_is_gone_and_what_is_released_comes_back(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    worker = await store.write(enlist)
    for id in ("done", "later", "now"):
        await store.write(enqueue, "runs", id)
    held = {each.id: each for each in await store.write(claim, "runs", worker, 3)}
    await store.write(finish, worker, held["done"])
    await store.write(release, worker, held["later"], clock.now() + 1_000)
    await store.write(release, worker, held["now"])
    with pytest.raises(LeaseLost):
        await store.write(release, worker, held["now"])
    assert await store.write(beat, worker) == []
    assert [(each.id, each.fence) for each in await store.write(claim, "runs", worker, 3)] == [("now", 2)]
    clock.advance(1)
    assert [(each.id, each.fence) for each in await store.write(claim, "runs", worker, 3)] == [("later", 2)]
    await store.close()


async def test_what_is_made_ready_while_a_worker_holds_it_is_ready_again_after_it(open_store: OpenStore) -> None:
    """News of an item in hand: the worker may have read it already or not, so it must be looked at once more."""
    clock = ManualClock()
    store = await open_store(clock=clock)
    worker = await store.write(enlist)
    for leave in (finish, release):
        await store.write(enqueue, "runs", "r")
        held = await claim_one(store, worker)
        await store.write(enqueue, "runs", "r")
        assert await store.write(claim, "runs", worker) == []
        if leave is finish:
            await store.write(finish, worker, held)
        else:
            await store.write(release, worker, held, clock.now() + 1_000_000)
        again = await claim_one(store, worker)
        assert again.fence == held.fence + 1
        await store.write(finish, worker, again)
        assert await store.write(claim, "runs", worker) == []
    await store.write(enqueue, "runs", "r")
    held = await claim_one(store, worker)
    await store.write(enqueue, "runs", "r", clock.now() + 5_000)
    await store.write(finish, worker, held)
    assert await store.write(claim, "runs", worker) == []
    clock.advance(5)
    assert (await claim_one(store, worker)).id == "r"
    await store.close()


async def test_news_and_the_end_of_the_work_at_once_never_leave_news_unread(store: Database) -> None:
    await store.write(add, "r")
    worker = await store.write(enlist)

    async def news(tx: Transaction) -> None:
        await increment(tx, "r")
        await enqueue(tx, "runs", "r")

    async def work() -> int:
        seen = 0
        async with asyncio.timeout(PATIENCE):
            while seen < 60:
                for held in await store.write(claim, "runs", worker):
                    note = await store.get(Note, "r")
                    assert note is not None
                    seen = note.data.get("n", 0)
                    await store.write(finish, worker, held)
        return seen

    async def tell() -> None:
        for _ in range(20):
            await store.write(news)

    seen, *_ = await asyncio.gather(work(), tell(), tell(), tell())
    assert seen == 60


async def test_a_worker_that_retires_frees_what_it_held_and_wakes_the_others(store: Database) -> None:
    leaving, staying = await store.write(enlist), await store.write(enlist)
    await store.write(enqueue, "runs", "r")
    await claim_one(store, leaving)
    with store.bus.listen(ready_topic("runs")) as listener:
        await listener.wait(0)
        await store.write(retire, leaving)
        async with asyncio.timeout(PATIENCE):
            await listener.wait()
    assert [worker for worker, _ in await store.read(living)] == [staying]
    assert (await claim_one(store, staying)).fence == 2
    with pytest.raises(LeaseLost):
        await store.write(beat, leaving)


async def test_a_claim_and_the_retirement_of_its_worker_at_once_leave_nothing_behind(store: Database) -> None:
    heir = await store.write(enlist)
    for n in range(20):
        worker = await store.write(enlist)
        await store.write(enqueue, "runs", f"r{n}")
        await asyncio.gather(store.write(claim, "runs", worker), store.write(retire, worker), return_exceptions=True)
        held = await claim_one(store, heir)
        assert held.id == f"r{n}"
        await store.write(finish, heir, held)


async def test_bookkeeping_is_not_journalled_and_a_failed_unit_leaves_none(store: Database) -> None:
    worker = await store.write(enlist)

    async def fails(tx: Transaction) -> None:
        await enqueue(tx, "runs", "r")
        await claim(tx, "runs", worker)
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(fails)
    assert await store.write(claim, "runs", worker) == []
    assert await whole_journal(store) == []
