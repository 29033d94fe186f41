"""Durable timers: rows with a due time, fired in one unit with what they do.

A timer that fires is deleted in the transaction of its effect, so it takes effect once, whichever process was first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from stigmergy.errors import StigmergyError, StoreClosed
from stigmergy.kernel.bus import Listener
from stigmergy.kernel.database import Database
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction

TOPIC = "timers"
# A timer whose effect failed is tried again after this long.
RETRY_MS = 5_000
# The longest sleep, should the bus lose the news of a new timer.
POLL_SECONDS = 5.0
PAGE = 200

log = logging.getLogger(__name__)

SET = Statement(
    "timers.set",
    """INSERT INTO timers (tenant, kind, id, due_at) VALUES (:tenant, :kind, :id, :due_at)
       ON CONFLICT (tenant, kind, id) DO UPDATE SET due_at = excluded.due_at""",
)
CANCEL = Statement("timers.cancel", "DELETE FROM timers WHERE tenant = :tenant AND kind = :kind AND id = :id")
TAKE = Statement(
    "timers.take",
    "DELETE FROM timers WHERE tenant = :tenant AND kind = :kind AND id = :id AND due_at = :due_at RETURNING id",
)
POSTPONE = Statement(
    "timers.postpone",
    "UPDATE timers SET due_at = :later WHERE tenant = :tenant AND kind = :kind AND id = :id AND due_at = :due_at",
)
DUE = Statement("timers.due", "SELECT tenant, kind, id, due_at FROM timers WHERE kind = :kind ORDER BY due_at LIMIT :limit")


class Timer(NamedTuple):
    tenant: str
    kind: str
    id: str
    due_at: int


Effect = Callable[[Transaction, Timer], Awaitable[None]]


async def set_timer(tx: Transaction, kind: str, id: str, due_at: int) -> None:
    """Set or move a timer."""
    await tx.run(SET, kind=kind, id=id, due_at=due_at)
    tx.wake(TOPIC)


async def cancel_timer(tx: Transaction, kind: str, id: str) -> None:
    await tx.run(CANCEL, kind=kind, id=id)


async def next_timers(tx: Snapshot, kinds: Iterable[str], limit: int = PAGE) -> list[Timer]:
    """The first to come of these kinds, of every tenant."""
    found = [Timer(*row) for kind in kinds for row in await tx.rows(DUE, kind=kind, limit=limit)]
    return sorted(found, key=lambda timer: timer.due_at)


async def fire(tx: Transaction, timer: Timer, effect: Effect) -> bool:
    """Take a due timer and do what it is for. False when somebody else did, or it was moved or cancelled."""
    if not await tx.rows(TAKE, kind=timer.kind, id=timer.id, due_at=timer.due_at):
        return False
    await effect(tx, timer)
    return True


async def postpone(tx: Transaction, timer: Timer, later: int) -> None:
    """Try a timer again later, unless it was fired, moved or cancelled meanwhile."""
    await tx.run(POSTPONE, kind=timer.kind, id=timer.id, due_at=timer.due_at, later=later)
    tx.wake(TOPIC)


class TimerLoop:
    """Fires what is due, in this process, as long as it runs. Kinds without an effect here are left to others."""

    def __init__(self, database: Database, effects: Mapping[str, Effect]) -> None:
        self._database = database
        self._effects = effects

    async def run(self) -> None:
        clock = self._database.clock
        with self._database.bus.listen(TOPIC) as listener:
            while True:
                try:
                    await self._turn(listener)
                except StoreClosed:
                    raise
                except StigmergyError as error:
                    log.warning("the timers cannot be read (%s); they are tried again", error)
                    await clock.sleep(RETRY_MS / 1000)

    async def _turn(self, listener: Listener) -> None:
        """Fire what is due, or sleep until something may be."""
        due = await self._database.read(next_timers, self._effects)
        now = self._database.clock.now()
        ready = [timer for timer in due if timer.due_at <= now]
        await asyncio.gather(*(self._fire(timer) for timer in ready))
        if not ready:
            seconds = (due[0].due_at - now) / 1000 if due else POLL_SECONDS
            await listener.wait(min(seconds, POLL_SECONDS))

    async def _fire(self, timer: Timer) -> None:
        scope = Scope(tenant=timer.tenant, actor="clock")
        try:
            await self._database.write(fire, timer, self._effects[timer.kind], scope=scope)
        except StoreClosed:
            raise
        except Exception:
            # an effect is somebody's code: whatever it raises must not hold up the other timers
            log.exception("the timer %s %s failed; it is tried again", timer.kind, timer.id)
            await self._database.write(postpone, timer, self._database.clock.now() + RETRY_MS, scope=scope)
