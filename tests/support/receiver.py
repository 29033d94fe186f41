"""Somebody outside who is called by webhooks: an HTTP server that answers as a test says, and remembers what it was told."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from support.units import until

# Instead of an answer: never answer; close at once; close in the middle of an answer.
HANG, CLOSE, CUT = "hang", "close", "cut"
_CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it"


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    raw: bytes
    at: float
    answered: str

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def body(self) -> dict[str, Any]:
        return msgspec.json.decode(self.raw)

    @property
    def document(self) -> dict[str, Any]:
        return self.body["event"]["document"]


def answer(status: int, body: str = "", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}Content-Length: {len(body)}\r\n\r\n{body}".encode()


class Receiver:
    """`async with Receiver() as receiver:`. What is in `script` is done first, then `always`; `decide` looks at each call."""

    def __init__(self, port: int = 0, *, delay: float = 0.0) -> None:
        self.port = port
        self.received: list[Received] = []
        self.script: deque[bytes | str] = deque()
        self.always: bytes | str = answer(204)
        self.decide: Callable[[Received], bytes | str | None] | None = None
        self.delay = delay
        self.open = 0
        self.most_open = 0
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def got(self, count: int) -> list[Received]:
        """Wait until so many calls have come."""
        await until(lambda: len(self.received) >= count)
        return self.received

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._answer(reader, writer):
                pass
        self._writers.discard(writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        raw = await reader.readexactly(int(headers["content-length"]))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            call = Received(first.split()[1], headers, raw, asyncio.get_running_loop().time(), "")
            decided = self.decide(call) if self.decide is not None else None
            what = decided or (self.script.popleft() if self.script else self.always)
            self.received.append(call._replace(answered=what if isinstance(what, str) else what.split()[1].decode()))
        finally:
            self.open -= 1
        if what == HANG:
            await reader.read()
        if what == CUT:
            writer.write(_CUT)
        if isinstance(what, str):
            return False
        writer.write(what)
        await writer.drain()
        return True
