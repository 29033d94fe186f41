from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from stigmergy import Agent, App
from stigmergy.access.model import Grant
from stigmergy.settings import Settings
from support.loopback import LiveServer
from support.run_service import PATIENCE, Connect
from support.server import SECRET, Server
from support.team import Slow, team


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that is open to whoever is on this machine."""
    with Server(tmp_path / "store.db") as server:
        yield server


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Server]:
    """A server that asks for tokens."""
    with Server(tmp_path / "store.db", secret=SECRET) as server:
        yield server


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for many tests that leave nothing behind."""
    with Server(tmp_path_factory.mktemp("open") / "store.db") as server:
        yield server


# ---- with a program, whose agents work ----


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
async def app(tmp_path: Path, slow: Slow) -> AsyncIterator[App]:
    settings = Settings(store=str(tmp_path / "store.db"), embedder="off")
    async with team(settings, Agent("slow", slow, "Be slow.")) as app:
        yield app


@pytest.fixture
async def live_server(app: App) -> AsyncIterator[LiveServer]:
    async with LiveServer(app) as server:
        yield server


@pytest.fixture
async def connect(live_server: LiveServer) -> AsyncIterator[Connect]:
    """A client of somebody, with these grants: `await connect("mia", "read")`."""
    async with AsyncExitStack() as stack:

        async def connect(entity: str, *grants: Grant) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {await live_server.token(entity, *grants)}"}
            return await stack.enter_async_context(httpx.AsyncClient(base_url=live_server.url, headers=headers, timeout=PATIENCE))

        yield connect


@pytest.fixture
async def mia(connect: Connect) -> httpx.AsyncClient:
    return await connect("mia", "read", "write")
