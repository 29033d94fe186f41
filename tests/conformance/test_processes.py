"""Several processes on one store: they hear each other, lose nothing, and an outdated one stops writing."""

import asyncio
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stigmergy.errors import SchemaTooNew, SchemaTooOld, StoreClosed
from stigmergy.kernel.database import Database, mergeable
from stigmergy.kernel.feed import Follower
from stigmergy.kernel.history import read_history
from stigmergy.kernel.leases import enlist, enqueue
from stigmergy.kernel.timers import next_timers, set_timer
from stigmergy.kernel.transaction import Snapshot, Transaction
from support.notes import Entry, Note
from support.second_process import NEWER, SecondProcess, opened
from support.stores import SOURCES, OpenStore
from support.units import PATIENCE, add, increment, take, until, whole_journal

WRITES = 20
WOKEN_WITHIN = 0.1


class Place(NamedTuple):
    """Where the store is, as another process is told."""

    app: str
    owner: str = ""


@pytest.fixture
def place(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    if engine == "sqlite":
        return Place(str(tmp_path / "store.db"))
    return Place(*reversed(request.getfixturevalue("postgres_database")))


@pytest.mark.serial
async def test_a_write_of_another_process_wakes_a_follower_within_a_tenth_of_a_second(store: Database, place: Place) -> None:
    delays: list[float] = []

    async def follow() -> None:
        async for change in Follower(store, after=0, poll_seconds=1000):
            assert isinstance(change.record, Note)
            delays.append((time.monotonic_ns() - int(change.record.text)) / 1e9)
            if len(delays) == WRITES:
                break

    with SecondProcess("stamp", *place) as other:
        following = asyncio.create_task(follow())
        async with asyncio.timeout(PATIENCE):
            for n in range(WRITES):
                other.tell(f"n{n}")
                assert await asyncio.to_thread(other.answer) == str(n + 1)
                await until(lambda n=n: len(delays) > n)
                await asyncio.sleep(0.01 + 0.007 * (n % 9))  # at another phase of whoever looks at regular intervals
            await following
    assert sorted(delays)[int(0.95 * WRITES) - 1] <= WOKEN_WITHIN


async def test_processes_that_write_at_once_lose_nothing(store: Database, place: Place) -> None:
    await store.write(add, "shared")
    count = 100
    reading = asyncio.create_task(take(Follower(store, after=0), 1 + 4 * count))
    with SecondProcess("increments", *place) as second, SecondProcess("increments", *place) as third:
        second.tell(count)
        third.tell(count)

        async def mine() -> None:
            for _ in range(count):
                await store.write(increment, "shared")

        async with asyncio.timeout(2 * PATIENCE):
            await asyncio.gather(mine(), mine())
            for other in (second, third):
                assert await asyncio.to_thread(other.answer) == "done"
            changes = await reading
    assert [(change.seq, change.version) for change in changes] == [(n, n) for n in range(1, 4 * count + 2)]
    assert [change.record.data.get("n", 0) for change in changes if isinstance(change.record, Note)] == list(range(4 * count + 1))
    assert len(await store.read(read_history, Note, "shared", limit=1000)) == 4 * count + 1


async def refused(store: Database, unit: Any, *args: Any) -> None:
    with pytest.raises((SchemaTooNew, StoreClosed), match="newer program"):
        await store.write(unit, *args)


@mergeable
async def insert(tx: Transaction, n: int) -> Entry:
    return await tx.insert(Entry(note_id="n", pos=n))


@pytest.mark.parametrize("by_a_process", [False, True])
async def test_a_program_older_than_the_schema_stops_writing(store: Database, place: Place, by_a_process: bool) -> None:
    note = await store.write(add, "n", text="before")
    if by_a_process:
        with SecondProcess("migrate", *place):
            pass
    else:
        await (await opened(*place, NEWER)).close()

    async def rewrite(tx: Transaction) -> None:
        await tx.update(note, text="after")

    await refused(store, rewrite)
    await refused(store, insert, 1)
    results = await asyncio.gather(*(store.write(insert, n) for n in range(5)), return_exceptions=True)
    assert all(isinstance(result, SchemaTooNew | StoreClosed) for result in results)
    newer = await opened(*place, NEWER)
    assert [change.record for change in await whole_journal(newer)] == [note]
    assert await newer.get(Note, "n") == note
    await newer.write(rewrite)
    await newer.close()


async def test_a_program_older_than_the_schema_keeps_no_books_either(
    store: Database, place: Place, request: pytest.FixtureRequest
) -> None:
    """It would claim work that it cannot do."""
    await (await opened(*place, NEWER)).close()
    await refused(store, enlist)
    await refused(store, enqueue, "runs", "r")
    await refused(store, set_timer, "bell", "t", 1)


async def test_a_program_older_than_the_schema_cannot_open_the_store_and_changes_nothing(
    place: Place, open_store: OpenStore
) -> None:
    store = await open_store()
    await store.write(add, "n")
    await store.close()
    await (await opened(*place, NEWER)).close()
    with pytest.raises(SchemaTooNew, match="0001_newer"):
        await opened(*place)
    newer = await opened(*place, NEWER)
    assert len(await whole_journal(newer)) == 1
    await newer.close()


async def test_a_program_that_may_not_migrate_says_what_is_missing(place: Place, open_store: OpenStore) -> None:
    store = await open_store()
    await store.write(set_timer, "bell", "t", 1)
    with pytest.raises(SchemaTooOld, match="0001_newer"):
        await opened(*place, NEWER, may_migrate=False)
    await store.write(add, "still the same schema")

    async def timers(tx: Snapshot) -> int:
        return len(await next_timers(tx, ["bell"]))

    assert await store.read(timers) == 1
    await store.close()
    assert "support.newer" not in SOURCES
