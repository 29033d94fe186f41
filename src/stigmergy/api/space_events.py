"""`/v1/spaces/{id}/events`: a space as it happens, over server-sent events.

What is in the journal has its position as the event's `id`; a follower that was cut off goes on after the last one that it has.
What only passes by (text on its way, who is writing) has none.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from litestar import get
from litestar.params import PathParameter, QueryParameter
from litestar.response.base import ASGIResponse

from stigmergy.access.model import Claims
from stigmergy.api.auth import claims_of, unit_scope
from stigmergy.api.events import HEADERS, EventStream, LastEventId, position
from stigmergy.api.feeds import RETRY_MS, Feeds
from stigmergy.api.frames import frame
from stigmergy.api.requests import AnyRequest, read
from stigmergy.api.space_shapes import SpaceEventOut, event_out
from stigmergy.api.standing import Standing
from stigmergy.errors import CursorExpired, NotFound
from stigmergy.kernel.feed import edges
from stigmergy.kernel.transaction import Snapshot
from stigmergy.spaces import queries
from stigmergy.spaces.following import Event, Following

SHAPES = (SpaceEventOut,)


@get(
    "/v1/spaces/{id:str}/events",
    summary="Follow a space as it happens",
    operation_id="follow_space",
    tags=["spaces"],
    media_type="text/event-stream",
)
async def space_events(
    request: AnyRequest,
    id: Annotated[str, PathParameter(description="A space's id.")],
    text: Annotated[bool, QueryParameter(description="With what agents write in runs of yours, which nobody else sees.")] = False,
    after: Annotated[str | None, QueryParameter(description="The position after which to begin; without one, now.")] = None,
    last_event_id: LastEventId = None,
) -> ASGIResponse:
    claims = claims_of(request)
    start = position(last_event_id) or position(after)
    head: int = await read(request, _head, claims.entity, id)
    feed = _SpaceFeed(request.app.state.feeds, claims, id, text=text)
    frames = feed.frames(head if start is None else int(start))
    return EventStream(iterator=frames, media_type="text/event-stream", headers=HEADERS)


async def _head(tx: Snapshot, me: str, space_id: str) -> int:
    await queries.space(tx, me, space_id)
    return (await edges(tx)).last


class _SpaceFeed:
    """One open stream."""

    def __init__(self, feeds: Feeds, claims: Claims, space_id: str, *, text: bool) -> None:
        self._feeds = feeds
        self._claims = claims
        self._space_id = space_id
        self._text = text
        self._standing = Standing(feeds.database, claims, feeds.heartbeat)

    async def frames(self, cursor: int) -> AsyncIterator[bytes]:
        """Until the follower goes away or is sent away, may no longer read, or the server closes."""
        yield b"id: %d\nretry: %d\n\n" % (cursor, RETRY_MS)
        ended = asyncio.create_task(self._feeds.ended.wait())
        try:
            while not self._feeds.closing:
                try:
                    async for batch in self._batches(cursor, ended):
                        yield batch
                    return
                except CursorExpired as expired:
                    cursor = expired.oldest - 1
                    yield frame(cursor, "reset", {"oldest": expired.oldest})
                except NotFound:
                    return  # it was closed meanwhile
        finally:
            ended.cancel()

    async def _batches(self, cursor: int, ended: "asyncio.Task[bool]") -> AsyncIterator[bytes]:
        claims, database = self._claims, self._feeds.database
        following = Following(database, claims.entity, self._space_id, unit_scope(claims), text=self._text)
        events = following.events(cursor)
        coming: asyncio.Task[Event] | None = None
        try:
            while not self._feeds.closing and await self._standing.is_good():
                coming = coming or asyncio.ensure_future(anext(events))
                await asyncio.wait((coming, ended), timeout=self._feeds.heartbeat, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    # an id alone: no event, but the follower's position moves on
                    yield b"id: %d\n\n" % following.position
                    continue
                done, coming = coming, None
                try:
                    event = done.result()
                except StopAsyncIteration:
                    return
                yield _rendered(event)
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            await events.aclose()


def _rendered(event: Event) -> bytes:
    data = msgspec.json.encode(event_out(event))
    numbered = b"" if event.seq is None else b"id: %d\n" % event.seq
    return numbered + b"event: %s\ndata: %s\n\n" % (event.kind.encode(), data)
