"""Every table and every statement is held to two rules: what is a record is journalled, and tenants do not meet.

What is asked here is asked of the schema itself, so a new table cannot forget it.
"""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import apsw
import asyncpg
import pytest

import stigmergy
from stigmergy.kernel.postgres_schema import EVERY_TENANT, tenants_setting
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.sqlite_file import prepare
from support.old_stores import KERNEL, NOW, OldFile, OldServerDatabase, OldStore, build
from support.postgres import PostgresServer
from support.stores import watch_postgres, watch_sqlite

JOURNAL = {"heads", "changes", "versions", "tombstones"}
# Not records: nobody is told of their changes. A new table is a collection, or has a good reason to be here.
BOOKKEEPING = {
    "schema_migrations": "what was run when",
    "workers": "leases",
    "ready": "the queue of work",
    "timers": "the queue of moments",
    "idempotency": "answers by key, for a day",
    "blocks": "bodies by their hash, the same for ever",
    "followers": "cursors",
    "pins": "what retention may not drop",
    "breadcrumb_tags": "derived from the rows of breadcrumbs",
    "search_stale": "derived",
    "search_heads": "derived",
    "search_vectors": "derived",
    "search_entries": "derived",
    "run_heads": "the end of a run's log, and who works on it",
    "space_heads": "the end of a space's messages: what is locked",
    "delivery_tries": "attempts",
    "delivery_limits": "a queue's pace",
}
# The engine's own, read over all tenants for what is due: they hold ids and moments, no word of anybody.
OF_ALL_TENANTS = {"ready", "search_stale", "timers", "workers", "delivery_limits", "schema_migrations"}
WORDLESS = {"tenant", "id", "seq", "queue", "due_at", "worker", "fence", "kind", "counter", "alive", "started_at", "describes"}
WORDLESS |= {"base", "concurrency", "spacing_us", "next_us"}
# What reads over all tenants beside those queues, and why it may.
READS_ALL = {
    "heads.tenants": "names the tenants, for retention and the doctor",
    "search_text.count": "one index of words for the file; each word begins with its tenant",
    "search_text.match": "the same; what is found is held to the tenant by its entry",
}


def everything_is_imported() -> None:
    for module in pkgutil.walk_packages(stigmergy.__path__, "stigmergy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@pytest.fixture(autouse=True)
def whole_program() -> None:
    everything_is_imported()


def ours() -> dict[str, str]:
    """The collections of the program, without those of the tests."""
    return {name: each.record.__module__ for name, each in COLLECTIONS.items() if each.record.__module__.startswith("stigmergy.")}


async def test_every_table_is_a_collection_or_known_bookkeeping(old: OldStore) -> None:
    await build(old, len(KERNEL))
    views = "sqlite_master WHERE type = 'view'" if isinstance(old, OldFile) else "pg_views WHERE schemaname = 'public'"
    shown = {name for (name,) in await old.run(f"SELECT {'name' if isinstance(old, OldFile) else 'viewname'} FROM {views}")}
    tables = {name for name in await old.columns() if not name.startswith("search_text")} - shown
    assert ours().keys() <= tables
    unknown = tables - ours().keys() - JOURNAL - BOOKKEEPING.keys()
    assert not unknown, f"{unknown}: declare a collection, or say in BOOKKEEPING why nobody is told of its changes"


async def test_a_row_of_any_collection_cannot_change_without_its_change(old: OldStore) -> None:
    await build(old, len(KERNEL))
    if isinstance(old, OldFile):
        watch_sqlite(old.path, ours())
    else:
        assert isinstance(old, OldServerDatabase)
        await watch_postgres(old.urls.owner, ours())
    for name in ours():
        for sql in (f"UPDATE {name} SET version = version", f"DELETE FROM {name}", _again(name, await old.columns())):
            assert re.search("FOREIGN KEY constraint failed|without its change", await _refusal(old, sql)), sql


def _again(name: str, columns: dict[str, list[str]]) -> str:
    """An insert of rows like those that are there, under other tenants."""
    others = ", ".join(column for column in columns[name] if column != "tenant")
    return f"INSERT INTO {name} (tenant, {others}) SELECT tenant || '2', {others} FROM {name}"


async def _refusal(old: OldStore, sql: str) -> str:
    """What this is refused with, if it is."""
    try:
        if isinstance(old, OldFile):
            connection = apsw.Connection(str(old.path))
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(sql)
            connection.close()
        else:
            await old.run(sql)
    except (apsw.ConstraintError, asyncpg.PostgresError) as error:
        return str(error)
    return "none"


@pytest.mark.postgres
async def test_a_plain_role_meets_no_row_of_another_tenant_in_any_table_or_view(postgres_server: PostgresServer) -> None:
    name = postgres_server.create_database()
    old = OldServerDatabase(postgres_server.urls(name), postgres_server.url_admin(name))
    await build(old, len(KERNEL))
    connection = await asyncpg.connect(old.urls.app)
    try:
        await _meets_none(connection, old)
    finally:
        await connection.close()
        postgres_server.drop_database(name)


async def _meets_none(connection: "asyncpg.Connection[asyncpg.Record]", old: OldServerDatabase) -> None:
    tables = {table: columns for table, columns in (await old.columns()).items() if table not in OF_ALL_TENANTS}
    for table, columns in tables.items():
        assert "tenant" in columns, f"{table} has no tenant; say in OF_ALL_TENANTS why it needs none"
        ((owner,), *_) = await old.run(f"SELECT tenant FROM {table} WHERE tenant <> '*'")
        for setting, seen in (
            (None, False),
            ("", False),
            (tenants_setting(["nobody"]), False),
            (tenants_setting([owner]), True),
            (EVERY_TENANT, True),
        ):
            if setting is not None:
                await connection.execute("SELECT set_config('stigmergy.tenants', $1, false)", setting)
            count = await connection.fetchval(f"SELECT count(*) FROM {table} WHERE tenant = $1", owner)
            assert bool(count) == seen, f"{table} under {setting!r}"
        if await connection.fetchval("SELECT relkind = 'r' FROM pg_class WHERE relname = $1", table):
            await _writes_are_fenced(connection, table, owner)
        await connection.execute("RESET stigmergy.tenants")


async def _writes_are_fenced(connection: "asyncpg.Connection[asyncpg.Record]", table: str, owner: str) -> None:
    await connection.execute("SELECT set_config('stigmergy.tenants', $1, false)", tenants_setting(["nobody"]))
    assert await connection.execute(f"DELETE FROM {table} WHERE tenant = $1", owner) == "DELETE 0"
    assert await connection.execute(f"UPDATE {table} SET tenant = 'nobody' WHERE tenant = $1", owner) == "UPDATE 0"
    await connection.execute("SELECT set_config('stigmergy.tenants', $1, false)", tenants_setting([owner]))
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await connection.execute(f"UPDATE {table} SET tenant = 'nobody' WHERE tenant = $1", owner)


async def test_what_is_of_all_tenants_holds_no_word_of_anybody(old: OldStore) -> None:
    await build(old, len(KERNEL))
    columns = await old.columns()
    for table in OF_ALL_TENANTS - {"schema_migrations"}:
        assert set(columns[table]) <= WORDLESS, f"{table} is not fenced by row-level security and holds more than ids"


def test_every_statement_finds_its_rows_by_their_tenant(tmp_path: Path) -> None:
    """SQLite has no row-level security. It tells for each statement how it finds its rows: wherever a tenant's row is
    looked at, the tenant must be among what is looked up. That is also what makes it an index that is used."""
    prepare(tmp_path / "plan.db", KERNEL, NOW, migrate=True)
    connection = apsw.Connection(str(tmp_path / "plan.db"))
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    statements = every_statement()
    assert len(statements) > 300
    wrong: list[str] = []
    for statement in statements:
        found = f"EXPLAIN QUERY PLAN {statement.sqlite}"
        for *_, detail in connection.execute(found, tuple("1" for _ in statement.parameters)):
            step = re.match(r"(?:SCAN|SEARCH) (\w+)", detail)
            if step is None or "tenant=?" in detail or statement.name in READS_ALL:
                continue
            table = _table(step[1], statement.sqlite)
            if table in tables - OF_ALL_TENANTS:
                wrong.append(f"{statement.name}: {detail}")
    assert not wrong
    connection.close()


class Made(NamedTuple):
    name: str
    sqlite: str
    parameters: list[str]


def every_statement() -> list[Made]:
    """Those declared with their modules, and those that are made when they are first needed; from a process of its own, in which
    no test has made any."""
    told = subprocess.run([sys.executable, "-c", _TELL], capture_output=True, text=True, check=True, timeout=60).stdout
    return [made for each in json.loads(told) if (made := Made(*each)).name not in _POSTGRES_ALONE]


_TELL = """
import gc, importlib, json, pkgutil
import stigmergy
for module in pkgutil.walk_packages(stigmergy.__path__, "stigmergy."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from stigmergy.kernel.query import Statement
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.triggers.store import at_seqs
for name, collection in COLLECTIONS.items():
    at_seqs(name)
    if collection.versioned:
        for column in collection.columns:
            collection.update_sql((column,))
made = [each for each in gc.get_objects() if isinstance(each, Statement)]
print(json.dumps([[each.name, each.sqlite, list(each.parameters)] for each in made]))
"""
_POSTGRES_ALONE = {"search_vectors.nearest", "search_entries.add"}


def _table(name: str, sql: str) -> str:
    """The table behind an alias."""
    found = re.search(rf"\b(?:FROM|JOIN) (\w+) (?:AS )?{name}\b", sql)
    return found[1] if found else name
