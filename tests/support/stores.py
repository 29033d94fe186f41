"""Stores for the tests: both engines behind one fixture, each with the notes of `support.notes`.

Triggers on every table of records watch that no row changes without its change in the same transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from stigmergy.kernel import migrate
from stigmergy.kernel.clock import SystemClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.postgres import PostgresDatabase
from stigmergy.kernel.postgres_schema import prepare
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.sqlite import SqliteDatabase
from stigmergy.kernel.sqlite_file import prepare as prepare_file
from support import notes  # noqa: F401  # declares the collections
from support.postgres import DatabaseUrls

SOURCES = (migrate.KERNEL, "support.notes")

# A row that changes is put on a list whose foreign key can never hold; its change takes it off again. Whoever forgets the
# change cannot commit.
_SQLITE_LIST = """
CREATE TABLE IF NOT EXISTS never (id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS unjournalled (
    tenant TEXT, collection TEXT, seq INTEGER, guard INTEGER DEFAULT 1 REFERENCES never (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TRIGGER IF NOT EXISTS journalled AFTER INSERT ON changes BEGIN
    DELETE FROM unjournalled WHERE tenant = NEW.tenant AND collection = NEW.collection AND (seq = NEW.seq OR seq < 0);
END;
"""
_SQLITE_WATCH = """
CREATE TRIGGER IF NOT EXISTS {table}_inserted AFTER INSERT ON {table} BEGIN
    INSERT INTO unjournalled (tenant, collection, seq) VALUES (NEW.tenant, '{table}', NEW.seq); END;
CREATE TRIGGER IF NOT EXISTS {table}_updated AFTER UPDATE ON {table} BEGIN
    INSERT INTO unjournalled (tenant, collection, seq) VALUES (NEW.tenant, '{table}', NEW.seq); END;
CREATE TRIGGER IF NOT EXISTS {table}_deleted AFTER DELETE ON {table} BEGIN
    INSERT INTO unjournalled (tenant, collection, seq) VALUES (OLD.tenant, '{table}', -OLD.seq); END;
"""
_POSTGRES_WATCH = """
CREATE OR REPLACE FUNCTION journalled_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    touched RECORD;
BEGIN
    IF TG_OP = 'DELETE' THEN touched := OLD; ELSE touched := NEW; END IF;
    IF NOT EXISTS (
        SELECT 1 FROM changes
        WHERE tenant = touched.tenant AND collection = '{table}' AND id = {key}
          AND xmin = pg_current_xact_id()::xid)
    THEN RAISE EXCEPTION 'a row of {table} changed without its change'; END IF;
    IF TG_OP <> 'DELETE' AND EXISTS (SELECT 1 FROM {table} WHERE {same} AND seq <= 0)
    THEN RAISE EXCEPTION 'a row of {table} was left without its seq'; END IF;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS journalled ON {table};
CREATE CONSTRAINT TRIGGER journalled AFTER INSERT OR UPDATE OR DELETE ON {table}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION journalled_{table}();
"""

OpenStore = Callable[..., Awaitable[Database]]


def watch_sqlite(path: Path, tables: Iterable[str] | None = None) -> None:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5_000)
    connection.execute(_SQLITE_LIST)
    for table in tables or COLLECTIONS:
        connection.execute(_SQLITE_WATCH.format(table=table))
    connection.close()


async def migrate_postgres(urls: DatabaseUrls, *, watched: bool = True, sources: Iterable[str] = SOURCES) -> None:
    await prepare(urls.owner, migrate.load(sources), SystemClock().now(), migrate=True)
    if watched:
        await watch_postgres(urls.owner)


async def watch_postgres(owner_url: str, tables: Iterable[str] | None = None) -> None:
    connection = await asyncpg.connect(owner_url)
    for name in tables or COLLECTIONS:
        collection = COLLECTIONS[name]
        key = " || '/' || ".join(f"touched.{column}::text" for column in collection.key)
        same = " AND ".join(f"{column} = touched.{column}" for column in ("tenant", *collection.key))
        await connection.execute(_POSTGRES_WATCH.format(table=name, key=key, same=same))
    await connection.close()


def migrated_template(urls: DatabaseUrls) -> None:
    """In a thread of its own: the test that asks first may already run in an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate_postgres(urls)).result()


def app_template(urls: DatabaseUrls) -> None:
    """The same without the tests' own tables, as an `App` wants it."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate_postgres(urls, watched=False, sources=(migrate.KERNEL,))).result()


def make_file(path: Path) -> None:
    """A store as the program makes it, without the notes of the tests."""
    prepare_file(path, migrate.load(), SystemClock().now(), migrate=True)


def sqlite_opener(path: Path) -> OpenStore:
    async def open_store(**settings: Any) -> Database:
        first = not await asyncio.to_thread(path.exists)
        store = await SqliteDatabase.open(path, sources=SOURCES, **settings)
        if first:
            watch_sqlite(path)
        return store

    return open_store


def postgres_opener(urls: DatabaseUrls) -> OpenStore:
    async def open_store(**settings: Any) -> Database:
        return await PostgresDatabase.open(urls.app, owner_url=urls.owner, sources=SOURCES, **settings)

    return open_store
