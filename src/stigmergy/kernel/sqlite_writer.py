"""The one thread that writes a SQLite file: many units per commit.

A unit that fails takes nothing with it. A savepoint around each would copy every page that the unit touches, for the few that
fail after they wrote something: so units are run without, and when such a one comes, its batch is rolled back and run again with
savepoints, as the batches after it are until one passes in which none has to be undone. (Units are repeatable.)

After any error the writer checks that its transaction still exists, since SQLite rolls back by itself on a full disk and
others; if it does not, the whole batch fails. When a commit itself fails on the disk nobody can tell what a restart will
find, so the batch gets `OutcomeUnknown` and the store is closed.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import apsw

from stigmergy.errors import Invalid, OutcomeUnknown, SchemaTooNew, StigmergyError, StoreClosed
from stigmergy.kernel.bus import Bus, changes_topic
from stigmergy.kernel.clock import Clock
from stigmergy.kernel.database import foreign_await
from stigmergy.kernel.faults import point
from stigmergy.kernel.jobs import Job, answer_all
from stigmergy.kernel.journal import INSERT_CHANGE, READ_HEAD, WRITE_HEAD, change_row
from stigmergy.kernel.query import Row, Statement
from stigmergy.kernel.record import Collection, Record
from stigmergy.kernel.rules import RuleBook
from stigmergy.kernel.sqlite_file import translated
from stigmergy.kernel.transaction import SHARED, RuleVersions, Scope, Transaction

# Units per commit at the most: a bound on how long the first of a batch waits for the last.
BATCH = 512
# Tenants whose heads are remembered between commits, at the most.
HEADS = 10_000
# How often an idle writer looks whether another process wrote, so that readers here are woken.
LOOK_SECONDS = 0.05


class Head:
    """A tenant's place in the journal, as this batch moves it."""

    __slots__ = ("rules", "seq")

    def __init__(self, seq: int, rules: int) -> None:
        self.seq = seq
        self.rules = rules


class Batch:
    """The units of one commit: the heads they moved and the journal rows that are still to be written.

    `heads` outlives the batch, as long as nobody else writes to the file."""

    def __init__(self, cursor: apsw.Cursor, heads: dict[str, Head]) -> None:
        self.cursor = cursor
        self.heads = heads
        self.moved: set[str] = set()
        self.rows: list[Row] = []
        # who is to be woken after the commit: tenants with news in their journal, and what units asked for
        self.changed: set[str] = set()
        self.topics: set[str] = set()
        self.moved_rules = False
        self.undid = False
        # the rows written while the unit runs, should it be rolled back to its savepoint
        self._flushed: list[Row] = []

    def head(self, tenant: str) -> Head:
        head = self.heads.get(tenant)
        if head is None:
            found: list[Any] = self.cursor.execute(READ_HEAD.sqlite, (tenant,)).fetchall()
            head = self.heads[tenant] = Head(*found[0]) if found else Head(0, 0)
        return head

    def begin_unit(self, head: Head) -> tuple[int, int, int]:
        """A mark to go back to, should the unit fail."""
        self._flushed.clear()
        return len(self.rows), head.seq, head.rules

    def forget_unit(self, tenant: str, head: Head, mark: tuple[int, int, int]) -> None:
        """The unit was rolled back, and with it what was flushed while it ran, that of earlier units too."""
        kept, seq, rules = mark
        rows = self._flushed + self.rows
        self.rows = rows[:kept]
        head.seq, head.rules = seq, rules
        self.moved.update(row[0] for row in self.rows)
        if seq == 0:
            self.moved.discard(tenant)

    def flush(self) -> None:
        """Write what the units so far put into the journal."""
        if self.rows:
            self.cursor.executemany(INSERT_CHANGE.sqlite, self.rows)
            self._flushed += self.rows
            self.rows = []
            point("flush.half")
        for tenant in self.moved:
            head = self.heads[tenant]
            self.cursor.execute(WRITE_HEAD.sqlite, (tenant, head.seq, head.rules))
        self.moved.clear()


class SqliteTransaction(Transaction):
    """A transaction whose statements run at once, on the writer's connection."""

    def __init__(self, batch: Batch, scope: Scope, now: int) -> None:
        super().__init__(scope, now)
        self._batch = batch
        self.head = batch.head(self.tenant)
        self.failed: BaseException | None = None

    async def _run(self, statement: Statement, values: Row) -> list[Row]:
        return self._do(statement, values)

    def _do(self, statement: Statement, values: Row) -> list[Row]:
        if self.failed is not None:
            raise self.failed  # the transaction may be gone, and what runs now would be committed by itself
        try:
            if statement.reads_journal:
                self._batch.flush()
            return self._batch.cursor.execute(statement.sqlite, values).fetchall()
        except (OverflowError, UnicodeEncodeError) as error:
            self.failed = Invalid(f"SQLite cannot store a value ({error})", code="invalid_value")
            raise self.failed from error
        except BaseException as error:
            self.failed = error
            raise

    async def _post(self, statement: Statement, values: Row) -> None:
        self._do(statement, values)

    async def _post_insert(self, collection: Collection[Any], record: Record) -> None:
        self._do(collection.insert_sql, collection.encode(record))

    def _next_seq(self) -> int:
        return self.head.seq + 1

    def _take_seq(self) -> int:
        self.head.seq += 1
        return self.head.seq

    async def _number(self, settled: int) -> None:
        for change in self.changes[settled:]:
            self._batch.rows.append(change_row(change))
            if change.collection == "rules":
                self.head.rules = change.seq
                self._batch.moved_rules = True
        self._batch.moved.add(self.tenant)

    def rule_versions(self) -> RuleVersions:
        return self.head.rules, self._batch.head(SHARED).rules


class _Undo(Exception):
    """A unit failed that had written something, and there is no savepoint to go back to."""


class Writer:
    """Runs jobs on its own thread until it is closed, or dies and says why."""

    def __init__(self, connection: apsw.Connection, path: Path, *, clock: Clock, bus: Bus, rules: RuleBook, schema: int) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._path = path
        self._clock = clock
        self._bus = bus
        self._rules = rules
        self._schema = schema
        self._inbox: deque[Job] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._nudging: set[asyncio.AbstractEventLoop] = set()
        self._closing = False
        self._ended = False
        self._alone = True
        self._guarded = False
        self._heads: dict[str, Head] = {}
        self._seen: Any = None
        self._own = -1
        self.dead: StigmergyError | None = None
        self._thread = threading.Thread(target=self._work, name=f"writer of {path.name}", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Hand a job over. Where several callers write, the writer is told once per turn of the event loop, so that what is
        ready together is written together."""
        if self.dead is not None or self._closing:
            raise self.dead or StoreClosed(f"{self._path} is closed")
        self._inbox.append(job)
        if self._ended:
            self._fail_waiting()
        elif self._alone:
            self._wake.put(None)
        elif job.loop not in self._nudging:
            self._nudging.add(job.loop)
            job.loop.call_soon(self._nudge, job.loop)

    def _nudge(self, loop: asyncio.AbstractEventLoop) -> None:
        self._nudging.discard(loop)
        self._wake.put(None)

    def stop(self) -> None:
        """End after the jobs that were submitted. Blocks until the thread has ended."""
        self._closing = True
        self._wake.put(None)
        self._thread.join()

    def _work(self) -> None:
        jobs: list[Job] = []
        try:
            while not (self._closing and not self._inbox):
                self._sleep()
                while self._inbox:
                    jobs = self._take()
                    self._write(jobs)
                    self._answer(jobs)
                    jobs = []
                    if self.dead is not None:
                        return
        except BaseException as error:
            self.dead = StoreClosed(f"{self._path} is closed: its writer failed ({error!r}); restart the program")
            for job in jobs:
                job.error = job.error or self.dead
            self._answer(jobs)
            raise
        finally:
            self._ended = True
            self._fail_waiting()
            self._connection.close()

    def _sleep(self) -> None:
        """Until there is something to do. Meanwhile look out for other processes."""
        while True:
            try:
                return self._wake.get(timeout=LOOK_SECONDS)
            except Empty:
                if self._inbox or self._closing:
                    return
                try:
                    self._look()
                except apsw.Error:
                    self._seen = None  # looked at again, and reported if it lasts, by the next batch

    def _look(self) -> None:
        """The pragma `data_version` moves when another connection commits, and not when this one does."""
        ((seen,),) = self._cursor.execute("PRAGMA data_version").fetchall()
        self._own = self._connection.data_version()
        if seen != self._seen:
            self._seen = seen
            self._heads.clear()
            self._bus.publish_all()
            self._check_schema()

    def _take(self) -> list[Job]:
        jobs: list[Job] = []
        while self._inbox and len(jobs) < BATCH:
            job = self._inbox.popleft()
            if not job.future.cancelled():
                jobs.append(job)
        return jobs

    def _fail_waiting(self) -> None:
        """Whoever waits when the thread ends is told; whoever comes in that moment does this himself."""
        while True:
            try:
                job = self._inbox.popleft()
            except IndexError:
                return
            job.error = self.dead or StoreClosed(f"{self._path} is closed")
            self._answer([job])

    def _write(self, jobs: list[Job]) -> None:
        """One commit. Afterwards every job has its result or its error, and they are the truth."""
        if len(self._heads) > HEADS:
            self._heads.clear()
        batch = Batch(self._cursor, self._heads)
        self._alone = len(jobs) == 1
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
            # The connection's own `data_version` moves with every commit, here too, but costs a fiftieth of the pragma.
            if self._connection.data_version() != self._own:
                self._look()
            if self.dead is not None:
                raise self.dead
            point("batch.begun")
            for job in jobs:
                if not job.future.cancelled():
                    self._unit(batch, job)
            batch.flush()
            point("batch.flushed")
        except _Undo:
            self._guarded = True
            self._roll_back(batch)
            for job in jobs:
                job.error = None
            self._write(jobs)
            return
        except BaseException as error:
            self._lose(jobs, self._known(error), batch)
            return
        try:
            self._cursor.execute("COMMIT")
        except apsw.ConstraintError as error:
            self._lose(jobs, translated(error, self._path), batch)
            if len(jobs) > 1:
                self._each_alone(jobs)
            return
        except apsw.Error as error:
            known = translated(error, self._path, committing=True)
            self._lose(jobs, known, batch)
            if isinstance(known, OutcomeUnknown):
                self.dead = StoreClosed(f"{self._path} is closed: the disk failed during a commit; check it, then restart")
            return
        self._own = self._connection.data_version()
        self._guarded = batch.undid
        point("batch.committed")
        for tenant in batch.changed:
            self._bus.publish(changes_topic(tenant))
        for topic in batch.topics:
            self._bus.publish(topic)

    def _each_alone(self, jobs: list[Job]) -> None:
        """One of them broke a rule that is looked at in the end only: find out which."""
        for job in jobs:
            job.error = None
            self._write([job])

    def _check_schema(self) -> None:
        ((number,),) = self._cursor.execute("PRAGMA user_version").fetchall()
        if number != self._schema:
            self.dead = SchemaTooNew(f"{self._path} was migrated by a newer program; this one no longer writes to it, update it")

    def _unit(self, batch: Batch, job: Job) -> None:
        """Run one unit. Raises what ends the whole transaction."""
        tx = SqliteTransaction(batch, job.scope, self._clock.now())
        mark = batch.begin_unit(tx.head)
        in_savepoint = self._guarded and not self._alone
        if in_savepoint:
            self._cursor.execute("SAVEPOINT unit")
        changed = self._connection.total_changes()
        point("unit.begun")
        try:
            job.result = job.context.run(self._whole, tx, job)
            if tx.failed is not None:
                raise tx.failed
            if in_savepoint:
                self._cursor.execute("RELEASE unit")
            if tx.changes:
                batch.changed.add(tx.tenant)
            if tx.topics:
                batch.topics |= tx.topics
            return
        except BaseException as error:
            first = tx.failed or error  # whatever the unit made of an error of the database, that one came first
            if self._alone or not self._connection.in_transaction:
                raise first from None
            if in_savepoint:
                self._cursor.execute("ROLLBACK TO unit")
                self._cursor.execute("RELEASE unit")
                batch.undid = True
            elif self._connection.total_changes() != changed:
                raise _Undo from None
            job.error = self._known(first)
        batch.forget_unit(tx.tenant, tx.head, mark)

    def _whole(self, tx: SqliteTransaction, job: Job) -> Any:
        result = run_unit(job.unit(tx, *job.args, **job.kwargs), job.unit)
        point("unit.done")
        if tx.changes:
            run_unit(tx.settle(self._rules), job.unit)
            point("unit.settled")
        return result

    def _known(self, error: BaseException) -> BaseException:
        return translated(error, self._path) if isinstance(error, apsw.Error) else error

    def _lose(self, jobs: Iterable[Job], error: BaseException, batch: Batch) -> None:
        """Nothing of the batch is there (or nobody can tell): say so to all of it."""
        for job in jobs:
            job.error = job.error or error
        self._roll_back(batch)

    def _roll_back(self, batch: Batch) -> None:
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")
        self._heads.clear()
        if batch.moved_rules:  # else what is compiled is of positions that are committed
            self._rules.forget()

    def _answer(self, jobs: list[Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            by_loop.setdefault(job.loop, []).append(job)
        for loop, answered in by_loop.items():
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(answer_all, answered)
        point("batch.answered")


def run_unit(coroutine: Any, unit: Callable[..., Any]) -> Any:
    """Run a unit to its end: its transaction never suspends it, so anything that does is not its transaction."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    except RuntimeError as error:
        if "no running event loop" in str(error):
            raise foreign_await(unit) from error
        raise
    coroutine.close()
    raise foreign_await(unit)
