"""The store in one SQLite file: the port over the writer thread and the readers.

Short reads run on the caller's own thread, on a snapshot; one that turns out long is stopped and run again by a reader
thread, so that it does not hold up the event loop. (Reading units are repeatable, like all units.)
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw

from stigmergy.errors import StoreClosed
from stigmergy.kernel import migrate
from stigmergy.kernel.bus import Bus, LocalBus
from stigmergy.kernel.clock import Clock, SystemClock
from stigmergy.kernel.database import MAIN, Finding, Progress
from stigmergy.kernel.jobs import Job
from stigmergy.kernel.query import Row, Statement
from stigmergy.kernel.record import Collection, Record, collection_of
from stigmergy.kernel.rules import RuleBook
from stigmergy.kernel.sqlite_care import back_up, check_file
from stigmergy.kernel.sqlite_file import open_connection, prepare, translated
from stigmergy.kernel.sqlite_writer import Writer, run_unit
from stigmergy.kernel.transaction import Scope, Snapshot

T = TypeVar("T")
R = TypeVar("R", bound=Record)

# What a read may cost on the caller's thread before it is moved to another: about half a millisecond each.
INLINE_STEPS = 40_000
INLINE_STATEMENTS = 64
READERS = 4


class _TooLong(Exception):
    """A read has used up what it may cost where it runs."""


class SqliteSnapshot(Snapshot):
    def __init__(self, cursor: apsw.Cursor, scope: Scope, now: int, statements: int | None) -> None:
        super().__init__(scope, now)
        self._cursor = cursor
        self._left = statements

    def expect_work(self) -> None:
        if self._left is not None:
            raise _TooLong

    async def _run(self, statement: Statement, values: Row) -> list[Row]:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise _TooLong
        return self._cursor.execute(statement.sqlite, values).fetchall()


class _Reader:
    """One reading connection, used by one thread at a time."""

    def __init__(self, path: Path, clock: Clock, *, synchronous: str, bounded: bool) -> None:
        self.connection = open_connection(path, synchronous=synchronous)
        self.cursor = self.connection.cursor()
        self._clock = clock
        self._statements = INLINE_STATEMENTS if bounded else None
        self._interruptions = 0
        if bounded:
            self.connection.set_progress_handler(self._used_up, INLINE_STEPS)

    def _used_up(self) -> bool:
        """SQLite counts a statement's steps over all its runs, so the first call within one read says nothing yet."""
        self._interruptions += 1
        return self._interruptions > 1

    def get(self, collection: Collection[R], key: Row) -> R | None:
        self._interruptions = 0
        rows = self.cursor.execute(collection.get_sql.sqlite, key).fetchall()
        return collection.decode(rows[0]) if rows else None

    def read(self, unit: Callable[..., Awaitable[T]], args: tuple[Any, ...], kwargs: dict[str, Any], scope: Scope) -> T:
        self._interruptions = 0
        execute = self.cursor.execute
        execute("BEGIN")
        try:
            tx = SqliteSnapshot(self.cursor, scope, self._clock.now(), self._statements)
            return run_unit(unit(tx, *args, **kwargs), unit)
        except apsw.InterruptError:
            raise _TooLong from None
        finally:
            self._interruptions = 0
            execute("COMMIT")


class SqliteDatabase:
    """A `Database` in a file. Several processes may open the same one."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        bus: Bus,
        rules: RuleBook,
        schema: int,
        synchronous: str = "FULL",
        busy_seconds: float = 5.0,
    ) -> None:
        self.path = path
        self.clock = clock
        self.bus = bus
        self.rules = rules
        self._synchronous = synchronous
        connection = open_connection(path, synchronous=synchronous, busy_seconds=busy_seconds, writes=True)
        self._writer = Writer(connection, path, clock=clock, bus=bus, rules=rules, schema=schema)
        self._near = _Reader(path, clock, synchronous=synchronous, bounded=True)
        self._near_taken = threading.Lock()
        self._far = ThreadPoolExecutor(READERS, thread_name_prefix=f"reader of {path.name}")
        self._far_reader = threading.local()
        self._readers: list[_Reader] = [self._near]
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: Path | str,
        *,
        clock: Clock | None = None,
        bus: Bus | None = None,
        rules: RuleBook | None = None,
        sources: tuple[str, ...] = (migrate.KERNEL,),
        may_migrate: bool = True,
        synchronous: str = "FULL",
        busy_seconds: float = 5.0,
    ) -> Self:
        path = Path(path)
        clock = clock or SystemClock()
        migrations = migrate.load(sources)
        prepare(path, migrations, clock.now(), migrate=may_migrate, busy_seconds=busy_seconds)
        return cls(
            path,
            clock=clock,
            bus=bus or LocalBus(),
            rules=rules or RuleBook(),
            schema=len(migrations),
            synchronous=synchronous,
            busy_seconds=busy_seconds,
        )

    async def write(self, unit: Callable[..., Awaitable[T]], /, *args: Any, scope: Scope = MAIN, **kwargs: Any) -> T:
        job = Job(unit, args, kwargs, scope)
        self._writer.submit(job)
        return await job.future

    async def read(self, unit: Callable[..., Awaitable[T]], /, *args: Any, scope: Scope = MAIN, **kwargs: Any) -> T:
        self._check_open()
        try:
            if self._near_taken.acquire(blocking=False):
                try:
                    return self._near.read(unit, args, kwargs, scope)
                except _TooLong:
                    pass
                finally:
                    self._near_taken.release()
            context = contextvars.copy_context()
            return await asyncio.get_running_loop().run_in_executor(
                self._far, lambda: context.run(self._read_far, unit, args, kwargs, scope)
            )
        except apsw.Error as error:
            raise translated(error, self.path) from error

    def _read_far(self, unit: Callable[..., Awaitable[T]], args: tuple[Any, ...], kwargs: dict[str, Any], scope: Scope) -> T:
        reader: _Reader | None = getattr(self._far_reader, "reader", None)
        if reader is None:
            reader = self._far_reader.reader = _Reader(self.path, self.clock, synchronous=self._synchronous, bounded=False)
            self._readers.append(reader)
        return reader.read(unit, args, kwargs, scope)

    async def get(self, record: type[R], *key: str | int, scope: Scope = MAIN) -> R | None:
        self._check_open()
        collection = collection_of(record)
        if self._near_taken.acquire(blocking=False):
            try:
                return self._near.get(collection, (scope.tenant, *key))
            except apsw.Error as error:
                raise translated(error, self.path) from error
            finally:
                self._near_taken.release()
        return await self.read(_get, record, key, scope=scope)

    async def tenants(self) -> list[str]:
        return await self.read(_tenants)

    async def check(self) -> list[Finding]:
        return await asyncio.to_thread(check_file, self.path, self._synchronous)

    async def backup(self, target: Path, *, progress: Progress | None = None) -> None:
        await asyncio.to_thread(back_up, self.path, target, progress)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.path} is closed")

    async def close(self) -> None:
        """End after the writes that were asked for. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._writer.stop)
        await asyncio.to_thread(self._far.shutdown)
        for reader in self._readers:
            reader.connection.close()
        await self.bus.close()


_TENANTS = Statement("heads.tenants", "SELECT tenant FROM heads WHERE tenant <> '*' ORDER BY tenant")


async def _tenants(tx: Snapshot) -> list[str]:
    return [row[0] for row in await tx.rows(_TENANTS)]


async def _get(tx: Snapshot, record: type[R], key: tuple[str | int, ...]) -> R | None:
    return await tx.get(record, *key)
