"""Time, injected: the wall clock for what is stored, the monotonic clock for how long something took."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since the epoch, as stored."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump, for leases and timeouts of this process."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that moves when told to. Sleepers wake when their moment has come."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self._now = now
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return await asyncio.sleep(0)
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._monotonic + seconds, woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Let time pass for both clocks. Call it from the sleepers' event loop."""
        self._now += round(seconds * 1000)
        self._monotonic += seconds
        for moment, woken in self._sleepers:
            if moment <= self._monotonic and not woken.done():
                woken.set_result(None)
        self._sleepers = [(moment, woken) for moment, woken in self._sleepers if not woken.done()]

    def jump(self, seconds: float) -> None:
        """Set the wall clock alone, as an operator or NTP does."""
        self._now += round(seconds * 1000)
