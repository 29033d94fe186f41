"""The open feeds of a server: one tail and its frames for each tenant that somebody follows.

Who is at the end of the journal is served from its tenant's tail: one read and one rendering of a change for all of them. Who
is behind reads the journal. Nothing is kept for a slow reader: it is not read for until it has taken what it was sent.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress

from stigmergy.access.model import Claims
from stigmergy.api.auth import reader_of, unit_scope
from stigmergy.api.frames import FeedView, Told, Wanted, frame, newest, rendered, told
from stigmergy.api.standing import Standing
from stigmergy.breadcrumbs.audience import is_for_a_team, with_spaces
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.errors import CursorExpired
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Tail, read_page
from stigmergy.kernel.journal import Change
from stigmergy.kernel.transaction import Scope, Snapshot

HEARTBEAT_SECONDS = 15.0
RETRY_MS = 2_000
# Changes that a follower reads at once, and bytes after which it sends what it has.
PAGE = 50
BATCH_BYTES = 256 * 1024
# Bytes of frames that are kept for the next follower who asks.
FRAMES_BYTES = 8 * 1024 * 1024
TAIL_PAGE = 200

Key = tuple[int, Told, FeedView, int]


class Shared:
    """What the followers of one tenant have in common."""

    def __init__(self, database: Database, tenant: str, after: int) -> None:
        self.tail = Tail(database, Scope(tenant), after, most=TAIL_PAGE)
        self.followers = 0
        self._database = database
        self._frames: dict[Key, bytes] = {}
        self._bytes = 0

    async def frame(self, change: Change, as_what: Told, view: FeedView, scope: Scope) -> bytes:
        # a schema's hints are part of what is seen, so a frame is as old as the last change of a schema
        key = (change.seq, as_what, view, self.tail.last.get("schemas", 0))
        known = self._frames.get(key)
        if known is None:
            known = await self._database.read(rendered, change, as_what, view, scope=scope)
            if self._bytes > FRAMES_BYTES:
                self._frames.clear()
                self._bytes = 0
            self._frames[key] = known
            self._bytes += len(known)
        return known


class Feeds:
    """Who follows what in this process."""

    def __init__(self, database: Database, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self.database = database
        self.heartbeat = heartbeat
        self.closing = False
        self.ended = asyncio.Event()
        self._shared: dict[str, tuple[Shared, asyncio.Task[None]]] = {}

    @contextmanager
    def joined(self, tenant: str, after: int) -> Generator[Shared]:
        """The tenant's tail, which runs as long as somebody is here."""
        shared, task = self._shared.get(tenant, (None, None))
        if shared is None or task is None or task.done():
            shared = Shared(self.database, tenant, after)
            task = asyncio.create_task(_run(shared.tail), name=f"tail of {tenant}")
            self._shared[tenant] = shared, task
        shared.followers += 1
        try:
            yield shared
        finally:
            shared.followers -= 1
            if shared.followers == 0:
                task.cancel()
                if self._shared.get(tenant, (None, None))[0] is shared:
                    del self._shared[tenant]

    def count(self) -> int:
        """How many feeds are open."""
        return sum(shared.followers for shared, _ in self._shared.values())

    def end(self) -> None:
        """End every feed, so that the server can close; followers come back with their positions."""
        self.closing = True
        self.ended.set()
        for shared, _ in self._shared.values():
            shared.tail.wake()


async def _run(tail: Tail) -> None:
    with suppress(Exception):  # its followers read the journal then, and meet the failure themselves
        await tail.run()


class Follower:
    """One open stream."""

    def __init__(self, feeds: Feeds, claims: Claims, wanted: Wanted, cursor: int, head: int) -> None:
        self._feeds = feeds
        self._database = feeds.database
        self._claims = claims
        self._reader = reader_of(claims)
        self._scope = unit_scope(claims)
        self._wanted = wanted
        self._cursor = cursor
        self._head = head
        self._standing = Standing(feeds.database, claims, feeds.heartbeat)
        self._sent = time.monotonic()

    async def frames(self) -> AsyncIterator[bytes]:
        """Until the follower goes away, may no longer read, or the server closes."""
        # with its position, so that one who is cut off before the first event knows where to go on
        yield b"id: %d\nretry: %d\n\n" % (self._cursor, RETRY_MS)
        with self._feeds.joined(self._claims.tenant, self._head) as shared, shared.tail.listen() as listener:
            while not self._feeds.closing and await self._standing.is_good():
                before = self._cursor
                batch = await self._next(shared)
                if batch:
                    self._sent = time.monotonic()
                    yield batch
                elif time.monotonic() - self._sent >= self._feeds.heartbeat:
                    self._sent = time.monotonic()
                    # an id alone: no event, but the follower's position moves on
                    yield b"id: %d\n\n" % self._cursor
                if self._standing.in_doubt:
                    continue
                if self._cursor in (before, shared.tail.cursor):
                    left = self._sent + self._feeds.heartbeat - time.monotonic()
                    await listener.heard_within(max(left, 0))
                else:
                    await asyncio.sleep(0)  # a read may not suspend; others in this loop want to live meanwhile

    async def _next(self, shared: Shared) -> bytes:
        """What to send of the changes that follow, a bounded number of them; moves the cursor."""
        changes = shared.tail.since(self._cursor, PAGE)
        if changes is not None and not any(_is_gone(shared.tail, change) for change in changes):
            return await self._from_tail(shared, changes)
        try:
            self._cursor, batch = await self._database.read(self._from_journal, self._cursor, scope=self._scope)
        except CursorExpired as expired:
            self._cursor = expired.oldest - 1
            return frame(self._cursor, "reset", {"oldest": expired.oldest})
        return batch

    async def _from_tail(self, shared: Shared, changes: list[Change]) -> bytes:
        now = self._database.clock.now()
        reader = self._reader
        frames: list[bytes] = []
        size = 0
        for change in changes:
            self._cursor = change.seq
            if self._is_about_me(change):
                break
            last = _body(shared.tail.newest(change))
            if reader.spaces is None and is_for_a_team(change.record, change.before, last):
                reader = await self._database.read(with_spaces, reader, scope=self._scope)
            as_what = told(reader, self._wanted, change, last, now)
            if as_what is None:
                continue
            frames.append(await shared.frame(change, as_what, self._wanted.view, self._scope))
            size += len(frames[-1])
            if size > BATCH_BYTES:
                break
        return b"".join(frames)

    async def _from_journal(self, tx: Snapshot, cursor: int) -> tuple[int, bytes]:
        reader = await with_spaces(tx, self._reader)
        frames: list[bytes] = []
        size = 0
        for change in await read_page(tx, cursor, PAGE):
            cursor = change.seq
            if self._is_about_me(change):
                break
            last = await newest(tx, change) if change.collection == "breadcrumbs" else None
            as_what = told(reader, self._wanted, change, last, tx.now)
            if as_what is None:
                continue
            frames.append(await rendered(tx, change, as_what, self._wanted.view))
            size += len(frames[-1])
            if size > BATCH_BYTES:
                break
        return cursor, b"".join(frames)

    def _is_about_me(self, change: Change) -> bool:
        """A change of the token that opened this stream: it is looked at before anything more is sent."""
        if change.collection != "tokens" or change.id != self._claims.id:
            return False
        self._standing.doubt()
        return True


def _is_gone(tail: Tail, change: Change) -> bool:
    """Whether the record was deleted since: its bodies may have been erased meanwhile, which only the store knows."""
    return change.event != "delete" and tail.newest(change).event == "delete"


def _body(change: Change) -> Breadcrumb | None:
    return change.record if isinstance(change.record, Breadcrumb) else None
