"""How benchmarks print: a number, the raw limit it stands beside, their ratio, and whether that is what we promise."""

from typing import Any


def line(
    what: str, rate: float, *, raw: float | None = None, of: str = "raw", wanted: float | None = None, unit: str = "/s"
) -> bool:
    """One measurement. `wanted` is the ratio to `raw`, or the rate itself where there is no raw limit."""
    value = rate / raw if raw else rate
    text = f"{what:<58} {rate:>11,.0f}{unit}"
    if raw:
        text += f"  {value:>6.2f} x {of}"
    kept = wanted is None or value >= wanted
    if wanted is not None:
        bound = f"{wanted:,.2f} x" if raw else f"{wanted:,.0f}{unit}"
        text += f"  (at least {bound}: {'kept' if kept else 'MISSED'})"
    print(text, flush=True)
    return kept


def title(text: str, **facts: Any) -> None:
    print(f"\n{text}" + (f"  [{', '.join(f'{name} {value}' for name, value in facts.items())}]" if facts else ""), flush=True)
