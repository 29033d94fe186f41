"""Writers that meet: nothing is lost, and of two that must see each other the later one does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import asyncpg
import pytest

from stigmergy.errors import AlreadyExists, VersionConflict
from stigmergy.kernel.database import Database, mergeable
from stigmergy.kernel.history import read_history
from stigmergy.kernel.transaction import Snapshot, Transaction
from support.notes import Entry, Note
from support.postgres import DatabaseUrls, PostgresServer
from support.stores import postgres_opener
from support.units import PATIENCE, add, increment, remove, rewrite, there, whole_journal

ROUNDS = 200
Unit = Callable[..., Awaitable[Any]]


async def test_of_fifty_updates_of_one_version_one_wins_and_no_history_is_lost(store: Database) -> None:
    note = await store.write(add, "n", text="start")
    for turn in range(3):
        results = await asyncio.gather(
            *(store.write(rewrite, note, text=f"{turn}/{n}") for n in range(50)), return_exceptions=True
        )
        won = [result for result in results if isinstance(result, Note)]
        assert len(won) == 1
        assert sum(isinstance(result, VersionConflict) for result in results) == 49
        note = won[0]
        assert note == await store.get(Note, "n")
    assert [(c.seq, c.version) for c in await whole_journal(store)] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert [note.version for note in await store.read(read_history, Note, "n")] == [4, 3, 2, 1]


async def test_no_increment_under_a_lock_is_lost(store: Database) -> None:
    await store.write(add, "n")

    async def caller() -> None:
        for _ in range(5):
            await store.write(increment, "n")

    await asyncio.gather(*(caller() for _ in range(20)))
    note = await store.get(Note, "n")
    assert note is not None
    assert (note.data["n"], note.version) == (100, 101)
    history = await store.read(read_history, Note, "n", limit=200)
    assert [note.data.get("n", 0) for note in history] == list(range(100, -1, -1))


async def test_of_twenty_inserts_of_one_key_one_succeeds(store: Database) -> None:
    results = await asyncio.gather(*(store.write(add, "n", text=str(n)) for n in range(20)), return_exceptions=True)
    assert sum(isinstance(result, Note) for result in results) == 1
    assert sum(isinstance(result, AlreadyExists) for result in results) == 19
    assert len(await whole_journal(store)) == 1


@pytest.mark.parametrize("deleted_before", [False, True])
async def test_of_twenty_that_insert_if_absent_one_does(store: Database, deleted_before: bool) -> None:
    if deleted_before:
        await store.write(add, "n")
        await store.write(remove, "n")

    async def unit(tx: Transaction, n: int) -> Note | None:
        return await tx.insert_new(Note(id="n", text=str(n)))

    results = await asyncio.gather(*(store.write(unit, n) for n in range(20)))
    (won,) = [result for result in results if result is not None]
    assert won == await store.get(Note, "n")
    assert won.version == (3 if deleted_before else 1)


async def test_of_a_deletion_and_an_update_of_one_version_one_wins(store: Database) -> None:
    for n in range(20):
        note = await store.write(add, f"n{n}")
        results = await asyncio.gather(
            store.write(rewrite, note, text="new"), store.write(remove, note.id), return_exceptions=True
        )
        left = await store.get(Note, note.id)
        refused = [isinstance(result, VersionConflict) for result in results]
        # a deletion that reads the record after the update was committed removes that version: then both are right
        assert refused in ([True, False], [False, True], [False, False])
        assert (left is None) == (not refused[1])
    changes = await whole_journal(store)
    assert [change.seq for change in changes] == list(range(1, len(changes) + 1))


async def test_two_that_lock_the_same_rows_in_opposite_order_both_succeed(store: Database) -> None:
    for id in ("a", "b"):
        await store.write(add, id)

    async def both(tx: Transaction, first: str, second: str) -> None:
        await increment(tx, first)
        await increment(tx, second)

    for _ in range(3):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(store.write(both, "a", "b"), store.write(both, "b", "a"))
    for id in ("a", "b"):
        note = await store.get(Note, id)
        assert note is not None
        assert note.data["n"] == 6


async def test_writers_of_many_kinds_at_once_leave_a_whole_journal(store: Database) -> None:
    await store.write(add, "shared")

    @mergeable
    async def entry(tx: Transaction, n: int) -> Entry:
        return await tx.insert(Entry(note_id="shared", pos=n))

    units: list[Awaitable[Any]] = []
    for n in range(40):
        units += [store.write(increment, "shared"), store.write(entry, n), store.write(add, f"n{n}")]
    await asyncio.gather(*units)
    changes = await whole_journal(store)
    assert [change.seq for change in changes] == list(range(1, 122))
    assert [c.record.pos for c in changes if isinstance(c.record, Entry)] == sorted(range(40))
    assert [change.version for change in changes if change.id == "shared"] == list(range(1, 42))
    for change in changes:
        assert change.record is not None
        assert change.record.seq == change.seq


# A wait and its answer: two units that must see each other. Each says what it saw of the other.


async def open_wait(tx: Transaction, n: int, gate: str) -> bool:
    """Open a wait, unless the answer is there."""
    await tx.lock(Note, gate)
    answered = await tx.get(Note, f"answer-{n}") is not None
    await add(tx, f"wait-{n}", done=answered)
    return answered


async def answer(tx: Transaction, n: int, gate: str) -> bool:
    """Write the answer, and settle the wait if it is open."""
    await tx.lock(Note, gate)
    wait = await tx.get(Note, f"wait-{n}")
    await add(tx, f"answer-{n}")
    if wait is not None:
        await tx.update(wait, done=True)
    return wait is not None


async def careless_open_wait(tx: Transaction, n: int, gate: str) -> bool:
    """Looks before it locks."""
    answered = await tx.get(Note, f"answer-{n}") is not None
    await tx.lock(Note, gate)
    await add(tx, f"wait-{n}", done=answered)
    return answered


async def careless_answer(tx: Transaction, n: int, gate: str) -> bool:
    wait = await tx.get(Note, f"wait-{n}")
    await tx.lock(Note, gate)
    await add(tx, f"answer-{n}")
    return wait is not None


async def is_settled(tx: Snapshot, n: int) -> bool:
    return (await there(tx, f"wait-{n}")).done


class Gate:
    """A row that a connection of the test holds, so that units which want it wait together."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", id: str) -> None:
        self._connection = connection
        self._id = id

    @asynccontextmanager
    async def held_for(self, waiting: int) -> AsyncIterator[None]:
        """Hold it while the block starts its units, and until so many wait."""
        await self._connection.execute("BEGIN")
        await self._connection.execute("SELECT 1 FROM notes WHERE id = $1 FOR UPDATE", self._id)
        yield
        async with asyncio.timeout(PATIENCE):
            while await self._waiting() < waiting:
                pass
        await self._connection.execute("COMMIT")

    async def _waiting(self) -> int:
        return await self._connection.fetchval("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")


@pytest.fixture
async def postgres_store(postgres_database: DatabaseUrls) -> AsyncIterator[Database]:
    opened = await postgres_opener(postgres_database)()
    yield opened
    await opened.close()


@pytest.fixture
async def gate(postgres_store: Database, postgres_server: PostgresServer, postgres_database: DatabaseUrls) -> AsyncIterator[Gate]:
    await postgres_store.write(add, "gate")
    name = postgres_database.app.rpartition("/")[2].partition("?")[0]
    connection = await asyncpg.connect(postgres_server.url_admin(name))
    yield Gate(connection, "gate")
    await connection.close()


async def overlap(store: Database, gate: Gate, n: int, *units: Unit) -> list[bool]:
    """Run the units so that all have begun before one of them can go on."""
    async with gate.held_for(len(units)):
        started = [asyncio.create_task(store.write(unit, n, "gate")) for unit in units]
    return await asyncio.gather(*started)


@pytest.mark.postgres
async def test_a_wait_and_its_answer_that_overlap_never_miss_each_other(postgres_store: Database, gate: Gate) -> None:
    settled = 0
    for n in range(ROUNDS):
        order = (open_wait, answer) if n % 2 else (answer, open_wait)
        saw = await overlap(postgres_store, gate, n, *order)
        assert sorted(saw) == [False, True]
        settled += await postgres_store.read(is_settled, n)
    assert settled == ROUNDS


@pytest.mark.postgres
async def test_without_the_lock_they_do_miss_each_other(postgres_store: Database, gate: Gate) -> None:
    """The control: the overlaps above are real ones."""
    for n in range(5):
        assert await overlap(postgres_store, gate, n, careless_open_wait, careless_answer) == [False, False]


async def test_a_wait_and_its_answer_in_either_order_meet(store: Database) -> None:
    await store.write(add, "gate")
    numbers = count()
    for first, second in ((open_wait, answer), (answer, open_wait)):
        n = next(numbers)
        assert [await store.write(first, n, "gate"), await store.write(second, n, "gate")] == [False, True]
        assert await store.read(is_settled, n)
        for _ in range(20):
            n = next(numbers)
            saw = await asyncio.gather(store.write(first, n, "gate"), store.write(second, n, "gate"))
            assert sorted(saw) == [False, True]
            assert await store.read(is_settled, n)


@pytest.mark.postgres
@pytest.mark.parametrize("deleted_twice", [False, True])
async def test_an_insert_over_a_key_that_is_being_deleted_takes_the_next_version(
    postgres_store: Database, postgres_database: DatabaseUrls, deleted_twice: bool
) -> None:
    """Between its question for the last version and its insert another transaction deletes the record."""
    await postgres_store.write(add, "n", text="first")

    async def elsewhere(tx: Transaction) -> None:
        await remove(tx, "n")
        if deleted_twice:
            await add(tx, "n", text="between")
            await remove(tx, "n")

    async def in_another_loop() -> None:
        other = await postgres_opener(postgres_database)()
        await other.write(elsewhere)
        await other.close()

    interfered = False

    async def unit(tx: Transaction) -> Note:
        nonlocal interfered
        made = await add(tx, "n", text="again")
        if not interfered:
            interfered = True
            with ThreadPoolExecutor(1) as threads:
                threads.submit(asyncio.run, in_another_loop()).result(PATIENCE)
        return made

    made = await postgres_store.write(unit)
    assert made.version == (5 if deleted_twice else 3)
    changed = await postgres_store.write(rewrite, made, text="changed")
    assert changed.version == made.version + 1
    versions = [change.version for change in await whole_journal(postgres_store)]
    assert versions == sorted(set(versions))
