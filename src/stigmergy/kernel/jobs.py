"""A unit that waits to be written, and the caller who waits for it."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from stigmergy.kernel.transaction import Scope


class Job:
    __slots__ = ("args", "context", "error", "future", "kwargs", "loop", "result", "scope", "unit")

    def __init__(self, unit: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any], scope: Scope) -> None:
        self.unit = unit
        self.args = args
        self.kwargs = kwargs
        self.scope = scope
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def answer(self) -> None:
        """Tell the caller, in its own loop. One who went away is not told."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def answer_all(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job.answer()
