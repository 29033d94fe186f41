"""The PostgreSQL database: connected, checked, brought up to date, fenced by tenant, and its errors in our words.

The tables belong to whoever migrates. Everybody else, and every unit of work, runs as the plain role `stigmergy_app`, which
owns nothing, so that row-level security holds for all statements: a transaction sees the tenants it named and no others.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg

from stigmergy.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    StigmergyError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnusable,
)
from stigmergy.kernel.faults import point
from stigmergy.kernel.migrate import READ, TABLE, Migration, pending, refuse_pending
from stigmergy.kernel.query import for_postgres

ROLE = "stigmergy_app"
# Where every tenant may be seen: what keeps the store as a whole (retention, doctor, backup).
EVERY_TENANT = "!"
# An advisory lock of ours: only one process migrates.
LOCK = 0x5374676D

# Tables of the engine itself, read over all tenants for what is due; they hold ids and nothing else.
_UNFENCED = ("ready", "search_stale", "timers", "workers")

_POLICY = """
    (tenant = ANY ((SELECT string_to_array(current_setting('stigmergy.tenants', true), ','))::text[])
     OR (SELECT current_setting('stigmergy.tenants', true)) = '!')"""

# How long a server that does not answer is waited for.
CONNECT_SECONDS = 10
STATEMENT_SECONDS = 60
# How long a process may say nothing in the middle of a transaction. One that was frozen there would hold its locks, and so its
# runs, for as long; the server ends it instead, and a process that comes to again repeats what it was about.
SILENT_SECONDS = 5.0

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# How asyncpg says that the connection is gone.
_BROKEN = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    OSError,
)


async def connect(url: str) -> Connection:
    """One connection as the plain role."""
    try:
        connection: Connection = await asyncpg.connect(
            url, statement_cache_size=1000, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS
        )
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TimeoutError) as error:
        raise _unreachable(error) from error
    try:
        await connection.execute(f"SET idle_in_transaction_session_timeout = {round(SILENT_SECONDS * 1000)}")
        mighty = await connection.fetchval("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        if mighty:
            # a superuser is not fenced by row-level security, so units never run as one
            await connection.execute(f"SET ROLE {ROLE}")
    except _BROKEN as error:
        connection.terminate()
        raise translated(error) from error
    except asyncpg.PostgresError as error:
        connection.terminate()
        raise StoreUnusable(
            f"connected as a role that row-level security does not hold, and {ROLE} cannot be taken on ({error});"
            " run `stigmergy migrate` once as the owner, then connect as a plain role"
        ) from error
    except BaseException:  # whoever waited for it went away
        connection.terminate()
        raise
    return connection


async def prepare(url: str, migrations: Sequence[Migration], now: int, *, migrate: bool) -> None:
    """Make sure that the database is at this program's schema. Changes nothing when it refuses."""
    try:
        connection: Connection = await asyncpg.connect(url, timeout=10)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TimeoutError) as error:
        raise _unreachable(error) from error
    try:
        missing = pending(migrations, await _applied(connection))
        if missing and not migrate:
            refuse_pending(missing)
        if missing:
            await _migrate(connection, migrations, now)
    except asyncpg.PostgresError as error:
        raise translated(error) from error
    finally:
        await connection.close()


async def _applied(connection: Connection) -> list[tuple[str, int, str, str]]:
    known = await connection.fetchval("SELECT to_regclass('schema_migrations')")
    if known is None:
        ours = await connection.fetchval("SELECT to_regclass('changes')")
        if ours is not None:
            raise StoreUnusable("this database has a table `changes` that is not ours; give the store a database of its own")
        return []
    return [(row[0], row[1], row[2], row[3]) for row in await connection.fetch(READ)]


async def _migrate(connection: Connection, migrations: Sequence[Migration], now: int) -> None:
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        await connection.execute(TABLE)
        missing = pending(migrations, await _applied(connection))
        for migration in missing:
            for statement in migration.statements(for_postgres):
                await connection.execute(statement)
            await connection.execute(
                "INSERT INTO schema_migrations VALUES ($1, $2, $3, $4, $5)",
                migration.source,
                migration.number,
                migration.name,
                migration.checksum,
                now,
            )
            point("migration.applied")
        if missing:  # else another process was faster, and its users write already
            await _fence(connection)


async def _fence(connection: Connection) -> None:
    """Every table with a tenant is held to the tenants that the transaction named; the plain role may use them all. A view
    (it is one of its invoker) shows what its tables show."""
    await connection.execute(
        f"""DO $$ BEGIN CREATE ROLE {ROLE} NOLOGIN; EXCEPTION
            WHEN duplicate_object OR insufficient_privilege OR unique_violation THEN NULL; END $$"""
    )
    tables = await connection.fetch(
        """SELECT c.relname, c.relkind = 'v',
                  EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = c.oid AND attname = 'tenant')
           FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'v')
             AND pg_get_userbyid(c.relowner) = current_user"""
    )
    granted = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", ROLE)
    for name, is_view, has_tenant in tables:
        if granted:
            rights = "SELECT" if is_view or name == "schema_migrations" else "SELECT, INSERT, UPDATE, DELETE"
            await connection.execute(f'GRANT {rights} ON "{name}" TO {ROLE}')
        if has_tenant and not is_view and name not in _UNFENCED:
            await connection.execute(f'ALTER TABLE "{name}" ENABLE ROW LEVEL SECURITY')
            await connection.execute(f'ALTER TABLE "{name}" FORCE ROW LEVEL SECURITY')
            await connection.execute(f'DROP POLICY IF EXISTS tenant ON "{name}"')
            await connection.execute(f'CREATE POLICY tenant ON "{name}" USING {_POLICY} WITH CHECK {_POLICY}')


def _unreachable(error: Exception) -> StigmergyError:
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return StoreUnavailable(f"PostgreSQL refuses the user or password of the URL ({error}); correct them")
        case asyncpg.InvalidCatalogNameError():
            return StoreUnavailable(f"PostgreSQL has no such database ({error}); create it first: createdb NAME")
        case ValueError() | asyncpg.InterfaceError():
            return StoreUnusable(f"this PostgreSQL URL cannot be read ({error}); write postgresql://user:password@host:5432/name")
        case _:
            return StoreUnavailable(
                f"PostgreSQL cannot be reached ({error or type(error).__name__}); is it running, is the URL right?"
            )


def translated(error: Exception) -> StigmergyError:
    """One of our errors for one of PostgreSQL's."""
    match error:
        case asyncpg.UniqueViolationError():
            return AlreadyExists(f"a record with this key is there already ({error}); choose another key or update it")
        case asyncpg.IntegrityConstraintViolationError():
            return Conflict(f"the write breaks a rule of its table ({error}); nothing of this was written")
        case asyncpg.DiskFullError():
            return StoreFull("PostgreSQL has no space left; nothing of this was written. Free some space and try again")
        case asyncpg.SerializationError() | asyncpg.DeadlockDetectedError():
            return StoreUnavailable(f"the write met others again and again ({error}); nothing was written, try again")
        case asyncpg.InsufficientPrivilegeError():
            return StoreUnusable(f"PostgreSQL denies it ({error}); run `stigmergy migrate` as the owner, or grant the rights")
        case asyncpg.DataError():
            return Invalid(f"PostgreSQL cannot store a value ({error})", code="invalid_value")
        case _ if isinstance(error, _BROKEN):
            return StoreUnavailable(f"the connection to PostgreSQL broke ({error}); nothing of this was written, try again")
        case _:
            return StoreError(f"PostgreSQL: {error}")


def tenants_setting(tenants: Sequence[str]) -> str:
    """What a transaction says of whose rows it is about. Tenants' names hold no quote and no comma (see ids)."""
    return ",".join((*tenants, "*"))


def arrays(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as columns, for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)]
