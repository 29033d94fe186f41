"""The store in PostgreSQL: the same units, awaited over asyncpg, each in its transaction.

A few connections write. Each takes a unit (or all waiting units that only insert, which share a transaction), runs it,
takes the tenant's head row last so that it is held briefly, numbers the changes and commits. A serialization failure, a
deadlock and a connection that breaks before the commit repeat the unit; one that breaks during it is `OutcomeUnknown`.
"""

import asyncio
import contextvars
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import asyncpg

from stigmergy.errors import OutcomeUnknown, StoreClosed, StoreError, StoreUnavailable
from stigmergy.kernel import migrate
from stigmergy.kernel.bus import Bus, changes_topic
from stigmergy.kernel.clock import Clock, SystemClock
from stigmergy.kernel.database import MAIN, Finding, Progress
from stigmergy.kernel.faults import point
from stigmergy.kernel.jobs import Job, answer_all
from stigmergy.kernel.postgres_bus import PostgresBus
from stigmergy.kernel.postgres_care import back_up, check_server
from stigmergy.kernel.postgres_schema import EVERY_TENANT, Connection, connect, prepare, tenants_setting, translated
from stigmergy.kernel.postgres_transaction import (
    PostgresSnapshot,
    PostgresTransaction,
    check_schema,
    drive,
    number_all,
    refuse_reused,
    send_waiting,
)
from stigmergy.kernel.record import Record
from stigmergy.kernel.rules import RuleBook
from stigmergy.kernel.transaction import Scope, Snapshot

T = TypeVar("T")
R = TypeVar("R", bound=Record)

WRITERS = 8
READERS = 8
# Insert-only units that share a transaction at the most.
MERGED = 128
# How often a unit is run again after it lost to others or its connection broke before the commit.
TRIES = 8
# And for how long at the most, should every try take its time.
PATIENCE_SECONDS = 30.0

_LOST = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, StoreUnavailable)
_DATABASE = (asyncpg.PostgresError, asyncpg.InterfaceError)


class _Writer:
    """One connection that writes, and what it does to bring jobs to their end."""

    def __init__(self, url: str, *, clock: Clock, bus: Bus, rules: RuleBook, schema: int) -> None:
        self._url = url
        self._clock = clock
        self._bus = bus
        self._rules = rules
        self._schema = schema
        self._connection: Connection | None = None

    async def write(self, jobs: Sequence[Job]) -> None:
        """Write these jobs in one transaction; if that fails, each in its own. Every job is answered with the truth."""
        began = time.monotonic()
        for attempt in range(TRIES):
            error = await self._try(jobs)
            if error is None:
                break
            again = self._worth_repeating(error) and time.monotonic() - began < PATIENCE_SECONDS
            if len(jobs) > 1 and not again and not isinstance(error, OutcomeUnknown):
                for job in jobs:
                    await self.write([job])
                return
            if attempt == TRIES - 1 or not again:
                for job in jobs:
                    job.error = self._known(error)
                break
            await asyncio.sleep(random.uniform(0, 0.005 * 2**attempt))
        answer_all(jobs)
        point("batch.answered")

    async def _try(self, jobs: Sequence[Job]) -> BaseException | None:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = None
                self._connection = await connect(self._url)
            await self._transact(self._connection, jobs)
        except BaseException as error:
            # whatever a unit raises is its caller's; only this writer's own end is not
            if isinstance(error, TimeoutError) and self._connection is not None:
                self._connection.terminate()  # a server that hangs is not asked to roll back
            await self._roll_back()
            if _is_ending():
                raise
            return error
        return None

    @property
    def _broken(self) -> bool:
        return self._connection is not None and self._connection.is_closed()

    def _known(self, error: BaseException) -> BaseException:
        """One of our errors for one of the database's; what a unit raised as it is."""
        if isinstance(error, _DATABASE) or (isinstance(error, OSError) and self._broken):
            return translated(error)
        return error

    def _worth_repeating(self, error: BaseException) -> bool:
        return not isinstance(error, OutcomeUnknown) and (isinstance(error, _LOST) or self._broken)

    async def _roll_back(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            try:
                await self._connection.execute("ROLLBACK")
            except (*_DATABASE, OSError):
                self._connection.terminate()

    async def _transact(self, connection: Connection, jobs: Sequence[Job]) -> None:
        tenants = sorted({job.scope.tenant for job in jobs})
        await connection.execute(f"BEGIN; SET LOCAL stigmergy.tenants = '{tenants_setting(tenants)}'")
        point("batch.begun")
        txs = [PostgresTransaction(job.scope, self._clock.now()) for job in jobs]
        for job, tx in zip(jobs, txs, strict=True):
            if job.future.cancelled():
                continue
            point("unit.begun")
            job.result = await drive(connection, job.unit(tx, *job.args, **job.kwargs), job.unit, tx, job.context, self._schema)  # type: ignore[arg-type]
            point("unit.done")
        writing = [tx for tx in txs if tx.changes]
        if writing:
            await number_all(connection, writing, self._schema)
            for tx in writing:
                await drive(connection, tx.settle(self._rules), tx.settle, tx, contextvars.copy_context(), self._schema)
                point("unit.settled")
        else:
            await check_schema(connection, self._schema)  # else the heads tell
        await send_waiting(connection, txs)
        await refuse_reused(connection, txs)
        point("batch.flushed")
        await self._commit(connection)
        point("batch.committed")
        topics = {changes_topic(tx.tenant) for tx in writing}.union(*(tx.topics for tx in txs))
        for topic in topics:
            self._bus.publish(topic)

    async def _commit(self, connection: Connection) -> None:
        try:
            done = await connection.execute("COMMIT")
        except Exception as error:
            if connection.is_closed() or not isinstance(error, asyncpg.PostgresError) or error.severity_en != "ERROR":
                connection.terminate()
                raise OutcomeUnknown(
                    f"the connection broke during a commit ({error}); whether it happened cannot be told. Read before you repeat"
                ) from error
            raise
        if done != "COMMIT":
            raise StoreError(f"PostgreSQL rolled the transaction back: {done}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()


def _is_ending() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class PostgresDatabase:
    """A `Database` in PostgreSQL. It belongs to the event loop that opened it."""

    def __init__(self, url: str, *, owner_url: str, clock: Clock, bus: Bus, rules: RuleBook, schema: int) -> None:
        self.url = url
        self._owner_url = owner_url
        self.clock = clock
        self.bus = bus
        self.rules = rules
        # a job, or None for "take what can be merged"
        self._inbox: asyncio.Queue[Job | None] = asyncio.Queue()
        self._merging: deque[Job] = deque()
        self._writers = [_Writer(url, clock=clock, bus=bus, rules=rules, schema=schema) for _ in range(WRITERS)]
        self._tasks = [asyncio.create_task(self._work(writer)) for writer in self._writers]
        self._reading = asyncio.Semaphore(READERS)
        self._idle: list[Connection] = []
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        owner_url: str | None = None,
        clock: Clock | None = None,
        bus: Bus | None = None,
        rules: RuleBook | None = None,
        sources: tuple[str, ...] = (migrate.KERNEL,),
        may_migrate: bool = True,
    ) -> Self:
        """`owner_url` is for migrating, where that is another user's right."""
        clock = clock or SystemClock()
        migrations = migrate.load(sources)
        await prepare(owner_url or url, migrations, clock.now(), migrate=may_migrate)
        if bus is None:
            bus = PostgresBus(url)
            await bus.start()
        return cls(url, owner_url=owner_url or url, clock=clock, bus=bus, rules=rules or RuleBook(), schema=len(migrations))

    async def write(self, unit: Callable[..., Awaitable[T]], /, *args: Any, scope: Scope = MAIN, **kwargs: Any) -> T:
        self._check_open()
        job = Job(unit, args, kwargs, scope)
        if getattr(unit, "mergeable", False):
            self._merging.append(job)
            self._inbox.put_nowait(None)
        else:
            self._inbox.put_nowait(job)
        return await job.future

    async def _work(self, writer: _Writer) -> None:
        while True:
            job = await self._inbox.get()
            taken = self._take_merging() if job is None else [job]
            jobs = [job for job in taken if not job.future.cancelled()]
            if jobs:
                await writer.write(jobs)
            self._inbox.task_done()

    def _take_merging(self) -> list[Job]:
        taken = [self._merging.popleft() for _ in range(min(MERGED, len(self._merging)))]
        return sorted(taken, key=lambda job: job.scope.tenant)

    async def read(self, unit: Callable[..., Awaitable[T]], /, *args: Any, scope: Scope = MAIN, **kwargs: Any) -> T:
        async with self._reader() as connection:
            setting = tenants_setting([scope.tenant])
            await connection.execute(
                f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL stigmergy.tenants = '{setting}'"
            )
            tx = PostgresSnapshot(scope, self.clock.now())
            coroutine: Any = unit(tx, *args, **kwargs)
            result = await drive(connection, coroutine, unit, tx, contextvars.copy_context())
            await connection.execute("COMMIT")
            return result

    async def get(self, record: type[R], *key: str | int, scope: Scope = MAIN) -> R | None:
        return await self.read(_get, record, key, scope=scope)

    async def tenants(self) -> list[str]:
        async with self._reader() as connection:
            await connection.execute(f"BEGIN READ ONLY; SET LOCAL stigmergy.tenants = '{EVERY_TENANT}'")
            rows = await connection.fetch("SELECT tenant FROM heads ORDER BY tenant")
            await connection.execute("COMMIT")
            return [row[0] for row in rows if row[0] != "*"]

    async def check(self) -> list[Finding]:
        async with self._reader() as connection:
            return await check_server(connection)

    async def backup(self, target: Path, *, progress: Progress | None = None) -> None:
        await back_up(self._owner_url, target)

    @asynccontextmanager
    async def _reader(self) -> AsyncGenerator[Connection]:
        """A connection to read with. One on which anything went wrong is not used again."""
        self._check_open()
        async with self._reading:
            connection = await self._idle_connection()
            try:
                yield connection
            except (*_DATABASE, OSError) as error:
                connection.terminate()
                raise translated(error) from error
            except BaseException:
                connection.terminate()
                raise
            self._idle.append(connection)

    async def _idle_connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await connect(self.url)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this database is closed")

    async def close(self) -> None:
        """End after the writes that were asked for. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        await self._inbox.join()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        for connection in self._idle:
            connection.terminate()
        await self.bus.close()


async def _get(tx: Snapshot, record: type[R], key: tuple[str | int, ...]) -> R | None:
    return await tx.get(record, *key)
