"""What a failing disk, a locked file and many threads do to writes of a SQLite store."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from stigmergy.errors import (
    OutcomeUnknown,
    StigmergyError,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Transaction
from support.crash_check import check_journal
from support.crash_units import Gate, add, ask, outcomes, refuse, texts
from support.notes import Note
from support.stores import OpenStore, sqlite_opener
from support.vfs import FaultyDisk, full, sync_failed, write_failed

# With so little memory a large body has to go to the log before the commit.
LITTLE_MEMORY = Statement("test.memory", "PRAGMA cache_size = 100")
LARGE = "x" * 4_000_000


@pytest.fixture
def open_sqlite(tmp_path: Path) -> OpenStore:
    return sqlite_opener(tmp_path / "store.db")


@pytest.fixture
async def sqlite(open_sqlite: OpenStore) -> AsyncIterator[Database]:
    store = await open_sqlite()
    yield store
    await store.close()


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as disk:
        yield disk


@pytest.mark.parametrize("passed", [0, 1, 2, 5])
async def test_a_full_disk_refuses_the_batch_and_writing_goes_on_when_there_is_room(
    disk: FaultyDisk, sqlite: Database, passed: int
) -> None:
    await sqlite.write(add, "before")
    disk.fail("write", full, after=passed)
    results = await outcomes(*(sqlite.write(refuse if n == 7 else add, str(n)) for n in range(20)))
    assert isinstance(results.pop(7), LookupError)
    assert {type(result) for result in results} == {StoreFull}
    assert disk.failures
    disk.heal()
    assert await texts(sqlite) == ["before"]
    assert (await sqlite.write(add, "after")).seq == 2
    assert await texts(sqlite) == ["before", "after"]


@pytest.mark.parametrize(("error", "known"), [(full, StoreFull), (write_failed, StoreError)])
async def test_a_disk_that_fails_within_a_unit_fails_what_it_took_along_and_nothing_else(
    disk: FaultyDisk, sqlite: Database, error: Callable[[], apsw.Error], known: type[StoreError]
) -> None:
    await sqlite.write(ask, LITTLE_MEMORY)
    await sqlite.write(add, "before")
    disk.fail("write", error)
    sizes = ["a", "b", LARGE, "c", "d"]
    results = await outcomes(*(sqlite.write(add, text) for text in sizes))
    assert disk.failures
    disk.heal()
    assert type(results[2]) is known
    assert {type(result) for result in results} <= {known, Note}
    stored = [text for text, result in zip(sizes, results, strict=True) if isinstance(result, Note)]
    assert await texts(sqlite) == ["before", *stored]
    await sqlite.write(add, LARGE)
    assert len(await texts(sqlite)) == 2 + len(stored)


async def test_a_unit_that_hides_a_failing_disk_does_not_take_the_writer_along(disk: FaultyDisk, sqlite: Database) -> None:
    async def hides(tx: Transaction) -> None:
        try:
            await add(tx, LARGE)
            await tx.get(Note, "n")
        except apsw.Error as error:
            raise LookupError from error

    async def swallows(tx: Transaction) -> None:
        try:
            await hides(tx)
        except LookupError:
            await add(tx, "after all")

    await sqlite.write(ask, LITTLE_MEMORY)
    for unit in (hides, swallows):
        disk.fail("write", full)
        results = await outcomes(sqlite.write(add, "one"), sqlite.write(unit), sqlite.write(add, "two"))
        disk.heal()
        assert isinstance(results[1], LookupError | StoreFull)
        stored = [result for result in results if isinstance(result, Note)]
        assert await texts(sqlite) == [note.text for note in stored]
        for note in stored:
            await sqlite.write(Transaction.delete, note)
        assert not [note for note in stored if await sqlite.get(Note, note.id)]


async def test_a_unit_for_which_there_is_no_room_does_not_take_the_room_of_others(sqlite: Database) -> None:
    limit = Statement("test.limit", "PRAGMA max_page_count = 1000")
    unlimited = Statement("test.unlimited", "PRAGMA max_page_count = 1000000000")

    await sqlite.write(ask, limit)
    results = await outcomes(*(sqlite.write(add, LARGE if n == 5 else str(n)) for n in range(10)))
    assert isinstance(results.pop(5), StoreFull)
    stored = [result.text for result in results if isinstance(result, Note)]
    assert await texts(sqlite) == stored
    await sqlite.write(ask, unlimited)
    await sqlite.write(add, LARGE)
    assert await texts(sqlite) == [*stored, LARGE]


async def test_a_commit_that_the_disk_did_not_confirm_is_unknown_and_closes_the_store(
    disk: FaultyDisk, open_sqlite: OpenStore
) -> None:
    store = await open_sqlite()
    await store.write(add, "before")
    gate = Gate()
    held = await gate.hold(store)
    batch = [asyncio.create_task(store.write(add, str(n))) for n in range(600)]  # more than one batch
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    disk.fail("sync", sync_failed)
    gate.open()
    results = await outcomes(*batch)
    await outcomes(held)
    unknown = sum(type(result) is OutcomeUnknown for result in results)
    assert unknown
    assert [type(result) for result in results] == [OutcomeUnknown] * unknown + [StoreClosed] * (600 - unknown)
    for _ in range(3):
        with pytest.raises(StoreClosed, match="disk failed"):
            await store.write(add)
    disk.heal()
    await store.close()
    again = await open_sqlite()
    found = await texts(again)
    assert found in (["before"], ["before", *map(str, range(unknown))])
    assert (await again.write(add)).seq == len(found) + 1
    await again.close()


async def test_a_write_that_breaks_a_rule_at_the_commit_fails_alone(sqlite: Database) -> None:
    note = await sqlite.write(add, "one")
    behind = Statement("test.behind", "UPDATE notes SET text = 'behind' WHERE tenant = :tenant AND id = :id")

    async def writes_behind(tx: Transaction) -> None:
        await add(tx, "with it")
        await tx.run(behind, id=note.id)

    results = await outcomes(sqlite.write(add, "two"), sqlite.write(writes_behind), sqlite.write(add, "three"))
    assert isinstance(results[1], StigmergyError)
    assert await texts(sqlite) == ["one", "two", "three"]


async def test_a_file_that_another_holds_too_long_refuses_and_writing_goes_on_after(
    open_sqlite: OpenStore, tmp_path: Path
) -> None:
    store = await open_sqlite(busy_seconds=0.1)
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    results = await outcomes(*(store.write(add, str(n)) for n in range(10)))
    assert {type(result) for result in results} == {StoreUnavailable}
    assert all(result.retryable for result in results)
    other.execute("ROLLBACK")
    await store.write(add, "after")
    assert await texts(store) == ["after"]
    other.close()
    await store.close()


async def test_many_event_loops_write_and_read_through_one_store(sqlite: Database) -> None:
    async def work(name: str) -> int:
        scope = Scope(name)
        for n in range(10):
            notes = await asyncio.gather(*(sqlite.write(add, str(n), scope=scope) for n in range(20)))
            await asyncio.gather(*(sqlite.write(refuse, str(n), scope=scope) for n in range(5)), return_exceptions=True)
            found = await asyncio.gather(*(sqlite.get(Note, note.id, scope=scope) for note in notes))
            assert found == notes
        return len(await sqlite.read(read_page, 0, 10_000, scope=scope))

    names = ["acme", "zed"] * 4
    counts = await outcomes(*(asyncio.to_thread(asyncio.run, work(name)) for name in names))
    assert max(counts) == 800
    await check_journal(sqlite)


async def test_an_event_loop_that_ended_while_its_writes_were_pending_holds_up_nobody(sqlite: Database) -> None:
    async def leave() -> None:
        left = [asyncio.ensure_future(sqlite.write(add, "left")) for _ in range(20)]
        await asyncio.wait(left, timeout=0.001)

    def come_and_go() -> None:
        for _ in range(30):
            asyncio.run(leave())

    gone = [asyncio.to_thread(come_and_go) for _ in range(4)]
    stay = [sqlite.write(add, "stayed") for _ in range(100)]
    results = await outcomes(*gone, *stay)
    assert not [result for result in results if isinstance(result, BaseException)]
    assert (await texts(sqlite)).count("stayed") == 100


async def test_nobody_waits_for_ever_when_the_store_dies_under_many_threads(disk: FaultyDisk, open_sqlite: OpenStore) -> None:
    store = await open_sqlite()

    async def write_on() -> list[type]:
        last: list[type] = []
        while StoreClosed not in last:
            results = await asyncio.gather(*(store.write(add) for _ in range(5)), return_exceptions=True)
            last = [type(result) for result in results]
        return last

    threads = [asyncio.create_task(asyncio.to_thread(asyncio.run, write_on())) for _ in range(4)]
    await store.write(add)
    disk.fail("sync", sync_failed, after=20)
    ends = await outcomes(*threads)
    assert {kind for end in ends for kind in end} <= {Note, OutcomeUnknown, StoreClosed}
    disk.heal()
    await store.close()
    again = await open_sqlite()
    await check_journal(again)
    await again.close()


# What `serve` and `worker` set, and the longest that 99 of 100 writes may take then beside a busy event loop.
SWITCH_SECONDS = 0.00005
STARVED_BOUND_SECONDS = 0.25


async def latencies(store: Database, count: int = 100) -> list[float]:
    """How long writes take, sorted, while this loop and another thread compute without a pause."""
    stop = threading.Event()
    loop = asyncio.get_running_loop()

    def spin(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    def spin_in_slices() -> None:
        if not stop.is_set():
            spin(0.01)
            loop.call_soon(spin_in_slices)

    def spin_beside() -> None:
        while not stop.is_set():
            spin(0.01)

    async def write() -> list[float]:
        taken: list[float] = []
        for n in range(count):
            started = time.perf_counter()
            await store.write(add, str(n))
            taken.append(time.perf_counter() - started)
        return sorted(taken)

    beside = threading.Thread(target=spin_beside)
    beside.start()
    loop.call_soon(spin_in_slices)
    try:
        return await asyncio.to_thread(asyncio.run, write())
    finally:
        stop.set()
        beside.join()


@pytest.mark.serial
async def test_a_busy_event_loop_does_not_starve_the_writer(sqlite: Database) -> None:
    default = sys.getswitchinterval()
    untouched = await latencies(sqlite, 20)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        taken = await latencies(sqlite)
    finally:
        sys.setswitchinterval(default)
    print(f"median, worst of a write beside busy threads: {taken[50]:.4f} s, {taken[-1]:.4f} s at {SWITCH_SECONDS} s;")
    print(f"{untouched[10]:.4f} s, {untouched[-1]:.4f} s at the default of {default} s")
    assert taken[98] < STARVED_BOUND_SECONDS


@pytest.mark.parametrize("wrote", [False, True])
async def test_units_beside_one_that_fails_are_run_again_only_when_it_had_written(sqlite: Database, wrote: bool) -> None:
    ran: list[str] = []

    async def good(tx: Transaction, text: str) -> str:
        ran.append(text)
        await add(tx, text)
        return text

    async def bad(tx: Transaction) -> None:
        ran.append("bad")
        await (refuse(tx, "bad") if wrote else ask(tx, Statement("test.none", "SELECT no_such_column FROM notes")))

    gate = Gate()
    held = await gate.hold(sqlite)
    begun: list[asyncio.Task[Any]] = [asyncio.create_task(sqlite.write(good, f"{n}")) for n in range(5)]
    begun.append(asyncio.create_task(sqlite.write(bad)))
    begun += [asyncio.create_task(sqlite.write(good, f"{n}")) for n in range(5, 10)]
    await asyncio.sleep(0)
    gate.open()
    found = await outcomes(*begun, held)
    assert isinstance(found.pop(5), LookupError if wrote else StoreError)
    assert found[:10] == [f"{n}" for n in range(10)]
    assert sorted(await texts(sqlite)) == [f"{n}" for n in range(10)]
    again = 2 if wrote else 1
    assert {text: ran.count(text) for text in ran} == {f"{n}": again if n < 5 else 1 for n in range(10)} | {"bad": again}
    # while such units come, those that are beside them are run once
    ran.clear()
    await outcomes(sqlite.write(good, "a"), sqlite.write(bad), sqlite.write(good, "b"))
    assert (sorted(await texts(sqlite))[-2:], ran.count("a"), ran.count("b")) == (["a", "b"], 1, 1)
