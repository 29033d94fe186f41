"""Places that are no store for this program: one clear sentence each, and nothing is changed."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from stigmergy.errors import SchemaTooNew, SchemaTooOld, StoreError, StoreUnavailable, StoreUnusable
from stigmergy.kernel import migrate
from stigmergy.kernel.opening import open_database
from support.notes import Note
from support.postgres import DatabaseUrls, PostgresServer
from support.second_process import NEWER, opened
from support.stores import SOURCES
from support.units import add

Prepare = Callable[[Path], Path]


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def is_a_clear_sentence(error: StoreError) -> None:
    text = str(error)
    assert "\n" not in text
    assert 20 < len(text) < 400
    assert "Traceback" not in text
    assert type(error) is not StoreError, "the error has no class of its own"


async def refuses(
    place: str, kind: type[StoreError], says: str, *, sources: tuple[str, ...] = SOURCES, may_migrate: bool = True
) -> None:
    with pytest.raises(kind, match=says) as caught:
        await open_database(place, sources=sources, may_migrate=may_migrate)
    assert caught.type is kind
    is_a_clear_sentence(caught.value)


async def small_store(path: Path, sources: tuple[str, ...] = SOURCES) -> Path:
    store = await opened(str(path), sources=sources)
    for n in range(50):
        await store.write(add, f"n{n}", text="x" * 500)
    await store.close()
    return path


def text_file(path: Path) -> None:
    path.write_text("My diary. Nobody may write in it.\n" * 100)


def short_file(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0 and then not")


def random_bytes(path: Path) -> None:
    path.write_bytes(os.urandom(10_000))


def somebody_elses_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.execute("INSERT INTO bookmarks VALUES ('https://example.com')")
    connection.close()


def somebody_elses_with_our_table_names(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE changes (x TEXT)")
        connection.execute("CREATE TABLE schema_migrations (version TEXT)")
    connection.close()


def empty_but_marked_as_somebody_elses(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 1196444487")
        connection.execute("VACUUM")
    connection.close()


@pytest.mark.parametrize(
    "prepare",
    [
        text_file,
        short_file,
        random_bytes,
        somebody_elses_sqlite,
        somebody_elses_with_our_table_names,
        empty_but_marked_as_somebody_elses,
    ],
)
async def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, prepare: Callable[[Path], None]) -> None:
    path = tmp_path / "some file.db"
    prepare(path)
    before = contents(tmp_path)
    await refuses(str(path), StoreUnusable, "some file.db is (not )?a SQLite file.*another name")
    assert contents(tmp_path) == before


def first_page_damaged(body: bytearray) -> None:
    body[100:4096] = os.urandom(3996)


def cut_in_the_schema(body: bytearray) -> None:
    del body[6000:]


@pytest.mark.parametrize("damage", [first_page_damaged, cut_in_the_schema])
async def test_a_damaged_store_is_refused_and_left_as_it_is(tmp_path: Path, damage: Callable[[bytearray], None]) -> None:
    path = await small_store(tmp_path / "store.db")
    body = bytearray(path.read_bytes())
    damage(body)
    path.write_bytes(body)
    await refuses(str(path), StoreUnusable, "store.db is damaged.*backup")
    assert path.read_bytes() == body


async def test_damage_that_is_met_later_is_told_when_it_is_met(tmp_path: Path) -> None:
    path = await small_store(tmp_path / "store.db")
    with sqlite3.connect(path) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'notes'")
        ((size,),) = connection.execute("PRAGMA page_size")
    connection.close()
    body = bytearray(path.read_bytes())
    body[(root - 1) * size : root * size] = bytes(range(256)) * (size // 256)
    path.write_bytes(body)
    store = await opened(str(path))
    for reading in (store.get(Note, "n1"), store.write(add, "new")):
        with pytest.raises(StoreUnusable, match="damaged"):
            await reading
    await store.close()


async def test_a_store_of_a_newer_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = await small_store(tmp_path / "store.db", NEWER)
    before = contents(tmp_path)
    await refuses(str(path), SchemaTooNew, "0001_newer.sql of support.newer.*newer")
    await refuses(str(path), SchemaTooNew, "0001_newer.sql", may_migrate=False)
    assert contents(tmp_path) == before


async def test_a_store_that_may_not_be_migrated_is_left_as_it_is(tmp_path: Path) -> None:
    path = await small_store(tmp_path / "store.db")
    before = contents(tmp_path)
    await refuses(str(path), SchemaTooOld, "0001_newer.sql.*stigmergy migrate", sources=NEWER, may_migrate=False)
    assert contents(tmp_path) == before


async def test_a_store_that_may_not_be_made_is_not_begun(tmp_path: Path) -> None:
    await refuses(str(tmp_path / "store.db"), StoreUnavailable, "no store here yet.*stigmergy migrate", may_migrate=False)
    assert contents(tmp_path) == {}


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    await small_store(tmp_path / "store.db")


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    await refuses(str(tmp_path), StoreUnusable, "is a folder.*stigmergy.db")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("place", ["missing/store.db", "missing/deeper/store.db", "a file/store.db"])
async def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    await refuses(str(tmp_path / place), StoreUnavailable, "does not exist.*make it first")
    assert contents(tmp_path) == {"a file": b""}


@pytest.mark.skipif(os.geteuid() == 0, reason="rights bind no superuser: run the tests as somebody else to see this one")
@pytest.mark.parametrize("denied", ["file", "folder"])
async def test_a_place_without_permission_is_refused(tmp_path: Path, denied: str) -> None:
    path = await small_store(tmp_path / "store.db")
    before = contents(tmp_path)
    target = path if denied == "file" else tmp_path
    if denied == "folder":
        path.unlink()
        before = {}
    target.chmod(0o500)
    try:
        await refuses(str(path), StoreUnavailable, "no permission")
        assert contents(tmp_path) == before
    finally:
        target.chmod(0o700)


@pytest.mark.parametrize("place", ["mysql://localhost/agents", "http://example.com/store", "", ":memory:"])
async def test_a_place_that_names_no_store_is_refused(place: str) -> None:
    await refuses(place, StoreUnusable, "store|file")


# PostgreSQL


def described(server: PostgresServer, name: str) -> str:
    """Every table, its owner and whether it is fenced."""
    sql = (
        "SELECT c.relname, c.relowner, c.relrowsecurity, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    )
    return server.execute(f"{sql} WHERE n.nspname = 'public' ORDER BY 1", database=name)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (lambda url: url.replace("/tmp", "/nowhere").replace("%2Ftmp", "%2Fnowhere"), StoreUnavailable, "cannot be reached"),
        (lambda url: "postgresql://mia:hunter2@127.0.0.1:1/agents", StoreUnavailable, "cannot be reached"),
        (lambda url: url.replace("/test_", "/none_"), StoreUnavailable, "no such database.*createdb"),
        (lambda url: url.replace("stigmergy_owner", "nobody_here"), StoreUnavailable, "user or password|cannot be reached"),
        (lambda url: "postgresql://mia:hunter2@localhost:port/agents", StoreUnusable, "cannot be read"),
        (lambda url: url + "&no_such_setting=1", StoreUnavailable, "no_such_setting.*is the URL right"),
    ],
    ids=["no socket", "no server", "no database", "no user", "no URL", "no setting"],
)
async def test_a_wrong_postgres_url_is_refused_and_its_password_not_shown(
    postgres_database: DatabaseUrls, wrong: Callable[[str], str], kind: type[StoreError], says: str
) -> None:
    with pytest.raises(kind, match=says) as caught:
        await open_database(wrong(postgres_database.owner), sources=SOURCES)
    is_a_clear_sentence(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.fixture
def empty_database(postgres_server: PostgresServer):
    name = postgres_server.create_database()
    yield name
    postgres_server.drop_database(name)


@pytest.mark.postgres
async def test_a_database_of_another_program_is_refused_and_left_as_it_is(
    postgres_server: PostgresServer, empty_database: str
) -> None:
    urls = postgres_server.urls(empty_database)
    postgres_server.execute("SET ROLE stigmergy_owner; CREATE TABLE public.changes (x TEXT)", database=empty_database)
    before = described(postgres_server, empty_database)
    await refuses(urls.owner, StoreUnusable, "`changes` that is not ours.*own")
    assert described(postgres_server, empty_database) == before


@pytest.mark.postgres
async def test_whoever_may_not_make_tables_is_told_so_and_makes_none(
    postgres_server: PostgresServer, empty_database: str
) -> None:
    urls = postgres_server.urls(empty_database)
    await refuses(urls.app, StoreUnusable, "denies.*stigmergy migrate")
    await refuses(urls.owner, SchemaTooOld, "0001_journal.sql", may_migrate=False)
    assert described(postgres_server, empty_database) == ""


@pytest.mark.postgres
async def test_a_database_of_a_newer_program_is_refused_and_left_as_it_is(
    postgres_server: PostgresServer, postgres_database: DatabaseUrls
) -> None:
    await (await opened(postgres_database.app, postgres_database.owner, NEWER)).close()
    name = postgres_database.app.rpartition("/")[2].partition("?")[0]
    before = described(postgres_server, name), postgres_server.execute("TABLE schema_migrations", database=name)
    assert "newer" in before[0]
    for may_migrate in (True, False):
        await refuses(postgres_database.owner, SchemaTooNew, "0001_newer.sql", may_migrate=may_migrate)
    assert (described(postgres_server, name), postgres_server.execute("TABLE schema_migrations", database=name)) == before


def test_the_sources_of_the_tests_are_those_of_an_older_program() -> None:
    older = {(each.source, each.number) for each in migrate.load(SOURCES)}
    assert older < {(each.source, each.number) for each in migrate.load(NEWER)}
