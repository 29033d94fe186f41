"""Labelled points that a test may kill the process at. In production they do nothing."""

from collections.abc import Callable

POINTS = (
    "batch.begun",
    "unit.begun",
    "unit.done",
    "unit.settled",
    "batch.flushed",
    "batch.committed",
    "batch.answered",
)

_reached: Callable[[str], None] | None = None


def point(name: str) -> None:
    if _reached is not None:
        _reached(name)


def watch_points(reached: Callable[[str], None] | None) -> None:
    """Have `reached` called with the name of every point that is passed, in whatever thread passes it."""
    global _reached
    _reached = reached
