"""Labelled points that a test may kill the process at. In production they do nothing."""

from collections.abc import Callable

# On both engines. Half of a flush: on SQLite the journal's rows without the head, on PostgreSQL the head without the rows.
POINTS = (
    "migration.applied",
    "batch.begun",
    "unit.begun",
    "unit.done",
    "unit.numbered",
    "unit.settled",
    "flush.half",
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
