"""Servers for the tests: one in a thread, whose insides a test may look at; one as a process, which a test may kill."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import uvicorn

from stigmergy.access.commands import create_token
from stigmergy.access.model import GRANTS, Claims, Grant, signed
from stigmergy.api.app import create_app, end_feeds
from stigmergy.kernel.sqlite import SqliteDatabase
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import Settings

T = TypeVar("T")

SECRET = "a secret for the tests"
PATIENCE = 30
COMMAND = str(Path(sys.executable).with_name("stigmergy"))


class Server:
    """`with Server(path) as server: server.client().get("/health")`. It runs in a thread, with a loop of its own."""

    def __init__(self, path: Path, *, heartbeat: float | None = None, **settings: Any) -> None:
        self.path = path
        self.settings = Settings(store=str(path), **settings)
        self._heartbeat = heartbeat
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="server")
        self._clients = ExitStack()
        self.failure: BaseException | None = None

    async def _serve(self) -> None:
        try:
            self.loop = asyncio.get_running_loop()
            self.database = await SqliteDatabase.open(self.path)
            self.app = create_app(self.database, self.settings)
            if self._heartbeat is not None:
                self.app.state.feeds.heartbeat = self._heartbeat
            # a TCP socket by name: of one that is so by default asyncio does not know that it may send at once
            listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            listening.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            config = uvicorn.Config(
                self.app, log_config=None, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=5
            )
            self.uvicorn = _Uvicorn(config, self._ready)
            await self.uvicorn.serve(sockets=[listening])
            await self.database.close()
        except BaseException as error:
            self.failure = error
            self._ready.set()
            raise

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        assert self.failure is None, self.failure
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._clients.close()
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._end)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _end(self) -> None:
        end_feeds(self.app)
        self.uvicorn.should_exit = True

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Something to be done in the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def write(self, unit: Any, *args: Any, entity: str = "system", tenant: str = "main", **kwargs: Any) -> Any:
        return self.run(self.database.write(unit, *args, scope=Scope(tenant, entity), **kwargs))

    def claims(self, entity: str = "mia", *grants: Grant, tenant: str = "main", expires_at: int | None = None) -> Claims:
        return self.write(create_token, entity, list(grants or GRANTS), expires_at=expires_at, tenant=tenant)

    def token(self, entity: str = "mia", *grants: Grant, tenant: str = "main", expires_at: int | None = None) -> str:
        return signed(self.claims(entity, *grants, tenant=tenant, expires_at=expires_at), SECRET)

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """A client that is closed with the server."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self._clients.enter_context(httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE))

    def client_of(self, entity: str, *grants: Grant, tenant: str = "main") -> httpx.Client:
        return self.client(self.token(entity, *grants, tenant=tenant))

    def async_client(self, **headers: str) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=200)
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE, limits=limits)


class _Uvicorn(uvicorn.Server):
    """Says when it can be reached."""

    def __init__(self, config: uvicorn.Config, ready: threading.Event) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()


class ServerProcess:
    """`stigmergy serve` as a process, on the store of a folder. `port` 0 takes a free one."""

    def __init__(self, folder: Path, *arguments: str, port: int = 0, **environment: str) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "serve", "--port", str(port), *arguments],
            cwd=folder,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        found = re.search(r"http://\S+:(\d+)", first)
        assert found is not None, first
        self.url = found[0]
        self.port = int(found[1])

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
