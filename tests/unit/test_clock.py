"""The clock that tests move."""

import asyncio
import time

import pytest

from stigmergy.kernel.clock import Clock, ManualClock, SystemClock


async def test_sleepers_wake_in_their_moment_and_not_before() -> None:
    clock = ManualClock()
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3, 1, 2)]
    await asyncio.sleep(0)
    for moment, expected in ((0.5, []), (1, [1]), (1.5, [1]), (4, [1, 3, 2])):
        clock.advance(moment - clock.monotonic())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert woken == expected
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_sleep_of_no_time_ends_by_itself(seconds: float) -> None:
    async with asyncio.timeout(5):
        await ManualClock().sleep(seconds)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)
    clock.advance(2)
    assert sleeper.cancelled()


async def test_a_jump_moves_the_wall_clock_alone_and_wakes_nobody() -> None:
    clock = ManualClock(now=1000)
    sleeper = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    clock.jump(3600)
    assert (clock.now(), clock.monotonic()) == (3_601_000, 0)
    clock.jump(-7200)
    assert (clock.now(), clock.monotonic()) == (-3_599_000, 0)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(1)
    await sleeper
    assert (clock.now(), clock.monotonic()) == (-3_598_000, 1)


@pytest.mark.parametrize("seconds", [0.001, 0.29, 1.15, 2.3, 4.35, 1.001])
def test_no_millisecond_is_lost_in_rounding(seconds: float) -> None:
    clock = ManualClock(now=0)
    clock.advance(seconds)
    assert clock.now() == round(seconds * 1000)


async def test_the_systems_clock_tells_the_time() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.now() - time.time() * 1000) < 1000
    before = clock.monotonic()
    await clock.sleep(0.01)
    assert 0.009 < clock.monotonic() - before < 5
