"""What the processes that stay (`serve`, `worker`) have in common: their event loop, their log, and who ends them."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from stigmergy.settings import Settings
from stigmergy.telemetry import set_up_logs

try:
    import uvloop
except ImportError:  # not to be had on Windows
    uvloop = None

T = TypeVar("T")
# Threads give way to each other after this long. At Python's 5 ms a busy event loop holds the writer thread up for as long
# at every statement.
SWITCH_SECONDS = 0.00005


def run_process(settings: Settings, main: Coroutine[Any, Any, T]) -> T:
    """Run until it has ended."""
    sys.setswitchinterval(SWITCH_SECONDS)
    set_up_logs(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop is not None else None) as runner:
        return runner.run(main)


@contextmanager
def on_signals(end: Callable[[signal.Signals], None]) -> Generator[None]:
    """Call this, in the loop, for every signal that asks the process to end."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        loop.add_signal_handler(each, end, each)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
