"""One HTTP POST after the other on pooled connections, as cheap as it can be: what it costs is most of what a delivery costs.

It connects to the addresses that it has looked up and that may be called, and to no others; it follows no redirect and reads
no more of an answer than its beginning. What goes wrong on the way is a `PostFailed`; whether the receiver got it cannot
always be told.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from stigmergy.errors import Invalid
from stigmergy.net import Reach, is_literal, refused

MOST_HEADER_BYTES = 64 * 1024
# Of an answer's body: how much is kept, and how much is read before the connection is given up instead.
KEPT_BYTES = 4 * 1024
READ_BYTES = 256 * 1024
IDLE_SECONDS = 15.0
IDLE_CONNECTIONS = 64


class PostFailed(Exception):
    """No answer, or no whole one."""


class Target(NamedTuple):
    secure: bool
    host: str
    port: int
    path: str
    authority: str


class Posted(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None


def target_of(url: str, where: str = "url") -> Target:
    """A URL as it is called. Refused is what could be read in two ways."""
    if len(url) > 2_000 or not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid("a URL has up to 2,000 printable ASCII characters and no space", where)
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname or ""
    except ValueError as error:
        raise Invalid(f"this is no URL ({error})", where) from None
    if parts.scheme not in ("http", "https") or not host:
        raise Invalid("a URL starts with http:// or https:// and names a host", where)
    if parts.username is not None or parts.password is not None:
        raise Invalid("a URL holds no user and password; put them into a header", where)
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    authority = f"[{host}]" if ":" in host else host
    default = 443 if secure else 80
    return Target(secure, host, port or default, path, authority if port in (None, default) else f"{authority}:{port}")


class Poster:
    """Posts and keeps the connections. Used in one event loop."""

    def __init__(self, reach: Reach, context: ssl.SSLContext | None = None) -> None:
        self._reach = reach
        self._context = context
        self._idle: dict[tuple[bool, str, int], list[_Connection]] = {}

    async def post(self, target: Target, headers: str, body: bytes, timeout: float) -> Posted:
        """The answer of a receiver, within so many seconds. `headers` are lines, each with its end."""
        head = (
            f"POST {target.path} HTTP/1.1\r\nhost: {target.authority}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        ).encode("latin-1")
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    connection, is_used = self._take_idle(target), True
                    if connection is None:
                        connection, is_used = await self._connect(target), False
                    try:
                        answer = await connection.post(head + body)
                        break
                    except PostFailed:
                        # a kept connection that the receiver closed in this moment: it has read nothing of this
                        if not is_used or connection.heard:
                            raise
            self._keep(target, connection)
            return answer
        except TimeoutError:
            raise PostFailed(f"no answer within {timeout:g} s") from None
        finally:
            if connection is not None and connection.is_waiting:
                connection.close()

    async def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        await asyncio.sleep(0)

    def _take_idle(self, target: Target) -> "_Connection | None":
        idle = self._idle.get((target.secure, target.host, target.port))
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.is_open and connection.since > oldest:
                return connection
            connection.close()
        return None

    def _keep(self, target: Target, connection: "_Connection") -> None:
        idle = self._idle.setdefault((target.secure, target.host, target.port), [])
        if connection.is_reusable and len(idle) < IDLE_CONNECTIONS:
            connection.since = asyncio.get_running_loop().time()
            idle.append(connection)
        else:
            connection.close()

    async def _connect(self, target: Target) -> "_Connection":
        loop = asyncio.get_running_loop()
        problem: OSError | None = None
        for address in await self._addresses(target):
            try:
                _, connection = await loop.create_connection(
                    _Connection,
                    address,
                    target.port,
                    ssl=self._secured() if target.secure else None,
                    server_hostname=target.host if target.secure else None,
                )
                return connection
            except OSError as error:  # ssl.SSLError is one
                problem = error
        raise PostFailed(f"cannot connect to {target.authority}: {problem}")

    async def _addresses(self, target: Target) -> Sequence[str]:
        if is_literal(target.host):
            self._reach.check_literal(target.host)
            return [target.host]
        try:
            found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise PostFailed(f"the name {target.host} leads nowhere: {error}") from None
        addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
        allowed = [address for address in addresses if self._reach.allows(address)]
        if not allowed:
            raise refused(f"{target.host} ({', '.join(addresses)})")
        return allowed

    def _secured(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
        return self._context


class _Connection(asyncio.Protocol):
    """One connection, which has one request on its way at the most."""

    def __init__(self) -> None:
        self.since = 0.0
        self.heard = False
        self.is_reusable = False
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Posted] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._answer is not None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def post(self, request: bytes) -> Posted:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._begin()
        self.heard = False
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self.is_reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.cancel()
        self._answer = None
        if self._transport is not None:
            self._transport.abort()

    def _begin(self) -> None:
        self._header_bytes = 0
        self._body_bytes = 0
        self._body: list[bytes] = []
        self._retry_after: str | None = None
        self._has_length = False
        self._has_head = False

    def _finish(self, *, reusable: bool) -> None:
        answer, self._answer = self._answer, None
        self.is_reusable = reusable
        if answer is not None and not answer.done():
            body = b"".join(self._body)[:KEPT_BYTES]
            answer.set_result(Posted(self._parser.get_status_code(), body, self._retry_after))

    def _fail(self, why: str) -> None:
        answer, self._answer = self._answer, None
        self.is_reusable = False
        if answer is not None and not answer.done():
            answer.set_exception(PostFailed(why))
        if self._transport is not None:
            self._transport.abort()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own kind says that it is none

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            return self._fail("an answer without a request")
        self.heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"the answer is not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and exc is None and self._has_head and not self._has_length:
            return self._finish(reusable=False)  # a body without a length ends with its connection
        self._fail(f"the connection broke{' in the middle of the answer' if self.heard else ''}{f': {exc}' if exc else ''}")

    # what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MOST_HEADER_BYTES:
            return self._fail("the headers of the answer are too large")
        lower = name.lower()
        if lower == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif lower in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        if self._body_bytes < KEPT_BYTES:
            self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > READ_BYTES and self._answer is not None:
            self._finish(reusable=False)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            self._begin()  # such as 100 Continue: the answer is still to come
        elif self._answer is not None:
            self._finish(reusable=self._parser.should_keep_alive())
