"""The positions of a run's log, and who may take them."""

import asyncio

import asyncpg
import pytest

from stigmergy.errors import LeaseLost
from stigmergy.kernel.database import Database
from stigmergy.kernel.leases import Claim, claim, enlist, enqueue
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs import store as runs
from support.postgres import DatabaseUrls, PostgresServer
from support.stores import postgres_opener
from support.units import PATIENCE

WAITING = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"


async def begin(tx: Transaction, run_id: str) -> str:
    """A run that is ready, and a worker."""
    await tx.run(runs.ADD_HEAD, run_id=run_id, pos=2, agent="ada", queue="q")
    await enqueue(tx, "q", run_id)
    return await enlist(tx)


async def position(tx: Snapshot, run_id: str) -> int:
    return (await tx.rows(runs.POSITION, run_id=run_id))[0][0]


async def test_a_worker_takes_positions_of_the_run_that_it_holds_and_of_no_other(store: Database) -> None:
    worker = await store.write(begin, "r")
    await store.write(begin, "s")
    (held,) = [each for each in await store.write(claim, "q", worker, 2) if each.id == "r"]
    assert await store.write(runs.advance_held, worker, held, 3) == 3
    assert await store.write(runs.advance_held, worker, held, 1) == 6
    for other, wrong in (("somebody", held), (worker, held._replace(fence=held.fence + 1)), (worker, held._replace(id="gone"))):
        with pytest.raises(LeaseLost):
            await store.write(runs.advance_held, other, wrong, 1)
    assert [await store.read(position, id) for id in ("r", "s")] == [6, 2]


@pytest.mark.postgres
async def test_a_run_that_is_taken_over_while_its_worker_waits_for_it_is_refused_to_the_worker(
    postgres_server: PostgresServer, postgres_database: DatabaseUrls
) -> None:
    """Its statement had begun before, and saw the claim as it was then."""
    connection = await asyncpg.connect(postgres_server.url_admin(postgres_database.app.rpartition("/")[2].partition("?")[0]))
    store = await postgres_opener(postgres_database)()
    worker = await store.write(begin, "r")
    (held,) = await store.write(claim, "q", worker)
    for fence, lost in ((held.fence, False), (held.fence + 1, True)):
        await connection.execute("BEGIN")
        await connection.execute("SELECT 1 FROM run_heads WHERE run_id = 'r' FOR UPDATE")
        late = asyncio.create_task(store.write(runs.advance_held, worker, Claim("main", "q", "r", held.fence), 1))
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval(WAITING) < 1:  # noqa: ASYNC110  # a lock that is waited for tells nobody
                await asyncio.sleep(0.001)
        await connection.execute("UPDATE ready SET fence = $1 WHERE id = 'r'", fence)
        await connection.execute("COMMIT")
        (said,) = await asyncio.gather(late, return_exceptions=True)
        assert isinstance(said, LeaseLost) if lost else said == 3
    assert await store.read(position, "r") == 3
    await store.close()
    await connection.close()
