"""Large answers, made small for who can read that: zstd, else gzip.

A whole answer only, never a stream: what is sent bit by bit must arrive bit by bit.
"""

import gzip

import zstandard
from litestar.types import ASGIApp, Message, Receive, Scope, Send

# Below this a packet is not saved.
SMALLEST = 2_000
GZIP_LEVEL = 4
ZSTD_LEVEL = 3


class Compress:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        encoding = _wanted(scope) if scope["type"] == "http" else None
        if encoding is None:
            return await self._app(scope, receive, send)
        started: Message | None = None

        async def compress(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = message  # its headers are known when the body is
                return
            if started is not None and message["type"] == "http.response.body":
                start, started = started, None
                if not message.get("more_body") and len(message["body"]) >= SMALLEST and start["type"] == "http.response.start":
                    message["body"] = _compressed(message["body"], encoding)
                    start["headers"] = [
                        *(header for header in start["headers"] if header[0].lower() != b"content-length"),
                        (b"content-length", str(len(message["body"])).encode()),
                        (b"content-encoding", encoding.encode()),
                        (b"vary", b"Accept-Encoding"),
                    ]
                await send(start)
            await send(message)

        return await self._app(scope, receive, compress)


def _wanted(scope: Scope) -> str | None:
    """The encoding for an answer; None for none."""
    for name, value in scope["headers"]:
        if name == b"accept-encoding":
            return _best(value.decode("latin-1").lower())
    return None


def _best(accepted: str) -> str | None:
    """The best encoding that an Accept-Encoding header names; None when it names none that we have."""
    refused: set[str] = set()
    named: set[str] = set()
    for part in accepted.split(","):
        name, _, parameters = part.partition(";")
        quality = parameters.strip().removeprefix("q=")
        (refused if parameters and _is_zero(quality) else named).add(name.strip())
    for encoding in ("zstd", "gzip"):
        if encoding not in refused and (encoding in named or "*" in named):
            return encoding
    return None


def _is_zero(quality: str) -> bool:
    try:
        return float(quality) == 0
    except ValueError:
        return False


def _compressed(body: bytes, encoding: str) -> bytes:
    if encoding == "zstd":
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
    return gzip.compress(body, GZIP_LEVEL, mtime=0)
