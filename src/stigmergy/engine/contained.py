"""A program's own code may raise what is meant for the whole process: `sys.exit` in a tool that wraps a command, a cancellation
of something that it had awaited. Neither may end the worker, or have it believe that it was itself told to stop."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class BrokeOff(Exception):
    """The code ended with this instead of an error."""


async def contained(work: Awaitable[T]) -> T:
    """What the work gives. `BrokeOff` where it wants to exit, or was cancelled though nobody cancels this task."""
    try:
        return await work
    except SystemExit as error:
        raise BrokeOff(f"it called exit({error.code!r})") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise BrokeOff("it was cancelled, and not by its run") from error
