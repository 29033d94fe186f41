"""The connection to a server: one call after the other, and streams."""

import asyncio
from collections.abc import AsyncIterator, Mapping
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
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, limits=limits)
        self._stream_timeout = httpx.Timeout(timeout, read=max(timeout, SILENCE_SECONDS))

    async def call(self, call: Call) -> Any:
        """The body of the answer; None when it has none."""
        content = call.content
        attempts = Attempts(call, self._url)
        while True:
            try:
                answer = await self._opened.request(
                    call.method, call.path, params=call.params, content=content, headers=call.headers
                )
            except httpx.RequestError as error:
                pause = attempts.failed(error)
            else:
                if answer.is_success:
                    return wire.body(answer.content)
                pause = attempts.refused(answer)
            await asyncio.sleep(pause)

    async def follow(self, call: Call, after: int | None, decode: Decode[T]) -> AsyncIterator[T]:
        """The events of a feed, over as many connections as it takes, until there are no more."""
        following = Following(call, self._url, after, decode)
        while not following.over:
            try:
                async with self._opened.stream(
                    call.method, call.path, params=call.params, headers=following.headers, timeout=self._stream_timeout
                ) as answer:
                    if answer.is_success:
                        following.connected()
                        async for chunk in answer.aiter_bytes():
                            for event in following.read(chunk):
                                yield event
                        pause = following.ended()
                    else:
                        await answer.aread()
                        pause = following.refused(answer)
            except httpx.RequestError as error:
                pause = following.failed(error)
            if not following.over:
                await asyncio.sleep(pause)

    @property
    def _opened(self) -> httpx.AsyncClient:
        if self._client.is_closed:
            raise StoreClosed("this client was closed; make a new one")
        return self._client

    async def close(self) -> None:
        await self._client.aclose()
