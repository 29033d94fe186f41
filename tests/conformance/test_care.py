"""Backup while the store is in use, and a doctor that finds what is wrong."""

import asyncio
import contextlib
import os
from pathlib import Path

import apsw
import asyncpg
import pytest

from stigmergy.errors import Invalid
from stigmergy.kernel.database import Database, Finding
from stigmergy.kernel.doctor import examine
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.leases import claim, enlist, enqueue
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Transaction
from support.notes import Note
from support.postgres import DatabaseUrls, PostgresServer
from support.stores import sqlite_opener

FORGET = Statement("test.forget", "DELETE FROM workers WHERE id = :id")


async def add(tx: Transaction, text: str = "x") -> Note:
    return await tx.insert(Note(id=tx.new_id(), text=text))


async def change_text(tx: Transaction, note: Note) -> Note:
    return await tx.update(note, text="changed")


async def unwell(store: Database) -> list[Finding]:
    # the tests' PostgreSQL runs without fsync, and the doctor is right to say so
    return [finding async for finding in examine(store) if not finding.well and not finding.check.startswith("setting:")]


async def break_it(engine: str, request: pytest.FixtureRequest, tmp_path: Path, sql: str) -> None:
    """Write to the tables beside the engine, with nobody watching."""
    if engine == "sqlite":
        connection = apsw.Connection(str(tmp_path / "store.db"))
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(sql)
        connection.close()
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    urls: DatabaseUrls = request.getfixturevalue("postgres_database")
    admin = await asyncpg.connect(server.url_admin(urls.app.split("?")[0].rsplit("/", 1)[1]))
    await admin.execute("SET session_replication_role = replica")
    await admin.execute(sql)
    await admin.close()


async def test_a_store_in_use_is_well(store: Database) -> None:
    note = await store.write(add)
    await store.write(change_text, note)
    assert await unwell(store) == []


@pytest.mark.parametrize(
    ("sql", "check"),
    [
        ("DELETE FROM changes WHERE seq = 2 AND version = 2", "journal without gaps"),
        ("UPDATE heads SET seq = 9", "journal without gaps"),
        ("UPDATE notes SET seq = 1 WHERE version = 2", "notes and their changes"),
        ("DELETE FROM notes WHERE version = 2", "notes and their versions"),
    ],
)
async def test_what_was_done_beside_the_engine_is_found(
    store: Database, engine: str, request: pytest.FixtureRequest, tmp_path: Path, sql: str, check: str
) -> None:
    await store.write(change_text, await store.write(add))
    await store.write(add)
    await break_it(engine, request, tmp_path, sql)
    findings = await unwell(store)
    assert findings[0].check == f"main: {check}"
    assert findings[0].advice


async def test_work_in_the_hands_of_a_worker_that_is_gone_is_found(store: Database) -> None:
    async def lose_it(tx: Transaction) -> None:
        worker = await enlist(tx)
        await enqueue(tx, "runs", "r")
        await add(tx)
        assert await claim(tx, "runs", worker)
        await tx.run(FORGET, id=worker)

    await store.write(lose_it)
    assert [finding.check for finding in await unwell(store)] == ["main: work in hand"]


async def test_a_backup_of_a_file_in_use_is_whole_and_of_one_moment(tmp_path: Path) -> None:
    store = await sqlite_opener(tmp_path / "store.db")()
    for _ in range(300):
        await store.write(add, "x" * 2_000)

    async def write_on() -> None:
        while True:
            await store.write(add)

    seen: list[tuple[int, int]] = []
    writing = asyncio.create_task(write_on())
    await store.backup(tmp_path / "copy.db", progress=lambda done, total: seen.append((done, total)))
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    assert seen[-1][0] == seen[-1][1] > 0
    copy = await sqlite_opener(tmp_path / "copy.db")()
    assert await unwell(copy) == []
    changes = await copy.read(read_page, 0, 100_000)
    assert len(changes) >= 300
    await copy.write(add)
    await copy.close()
    await store.close()
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "store.db"]


async def test_a_backup_never_overwrites_and_leaves_nothing_when_it_fails(store: Database, tmp_path: Path) -> None:
    target = tmp_path / "there.db"
    await asyncio.to_thread(target.write_text, "mine")
    with pytest.raises(Invalid, match="choose another name"):
        await store.backup(target)
    with pytest.raises(Exception, match="none"):
        await store.backup(tmp_path / "none" / "copy.db")
    assert await asyncio.to_thread(target.read_text) == "mine"
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]


@pytest.mark.postgres
@pytest.mark.parametrize("engine", ["postgres"])
async def test_a_dump_of_postgresql_holds_every_tenants_rows(
    store: Database, tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(postgres_server.binaries), prepend=":")
    note = await store.write(add, "in the dump")
    await store.backup(tmp_path / "copy.dump")
    name = postgres_server.create_database("template1")
    restore = await asyncio.create_subprocess_exec(
        str(postgres_server.binaries / "pg_restore"),
        "--no-owner",
        f"--dbname={postgres_server.url_admin(name)}",
        str(tmp_path / "copy.dump"),
        stderr=asyncio.subprocess.PIPE,
    )
    await restore.communicate()
    admin = await asyncpg.connect(postgres_server.url_admin(name))
    assert await admin.fetchval("SELECT text FROM notes WHERE id = $1", note.id) == "in the dump"
    await admin.close()
    postgres_server.drop_database(name)
