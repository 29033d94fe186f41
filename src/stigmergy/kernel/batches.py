"""Claims settled many at a time, for whoever holds many: one statement for all of a queue's items.

It waits for nobody: an item that somebody is making ready in this very moment is passed by, so that who holds items of `ready`
and who holds a tenant's head cannot wait for each other. (A worker is its own fence here: one that was declared dead has no
items, and comes back under another name.)
"""

from collections.abc import Sequence

from stigmergy.kernel.leases import NEVER, ready_topic
from stigmergy.kernel.query import Statement, as_each
from stigmergy.kernel.transaction import Transaction

_IN_HAND = """(WITH mine AS MATERIALIZED (
               SELECT id FROM ready WHERE tenant = :of AND queue = :queue AND worker = :worker
                 AND id IN (SELECT value FROM {each:ids}) {skip_locked})
           SELECT id FROM mine)"""
FINISH_ALL = Statement(
    "ready.finish_all",
    f"DELETE FROM ready WHERE tenant = :of AND queue = :queue AND due_at = :never AND id IN {_IN_HAND} RETURNING id",
)
AGAIN_ALL = Statement(
    "ready.again_all",
    f"""UPDATE ready SET worker = NULL
        WHERE tenant = :of AND queue = :queue AND due_at < :never AND id IN {_IN_HAND} RETURNING id""",
)
RELEASE_ALL = Statement(
    "ready.release_all",
    f"""UPDATE ready SET worker = NULL, due_at = CASE WHEN due_at > :due_at THEN :due_at ELSE due_at END
        WHERE tenant = :of AND queue = :queue AND id IN {_IN_HAND} RETURNING id""",
)


async def finish_all(tx: Transaction, worker: str, of: str, queue: str, ids: Sequence[str]) -> set[str]:
    """Finish many items of a tenant's queue. Gives those that are settled: what was lost, or is being made ready in this very
    moment, is not among them. It waits for nobody, so it can deadlock with nobody."""
    mine = {"of": of, "queue": queue, "worker": worker, "never": NEVER}
    done = {row[0] for row in await tx.rows(FINISH_ALL, **mine, ids=as_each(ids))}
    rest = [id for id in ids if id not in done]
    again = {row[0] for row in await tx.rows(AGAIN_ALL, **mine, ids=as_each(rest))} if rest else set[str]()
    if again:
        tx.wake(ready_topic(queue))
    return done | again


async def release_all(tx: Transaction, worker: str, of: str, queue: str, ids: Sequence[str], due_at: int) -> set[str]:
    """Give many items back, to be taken then, or sooner if somebody made them ready meanwhile. Gives those that are, as above."""
    rows = await tx.rows(RELEASE_ALL, of=of, queue=queue, worker=worker, ids=as_each(ids), due_at=due_at)
    if rows:
        tx.wake(ready_topic(queue))
    return {row[0] for row in rows}
