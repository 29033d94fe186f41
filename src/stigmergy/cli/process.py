"""What the processes that stay (`serve`, `worker`) have in common: their event loop, their log, their garbage collector, and who
ends them."""

import asyncio
import gc
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
# Objects that are made, and not yet thrown away, before Python looks for garbage among them. At its 700, requests that are under
# way are looked at again and again.
YOUNG_OBJECTS = 10_000


def run_process(settings: Settings, main: Coroutine[Any, Any, T]) -> T:
    """Run until it has ended."""
    sys.setswitchinterval(SWITCH_SECONDS)
    set_up_logs(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop is not None else None) as runner:
        return runner.run(main)


def spare_what_stays() -> None:
    """To be called when all is loaded: what is there now is there to the end, and the garbage collector need not look at it
    again. Looking through it stopped a busy server for 50 ms twice a second, a seventh of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)


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
