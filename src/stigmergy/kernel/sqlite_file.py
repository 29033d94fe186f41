"""The SQLite file: opened, checked, brought up to date, and its errors in our words."""

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from stigmergy.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    OutcomeUnknown,
    StigmergyError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
)
from stigmergy.kernel.faults import point
from stigmergy.kernel.migrate import READ, TABLE, Migration, pending, refuse_pending
from stigmergy.kernel.query import for_sqlite

# "Stgm": what tells our files from others in the header.
APPLICATION_ID = 0x5374676D
# Statements kept compiled for each connection.
STATEMENT_CACHE = 400
# Pages of the file that each connection keeps in memory, at the most.
CACHE_KIB = 32_000
# Pages in the WAL before a commit moves them into the file: 16 MB. Four times SQLite's own gave a tenth more writes.
CHECKPOINT_PAGES = 4_000


def open_connection(path: Path, *, synchronous: str = "FULL", busy_seconds: float = 5.0, writes: bool = False) -> apsw.Connection:
    try:
        connection = apsw.Connection(str(path), statementcachesize=STATEMENT_CACHE)
        connection.set_busy_handler(_patience(busy_seconds))
        # A plan is made once for a statement. Else SQLite looks at what is bound to a LIMIT and the like, and compiles the
        # statement anew for each call: a short query took five times as long.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if not writes:
            connection.execute("PRAGMA query_only = ON")
        return connection
    except apsw.Error as error:
        raise translated(error, path) from error


def _patience(seconds: float) -> Callable[[int], bool]:
    """Ask for the lock again and again, in short sleeps: SQLite's own grow to 100 ms, in which a second writer starves the
    first."""
    began = 0.0

    def wait(tries: int) -> bool:
        nonlocal began
        if tries == 0:
            began = time.monotonic()
        time.sleep(0.0002 if tries < 50 else 0.001)
        return time.monotonic() - began < seconds

    return wait


def prepare(path: Path, migrations: Sequence[Migration], now: int, *, migrate: bool, busy_seconds: float = 5.0) -> None:
    """Make sure that the file is ours and at this program's schema. Changes nothing when it refuses."""
    _check_place(path)
    if not migrate and not path.exists():
        raise StoreUnavailable(f"{path}: there is no store here yet; `stigmergy migrate` or `stigmergy serve` makes it")
    connection = open_connection(path, busy_seconds=busy_seconds, writes=True)
    try:
        _check_ours(connection, path)
        applied = _applied(connection)
        missing = pending(migrations, applied)
        if missing and not migrate:
            refuse_pending(missing)
        if missing:
            _switch_to_wal(connection, busy_seconds)
            _migrate(connection, migrations, now)
    except apsw.Error as error:
        raise translated(error, path) from error
    finally:
        connection.close()


def _switch_to_wal(connection: apsw.Connection, busy_seconds: float) -> None:
    """SQLite does not ask its busy handler here, so two processes that make a file together must be told to wait."""
    began = time.monotonic()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() - began > busy_seconds:
                raise
            time.sleep(0.005)


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreUnavailable(f"{path}: the folder {path.parent} does not exist; make it first or choose another place")
    if path.is_dir():
        raise StoreUnusable(f"{path} is a folder; give the name of a file in it, such as {path / 'stigmergy.db'}")
    target = path if path.exists() else path.parent
    if not os.access(target, os.W_OK):
        raise StoreUnavailable(f"{path}: no permission to write {target}; change its rights or choose another place")


def _check_ours(connection: apsw.Connection, path: Path) -> None:
    application = connection.pragma("application_id")
    if application == APPLICATION_ID:
        return
    tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name <> 'schema_migrations'").get
    if connection.pragma("application_id") == APPLICATION_ID:
        return  # another process made it between the two looks
    if application != 0 or tables:
        raise StoreUnusable(f"{path} is a SQLite file of another program; choose another name for the store")


def _applied(connection: apsw.Connection) -> list[tuple[str, int, str, str]]:
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'").get
    return list(connection.execute(READ)) if known else []


def _migrate(connection: apsw.Connection, migrations: Sequence[Migration], now: int) -> None:
    """All that is missing, in one transaction: a store is at one schema or at the next, never between."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(TABLE)
        # read again under the lock: another process may have been faster
        missing = pending(migrations, _applied(connection))
        for migration in missing:
            for statement in migration.statements(for_sqlite):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO schema_migrations VALUES (?, ?, ?, ?, ?)",
                (migration.source, migration.number, migration.name, migration.checksum, now),
            )
            point("migration.applied")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def translated(error: apsw.Error, path: Path | str, *, committing: bool = False) -> StigmergyError:
    """One of our errors for one of SQLite's."""
    extended = getattr(error, "extendedresult", 0)
    match error:
        case apsw.NotADBError():
            return StoreUnusable(f"{path} is not a SQLite file; choose another name for the store")
        case apsw.CorruptError():
            return StoreUnusable(f"{path} is damaged ({error}); run `stigmergy doctor` and restore a backup")
        case apsw.FullError():
            return StoreFull(f"{path}: no space left; nothing of this was written. Free some space and try again")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{path} is locked by another process for too long; end it, or try again")
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.ReadOnlyError():
            return StoreUnavailable(f"{path} cannot be opened for writing ({error}); check its folder and its rights")
        case apsw.IOError():
            if committing:
                return OutcomeUnknown(
                    f"{path}: the disk failed during a commit ({error}); whether it will be there after a restart cannot be told"
                )
            return StoreError(f"{path}: the disk failed ({error}); nothing of this was written")
        case apsw.ConstraintError():
            return _constraint(error, extended)
        case apsw.TooBigError():
            return Invalid(f"a value is too large to be stored ({error}); keep large bodies in blocks", code="too_large")
        case _:
            return StoreError(f"{path}: {error}")


def _constraint(error: apsw.Error, extended: int) -> StigmergyError:
    if extended in (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_UNIQUE):
        return AlreadyExists(f"a record with this key is there already ({error}); choose another key or update it")
    return Conflict(f"the write breaks a rule of its table ({error}); nothing of this was written")


def sync_folder(path: Path) -> None:
    """Make a rename in this file's folder durable."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(folder)
