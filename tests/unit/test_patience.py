"""Waiting for a bounded time: as `asyncio.timeout` does it, without a timer for what need not wait."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest

from stigmergy.engine.patience import within

Work = Callable[[list[str]], Coroutine[Any, Any, str]]
SHORT, LONG = 0.02, 30.0


async def at_once(told: list[str]) -> str:
    return "done"


async def after_a_turn(told: list[str]) -> str:
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    return "done"


async def breaks_at_once(told: list[str]) -> str:
    raise ValueError("no")


async def breaks_later(told: list[str]) -> str:
    await asyncio.sleep(0.001)
    raise ValueError("no")


async def times_out_by_itself(told: list[str]) -> str:
    async with asyncio.timeout(0.001):
        await asyncio.sleep(LONG)
    return "never"


async def cleans_up(told: list[str]) -> str:
    try:
        await asyncio.sleep(LONG)
    finally:
        await asyncio.sleep(0.001)
        told.append("clean")
    return "never"


async def cleans_up_after_a_turn(told: list[str]) -> str:
    await asyncio.sleep(0)
    return await cleans_up(told)


async def will_not_be_stopped(told: list[str]) -> str:
    try:
        await asyncio.sleep(LONG)
    except asyncio.CancelledError:
        told.append("stays")
    return "done all the same"


async def waits_for_others(told: list[str]) -> str:
    return "".join(await asyncio.gather(after_a_turn(told), asyncio.to_thread(lambda: "!")))


ENDING: list[Work] = [at_once, after_a_turn, breaks_at_once, breaks_later, times_out_by_itself, waits_for_others]
LASTING: list[Work] = [cleans_up, cleans_up_after_a_turn, will_not_be_stopped]


async def by_asyncio(seconds: float, work: Awaitable[str]) -> str:
    async with asyncio.timeout(seconds):
        return await work


async def outcome(way: Callable[[float, Awaitable[str]], Awaitable[str]], work: Work, seconds: float, stopped: bool) -> list[str]:
    """What came of it, what it told of itself, and whether its task is asked to stop after it."""
    told: list[str] = []

    async def whole() -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            told.append(await way(seconds, work(told)))
        except BaseException as error:
            told.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            told.append(f"cancelling {task.cancelling()}")

    task = asyncio.create_task(whole())
    if stopped:
        await asyncio.sleep(SHORT / 2)
        task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    return [*told, type(ended).__name__]


@pytest.mark.parametrize(
    ("work", "seconds", "stopped"),
    [
        *((work, LONG, False) for work in ENDING),
        *((work, SHORT, False) for work in LASTING),
        *((work, LONG, True) for work in LASTING),
    ],
)
async def test_it_means_what_asyncios_own_timeout_means(work: Work, seconds: float, stopped: bool) -> None:
    assert await outcome(within, work, seconds, stopped) == await outcome(by_asyncio, work, seconds, stopped)


class Reckless:
    """Something to wait for that is no coroutine."""

    def __await__(self) -> Generator[Any, Any, str]:
        yield from asyncio.sleep(0.001).__await__()
        return "done"


async def test_anything_can_be_waited_for_and_what_is_late_is_stopped() -> None:
    assert await within(LONG, Reckless()) == "done"
    ready = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        await within(SHORT, ready)
    assert ready.cancelled()


def test_no_timer_is_set_for_what_need_not_wait() -> None:
    timers: list[float] = []

    class Loop(asyncio.SelectorEventLoop):
        def call_at(self, when: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            timers.append(when)
            return super().call_at(when, *args, **kwargs)

    async def both() -> list[int]:
        set_then: list[int] = []
        for work in (at_once([]), will_not_be_stopped([])):
            await within(SHORT, work)
            set_then.append(len(timers))
        return set_then

    with asyncio.Runner(loop_factory=Loop) as runner:
        none, some = runner.run(both())
    assert none == 0
    assert some > 0
