"""Reads: one snapshot, no write, and no long query that holds up everybody else."""

import asyncio
import time

import pytest

from stigmergy.errors import StigmergyError, UnitAwaited
from stigmergy.kernel.database import Database
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot, Transaction
from support.notes import NOTES, Note
from support.stores import OpenStore

COUNT = Statement("test.count", "SELECT count(*) FROM notes WHERE tenant = :tenant")
LONG = Statement(
    "test.long",
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :upto) SELECT count(*) FROM n WHERE i % 7 <> 3",
)
ALL = NOTES.query("all", "WHERE tenant = :tenant ORDER BY id")


async def add(tx: Transaction) -> Note:
    return await tx.insert(Note(id=tx.new_id()))


async def long_query(tx: Snapshot, upto: int) -> int:
    return (await tx.rows(LONG, upto=upto))[0][0]


async def test_a_long_query_does_not_hold_up_the_event_loop(store: Database) -> None:
    async def longest_pause() -> float:
        longest = 0.0
        while True:
            before = time.perf_counter()
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                return longest
            longest = max(longest, time.perf_counter() - before - 0.005)

    watch = asyncio.create_task(longest_pause())
    await asyncio.sleep(0)
    began = time.perf_counter()
    await store.read(long_query, 3_000_000)
    spent = time.perf_counter() - began
    watch.cancel()
    assert await watch < max(0.1, spent / 3)


async def test_short_reads_go_on_while_long_ones_run(store: Database) -> None:
    note = await store.write(add)
    long = [asyncio.create_task(store.read(long_query, 1_000_000)) for _ in range(4)]
    await asyncio.sleep(0)
    for _ in range(50):
        assert await store.get(Note, note.id) == note
    assert len(set(await asyncio.gather(*long))) == 1


async def test_a_read_of_many_statements_comes_to_its_end(store: Database) -> None:
    await store.write(add)

    async def many(tx: Snapshot) -> int:
        return sum([(await tx.rows(COUNT))[0][0] for _ in range(500)])

    assert await store.read(many) == 500


async def test_a_reading_unit_sees_one_moment(open_store: OpenStore) -> None:
    store = await open_store()
    for _ in range(3):
        await store.write(add)
    seen: set[tuple[int, int]] = set()

    async def twice(tx: Snapshot) -> tuple[int, int]:
        first = (await tx.rows(COUNT))[0][0]
        await tx.rows(LONG, upto=20_000)
        return first, len(await tx.find(ALL))

    async def write_on() -> None:
        for _ in range(60):
            await store.write(add)

    writing = asyncio.create_task(write_on())
    while not writing.done():
        seen.add(await store.read(twice))
        await asyncio.sleep(0)
    await writing
    assert all(first == second for first, second in seen)
    await store.close()


async def test_a_reading_unit_can_write_nothing(store: Database) -> None:
    behind = Statement("test.behind", "DELETE FROM notes WHERE tenant = :tenant")
    note = await store.write(add)

    async def unit(tx: Snapshot) -> None:
        await tx.rows(behind)

    with pytest.raises(StigmergyError):
        await store.read(unit)
    assert await store.get(Note, note.id) == note


async def test_a_reading_unit_that_raises_or_awaits_something_else_harms_nobody(store: Database) -> None:
    async def raises(tx: Snapshot) -> None:
        await tx.rows(COUNT)
        raise LookupError("no")

    async def sleeps(tx: Snapshot) -> None:
        await asyncio.sleep(0)

    for _ in range(20):
        with pytest.raises(LookupError):
            await store.read(raises)
        with pytest.raises(UnitAwaited):
            await store.read(sleeps)
    assert await store.read(long_query, 10) == 8
