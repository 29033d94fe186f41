"""A feed that is followed over its connections: where it is, and what comes in. No I/O.

The parts of a block are read as server-sent events have them, but for one thing: lines end in LF or CR LF, never in CR alone.
"""

import logging
import random
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import httpx
import msgspec

from stigmergy.client import wire
from stigmergy.client.attempts import LONGEST_SECONDS, Attempts, backoff
from stigmergy.client.calls import Call
from stigmergy.client.problems import PASSING, lost, problem
from stigmergy.errors import CursorExpired, StigmergyError

T = TypeVar("T")
# The event of a frame, by its name and its data; None for a kind that we do not know.
Decode = Callable[[str, bytes], T | None]

log = logging.getLogger(__name__)

RETRY_MS = 2_000
# Longer than the server is ever silent: it sends a heartbeat every 15 seconds.
SILENCE_SECONDS = 45.0


class Frame(NamedTuple):
    """A block of the stream."""

    id: str | None
    event: str
    data: bytes
    retry: int | None


class Frames:
    """Cuts a stream of bytes into blocks."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._fields: dict[str, bytes] = {}

    def cut(self, chunk: bytes) -> Iterator[Frame]:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = b"".join((*self._parts, line)).removesuffix(b"\r")
            self._parts.clear()
            if whole:
                self._take(whole)
            elif self._fields:
                fields, self._fields = self._fields, {}
                yield _frame(fields)
        self._parts.append(rest)

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        key = name.decode("latin-1")
        if key == "data" and key in self._fields:
            value = self._fields[key] + b"\n" + value
        if key in ("id", "event", "data", "retry"):
            self._fields[key] = value


def _frame(fields: dict[str, bytes]) -> Frame:
    id, retry = (fields.get(name, b"").decode("latin-1") for name in ("id", "retry"))
    event = fields.get("event", b"message").decode("latin-1")
    return Frame(id or None, event, fields.get("data", b""), int(retry) if retry.isdecimal() else None)


class _Reset(msgspec.Struct):
    oldest: int


class Following(Generic[T]):
    """`connected`, then `read` for all that comes; `ended`, `failed` or `refused` give the seconds until the next connection.

    Until the first connection stands it is given up like any call. From then on it comes back as often as it must, unless the
    server said that nothing more will come: then it is `over`.
    """

    def __init__(self, call: Call, url: str, after: int | None, decode: Decode[T]) -> None:
        self.over = False
        self._decode = decode
        self._call = call
        self._url = url
        self._cursor = None if after is None else str(after)
        self._retry_ms = RETRY_MS
        self._first: Attempts | None = Attempts(call, url)
        self._failures = 0
        self._frames = Frames()

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        return headers if self._cursor is None else headers | {"Last-Event-ID": self._cursor}

    def connected(self) -> None:
        self._frames = Frames()
        self._first = None

    def read(self, chunk: bytes) -> Iterator[T]:
        self._failures = 0
        for frame in self._frames.cut(chunk):
            if frame.retry is not None:
                self._retry_ms = frame.retry
            if frame.event == "reset":
                oldest = wire.decoded(frame.data, _Reset).oldest
                raise CursorExpired(f"the journal no longer has what follows {self._cursor}; it starts at {oldest}", oldest)
            if frame.id is not None:
                self._cursor = frame.id
            self.over = self.over or frame.event == "end"
            event = self._decode(frame.event, frame.data)
            if event is not None:
                yield event

    def ended(self) -> float:
        return self._again("the server ended the feed")

    def failed(self, error: httpx.RequestError) -> float:
        if self._first is not None:
            return self._first.failed(error)
        return self._again(lost(error, self._url))

    def refused(self, answer: httpx.Response) -> float:
        if self._first is not None:
            return self._first.refused(answer)
        error = problem(answer)
        if answer.status_code not in PASSING:
            raise error
        return self._again(error)

    def _again(self, why: StigmergyError | str) -> float:
        self._failures += 1
        log.info("the feed is followed again after position %s: %s", self._cursor, why)
        longer = backoff(self._failures) if self._failures > 1 else 0
        return max(min(self._retry_ms / 1000, 2 * LONGEST_SECONDS) * random.uniform(1, 1.25), longer)
