"""What broken connections, deadlocks and a server that is gone do to writes of a PostgreSQL store."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from stigmergy.errors import (
    AlreadyExists,
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from stigmergy.kernel import postgres_schema
from stigmergy.kernel.database import Database, mergeable
from stigmergy.kernel.postgres import TRIES
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Transaction
from support.crash_check import check_journal
from support.crash_servers import CuttingProxy, StoppableServer
from support.crash_units import add, add_merged, outcomes, texts
from support.notes import Entry, Note
from support.postgres import DatabaseUrls, PostgresServer
from support.stores import migrate_postgres, postgres_opener

pytestmark = pytest.mark.postgres


@pytest.fixture
async def proxied(postgres_server: PostgresServer, postgres_database: DatabaseUrls) -> AsyncIterator[CuttingProxy]:
    async with CuttingProxy(postgres_server.directory) as proxy:
        yield proxy


@pytest.fixture
async def postgres(postgres_database: DatabaseUrls) -> AsyncIterator[Database]:
    store = await postgres_opener(postgres_database)()
    yield store
    await store.close()


@pytest.fixture
async def through_proxy(proxied: CuttingProxy, postgres_database: DatabaseUrls) -> AsyncIterator[Database]:
    store = await postgres_opener(DatabaseUrls(*map(proxied.url_through, postgres_database)))()
    yield store
    await store.close()


@pytest.mark.parametrize("moment", ["before the first write", "after it", "at the end"])
async def test_a_unit_whose_connection_breaks_before_the_commit_is_run_again(
    postgres: Database, postgres_server: PostgresServer, moment: str
) -> None:
    me = Statement("test.me", "SELECT pg_backend_pid()")
    tries = 0

    async def unit(tx: Transaction) -> None:
        nonlocal tries
        tries += 1
        ((pid,),) = await tx.rows(me)

        def cut(now: str) -> None:
            if now == moment and tries < 3:
                postgres_server.execute(f"SELECT pg_terminate_backend({pid}, 5000)")

        cut("before the first write")
        note = await add(tx, "one")
        await tx.update(note, text="two")
        cut("after it")
        await tx.insert(Entry(note_id=note.id, pos=1))
        cut("at the end")

    await outcomes(postgres.write(unit))
    assert tries == 3
    assert await texts(postgres) == ["one", "two"]


@pytest.mark.parametrize("unit", [add, add_merged])
@pytest.mark.parametrize("arrives", [False, True])
async def test_a_connection_that_breaks_during_the_commit_leaves_the_outcome_unknown(
    proxied: CuttingProxy,
    through_proxy: Database,
    postgres_database: DatabaseUrls,
    unit: Callable[..., Any],
    arrives: bool,
) -> None:
    await through_proxy.write(unit, "before")
    proxied.cut_at(b"COMMIT", deliver=arrives)
    results = await outcomes(*(through_proxy.write(unit, "cut") for _ in range(1 if unit is add else 5)))
    assert {type(result) for result in results} == {OutcomeUnknown}
    assert proxied.cuts == 1
    assert await texts(through_proxy) == ["before"] + (["cut"] * len(results) if arrives else [])
    await through_proxy.write(unit, "after")
    assert (await texts(through_proxy))[-1] == "after"


@pytest.mark.parametrize("place", [b"BEGIN", b"rolbypassrls"])
async def test_a_connection_that_breaks_before_there_is_a_unit_is_made_again(
    proxied: CuttingProxy, through_proxy: Database, place: bytes
) -> None:
    proxied.cut_at(place)
    await outcomes(through_proxy.write(add, "one"))
    assert proxied.cuts == 1
    assert await texts(through_proxy) == ["one"]


async def test_a_terminated_reader_is_unavailable_and_the_next_one_reads(
    postgres: Database, postgres_server: PostgresServer
) -> None:
    me = Statement("test.me", "SELECT pg_backend_pid()")

    async def unit(tx: Transaction) -> None:
        ((pid,),) = await tx.rows(me)
        postgres_server.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
        await tx.rows(me)

    with pytest.raises(StoreUnavailable):
        await postgres.read(unit)
    assert await texts(postgres) == []


async def test_units_that_lock_the_same_rows_in_opposite_order_both_succeed(
    postgres: Database, postgres_server: PostgresServer, postgres_database: DatabaseUrls
) -> None:
    await postgres.write(add, "", "a")
    await postgres.write(add, "", "b")
    met = 0

    async def append(tx: Transaction, first: str, second: str) -> None:
        nonlocal met
        met += 1
        for id in (first, second):
            note = await tx.lock(Note, id)
            assert note is not None
            await tx.update(note, text=note.text + first)

    for _ in range(3):
        results = await outcomes(postgres.write(append, "a", "b"), postgres.write(append, "b", "a"))
        assert results == [None, None]
    assert met <= 3 * 2 * TRIES
    a, b = await postgres.get(Note, "a"), await postgres.get(Note, "b")
    assert a is not None
    assert b is not None
    assert a.text == b.text
    assert sorted(a.text) == list("aaabbb")
    await check_journal(postgres)


async def test_a_storm_of_deadlocks_ends(postgres_server: PostgresServer, postgres_database: DatabaseUrls) -> None:
    impatient = await asyncpg.connect(postgres_server.url_admin())
    database = postgres_database.app.split("@/")[1].split("?")[0]
    await impatient.execute(f"ALTER DATABASE {database} SET deadlock_timeout = '20ms'")
    await impatient.close()
    store = await postgres_opener(postgres_database)()
    names = ["a", "b", "c"]
    for name in names:
        await store.write(add, "", name)

    async def append(tx: Transaction, ids: list[str]) -> None:
        for id in ids:
            note = await tx.lock(Note, id)
            assert note is not None
            await tx.update(note, text=note.text + "x")

    results = await outcomes(*(store.write(append, names[n % 3 :] + names[: n % 3]) for n in range(30)))
    assert {type(result) for result in results} <= {type(None), StoreUnavailable}
    done = results.count(None)
    notes = [await store.get(Note, name) for name in names]
    assert [note and len(note.text) for note in notes] == [done] * 3
    assert done
    await check_journal(store)
    await store.close()


async def test_a_merged_write_that_fails_does_not_take_the_others_along(postgres: Database) -> None:
    @mergeable
    async def add_same(tx: Transaction) -> Note:
        return await tx.insert(Note(id="same"))

    results = await outcomes(*(postgres.write(add_same if n % 5 == 0 else add_merged) for n in range(30)))
    assert sum(isinstance(result, AlreadyExists) for result in results) == 5
    assert len(await texts(postgres)) == 25


@pytest.mark.parametrize("moment", ["IMMEDIATE", "DEFERRED"], ids=["in the unit", "at the commit"])
@pytest.mark.parametrize(("code", "expected"), [("53100", StoreFull), ("58030", StoreError)], ids=["full", "failing"])
@pytest.mark.parametrize("unit", [add, add_merged])
async def test_a_disk_that_is_full_or_fails_refuses_what_met_it_and_writing_goes_on(
    postgres: Database,
    postgres_database: DatabaseUrls,
    unit: Callable[..., Any],
    code: str,
    expected: type[Exception],
    moment: str,
) -> None:
    """The server says so with these codes, while it writes a page or when it writes the log at the commit; it has then rolled
    back. One that cannot even say so breaks the connection, as above."""
    await _have_it_say(postgres_database, code, moment)
    results = await outcomes(*(postgres.write(unit, text) for text in ("fine", "fine", "fine", "fine", "refused")))
    assert type(results[4]) is expected
    assert {type(result) for result in results[:4]} == {Note}
    assert await texts(postgres) == ["fine"] * 4
    await postgres.write(unit, "after")
    assert (await texts(postgres))[-1] == "after"


async def _have_it_say(urls: DatabaseUrls, code: str, moment: str) -> None:
    connection = await asyncpg.connect(urls.owner)
    await connection.execute(
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NEW.text = 'refused' THEN RAISE EXCEPTION 'could not write' USING ERRCODE = '{code}'; END IF;
                RETURN NULL;
            END $$;
            CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON notes DEFERRABLE INITIALLY {moment}
                FOR EACH ROW EXECUTE FUNCTION refuse()"""
    )
    await connection.close()


@pytest.mark.serial
async def test_a_server_that_stops_is_unavailable_within_bounds_and_serves_again_after() -> None:
    server = await asyncio.to_thread(StoppableServer)
    try:
        urls = server.urls(server.create_database())
        await migrate_postgres(urls)
        store = await postgres_opener(urls)()
        await outcomes(*(store.write(add, "before") for _ in range(20)))
        await asyncio.to_thread(server.stop)
        started = time.monotonic()
        results = await outcomes(*(store.write(unit) for unit in (add, add_merged) for _ in range(50)), store.get(Note, "n"))
        assert {type(result) for result in results} == {StoreUnavailable}
        assert time.monotonic() - started < 15
        await asyncio.to_thread(server.start)
        await outcomes(*(store.write(add, "after") for _ in range(20)))
        assert await texts(store) == ["before"] * 20 + ["after"] * 20
        await store.close()
    finally:
        await asyncio.to_thread(server.close)


@pytest.mark.parametrize("at_the_end", [False, True])
async def test_a_process_that_stands_still_in_a_transaction_is_ended_there_and_repeats_it(
    postgres: Database, postgres_database: DatabaseUrls, monkeypatch: pytest.MonkeyPatch, at_the_end: bool
) -> None:
    """The server ends it, so that it holds its locks, and its runs, no longer than that."""
    await postgres.write(add, id="n")
    monkeypatch.setattr(postgres_schema, "SILENT_SECONDS", 0.3)
    frozen = await postgres_opener(postgres_database)()
    tries = 0

    async def write(tx: Transaction) -> Note:
        nonlocal tries
        note = await tx.lock(Note, "n")
        assert note is not None
        tries += 1
        if tries == 1 and not at_the_end:
            stand_still(1.0)
        note = await tx.update(note, text=f"{note.text}!")
        if tries == 1 and at_the_end:
            stand_still(1.0)
        return note

    assert (await frozen.write(write)).text == "!"
    assert tries == 2
    assert await texts(postgres) == ["", "!"]
    await frozen.close()


def stand_still(seconds: float) -> None:
    """As a process that is stopped does: nothing else of it goes on either."""
    time.sleep(seconds)
