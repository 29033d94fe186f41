"""Backup while the store is in use, and a doctor that finds what is wrong."""

import asyncio
import contextlib
import os
from pathlib import Path

import apsw
import asyncpg
import pytest

from stigmergy.app import EXAMINERS
from stigmergy.breadcrumbs.commands import create
from stigmergy.breadcrumbs.embeddings import NoEmbedder
from stigmergy.breadcrumbs.model import Draft
from stigmergy.breadcrumbs.search_index import fill
from stigmergy.errors import Invalid
from stigmergy.kernel.blocks import put_block
from stigmergy.kernel.database import Database, Finding
from stigmergy.kernel.doctor import examine
from stigmergy.kernel.feed import read_page, save_cursor
from stigmergy.kernel.history import purge
from stigmergy.kernel.leases import claim, enlist, enqueue
from stigmergy.kernel.query import Statement, for_postgres, for_sqlite
from stigmergy.kernel.retention import Policy, sweep
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.runs.commands import Start, start_run
from support.notes import Note
from support.postgres import DatabaseUrls, PostgresServer
from support.stores import sqlite_opener
from support.talk import add_agents

FORGET = Statement("test.forget", "DELETE FROM workers WHERE id = :id")


async def add(tx: Transaction, text: str = "x") -> Note:
    return await tx.insert(Note(id=tx.new_id(), text=text))


async def change_text(tx: Transaction, note: Note) -> Note:
    return await tx.update(note, text="changed")


async def unwell(store: Database) -> list[Finding]:
    # the tests' PostgreSQL runs without fsync, and the doctor is right to say so
    return [
        finding async for finding in examine(store, EXAMINERS) if not finding.well and not finding.check.startswith("setting:")
    ]


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


async def lead_a_full_life(store: Database) -> None:
    """Two notes, one of them changed; breadcrumbs with tags, an end and an entry for search; a run and its log; a block."""
    await store.write(change_text, await store.write(add))
    await store.write(add)
    scope = Scope("main", "mia")
    for number in range(2):
        draft = Draft(schema_name="note.v1", id=f"c{number}", title="x", tags=["a", "b"], expires_at=2**47)
        await store.write(create, draft, scope=scope)
    await fill(store, NoEmbedder(), "main")
    await store.write(add_agents, "lead", scope=scope)
    await store.write(start_run, Start(agent="lead", owner_id="mia", space_id="s", instruction="hello"), scope=scope)
    await store.write(put_block, b"a body")
    await store.write(save_cursor, "mirror", 1, 1_000)


async def test_a_store_in_use_is_well(store: Database) -> None:
    await lead_a_full_life(store)
    assert await unwell(store) == []


async def test_what_was_deleted_made_again_and_erased_is_well(store: Database) -> None:
    async def delete(tx: Transaction, id: str) -> None:
        note = await tx.lock(Note, id)
        assert note is not None
        await tx.delete(note)

    async def again(tx: Transaction, id: str) -> None:
        await tx.insert(Note(id=id, text="again"))

    gone, back, erased = [(await store.write(add)).id for _ in range(3)]
    for id in (gone, back):
        await store.write(delete, id)
    await store.write(again, back)
    await store.write(purge, Note, erased)
    await store.write(again, erased)
    await store.write(purge, Note, erased)
    await sweep(store, Policy(max_changes=3))
    assert await unwell(store) == []


@pytest.mark.parametrize(
    ("sql", "check"),
    [
        ("DELETE FROM changes WHERE seq = 2 AND version = 2", "journal without gaps"),
        ("UPDATE heads SET seq = 99", "journal without gaps"),
        ("UPDATE notes SET seq = 1 WHERE version = 2", "notes and their changes"),
        ("DELETE FROM notes WHERE version = 2", "notes and their versions"),
        ("DELETE FROM notes WHERE version = 1", "notes that the journal speaks of"),
        ("DELETE FROM versions WHERE collection = 'notes'", "notes that the journal speaks of"),
        ("INSERT INTO tombstones SELECT tenant, 'notes', id, 9, seq FROM notes WHERE version = 2", "notes and their tombstones"),
        ("DELETE FROM runs", "run_messages and their runs"),
        ("UPDATE blocks SET body = CAST('another' AS {blob})", "blocks and their hashes"),
        ("DELETE FROM changes WHERE seq < 4", "followers"),
        ("UPDATE breadcrumb_tags SET seq = 1 WHERE id = 'c0' AND tag = 'a'", "tags"),
        ("DELETE FROM breadcrumb_tags WHERE id = 'c1' AND tag = 'b'", "breadcrumbs by their tags"),
        ("UPDATE search_entries SET id = 'nobody' WHERE id = 'c1'", "search"),
        ("DELETE FROM timers WHERE id = 'c0'", "breadcrumbs that expire"),
    ],
)
async def test_what_was_done_beside_the_engine_is_found(
    store: Database, engine: str, request: pytest.FixtureRequest, tmp_path: Path, sql: str, check: str
) -> None:
    await lead_a_full_life(store)
    await break_it(engine, request, tmp_path, (for_sqlite if engine == "sqlite" else for_postgres)(sql))
    findings = {finding.check: finding for finding in await unwell(store)}
    assert f"main: {check}" in findings
    assert all(finding.advice and finding.detail for finding in findings.values())


async def test_a_damaged_page_is_found_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await sqlite_opener(path)()
    for _ in range(300):
        await store.write(add, "x" * 1_000)
    await store.close()
    await asyncio.to_thread(scribble, path)
    store = await sqlite_opener(path)()
    findings = {finding.check: finding for finding in await unwell(store)}
    assert findings["integrity of the file"].advice == "restore the last good backup"
    await store.close()


def scribble(path: Path) -> None:
    """Other bytes in the middle of every page but the first ones."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for page in range(200, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 64)


async def test_settings_that_risk_what_was_acknowledged_are_told(tmp_path: Path) -> None:
    store = await sqlite_opener(tmp_path / "store.db")(synchronous="NORMAL")
    findings = {finding.check: finding for finding in await store.check()}
    assert (findings["setting: synchronous"].well, findings["setting: journal_mode"].well) == (False, True)
    assert "power failure" in findings["setting: synchronous"].advice
    await store.close()


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
