"""Deliveries and time: pauses, receivers that are away for a while, clocks that jump."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from standardwebhooks import Webhook as Official

from stigmergy.kernel.clock import ManualClock, SystemClock
from stigmergy.kernel.database import Database
from stigmergy.triggers.model import Retry
from stigmergy.triggers.pauses import pause_ms
from support.delivering import SECRET, Delivering, every, notes, passing, pending_try, put, settled
from support.receiver import Receiver, answer
from support.stores import OpenStore
from support.units import add


def in_seconds(clock: ManualClock) -> str:
    return "7"


def as_a_date(clock: ManualClock) -> str:
    return format_datetime(datetime.fromtimestamp(clock.now() / 1000 + 7, UTC), usegmt=True)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("said", [in_seconds, as_a_date])
async def test_the_pause_that_a_receiver_asks_for_is_kept(
    open_store: OpenStore, said: Callable[[ManualClock], str], status: int
) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    async with Receiver() as receiver:
        await put(store, receiver)
        receiver.script.append(answer(status, Retry_After=said(clock)))
        async with Delivering(store, poll_seconds=0.05):
            await store.write(add)
            await receiver.got(1)
            shown = await pending_try(store)
            assert (shown.tries, shown.next_at) == (1, clock.now() + 7_000)
            assert shown.answer is not None
            assert shown.answer.status == status
            clock.advance(6.9)
            await asyncio.sleep(0.3)
            assert len(receiver.received) == 1
            clock.advance(0.2)
            await receiver.got(2)
            await settled(store, 1)
    await store.close()


@pytest.mark.parametrize("said", ["soon", "-5", "Thu, 99 Nov 2026 00:00:00 GMT", "9" * 400, ""])
async def test_a_pause_that_makes_no_sense_is_at_most_an_hour(open_store: OpenStore, said: str) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    async with Receiver() as receiver:
        await put(store, receiver)
        receiver.script.append(answer(429, Retry_After=said))
        async with Delivering(store, poll_seconds=0.05):
            await store.write(add)
            await receiver.got(1)
            await pending_try(store)
            clock.advance(3_600.1)
            await settled(store, 1)
    await store.close()


def test_the_tries_of_a_trigger_that_says_nothing_last_longer_than_a_minute() -> None:
    for _ in range(200):
        pauses = [pause_ms(Retry(), tries) for tries in range(1, Retry().tries)]
        assert 60_000 < sum(pauses) < 80_000
        assert all(500 * 2**n <= pause <= 625 * 2**n for n, pause in enumerate(pauses))
    assert 300_000 <= pause_ms(Retry(), 20) <= 375_000


async def test_a_slow_receiver_is_waited_for_up_to_its_timeout(store: Database) -> None:
    async with Receiver(delay=0.3) as receiver:
        await put(store, receiver, timeout_ms=5_000)
        async with Delivering(store):
            await store.write(add)
            (delivered,) = await settled(store, 1)
    assert (len(receiver.received), delivered.tries) == (1, 1)


@pytest.mark.parametrize("seconds", [86_400.0, -86_400.0], ids=["forward", "back"])
async def test_a_clock_that_jumps_neither_loses_nor_blocks_a_delivery(open_store: OpenStore, seconds: float) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    async with Receiver() as receiver:
        await put(store, receiver, retry={"first_ms": 60_000})
        receiver.script.append(answer(500))
        async with Delivering(store, poll_seconds=0.05, lease_seconds=4):
            await store.write(add)
            await pending_try(store)
            clock.jump(seconds)
            async with passing(clock):
                await settled(store, 1)
                await store.write(add)
                await settled(store, 2)
    assert len(receiver.received) == 3
    await store.close()


async def test_a_receiver_that_was_down_gets_everything_in_order_without_duplicates(store: Database) -> None:
    async with Receiver() as receiver:
        port = receiver.port
        await put(store, receiver, event="create|update", secret=SECRET, retry={"first_ms": 20, "most_ms": 50, "tries": 100})
    async with Delivering(store):
        await asyncio.gather(*(notes(store, f"n{n}", 5) for n in range(10)))
        await asyncio.sleep(0.3)
        assert not await every(store, "delivered")
        async with Receiver(port) as receiver:
            await settled(store, 50)
            for id in (f"n{n}" for n in range(10)):
                assert [call.document["version"] for call in receiver.received if call.document["id"] == id] == [1, 2, 3, 4, 5]
            assert len({call.id for call in receiver.received}) == len(receiver.received) == 50
            for call in receiver.received:
                Official(SECRET).verify(call.raw, call.headers)


async def test_a_receiver_that_is_down_for_a_minute_gets_everything_in_order_and_once(open_store: OpenStore) -> None:
    """With the pauses that hold when nothing is said of them."""
    clock = ManualClock(SystemClock().now())
    store = await open_store(clock=clock)
    async with Receiver() as receiver:
        port = receiver.port
        await put(store, receiver, event="create|update", secret=SECRET, retry={})
    async with Delivering(store, poll_seconds=0.02):
        await asyncio.gather(*(notes(store, f"n{n}", 4) for n in range(5)))
        for _ in range(240):
            clock.advance(0.25)
            await asyncio.sleep(0.01)
        assert not await every(store, "delivered")
        assert not await every(store, "dead")
        async with Receiver(port) as receiver, passing(clock):
            delivered = await settled(store, 20)
        for id in (f"n{n}" for n in range(5)):
            assert [call.document["version"] for call in receiver.received if call.document["id"] == id] == [1, 2, 3, 4]
        assert sorted(call.id for call in receiver.received) == sorted(each.id for each in delivered)
        assert max(each.tries for each in delivered) > 1
    await store.close()
