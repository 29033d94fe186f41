from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import stigmergy.app  # noqa: F401  # declares every collection, so that the tests' stores watch them all
from stigmergy.kernel.database import Database
from support.old_stores import OldFile, OldServerDatabase
from support.postgres import DatabaseUrls, PostgresServer
from support.stores import OpenStore, migrated_template, postgres_opener, sqlite_opener

settings.register_profile("house", deadline=None)  # how long an example takes depends on what runs beside it
settings.load_profile("house")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server per test process, so one per xdist worker; started by the first test that asks."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The name of the database from which each test's own is copied."""
    return postgres_server.template_ready("migrated", migrated_template)


@pytest.fixture
def postgres_database(postgres_server: PostgresServer, postgres_template: str) -> Iterator[DatabaseUrls]:
    """A database of the test's own, as (owner, app) URLs."""
    name = postgres_server.create_database(postgres_template)
    yield postgres_server.urls(name)
    postgres_server.drop_database(name)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def open_store(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> OpenStore:
    """Opens the test's own store, as often as it likes: `await open_store(clock=…)`."""
    if engine == "sqlite":
        return sqlite_opener(tmp_path / "store.db")
    return postgres_opener(request.getfixturevalue("postgres_database"))


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Database]:
    opened = await open_store()
    yield opened
    await opened.close()


@pytest.fixture
def old(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    if engine == "sqlite":
        yield OldFile(tmp_path / "store.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield OldServerDatabase(server.urls(name), server.url_admin(name))
    server.drop_database(name)
