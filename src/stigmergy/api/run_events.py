"""`/v1/runs/{id}/events`: a run and all under it, over server-sent events, until its end.

What is in the journal has its position as `id`, and who comes back with it goes on there. Text that is on its way has none:
whoever comes in the middle is sent what there is of it so far. Who may not read the runs' logs is told how they stand, no more.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec

from stigmergy.access.model import Claims
from stigmergy.api.auth import unit_scope
from stigmergy.api.feeds import RETRY_MS, Feeds
from stigmergy.api.frames import frame
from stigmergy.api.standing import Standing
from stigmergy.engine.watching import RunEvent, Watch
from stigmergy.errors import CursorExpired

# How often it is looked whether the token that opened the stream still stands, while there is something to tell.
CHECK_SECONDS = 1.0


async def frames(feeds: Feeds, claims: Claims, run_id: str, after: int | None, *, in_full: bool) -> AsyncIterator[bytes]:
    """Until the run has ended, the follower goes away or may no longer read, or the server closes."""
    standing = Standing(feeds.database, claims, min(CHECK_SECONDS, feeds.heartbeat))
    yield b"retry: %d\n\n" % RETRY_MS
    while True:
        watch = Watch(feeds.database, run_id, unit_scope(claims), after=after)
        try:
            async for each in _told(feeds, standing, watch, in_full):
                yield each
            return
        except CursorExpired as expired:
            yield frame(expired.oldest - 1, "reset", {"oldest": expired.oldest})
            after = None


async def _told(feeds: Feeds, standing: Standing, watch: Watch, in_full: bool) -> AsyncIterator[bytes]:
    ending = asyncio.create_task(feeds.ended.wait(), name="the server ends")
    coming: asyncio.Task[RunEvent | None] | None = None
    async with aclosing(watch.events()) as events:
        try:
            while not feeds.closing:
                coming = coming or asyncio.create_task(_next(events), name="the next event of a run")
                done, _ = await asyncio.wait((coming, ending), timeout=feeds.heartbeat, return_when=asyncio.FIRST_COMPLETED)
                if not await standing.is_good():
                    return
                if coming not in done:
                    # an id alone: no event, but the follower's position moves on
                    yield b"id: %d\n\n" % watch.cursor
                    continue
                event, coming = coming.result(), None
                if event is None:
                    yield frame(watch.cursor, "end", {})
                    return
                if in_full or event.kind == "status":
                    yield _frame(event)
        finally:
            for task in (ending, coming):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])


async def _next(events: AsyncIterator[RunEvent]) -> RunEvent | None:
    return await anext(events, None)


def _frame(event: RunEvent) -> bytes:
    lines = b"event: %s\ndata: %s\n\n" % (event.kind.encode(), msgspec.json.encode(event))
    return lines if event.seq is None else b"id: %d\n%s" % (event.seq, lines)
