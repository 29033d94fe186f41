"""Who works on what: workers that beat, work that is ready, claims with a fence.

A worker has one lease: a counter that it moves. Whoever watches declares it dead when the counter stood still for the
lease's length on the watcher's own monotonic clock, so clocks that are skewed or jump do no harm. What a dead worker held is
ready again; each claim raises the fence of its item, and a writer that comes with an older fence is refused.
"""

from typing import NamedTuple

from stigmergy.errors import LeaseLost
from stigmergy.kernel.clock import Clock
from stigmergy.kernel.ids import new_id
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot, Transaction

ENLIST = Statement(
    "workers.enlist",
    "INSERT INTO workers (id, counter, alive, started_at, describes) VALUES (:id, 0, TRUE, :now, :describes)",
)
KEEP_ALIVE = Statement("workers.keep_alive", "SELECT id FROM workers WHERE id = :id AND alive {for_update}")
BEAT = Statement("workers.beat", "UPDATE workers SET counter = counter + 1 WHERE id = :id AND alive RETURNING counter")
LIVING = Statement("workers.living", "SELECT id, counter FROM workers WHERE alive ORDER BY id")
BURY = Statement("workers.bury", "UPDATE workers SET alive = FALSE WHERE id = :id AND counter = :counter AND alive RETURNING id")
RETIRE = Statement("workers.retire", "DELETE FROM workers WHERE id = :id RETURNING id")
DESCRIBE = Statement("workers.describe", "UPDATE workers SET describes = :describes WHERE id = :id AND alive")
DESCRIBED = Statement("workers.described", "SELECT describes FROM workers WHERE alive ORDER BY id")
LONGEST = Statement(
    "ready.longest",
    """SELECT r.queue, r.tenant, r.id FROM ready r
       JOIN (SELECT queue, min(due_at) AS due_at FROM ready WHERE worker IS NULL AND due_at <= :now GROUP BY queue) q
         ON q.queue = r.queue AND q.due_at = r.due_at
       WHERE r.worker IS NULL ORDER BY r.queue, r.tenant, r.id LIMIT 1000""",
)
FREE = Statement(
    "ready.free",
    """UPDATE ready SET worker = NULL, due_at = CASE WHEN due_at > :now THEN :now ELSE due_at END
       WHERE worker = :worker RETURNING queue""",
)
HELD = Statement("ready.held", "SELECT tenant, queue, id, fence FROM ready WHERE worker = :worker ORDER BY tenant, queue, id")
ENQUEUE = Statement(
    "ready.enqueue",
    """INSERT INTO ready (queue, tenant, id, due_at, worker, fence) VALUES (:queue, :tenant, :id, :due_at, NULL, 0)
       ON CONFLICT (tenant, queue, id) DO UPDATE
       SET due_at = CASE WHEN excluded.due_at < ready.due_at THEN excluded.due_at ELSE ready.due_at END""",
)
CLAIM = Statement(
    "ready.claim",
    """WITH longest AS MATERIALIZED (
           SELECT tenant, queue, id, due_at FROM ready WHERE queue = :queue AND worker IS NULL AND due_at <= :now
           ORDER BY queue, due_at LIMIT :limit {skip_locked})
       UPDATE ready SET worker = :worker, fence = fence + 1, due_at = :never
       FROM longest WHERE ready.tenant = longest.tenant AND ready.queue = longest.queue AND ready.id = longest.id
       RETURNING ready.tenant, ready.queue, ready.id, ready.fence""",
)
HOLD = Statement(
    "ready.hold",
    """SELECT fence FROM ready
       WHERE tenant = :of AND queue = :queue AND id = :id AND worker = :worker AND fence = :fence {for_update}""",
)
RELEASE = Statement(
    "ready.release",
    """UPDATE ready SET worker = NULL, due_at = CASE WHEN due_at > :due_at THEN :due_at ELSE due_at END
       WHERE tenant = :of AND queue = :queue AND id = :id""",
)
FINISH = Statement(
    "ready.finish",
    "DELETE FROM ready WHERE tenant = :of AND queue = :queue AND id = :id AND due_at = :never RETURNING id",
)
WITHDRAW = Statement("ready.withdraw", "DELETE FROM ready WHERE tenant = :tenant AND queue = :queue AND id = :id")
# The due time of an item in hand, until somebody makes it ready again meanwhile.
NEVER = 2**62


class Claim(NamedTuple):
    """An item that a worker holds, with the fence it got for it."""

    tenant: str
    queue: str
    id: str
    fence: int


def ready_topic(queue: str) -> str:
    return f"ready/{queue}"


async def enlist(tx: Transaction, describes: str = "") -> str:
    """A new worker. Its lease starts with its first beat seen."""
    worker = new_id()
    await tx.run(ENLIST, id=worker, now=tx.now, describes=describes)
    return worker


async def beat(tx: Transaction, worker: str) -> list[Claim]:
    """Live on. Gives what the worker still holds; `LeaseLost` when it was declared dead meanwhile."""
    if not await tx.rows(BEAT, id=worker):
        raise _dead(worker)
    return await held(tx, worker)


async def held(tx: Snapshot, worker: str) -> list[Claim]:
    """What a worker holds."""
    return [Claim(*row) for row in await tx.rows(HELD, worker=worker)]


def _dead(worker: str) -> LeaseLost:
    return LeaseLost(f"worker {worker} was declared dead; enlist again and give up what it held")


async def living(tx: Snapshot) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in await tx.rows(LIVING)]


async def describe(tx: Transaction, worker: str, describes: str) -> None:
    """Say what a worker does."""
    await tx.run(DESCRIBE, id=worker, describes=describes)


async def described(tx: Snapshot) -> list[str]:
    """What the living workers say of themselves."""
    return [row[0] for row in await tx.rows(DESCRIBED)]


async def longest_ready(tx: Snapshot) -> list[Claim]:
    """Of every queue in which something waits for a worker, what has waited the longest; nobody holds it yet."""
    found = {row[0]: Claim(row[1], row[0], row[2], 0) for row in reversed(await tx.rows(LONGEST, now=tx.now))}
    return list(found.values())


async def bury(tx: Transaction, worker: str, counter: int) -> bool:
    """Declare a worker dead, if it has not beaten since it was seen at this count. What it held is ready again."""
    if not await tx.rows(BURY, id=worker, counter=counter):
        return False
    await _free(tx, worker)
    return True


async def retire(tx: Transaction, worker: str) -> None:
    """Leave in good order."""
    await tx.rows(RETIRE, id=worker)
    await _free(tx, worker)


async def _free(tx: Transaction, worker: str) -> None:
    for (queue,) in await tx.rows(FREE, worker=worker, now=tx.now):
        tx.wake(ready_topic(queue))


async def enqueue(tx: Transaction, queue: str, id: str, due_at: int | None = None) -> None:
    """Make an item ready, now or from a moment on. One that is ready already keeps the earlier moment; one that a worker
    holds will be ready again when the worker is done with it."""
    await tx.run(ENQUEUE, queue=queue, id=id, due_at=tx.now if due_at is None else due_at)
    tx.wake(ready_topic(queue))


async def claim(tx: Transaction, queue: str, worker: str, limit: int = 1) -> list[Claim]:
    """Take what has been due the longest, of every tenant. `LeaseLost` when the worker was declared dead: nobody would
    look after what it took."""
    if not await tx.rows(KEEP_ALIVE, id=worker):
        raise _dead(worker)
    rows = await tx.rows(CLAIM, queue=queue, worker=worker, now=tx.now, limit=limit, never=NEVER)
    return [Claim(*row) for row in rows]


async def hold(tx: Transaction, worker: str, claim: Claim) -> None:
    """Begin every write of a worker with this: refused unless the claim is still its own, and stays so until the commit."""
    found = await tx.rows(HOLD, of=claim.tenant, queue=claim.queue, id=claim.id, worker=worker, fence=claim.fence)
    if not found:
        raise lost(claim)


def lost(claim: Claim) -> LeaseLost:
    return LeaseLost(f"{claim.queue} {claim.id} was taken over from this worker; drop what it was about to write")


async def release(tx: Transaction, worker: str, claim: Claim, due_at: int | None = None) -> None:
    """Give an item back, to be taken again then, or sooner if somebody made it ready meanwhile."""
    await hold(tx, worker, claim)
    await tx.run(RELEASE, of=claim.tenant, queue=claim.queue, id=claim.id, due_at=tx.now if due_at is None else due_at)
    tx.wake(ready_topic(claim.queue))


async def finish(tx: Transaction, worker: str, claim: Claim) -> None:
    """The item is done and leaves the queue, unless somebody made it ready meanwhile."""
    await hold(tx, worker, claim)
    if not await tx.rows(FINISH, of=claim.tenant, queue=claim.queue, id=claim.id, never=NEVER):
        await tx.run(RELEASE, of=claim.tenant, queue=claim.queue, id=claim.id, due_at=NEVER)
        tx.wake(ready_topic(claim.queue))


async def withdraw(tx: Transaction, queue: str, id: str) -> None:
    """Take an item out of the queue, whoever holds it: the next write of its worker is refused."""
    await tx.run(WITHDRAW, queue=queue, id=id)


class Watch:
    """One watcher's memory of when each worker's counter last moved, on its own clock."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._moved: dict[str, tuple[int, float]] = {}

    def expired(self, workers: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Of the living workers and their counters as just read, those that stood still for a whole lease."""
        now = self._clock.monotonic()
        before = self._moved
        self._moved = {}
        for worker, counter in workers:
            seen = before.get(worker)
            self._moved[worker] = seen if seen is not None and seen[0] == counter else (counter, now)
        return [(worker, counter) for worker, (counter, since) in self._moved.items() if now - since >= self._lease_seconds]
