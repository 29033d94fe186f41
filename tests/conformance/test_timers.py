"""Timers: each takes effect once, at its time or later, whatever happens to the processes and the clocks."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stigmergy.errors import Conflict
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Follower
from stigmergy.kernel.timers import (
    RETRY_MS,
    TOPIC,
    Effect,
    Timer,
    TimerLoop,
    cancel_timer,
    fire,
    next_timers,
    postpone,
    set_timer,
)
from stigmergy.kernel.transaction import Scope, Transaction
from support.notes import Note
from support.stores import OpenStore
from support.units import PATIENCE, add, take, whole_journal


async def ring(tx: Transaction, timer: Timer) -> None:
    """An effect that shows when it happens twice: the second insert of an id is refused."""
    await tx.insert(Note(id=timer.id, text=timer.kind))


@asynccontextmanager
async def running(*stores: Database, **effects: Effect) -> AsyncIterator[None]:
    for store in stores:
        await store.read(next_timers, [])  # so that no loop is cancelled while it connects
    loops = [asyncio.create_task(TimerLoop(store, effects).run()) for store in stores]
    try:
        yield
        ended = [loop for loop in loops if loop.done()]
        assert not ended, [loop.exception() for loop in ended]
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def rung(store: Database, count: int) -> list[str]:
    """Wait until so many effects happened, and say which, in the order of the journal."""
    return [change.id for change in await take(Follower(store, after=0), count)]


async def several(tx: Transaction, kind: str, ids: list[str], due_at: int) -> None:
    for id in ids:
        await set_timer(tx, kind, id, due_at)


async def test_due_timers_fire_in_order_and_are_gone(store: Database) -> None:
    now = store.clock.now()
    for n in (3, 1, 2):
        await store.write(set_timer, "bell", f"t{n}", now - 1000 + n, scope=Scope(f"tenant{n}"))
    assert [timer.id for timer in await store.read(next_timers, ["bell"])] == ["t1", "t2", "t3"]
    async with running(store, bell=ring):
        for n in (1, 2, 3):
            (change,) = await take(Follower(store, after=0, scope=Scope(f"tenant{n}")), 1)
            assert (change.id, change.actor, change.tenant) == (f"t{n}", "clock", f"tenant{n}")
    assert await store.read(next_timers, ["bell"]) == []


async def test_a_timer_set_while_the_loop_sleeps_fires_in_time(store: Database) -> None:
    async with running(store, bell=ring):
        for n in range(5):
            due = store.clock.now() + 20
            await store.write(set_timer, "bell", f"t{n}", due)
            assert (await rung(store, n + 1))[-1] == f"t{n}"
            assert due <= store.clock.now() <= due + 2000
            note = await store.get(Note, f"t{n}")
            assert note is not None
            assert note.created_at >= due


async def test_two_loops_on_one_store_fire_every_timer_once(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    ids = [f"t{n}" for n in range(120)]
    await first.write(several, "bell", ids, first.clock.now())
    async with running(first, second, bell=ring):
        assert sorted(await rung(first, 120)) == sorted(ids)
        late = [f"late{n}" for n in range(60)]
        await second.write(several, "bell", late, second.clock.now() + 30)
        assert sorted((await rung(second, 180))[120:]) == sorted(late)
    assert len(await whole_journal(first)) == 180
    assert await first.read(next_timers, ["bell"]) == []
    await first.close()
    await second.close()


async def test_only_one_of_many_firings_of_a_timer_succeeds(store: Database) -> None:
    await store.write(set_timer, "bell", "t", 1)
    (timer,) = await store.read(next_timers, ["bell"])
    results = await asyncio.gather(*(store.write(fire, timer, ring) for _ in range(20)))
    assert results.count(True) == 1
    assert await store.get(Note, "t") is not None


async def test_a_moved_timer_fires_at_its_new_moment_only(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    await store.write(set_timer, "bell", "t", clock.now() - 1)
    (stale,) = await store.read(next_timers, ["bell"])
    await store.write(set_timer, "bell", "t", clock.now() + 60_000)
    assert not await store.write(fire, stale, ring)
    async with running(store, bell=ring):
        await store.write(set_timer, "bell", "other", clock.now())
        assert await rung(store, 1) == ["other"]
        clock.advance(60)
        store.bus.publish(TOPIC)
        assert await rung(store, 2) == ["other", "t"]
    await store.close()


async def test_a_cancelled_timer_does_not_fire(store: Database) -> None:
    await store.write(set_timer, "bell", "t", 1)
    (stale,) = await store.read(next_timers, ["bell"])
    await store.write(cancel_timer, "bell", "t")
    await store.write(cancel_timer, "bell", "never set")
    assert not await store.write(fire, stale, ring)
    async with running(store, bell=ring):
        await store.write(set_timer, "bell", "other", 1)
        assert await rung(store, 1) == ["other"]
    assert await store.get(Note, "t") is None


async def test_timers_survive_the_store_being_closed(open_store: OpenStore) -> None:
    store = await open_store()
    due = store.clock.now() + 1
    await store.write(set_timer, "bell", "t", due, scope=Scope("acme"))
    await store.close()
    store = await open_store()
    assert await store.read(next_timers, ["bell"]) == [Timer("acme", "bell", "t", due)]
    async with running(store, bell=ring):
        await take(Follower(store, after=0, scope=Scope("acme")), 1)
    await store.close()


@pytest.mark.parametrize(
    "error", [Conflict("ours"), LookupError("theirs"), RuntimeError("any"), AssertionError("even this"), OSError("or this")]
)
async def test_a_failing_effect_is_tried_again_and_holds_up_nobody(
    open_store: OpenStore, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    tried = set[int]()

    async def fails_twice(tx: Transaction, timer: Timer) -> None:
        tried.add(tx.now)  # a unit may be run twice for one attempt
        await add(tx, f"attempt-{len(tried) - 1}")
        if len(tried) <= 2:
            raise error
        await ring(tx, timer)

    await store.write(set_timer, "bad", "bad", clock.now() - 10)
    await store.write(several, "bell", ["good1", "good2"], clock.now())
    async with running(store, bad=fails_twice, bell=ring):
        assert sorted(await rung(store, 2)) == ["good1", "good2"]
        for attempt in (1, 2):
            await retried(store, clock, "bad")
            assert len(tried) == attempt
            clock.advance(RETRY_MS / 1000)
            store.bus.publish(TOPIC)
        assert (await rung(store, 4))[2:] == ["attempt-2", "bad"]
    assert [record.levelno for record in caplog.records if record.name.endswith("timers")] == [logging.ERROR] * 2
    assert "bad" in caplog.text
    await store.close()


async def retried(store: Database, clock: ManualClock, id: str) -> None:
    """Wait until a timer was put off."""
    async with asyncio.timeout(PATIENCE):
        while True:
            due = {timer.id: timer.due_at for timer in await store.read(next_timers, ["bad"])}
            if due.get(id) == clock.now() + RETRY_MS:
                return
            await asyncio.sleep(0.001)


async def test_putting_off_does_not_bring_back_what_was_fired_moved_or_cancelled(store: Database) -> None:
    """Its effect failed here while another process fired it, or somebody moved or cancelled it."""
    await store.write(several, "bell", ["fired", "moved", "cancelled"], 1)
    seen = {timer.id: timer for timer in await store.read(next_timers, ["bell"])}
    await store.write(fire, seen["fired"], ring)
    await store.write(set_timer, "bell", "moved", 77)
    await store.write(cancel_timer, "bell", "cancelled")
    for timer in seen.values():
        await store.write(postpone, timer, 1_000_000)
    assert await store.read(next_timers, ["bell"]) == [Timer("main", "bell", "moved", 77)]


async def test_a_clock_that_jumps_back_delays_and_fires_nothing_twice(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    async with running(store, bell=ring):
        await store.write(set_timer, "bell", "first", clock.now())
        assert await rung(store, 1) == ["first"]
        await store.write(set_timer, "bell", "second", clock.now() + 10_000)
        clock.jump(-3600)
        store.bus.publish(TOPIC)
        await store.write(set_timer, "bell", "third", clock.now())
        assert await rung(store, 2) == ["first", "third"]
        clock.jump(3600)
        clock.advance(10)
        store.bus.publish(TOPIC)
        assert await rung(store, 3) == ["first", "third", "second"]
    await store.close()


async def test_a_clock_that_jumps_forward_fires_what_became_due_once(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    await store.write(set_timer, "bell", "in an hour", clock.now() + 3600_000)
    await store.write(set_timer, "bell", "in a day", clock.now() + 86400_000)
    async with running(store, bell=ring):
        clock.jump(7200)
        store.bus.publish(TOPIC)
        assert await rung(store, 1) == ["in an hour"]
        clock.jump(-7200)
        clock.jump(7200)
        store.bus.publish(TOPIC)
        await store.write(set_timer, "bell", "now", clock.now())
        assert await rung(store, 2) == ["in an hour", "now"]
    assert [timer.id for timer in await store.read(next_timers, ["bell"])] == ["in a day"]
    await store.close()


async def test_kinds_that_nobody_here_knows_are_left_alone_and_starve_nobody(store: Database) -> None:
    await store.write(several, "unknown", [f"u{n}" for n in range(300)], 1)
    await store.write(set_timer, "bell", "behind", 2)
    async with running(store, bell=ring):
        assert await rung(store, 1) == ["behind"]
    assert len(await store.read(next_timers, ["unknown"], 1000)) == 300


async def test_more_than_a_page_of_failing_timers_holds_up_nobody(store: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def fails(tx: Transaction, timer: Timer) -> None:
        raise ValueError

    caplog.set_level(logging.CRITICAL)
    await store.write(several, "bad", [f"b{n}" for n in range(250)], 1)
    await store.write(set_timer, "bell", "behind", 2)
    async with running(store, bad=fails, bell=ring):
        assert await rung(store, 1) == ["behind"]


async def test_a_loop_with_no_effects_waits(store: Database) -> None:
    async with running(store):
        await store.write(set_timer, "bell", "t", 1)
    assert len(await store.read(next_timers, ["bell"])) == 1


async def test_a_timer_and_what_sets_it_are_one_unit(store: Database) -> None:
    async def fails(tx: Transaction) -> None:
        await set_timer(tx, "bell", "t", 1)
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(fails)
    assert await store.read(next_timers, ["bell"]) == []
