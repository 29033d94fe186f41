"""`/v1/events`: the feed over server-sent events.

A stream reads the journal from its own cursor and is woken by the bus. A slow reader is simply not read for: nothing is kept for
it in memory, the journal has it. What is replayed is shown by the reader's rights and the hints of now.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.datastructures import State
from litestar.params import Parameter
from litestar.response import Stream

from stigmergy.access.model import Claims
from stigmergy.api.auth import claims_of, reader_of, unit_scope
from stigmergy.api.wire import json_object, moment
from stigmergy.breadcrumbs import queries
from stigmergy.breadcrumbs.model import Breadcrumb, JsonObject
from stigmergy.breadcrumbs.queries import Reader, may_see
from stigmergy.errors import CursorExpired, Invalid
from stigmergy.kernel.bus import changes_topic
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import edges, read_page
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.matching import ConditionFailed
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.selectors import Selector, compile_selector, parse_selector
from stigmergy.kernel.transaction import Snapshot

HEARTBEAT_SECONDS = 15.0
RETRY_MS = 2_000
PAGE = 200
EVENTS = {"create": "created", "update": "updated", "delete": "deleted"}
# What a follower without an operator's grant does not see: what runs the store, and who may come in.
OPERATORS_ONLY = frozenset({"rules", "diagnostics", "tokens"})


class Wanted(msgspec.Struct, frozen=True):
    """What a follower asked for."""

    selector: Selector | None
    collections: frozenset[str] | None
    events: frozenset[str] | None
    view: str


@get(
    "/v1/events",
    summary="Follow changes as they happen",
    operation_id="follow_events",
    tags=["feed"],
    media_type="text/event-stream",
)
async def events(
    request: Request[Any, Any, State],
    selector: Annotated[str | None, Parameter(description="A selector as JSON.")] = None,
    schema_name: Annotated[str | None, Parameter(description="A schema name; it may end in `*`.")] = None,
    tag: Annotated[list[str] | None, Parameter(description="Tags that all must be there.")] = None,
    collection: Annotated[list[str] | None, Parameter(description="Collections, such as `breadcrumbs`.")] = None,
    event: Annotated[list[str] | None, Parameter(description="`created`, `updated`, `deleted`.")] = None,
    view: Annotated[str, Parameter(description="`context`: what a model sees. `none`: no contexts.")] = "context",
    after: Annotated[str | None, Parameter(description="The position after which to begin; without one, now.")] = None,
    last_event_id: Annotated[
        str | None, Parameter(header="Last-Event-ID", description="As `after`, sent by an EventSource.")
    ] = None,
) -> Stream:
    claims = claims_of(request)
    claims.demand("read")
    wanted = _wanted(selector, schema_name, tag, collection, event, view)
    database: Database = request.app.state.database
    start = await _start(database, claims, last_event_id if last_event_id is not None else after)
    frames = stream(database, claims, wanted, start, request.app.state.closing)
    return Stream(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


def _wanted(
    selector: str | None,
    schema_name: str | None,
    tag: list[str] | None,
    collection: list[str] | None,
    event: list[str] | None,
    view: str,
) -> Wanted:
    if view not in ("context", "none"):
        raise Invalid("the feed has the views `context` and `none`", "view")
    for name in collection or ():
        if name not in COLLECTIONS:
            raise Invalid(f"there is no collection {name!r}; there are {', '.join(sorted(COLLECTIONS))}", "collection")
    for kind in event or ():
        if kind not in EVENTS.values():
            raise Invalid(f"there is no event {kind!r}; there are {', '.join(EVENTS.values())}", "event")
    chosen: Selector | None = None
    if selector is not None:
        chosen = parse_selector(json_object(selector, "selector"))
    elif schema_name is not None or tag:
        chosen = Selector(schema_name=schema_name, all_tags=tuple(tag) if tag else None)
    return Wanted(chosen, frozenset(collection) if collection else None, frozenset(event) if event else None, view)


async def _start(database: Database, claims: Claims, after: str | None) -> int:
    if after is None or after == "":
        return (await database.read(edges, scope=unit_scope(claims))).last
    if not after.isdecimal() or len(after) > 18:
        raise Invalid("a position is a number, the `id` of an event", "after")
    return int(after)


async def stream(
    database: Database, claims: Claims, wanted: Wanted, cursor: int, closing: asyncio.Event, heartbeat: float = HEARTBEAT_SECONDS
) -> AsyncIterator[bytes]:
    """The frames of one follower, until it goes away or the server closes."""
    scope = unit_scope(claims)
    predicate = compile_selector(wanted.selector).predicate if wanted.selector is not None else None
    yield f"retry: {RETRY_MS}\n\n".encode()
    with database.bus.listen(changes_topic(claims.tenant)) as listener:
        while not closing.is_set():
            try:
                upto, frames = await database.read(_frames, claims, wanted, predicate, cursor, scope=scope)
            except CursorExpired as expired:
                cursor = expired.oldest - 1
                yield _frame(cursor, "reset", {"oldest": expired.oldest})
                continue
            if frames:
                yield b"".join(frames)
            full = upto - cursor >= PAGE
            cursor = upto
            if full:
                continue
            if not await listener.heard_within(heartbeat):
                # an id alone: no event, but the follower's position moves on
                yield f"id: {cursor}\n\n".encode()


async def _frames(tx: Snapshot, claims: Claims, wanted: Wanted, predicate: Any, cursor: int) -> tuple[int, list[bytes]]:
    changes = await read_page(tx, cursor, PAGE)
    reader = reader_of(claims)
    frames: list[bytes] = []
    for change in changes:
        if (change.collection in OPERATORS_ONLY and not reader.everything) or not _is_wanted(wanted, predicate, change):
            continue
        data = await _data(tx, reader, wanted, change)
        if data is not None:
            frames.append(_frame(change.seq, data["type"], data))
    return (changes[-1].seq if changes else cursor), frames


def _is_wanted(wanted: Wanted, predicate: Any, change: Change) -> bool:
    if wanted.collections is not None and change.collection not in wanted.collections:
        return False
    if wanted.events is not None and EVENTS[change.event] not in wanted.events:
        return False
    if predicate is None:
        return True
    try:
        return change.record is not None and predicate(Seen(change))
    except ConditionFailed:
        return False


async def _data(tx: Snapshot, reader: Reader, wanted: Wanted, change: Change) -> JsonObject | None:
    """What an event says; None where the reader has no business with it."""
    record = change.record
    if change.collection == "breadcrumbs" and (record is None or isinstance(record, Breadcrumb)):
        return await _breadcrumb_data(tx, reader, wanted, change, record)
    data = _told(change, change.event)
    if record is not None and change.event != "delete" and wanted.view != "none":
        data |= msgspec.to_builtins(record)
    return data


async def _breadcrumb_data(
    tx: Snapshot, reader: Reader, wanted: Wanted, change: Change, crumb: Breadcrumb | None
) -> JsonObject | None:
    event = change.event
    if crumb is not None and not _may_be_told(reader, crumb):
        before = change.before
        if event == "create" or not isinstance(before, Breadcrumb) or not _may_be_told(reader, before):
            return None
        event = "delete"
    if event != "delete":
        current = await tx.get(Breadcrumb, change.id)
        if crumb is None or (current is not None and not may_see(reader, current, tx.now)):
            event = "delete"
    data = _told(change, event) | {"breadcrumb_id": change.id}
    if crumb is not None:
        data |= {"owner_id": crumb.owner_id, "schema_name": crumb.schema_name, "tags": crumb.tags}
        if event != "delete" and wanted.view != "none":
            view = (await queries.shown(tx, [crumb]))[0]
            data["context"] = view.context
            if view.hint_errors:
                data["hint_errors"] = view.hint_errors
    return data


def _may_be_told(reader: Reader, crumb: Breadcrumb) -> bool:
    return may_see(reader, msgspec.structs.replace(crumb, expires_at=None), 0)


def _told(change: Change, event: str) -> JsonObject:
    return {
        "type": f"{change.collection.removesuffix('s')}.{EVENTS[event]}",
        "id": change.id,
        "version": change.version,
        "updated_at": moment(change.at),
        "seq": change.seq,
        "cause": change.cause,
        "actor": change.actor,
    }


def _frame(seq: int, event: str, data: JsonObject) -> bytes:
    # JSON has no line breaks of its own, so the data is one line whatever the texts in it hold
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, event.encode(), msgspec.json.encode(data))
