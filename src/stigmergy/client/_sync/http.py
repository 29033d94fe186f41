# Made from ../_async/http.py by scripts/generate_client.py; `make fix` makes it again.
"""The connection to a server: one call after the other, and streams."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import httpx

from stigmergy.client import wire
from stigmergy.client.attempts import Attempts
from stigmergy.client.calls import Call
from stigmergy.client.feed import SILENCE_SECONDS, Decode, Following
from stigmergy.errors import StoreClosed

T = TypeVar("T")

# A connection that was idle for longer is not used again: the server closes it soon, perhaps while a call is on its way.
IDLE_SECONDS = 3.0


class Http:
    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = url
        # how long an answer may be waited for
        self.timeout = timeout
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS)
        self._client = httpx.Client(base_url=url, headers=headers, timeout=timeout, limits=limits)
        self._stream_timeout = httpx.Timeout(timeout, read=max(timeout, SILENCE_SECONDS))

    def call(self, call: Call) -> Any:
        """The body of the answer; None when it has none."""
        content = call.content
        attempts = Attempts(call, self._url)
        while True:
            try:
                answer = self._opened.request(call.method, call.path, params=call.params, content=content, headers=call.headers)
            except httpx.RequestError as error:
                pause = attempts.failed(error)
            else:
                if answer.is_success:
                    return wire.body(answer.content)
                pause = attempts.refused(answer)
            time.sleep(pause)

    def follow(self, call: Call, after: int | None, decode: Decode[T]) -> Iterator[T]:
        """The events of a feed, over as many connections as it takes, until there are no more."""
        following = Following(call, self._url, after, decode)
        while not following.over:
            try:
                with self._opened.stream(
                    call.method, call.path, params=call.params, headers=following.headers, timeout=self._stream_timeout
                ) as answer:
                    if answer.is_success:
                        following.connected()
                        for chunk in answer.iter_bytes():
                            yield from following.read(chunk)
                        pause = following.ended()
                    else:
                        answer.read()
                        pause = following.refused(answer)
            except httpx.RequestError as error:
                pause = following.failed(error)
            if not following.over:
                time.sleep(pause)

    @property
    def _opened(self) -> httpx.Client:
        if self._client.is_closed:
            raise StoreClosed("this client was closed; make a new one")
        return self._client

    def close(self) -> None:
        self._client.close()
