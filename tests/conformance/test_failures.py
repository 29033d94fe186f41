"""What a failing disk, server, unit or caller does to writes: every one gets its true outcome, and nothing half written stays."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from stigmergy.errors import (
    AlreadyExists,
    OutcomeUnknown,
    StigmergyError,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from stigmergy.kernel.database import Database, mergeable
from stigmergy.kernel.feed import READ_CHANGES, read_page
from stigmergy.kernel.postgres import TRIES
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Transaction
from support.crash_check import check_journal
from support.crash_servers import CuttingProxy, StoppableServer
from support.notes import Entry, Note
from support.postgres import DatabaseUrls, PostgresServer
from support.stores import OpenStore, migrate_postgres, postgres_opener, sqlite_opener
from support.vfs import FaultyDisk, full, sync_failed, write_failed

# With so little memory a large body has to go to the log before the commit.
LITTLE_MEMORY = Statement("test.memory", "PRAGMA cache_size = 100")
LARGE = "x" * 4_000_000
# Nothing here may hang; this is far more than any of it takes.
SOON = 30


async def add(tx: Transaction, text: str = "", id: str | None = None) -> Note:
    return await tx.insert(Note(id=id or tx.new_id(), text=text))


@mergeable
async def add_merged(tx: Transaction, text: str = "") -> Note:
    return await tx.insert(Note(id=tx.new_id(), text=text))


async def refuse(tx: Transaction, text: str = "") -> None:
    await add(tx, text)
    raise LookupError(text)


async def ask(tx: Transaction, statement: Statement) -> None:
    await tx.rows(statement)


async def texts(store: Database) -> list[str]:
    """What is there, in the order of the journal, after a check that the journal and the rows agree."""
    await check_journal(store)
    changes = await store.read(read_page, 0, 10_000)
    return [change.record.text for change in changes if isinstance(change.record, Note)]


async def outcomes(*writes: Awaitable[Any]) -> list[Any]:
    async with asyncio.timeout(SOON):
        return await asyncio.gather(*writes, return_exceptions=True)


class Gate:
    """A unit that holds up the writer of a SQLite store until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    async def unit(self, tx: Transaction) -> None:
        self.entered.set()
        assert self._open.wait(SOON)

    async def hold(self, store: Database) -> "asyncio.Task[None]":
        task = asyncio.create_task(store.write(self.unit))
        assert await asyncio.to_thread(self.entered.wait, SOON)
        return task

    def open(self) -> None:
        self._open.set()


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


class TestOfUnits:
    """Both engines."""

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, MemoryError])
    async def test_whatever_a_unit_raises_reaches_its_caller_and_nobody_else(
        self, store: Database, kind: type[BaseException]
    ) -> None:
        async def breaks(tx: Transaction) -> None:
            await add(tx, "broken")
            raise kind

        async def caller() -> None:
            with pytest.raises(kind):
                await store.write(breaks)

        for _ in range(12):  # more than there are writers
            await outcomes(caller(), store.write(add, "beside"))
        assert await texts(store) == ["beside"] * 12

    async def test_a_unit_that_read_the_journal_and_raised_takes_nothing_from_those_before_it(self, store: Database) -> None:
        async def reads_and_raises(tx: Transaction) -> None:
            await add(tx, "raised")
            await tx.rows(READ_CHANGES, after=0, limit=10)
            raise LookupError

        async def reads(tx: Transaction) -> int:
            await add(tx, "read")
            return len(await tx.rows(READ_CHANGES, after=0, limit=10))

        writes = [store.write(unit) for unit in (add, reads_and_raises, reads, reads_and_raises, add)]
        await outcomes(*writes, *(store.write(add, scope=Scope(tenant)) for tenant in ("acme", "zed")))
        assert sorted(await texts(store)) == ["", "", "read"]
        assert await store.tenants() == ["acme", "main", "zed"]

    async def test_a_write_whose_caller_left_before_it_began_is_not_run(self, engine: str, store: Database) -> None:
        gate = Gate()
        held = [await gate.hold(store)] if engine == "sqlite" else []
        leaving = [asyncio.create_task(store.write(unit, "left")) for unit in (add, add_merged)]
        await asyncio.sleep(0)  # they have asked, and nothing has begun
        for task in leaving:
            task.cancel()
        gate.open()
        await outcomes(*held, *leaving)
        await store.write(add, "stayed")
        assert await texts(store) == ["stayed"]

    async def test_a_write_whose_caller_left_after_it_began_is_finished(
        self, engine: str, store: Database, open_store: OpenStore
    ) -> None:
        began = asyncio.Event()
        loop = asyncio.get_running_loop()
        go_on = threading.Event()

        async def unit(tx: Transaction) -> None:
            loop.call_soon_threadsafe(began.set)
            if engine == "sqlite":
                assert go_on.wait(SOON)
            await add(tx, "finished")

        task = asyncio.create_task(store.write(unit))
        await began.wait()
        task.cancel()
        go_on.set()
        await outcomes(task)
        assert task.cancelled()
        await store.close()  # after what has begun
        again = await open_store()
        assert await texts(again) == ["finished"]
        await again.close()

    async def test_closing_finishes_what_was_asked_for_and_refuses_the_rest(self, store: Database, open_store: OpenStore) -> None:
        pending = [asyncio.create_task(store.write(unit, "pending")) for unit in (add, add_merged) for _ in range(40)]
        await asyncio.sleep(0)
        first, second, *results = await outcomes(store.close(), store.close(), *pending)
        assert (first, second) == (None, None)
        written = [result for result in results if isinstance(result, Note)]
        assert all(isinstance(result, StoreClosed) for result in results if result not in written)
        with pytest.raises(StoreClosed):
            await store.write(add)
        with pytest.raises(StoreClosed):
            await store.get(Note, "n")
        again = await open_store()
        assert await texts(again) == ["pending"] * len(written)
        await again.close()


class TestOfTheDisk:
    """SQLite."""

    @pytest.mark.parametrize("passed", [0, 1, 2, 5])
    async def test_a_full_disk_refuses_the_batch_and_writing_goes_on_when_there_is_room(
        self, disk: FaultyDisk, sqlite: Database, passed: int
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
        self, disk: FaultyDisk, sqlite: Database, error: Callable[[], apsw.Error], known: type[StoreError]
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

    async def test_a_unit_that_hides_a_failing_disk_does_not_take_the_writer_along(
        self, disk: FaultyDisk, sqlite: Database
    ) -> None:
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

    async def test_a_unit_for_which_there_is_no_room_does_not_take_the_room_of_others(self, sqlite: Database) -> None:
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
        self, disk: FaultyDisk, open_sqlite: OpenStore
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

    async def test_a_write_that_breaks_a_rule_at_the_commit_fails_alone(self, sqlite: Database) -> None:
        note = await sqlite.write(add, "one")
        behind = Statement("test.behind", "UPDATE notes SET text = 'behind' WHERE tenant = :tenant AND id = :id")

        async def writes_behind(tx: Transaction) -> None:
            await add(tx, "with it")
            await tx.run(behind, id=note.id)

        results = await outcomes(sqlite.write(add, "two"), sqlite.write(writes_behind), sqlite.write(add, "three"))
        assert isinstance(results[1], StigmergyError)
        assert await texts(sqlite) == ["one", "two", "three"]

    async def test_a_file_that_another_holds_too_long_refuses_and_writing_goes_on_after(
        self, open_sqlite: OpenStore, tmp_path: Path
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


class TestOfThreads:
    """SQLite: one store, many event loops."""

    async def test_many_event_loops_write_and_read_through_one_store(self, sqlite: Database) -> None:
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

    async def test_an_event_loop_that_ended_while_its_writes_were_pending_holds_up_nobody(self, sqlite: Database) -> None:
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

    async def test_nobody_waits_for_ever_when_the_store_dies_under_many_threads(
        self, disk: FaultyDisk, open_sqlite: OpenStore
    ) -> None:
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


# What `serve` and `worker` set, and the longest that a write may take then beside a busy event loop.
SWITCH_SECONDS = 0.00005
STARVED_BOUND_SECONDS = 0.25


@pytest.mark.serial
class TestOfBusyLoops:
    """SQLite: Python code that never pauses, beside the writer's thread."""

    async def latencies(self, store: Database, count: int = 100) -> list[float]:
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

    async def test_a_busy_event_loop_does_not_starve_the_writer(self, sqlite: Database) -> None:
        default = sys.getswitchinterval()
        untouched = await self.latencies(sqlite, 20)
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            taken = await self.latencies(sqlite)
        finally:
            sys.setswitchinterval(default)
        print(f"median, worst of a write beside busy threads: {taken[50]:.4f} s, {taken[-1]:.4f} s at {SWITCH_SECONDS} s;")
        print(f"{untouched[10]:.4f} s, {untouched[-1]:.4f} s at the default of {default} s")
        assert taken[98] < STARVED_BOUND_SECONDS


@pytest.fixture
async def proxied(postgres_server: PostgresServer, postgres_database: DatabaseUrls) -> AsyncIterator[CuttingProxy]:
    async with CuttingProxy(postgres_server.directory) as proxy:
        yield proxy


@pytest.mark.postgres
class TestOfTheConnection:
    """PostgreSQL."""

    @pytest.fixture
    async def postgres(self, postgres_database: DatabaseUrls) -> AsyncIterator[Database]:
        store = await postgres_opener(postgres_database)()
        yield store
        await store.close()

    @pytest.fixture
    async def through_proxy(self, proxied: CuttingProxy, postgres_database: DatabaseUrls) -> AsyncIterator[Database]:
        store = await postgres_opener(DatabaseUrls(*map(proxied.url_through, postgres_database)))()
        yield store
        await store.close()

    @pytest.mark.parametrize("moment", ["before the first write", "after it", "at the end"])
    async def test_a_unit_whose_connection_breaks_before_the_commit_is_run_again(
        self, postgres: Database, postgres_server: PostgresServer, moment: str
    ) -> None:
        me = Statement("test.me", "SELECT pg_backend_pid()")
        tries = 0

        async def unit(tx: Transaction) -> None:
            nonlocal tries
            tries += 1
            ((pid,),) = await tx.rows(me)

            def cut(now: str) -> None:
                if now == moment and tries < 3:
                    postgres_server.execute(f"SELECT pg_terminate_backend({pid}, 5000)")

            cut("before the first write")
            note = await add(tx, "one")
            await tx.update(note, text="two")
            cut("after it")
            await tx.insert(Entry(note_id=note.id, pos=1))
            cut("at the end")

        await outcomes(postgres.write(unit))
        assert tries == 3
        assert await texts(postgres) == ["one", "two"]

    @pytest.mark.parametrize("unit", [add, add_merged])
    @pytest.mark.parametrize("arrives", [False, True])
    async def test_a_connection_that_breaks_during_the_commit_leaves_the_outcome_unknown(
        self,
        proxied: CuttingProxy,
        through_proxy: Database,
        postgres_database: DatabaseUrls,
        unit: Callable[..., Any],
        arrives: bool,
    ) -> None:
        await through_proxy.write(unit, "before")
        proxied.cut_at(b"COMMIT", deliver=arrives)
        results = await outcomes(*(through_proxy.write(unit, "cut") for _ in range(1 if unit is add else 5)))
        assert {type(result) for result in results} == {OutcomeUnknown}
        assert proxied.cuts == 1
        assert await texts(through_proxy) == ["before"] + (["cut"] * len(results) if arrives else [])
        await through_proxy.write(unit, "after")
        assert (await texts(through_proxy))[-1] == "after"

    @pytest.mark.parametrize("place", [b"BEGIN", b"rolbypassrls"])
    async def test_a_connection_that_breaks_before_there_is_a_unit_is_made_again(
        self, proxied: CuttingProxy, through_proxy: Database, place: bytes
    ) -> None:
        proxied.cut_at(place)
        await outcomes(through_proxy.write(add, "one"))
        assert proxied.cuts == 1
        assert await texts(through_proxy) == ["one"]

    async def test_a_terminated_reader_is_unavailable_and_the_next_one_reads(
        self, postgres: Database, postgres_server: PostgresServer
    ) -> None:
        me = Statement("test.me", "SELECT pg_backend_pid()")

        async def unit(tx: Transaction) -> None:
            ((pid,),) = await tx.rows(me)
            postgres_server.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
            await tx.rows(me)

        with pytest.raises(StoreUnavailable):
            await postgres.read(unit)
        assert await texts(postgres) == []

    async def test_units_that_lock_the_same_rows_in_opposite_order_both_succeed(
        self, postgres: Database, postgres_server: PostgresServer, postgres_database: DatabaseUrls
    ) -> None:
        await postgres.write(add, "", "a")
        await postgres.write(add, "", "b")
        met = 0

        async def append(tx: Transaction, first: str, second: str) -> None:
            nonlocal met
            met += 1
            for id in (first, second):
                note = await tx.lock(Note, id)
                assert note is not None
                await tx.update(note, text=note.text + first)

        for _ in range(3):
            results = await outcomes(postgres.write(append, "a", "b"), postgres.write(append, "b", "a"))
            assert results == [None, None]
        assert met <= 3 * 2 * TRIES
        a, b = await postgres.get(Note, "a"), await postgres.get(Note, "b")
        assert a is not None
        assert b is not None
        assert a.text == b.text
        assert sorted(a.text) == list("aaabbb")
        await check_journal(postgres)

    async def test_a_storm_of_deadlocks_ends(self, postgres_server: PostgresServer, postgres_database: DatabaseUrls) -> None:
        impatient = await asyncpg.connect(postgres_server.url_admin())
        database = postgres_database.app.split("@/")[1].split("?")[0]
        await impatient.execute(f"ALTER DATABASE {database} SET deadlock_timeout = '20ms'")
        await impatient.close()
        store = await postgres_opener(postgres_database)()
        names = ["a", "b", "c"]
        for name in names:
            await store.write(add, "", name)

        async def append(tx: Transaction, ids: list[str]) -> None:
            for id in ids:
                note = await tx.lock(Note, id)
                assert note is not None
                await tx.update(note, text=note.text + "x")

        results = await outcomes(*(store.write(append, names[n % 3 :] + names[: n % 3]) for n in range(30)))
        assert {type(result) for result in results} <= {type(None), StoreUnavailable}
        done = results.count(None)
        notes = [await store.get(Note, name) for name in names]
        assert [note and len(note.text) for note in notes] == [done] * 3
        assert done > 15
        await check_journal(store)
        await store.close()

    async def test_a_merged_write_that_fails_does_not_take_the_others_along(self, postgres: Database) -> None:
        @mergeable
        async def add_same(tx: Transaction) -> Note:
            return await tx.insert(Note(id="same"))

        results = await outcomes(*(postgres.write(add_same if n % 5 == 0 else add_merged) for n in range(30)))
        assert sum(isinstance(result, AlreadyExists) for result in results) == 5
        assert len(await texts(postgres)) == 25

    @pytest.mark.serial
    async def test_a_server_that_stops_is_unavailable_within_bounds_and_serves_again_after(self) -> None:
        server = await asyncio.to_thread(StoppableServer)
        try:
            urls = server.urls(server.create_database())
            await migrate_postgres(urls)
            store = await postgres_opener(urls)()
            await outcomes(*(store.write(add, "before") for _ in range(20)))
            await asyncio.to_thread(server.stop)
            started = time.monotonic()
            results = await outcomes(*(store.write(unit) for unit in (add, add_merged) for _ in range(50)), store.get(Note, "n"))
            assert {type(result) for result in results} == {StoreUnavailable}
            assert time.monotonic() - started < 15
            await asyncio.to_thread(server.start)
            await outcomes(*(store.write(add, "after") for _ in range(20)))
            assert await texts(store) == ["before"] * 20 + ["after"] * 20
            await store.close()
        finally:
            await asyncio.to_thread(server.close)
