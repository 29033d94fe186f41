"""The port to a store: units of work go in, their results come out when they are durable.

A unit is a plain `async def unit(tx, …)` that awaits nothing but its `tx`. It may be run more than once before it succeeds.
Both engines keep this contract, and one conformance suite holds them to it:

- `write` returns after the commit. What it returned for is never lost.
- A unit that raises leaves nothing behind, and does not touch the units beside it.
- A unit's outcome is what went wrong first: one that wrote a taken key and then raised something of its own, or caught the
  error, fails with `AlreadyExists`, whenever the engine came to know of it.
- Cancelling the caller removes a unit that has not begun; one that has begun finishes.
- `OutcomeUnknown` is raised when, and only when, nobody can tell whether a commit happened.
- After a failure that the store cannot outlive it is closed and says so: `StoreClosed`.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from stigmergy.errors import UnitAwaited
from stigmergy.kernel.bus import Bus
from stigmergy.kernel.clock import Clock
from stigmergy.kernel.record import Record
from stigmergy.kernel.rules import RuleBook
from stigmergy.kernel.transaction import Scope

T = TypeVar("T")
R = TypeVar("R", bound=Record)

MAIN = Scope()


class Finding(NamedTuple):
    """One thing that was looked at in a store. `advice` says what to do when it is not well."""

    check: str
    well: bool
    detail: str
    advice: str = ""


Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is."""


class Database(Protocol):
    bus: Bus
    clock: Clock
    rules: RuleBook

    async def write(self, unit: Callable[..., Awaitable[T]], /, *args: Any, scope: Scope = MAIN, **kwargs: Any) -> T:
        """Run `unit(tx, *args, **kwargs)` on a `Transaction`."""
        ...

    async def read(self, unit: Callable[..., Awaitable[T]], /, *args: Any, scope: Scope = MAIN, **kwargs: Any) -> T:
        """Run `unit(tx, *args, **kwargs)` on a `Snapshot`."""
        ...

    async def get(self, record: type[R], *key: str | int, scope: Scope = MAIN) -> R | None:
        """One record by its key: the shortest read there is."""
        ...

    async def tenants(self) -> list[str]:
        """Who ever wrote here: for what keeps the store as a whole."""
        ...

    async def check(self) -> list[Finding]:
        """What the engine itself can say of its files and settings."""
        ...

    async def backup(self, target: Path, *, progress: Progress | None = None) -> None:
        """A consistent copy of everything in a new file, while others read and write."""
        ...

    async def close(self) -> None: ...


def mergeable(unit: Callable[..., Any]) -> Callable[..., Any]:
    """Declare that a unit only inserts, so that an engine may put several calls of it into one transaction."""
    unit.mergeable = True  # type: ignore[attr-defined]
    return unit


def foreign_await(unit: Callable[..., Any]) -> UnitAwaited:
    name = getattr(unit, "__qualname__", repr(unit))
    return UnitAwaited(f"the unit {name} awaited something other than its tx; do that before or after the unit, not in it")
