"""How benchmarks print: a number, the raw limit it stands beside, their ratio, and whether that is what we promise.

Beside what the clock says stands what the CPU says, where it was measured: how many in a second of this process's CPU. On a
machine that others use the clock says how busy they are; the CPU is ours.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any


class Spent:
    """What something took, in seconds."""

    clock = 0.0
    cpu = 0.0


@contextmanager
def spent() -> Generator[Spent]:
    taken = Spent()
    clock, cpu = time.perf_counter(), time.process_time()
    yield taken
    taken.clock, taken.cpu = time.perf_counter() - clock, time.process_time() - cpu


def line(
    what: str,
    rate: float,
    *,
    raw: float | None = None,
    of: str = "raw",
    wanted: float | None = None,
    unit: str = "/s",
    cpu: float | None = None,
) -> bool:
    """One measurement. `wanted` is the ratio to `raw`, or the rate itself where there is no raw limit."""
    value = rate / raw if raw else rate
    text = f"{what:<58} {rate:>11,.0f}{unit}"
    if raw:
        text += f"  {value:>6.2f} x {of}"
    if cpu is not None:
        text += f"  {cpu:>9,.0f} in a second of CPU"
    kept = wanted is None or value >= wanted
    if wanted is not None:
        bound = f"{wanted:,.2f} x" if raw else f"{wanted:,.0f}{unit}"
        text += f"  (at least {bound}: {'kept' if kept else 'MISSED'})"
    print(text, flush=True)
    return kept


def percentiles(
    what: str, milliseconds: list[float], *, p50: float | None = None, p99: float | None = None, cpu: float | None = None
) -> bool:
    """How long something took, and whether that is within what we promise."""
    middle, late = median(milliseconds), quantiles(milliseconds, n=100)[98]
    text = f"{what:<58} p50 {middle:>7.2f} ms, p99 {late:>7.2f} ms"
    if cpu is not None:
        text += f", CPU {cpu:.2f} ms"
    kept = (p50 is None or middle <= p50) and (p99 is None or late <= p99)
    bounds = [f"p{name} {bound:g}" for name, bound in (("50", p50), ("99", p99)) if bound is not None]
    if bounds:
        text += f"  (at most {' and '.join(bounds)} ms: {'kept' if kept else 'MISSED'})"
    print(text, flush=True)
    return kept


def title(text: str, **facts: Any) -> None:
    print(f"\n{text}" + (f"  [{', '.join(f'{name} {value}' for name, value in facts.items())}]" if facts else ""), flush=True)
