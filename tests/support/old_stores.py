"""Stores of an earlier schema, or of this one, with data in every table, seen without the engine."""

from pathlib import Path
from typing import Any, Protocol

import apsw
import asyncpg

from stigmergy.kernel import migrate
from stigmergy.kernel.migrate import Migration
from stigmergy.kernel.postgres_schema import prepare as prepare_postgres
from stigmergy.kernel.query import for_postgres, for_sqlite
from stigmergy.kernel.sqlite_file import prepare as prepare_sqlite
from support.postgres import DatabaseUrls
from support.repository import ROOT
from support.stores import OpenStore, postgres_opener, sqlite_opener

KERNEL = migrate.load()
DATA = ROOT / "tests/migrations/data"
NOW = 1_700_000_000_000

Rows = list[tuple[Any, ...]]


class OldStore(Protocol):
    """A place with a store of an earlier schema in it, seen without the engine."""

    open_store: OpenStore

    async def build(self, migrations: list[Migration]) -> None: ...
    async def run(self, sql: str) -> Rows: ...
    async def columns(self) -> dict[str, list[str]]: ...


class OldFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.open_store = sqlite_opener(path)

    async def build(self, migrations: list[Migration]) -> None:
        prepare_sqlite(self.path, migrations, NOW, migrate=True)

    async def run(self, sql: str) -> Rows:
        connection = apsw.Connection(str(self.path))
        try:
            return connection.execute(for_sqlite(sql)).fetchall()
        finally:
            connection.close()

    async def columns(self) -> dict[str, list[str]]:
        tables = await self.run("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return {name: [row[0] for row in await self.run(f"SELECT name FROM pragma_table_info('{name}')")] for (name,) in tables}


class OldServerDatabase:
    def __init__(self, urls: DatabaseUrls, admin: str) -> None:
        self.urls = urls
        self.admin = admin
        self.open_store = postgres_opener(urls)

    async def build(self, migrations: list[Migration]) -> None:
        await prepare_postgres(self.urls.owner, migrations, NOW, migrate=True)

    async def run(self, sql: str) -> Rows:
        connection = await asyncpg.connect(self.admin)
        try:
            if sql.startswith("SELECT"):
                return [tuple(row) for row in await connection.fetch(sql)]
            await connection.execute(for_postgres(sql))
            return []
        finally:
            await connection.close()

    async def columns(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        sql = """SELECT table_name, column_name FROM information_schema.columns
                 WHERE table_schema = 'public' ORDER BY ordinal_position"""
        for table, column in await self.run(sql):
            found.setdefault(table, []).append(column)
        return found


async def build(old: OldStore, schema: int) -> None:
    """A store as it was when the kernel had so many migrations, with data in every table."""
    await old.build(KERNEL[:schema])
    for migration in KERNEL[:schema]:
        await old.run((DATA / migration.name).read_text())
