"""A server in the test's own loop, over the app that the test has; and a proxy before it that loses answers."""

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import uvicorn

from stigmergy import App
from stigmergy.access.commands import create_token
from stigmergy.access.model import GRANTS, Grant, signed
from stigmergy.api.app import create_app, end_feeds
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import Settings
from support.server import SECRET

T = TypeVar("T")

# Gives `Breadcrumbs` as an entity has them, behind whichever door.
AsEntity = Callable[..., Awaitable[Any]]


class LiveServer:
    """`async with LiveServer(app) as server:`. With the port of one before it, it is that server come back."""

    def __init__(self, app: App, port: int = 0) -> None:
        self._app = app
        self._api = create_app(app.database, Settings(secret=SECRET))
        self._listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", port))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(self._api, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=5)
        self._uvicorn = Uvicorn(config)

    async def token(self, entity: str, *grants: Grant) -> str:
        claims = await self._app.database.write(create_token, entity, list(grants or GRANTS), scope=Scope("main", "system"))
        return signed(claims, SECRET)

    @property
    def feeds(self) -> int:
        """How many are open."""
        return self._api.state.feeds.count()

    def beat_every(self, seconds: float) -> None:
        """How often those who follow are told that it lives."""
        self._api.state.feeds.heartbeat = seconds

    def end_feeds(self) -> None:
        end_feeds(self._api)

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._uvicorn.serve(sockets=[self._listening]))
        await asyncio.wait(
            [self._serving, ready := asyncio.create_task(self._uvicorn.ready.wait())], return_when="FIRST_COMPLETED"
        )
        assert ready.done()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        end_feeds(self._api)
        self._uvicorn.should_exit = True
        await self._serving


class Uvicorn(uvicorn.Server):
    """Says when it can be reached, and leaves the signals to the tests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class Proxy:
    """Between a client and a server. Of `lose` answers it tells nobody; what is in `answers` it says itself."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._connections: set[asyncio.StreamWriter] = set()
        self.lose = 0
        self.asked = self.told = 0
        self.answers: deque[bytes] = deque()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()
        for connection in self._connections:
            connection.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Break every connection that stands."""
        for connection in self._connections:
            connection.transport.abort()
        self._connections.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
            self._connections |= {writer, up_writer}
            ways = [self._up(reader, up_writer, writer), self._down(up_reader, writer)]
            tasks = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in (writer, up_writer):
                each.close()
                with suppress(ConnectionError):
                    await each.wait_closed()

    async def _up(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, client: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            self.asked += chunk.count(b" HTTP/1.1\r\n")
            if self.answers:
                client.write(self.answers.popleft())
                return
            server.write(chunk)

    async def _down(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            if self.lose:
                self.lose -= 1
                return
            self.told += 1
            client.write(chunk)


class Threaded:
    """The methods of a client that blocks, each in a thread, so that one text can await either kind."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._blocking, name)
        if not callable(method):
            return method

        async def called(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return called

    def follow(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        return _in_threads(self._blocking.follow(*args, **kwargs))


class ThreadedRuns(Threaded):
    """The same for runs and their handles."""

    async def start(self, *args: Any, **kwargs: Any) -> Any:
        return ThreadedRuns(await asyncio.to_thread(self._blocking.start, *args, **kwargs))

    def events(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        return _in_threads(self._blocking.events(*args, **kwargs))


async def _in_threads(items: Iterator[T]) -> AsyncIterator[T]:
    end: Any = object()
    try:
        while (item := await asyncio.to_thread(next, items, end)) is not end:
            yield item
    finally:
        items.close()  # pyright: ignore[reportAttributeAccessIssue]  # it is a generator
