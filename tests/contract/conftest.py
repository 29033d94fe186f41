"""One text, three doors to the same store: in the program, over HTTP with asyncio, over HTTP blocking."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from stigmergy import App
from stigmergy.access.model import Grant
from stigmergy.client import Stigmergy, SyncStigmergy
from stigmergy.settings import Settings
from support.loopback import AsEntity, LiveServer, Threaded, ThreadedRuns
from support.postgres import DatabaseUrls


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def settings(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    if engine == "sqlite":
        return Settings(store=str(tmp_path / "store.db"))
    server = request.getfixturevalue("postgres_server")
    urls: DatabaseUrls = server.urls(server.create_database())
    return Settings(store=urls.app, owner_store=urls.owner)


@pytest.fixture
async def app(settings: Settings) -> AsyncIterator[App]:
    async with App(settings=settings) as app:
        yield app


@pytest.fixture
async def server(app: App) -> AsyncIterator[LiveServer]:
    async with LiveServer(app) as server:
        yield server


@pytest.fixture(params=["asyncio", "blocking"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    """A client of either kind: `connect(url, token).breadcrumbs`, closed with the test."""
    async with AsyncExitStack() as clients:

        def connect(url: str, token: str | None = None) -> Any:
            if request.param == "asyncio":
                client = Stigmergy(url, token, timeout=10)
                clients.push_async_callback(client.close)
                return client.breadcrumbs
            blocking = SyncStigmergy(url, token, timeout=10)
            clients.callback(blocking.close)
            return Threaded(blocking.breadcrumbs)

        yield connect


@pytest.fixture(params=["program", "asyncio", "blocking"])
async def part(request: pytest.FixtureRequest, app: App) -> AsyncIterator[Callable[[str], Any]]:
    """A part of the program, as the program itself has it behind this door: `part("runs")`."""
    if request.param == "program":
        yield lambda name: getattr(app, name)
        return
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(LiveServer(app))
        token = await server.token("app")
        if request.param == "asyncio":
            client = await stack.enter_async_context(Stigmergy(server.url, token, timeout=10))
            yield lambda name: getattr(client, name)
        else:
            blocking = stack.enter_context(SyncStigmergy(server.url, token, timeout=10))
            yield lambda name: threaded(blocking, name)


def threaded(client: SyncStigmergy, name: str) -> Any:
    if name == "runs":
        return ThreadedRuns(client.runs)
    found = getattr(client, name)
    return getattr(Threaded(client), name) if callable(found) else Threaded(found)


@pytest.fixture(params=["program", "asyncio", "blocking"])
async def door(request: pytest.FixtureRequest, app: App) -> AsyncIterator[AsEntity]:
    """A part as an entity has it behind this door: `await door("spaces", "mia")`."""
    async with AsyncExitStack() as stack:
        server = None if request.param == "program" else await stack.enter_async_context(LiveServer(app))

        async def open_door(part: str, entity: str, *grants: Grant) -> Any:
            if server is None:
                return getattr(app, f"{part}_of")(entity)
            token = await server.token(entity, *grants)
            if request.param == "asyncio":
                return getattr(await stack.enter_async_context(Stigmergy(server.url, token, timeout=10)), part)
            return Threaded(getattr(stack.enter_context(SyncStigmergy(server.url, token, timeout=10)), part))

        yield open_door


@pytest.fixture
async def as_entity(door: AsEntity) -> AsEntity:
    """Breadcrumbs as an entity has them behind this door: `await as_entity("mia")`."""

    async def as_entity(entity: str, *grants: Grant) -> Any:
        return await door("breadcrumbs", entity, *grants)

    return as_entity


@pytest.fixture
async def crumbs(as_entity: AsEntity) -> Any:
    return await as_entity("mia")
