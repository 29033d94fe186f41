"""A reply that races the wait it answers, a thousand times in both orders: it is the wait's answer, or, said before the question,
a message that starts a run of its own. Never both, never neither."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import asyncpg
import pytest

from stigmergy.agents.model import Definition, Limits
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs import store as runs
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.model import Run, ToolCall, Wait
from stigmergy.runs.tools import Acting, Waiting
from stigmergy.runs.waits import open_waits
from stigmergy.spaces.model import SpaceMessage
from stigmergy.spaces.tools import send_message
from stigmergy.spaces.waking import cause_key
from support.postgres import DatabaseUrls, PostgresServer
from support.stores import OpenStore, postgres_opener
from support.talk import say, space_of
from support.units import PATIENCE

ROUNDS = 1_000
AT_ONCE = 40
# How many conversations are held at once on PostgreSQL: each of their two units has a connection of its own.
HELD = 3
WAITING = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
ADA, BOB = "agent:ada", "agent:bob"
# More of her runs wait at once than an agent's may, unless it is said.
ADA_DEFINITION = Definition(name="ada", model="scripted:nobody", limits=Limits(waiting_runs=10 * ROUNDS))


class Round(NamedTuple):
    """A run of ada at work in a space, which is about to ask bob."""

    number: int
    space_id: str
    run_id: str


class Outcome(NamedTuple):
    wait: str
    call: str
    runs_for_the_reply: int


async def prepare(tx: Transaction, numbers: list[int]) -> list[Round]:
    made: list[Round] = []
    for number in numbers:
        space = await space_of(tx, "mia", ADA, BOB)
        run = await start_run(tx, Start(agent="ada", owner_id="mia", space_id=space.id, active_space_id=space.id))
        await tx.update(run, status="running", step=1)
        about = {"owner_id": "mia", "space_id": space.id, "opened_pos": 1, "step": 1, "args": {}}
        await tx.insert(ToolCall(run_id=run.id, id="c1", tool_name="send_message", status="running", **about))
        made.append(Round(number, space.id, run.id))
    return made


async def ask(tx: Transaction, on: Round) -> None:
    """What the engine does with `send_message(…, wait=true)`, but for the claim of the worker."""
    run, call = await tx.get(Run, on.run_id), await tx.get(ToolCall, on.run_id, "c1")
    assert run is not None
    assert call is not None
    outcome = await send_message(tx, Acting(run, ADA_DEFINITION, call), {"text": "@bob, which colour?", "wait": True})
    assert isinstance(outcome, Waiting)
    await runs.lock_head(tx, run.id)
    await open_waits(tx, await runs.the_run(tx, run.id), "c1", outcome)


async def reply(tx: Transaction, on: Round, id: str = "reply") -> SpaceMessage:
    return await say(tx, BOB, on.space_id, "@ada, green", id=f"{id}-{on.number}")


async def outcome(tx: Snapshot, on: Round, id: str = "reply") -> Outcome:
    wait, call = await tx.get(Wait, on.run_id, "c1", BOB), await tx.get(ToolCall, on.run_id, "c1")
    assert wait is not None
    assert call is not None
    started = await tx.find(runs.OF_CAUSE, cause_key=cause_key(f"{id}-{on.number}", "ada"))
    return Outcome(wait.status, call.status, len(started))


ANSWERED = Outcome("answered", "success", 0)
HEARD_BEFORE = Outcome("open", "running", 1)


async def both_orders_end_well(store: Database, rounds: list[Round]) -> tuple[int, int]:
    """How often the reply was the answer, and how often it came first; then it is answered after all, by the next words."""
    found = [await store.read(outcome, on) for on in rounds]
    assert set(found) <= {ANSWERED, HEARD_BEFORE}
    early = [on for on, was in zip(rounds, found, strict=True) if was == HEARD_BEFORE]
    await asyncio.gather(*(store.write(reply, on, "again") for on in early))
    for on in early:
        assert await store.read(outcome, on, "again") == ANSWERED
    return len(rounds) - len(early), len(early)


async def test_a_reply_and_its_wait_in_any_order_of_units_meet_once(engine: str, open_store: OpenStore) -> None:
    """Units begin in an order that a seeded scheduler draws, over forty conversations at once."""
    scheduler = random.Random(20_261_119)
    store = await open_store(**({"synchronous": "NORMAL"} if engine == "sqlite" else {}))
    rounds = ROUNDS if engine == "sqlite" else 5 * AT_ONCE  # there it has no say in who comes first: see the next test
    answered = early = 0
    for first in range(0, rounds, AT_ONCE):
        prepared = await store.write(prepare, list(range(first, first + AT_ONCE)))
        units: list[tuple[Callable[..., Awaitable[object]], Round]] = [(unit, on) for on in prepared for unit in (ask, reply)]
        scheduler.shuffle(units)
        expected_early = {on.number for place, (unit, on) in enumerate(units) if unit is reply and (ask, on) in units[place:]}
        await asyncio.gather(*(store.write(unit, on) for unit, on in units))
        counts = await both_orders_end_well(store, prepared)
        if engine == "sqlite":
            assert counts == (AT_ONCE - len(expected_early), len(expected_early))
        answered, early = answered + counts[0], early + counts[1]
    await store.close()
    assert answered + early == rounds
    assert min(answered, early) > rounds / 10


# ---- PostgreSQL: both have begun before either can go on ----


async def race(connection: "asyncpg.Connection[asyncpg.Record]", store: Database, rounds: list[Round]) -> None:
    """Hold the locks of these spaces until the first unit of each waits for them, and then the second: so both have begun, in
    this order, before either can go on."""
    await connection.execute("BEGIN")
    spaces = [on.space_id for on in rounds]
    await connection.execute("SELECT 1 FROM space_heads WHERE space_id = ANY($1) FOR UPDATE", spaces)
    started: list[asyncio.Task[object]] = []
    for turn in (0, 1):
        for on in rounds:
            unit: Callable[..., Awaitable[object]] = (ask, reply)[(on.number + turn) % 2]
            started.append(asyncio.create_task(store.write(unit, on)))
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval(WAITING) < len(started):  # noqa: ASYNC110  # a lock that is waited for tells nobody
                await asyncio.sleep(0.001)
    await connection.execute("COMMIT")
    await asyncio.gather(*started)


@pytest.mark.postgres
@pytest.mark.parametrize("rounds", [4 * AT_ONCE, pytest.param(ROUNDS, marks=pytest.mark.soak)])
async def test_a_reply_and_its_wait_that_overlap_never_miss_each_other(
    postgres_server: PostgresServer, postgres_database: DatabaseUrls, rounds: int
) -> None:
    name = postgres_database.app.rpartition("/")[2].partition("?")[0]
    connection = await asyncpg.connect(postgres_server.url_admin(name))
    # who sees whom does not hang on the disk, and there are thousands of commits
    await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    store = await postgres_opener(postgres_database)()
    answered = early = 0
    for first in range(0, rounds, AT_ONCE):
        prepared = await store.write(prepare, list(range(first, first + AT_ONCE)))
        for place in range(0, AT_ONCE, HELD):
            await race(connection, store, prepared[place : place + HELD])
        counts = await both_orders_end_well(store, prepared)
        answered, early = answered + counts[0], early + counts[1]
    await connection.close()
    await store.close()
    assert answered + early == rounds
    assert min(answered, early) > rounds / 3
