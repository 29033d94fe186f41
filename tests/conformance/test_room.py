"""An agent does only so much at once: the next run waits for room, and never when there is some."""

import asyncio

from stigmergy.agents.model import Limits
from stigmergy.agents.store import named
from stigmergy.kernel.database import Database
from stigmergy.kernel.leases import Claim, claim, enlist
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs import steps
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.endings import cancel_run
from stigmergy.runs.model import Run
from support.talk import add_agents

ROUNDS = 40
PARKED = Statement("test.parked", "SELECT count(*) FROM run_heads WHERE tenant = :tenant AND parked")
WORKING = Statement("test.working", "SELECT count(*) FROM run_heads WHERE tenant = :tenant AND active")


async def begun(store: Database, worker: str) -> tuple[Run, Claim]:
    """A run that was claimed."""
    run = await store.write(start_run, Start(agent="one", owner_id="mia", space_id="s"))
    record = await store.read(named, "one")
    (claimed,) = await store.write(claim, record.queue, worker)
    assert claimed.id == run.id
    return run, claimed


async def counted(tx: Snapshot) -> tuple[int, int]:
    return (await tx.rows(PARKED))[0][0], (await tx.rows(WORKING))[0][0]


async def stop(tx: Transaction, run: Run) -> None:
    await cancel_run(tx, run.id)


async def test_a_run_that_begins_while_another_makes_room_does_not_wait_for_ever(store: Database) -> None:
    await store.write(add_agents, "one", limits=Limits(concurrent_runs=1))
    worker = await store.write(enlist)
    for _ in range(ROUNDS):
        first, held = await begun(store, worker)
        assert await store.write(steps.begin, worker, held) is not None
        second, claimed = await begun(store, worker)
        await asyncio.gather(store.write(stop, first), store.write(steps.begin, worker, claimed))
        parked, working = await store.read(counted)
        assert not parked, "it waits, and nobody is there who would make room"
        assert working <= 1
        await store.write(stop, second)


async def test_of_runs_that_begin_at_once_no_more_do_than_may(store: Database) -> None:
    await store.write(add_agents, "one", limits=Limits(concurrent_runs=3))
    worker = await store.write(enlist)
    claims = [(await begun(store, worker))[1] for _ in range(12)]
    loaded = await asyncio.gather(*(store.write(steps.begin, worker, each) for each in claims))
    assert sum(each is not None for each in loaded) == 3
    assert await store.read(counted) == (9, 3)


async def test_a_run_that_is_given_back_makes_room_for_the_next(store: Database) -> None:
    await store.write(add_agents, "one", limits=Limits(concurrent_runs=1))
    worker = await store.write(enlist)
    _, held = await begun(store, worker)
    assert await store.write(steps.begin, worker, held) is not None
    _, waits = await begun(store, worker)
    assert await store.write(steps.begin, worker, waits) is None
    assert await store.read(counted) == (1, 1)
    await store.write(steps.give_back, worker, held, after_ms=60_000)
    assert await store.read(counted) == (0, 0)
    (again,) = await store.write(claim, waits.queue, worker, 5)
    assert again.id == waits.id
