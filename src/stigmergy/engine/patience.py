"""How long is waited for a tool or a model.

It means what `asyncio.timeout` means. But much of what is waited for never waits itself (a function of the program, a scripted
model), and to set a timer and take it back costs more than all else that is done for such a call: a tenth of a step's time on
the event loop. So the work is begun first, and timed when it has to wait.
"""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Steps = Generator[Any, Any, T]


async def within(seconds: float, work: Awaitable[T]) -> T:
    """What comes of the work. `TimeoutError` when it takes longer; then it was cancelled."""
    steps = work.__await__()
    try:
        awaited = next(steps)
    except StopIteration as ended:
        return ended.value
    async with asyncio.timeout(seconds):
        return await _Begun(steps, awaited)


class _Begun(Generic[T]):
    """Work that waits for the first time. What it waits for is handed to the event loop as if it had been right away."""

    def __init__(self, steps: Steps[T], awaited: Any) -> None:
        self._steps = steps
        self._awaited = awaited

    def __await__(self) -> Steps[T]:
        try:
            yield self._awaited
        except BaseException as error:
            try:
                awaited = self._steps.throw(error)
            except StopIteration as ended:
                return ended.value
            return (yield from _Begun(self._steps, awaited).__await__())
        return (yield from self._steps)
