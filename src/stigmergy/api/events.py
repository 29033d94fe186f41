"""`/v1/events`: the feed over server-sent events."""

from contextlib import aclosing
from typing import Annotated, Any, cast

from litestar import Request, get
from litestar.datastructures import State
from litestar.params import HeaderParameter, QueryParameter
from litestar.response.base import ASGIResponse
from litestar.response.streaming import ASGIStreamingResponse
from litestar.types import Send

from stigmergy.api.auth import claims_of, unit_scope
from stigmergy.api.feeds import Feeds, Follower
from stigmergy.api.frames import NAMES, FeedView, Wanted
from stigmergy.api.input import json_object
from stigmergy.errors import Invalid
from stigmergy.kernel.feed import edges
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.selectors import Selector, compile_selector, parse_selector

AfterPosition = Annotated[str | None, QueryParameter(description="The position after which to begin.")]
LastEventId = Annotated[
    str | None,
    HeaderParameter(name="Last-Event-ID", description="As `after`, sent by an EventSource; it counts before that."),
]
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@get(
    "/v1/events",
    summary="Follow changes as they happen",
    operation_id="follow_events",
    tags=["feed"],
    media_type="text/event-stream",
)
async def events(
    request: Request[Any, Any, State],
    selector: Annotated[str | None, QueryParameter(description="A selector as JSON.")] = None,
    schema_name: Annotated[str | None, QueryParameter(description="A schema name; it may end in `*`.")] = None,
    tag: Annotated[list[str] | None, QueryParameter(description="Tags that all must be there.")] = None,
    collection: Annotated[list[str] | None, QueryParameter(description="Collections, such as `breadcrumbs`.")] = None,
    event: Annotated[list[str] | None, QueryParameter(description="`created`, `updated`, `deleted`.")] = None,
    view: Annotated[
        FeedView,
        QueryParameter(description="`context`: what a model sees. `full`: as written; an operator's. `none`: no contexts."),
    ] = "context",
    after: Annotated[str | None, QueryParameter(description="The position after which to begin; without one, now.")] = None,
    last_event_id: LastEventId = None,
) -> ASGIResponse:
    claims = claims_of(request)
    claims.demand("read")
    if view == "full":
        claims.demand("operate")
    wanted = _wanted(selector, schema_name, tag, collection, event, view)
    start = position(last_event_id) or position(after)
    feeds: Feeds = request.app.state.feeds
    head = (await feeds.database.read(edges, scope=unit_scope(claims))).last
    follower = Follower(feeds, claims, wanted, head if start is None else int(start), head)
    return EventStream(iterator=follower.frames(), media_type="text/event-stream", headers=HEADERS)


class EventStream(ASGIStreamingResponse):
    """Ends its frames in the moment in which the connection ends, whatever they were waiting for."""

    async def _stream(self, send: Send) -> None:
        async with aclosing(cast(Any, self.iterator)):
            await super()._stream(send)


def _wanted(
    selector: str | None,
    schema_name: str | None,
    tag: list[str] | None,
    collection: list[str] | None,
    event: list[str] | None,
    view: FeedView,
) -> Wanted:
    _check_among(collection, COLLECTIONS, "collection")
    _check_among(event, NAMES.values(), "event")
    chosen: Selector | None = None
    if selector is not None:
        if schema_name is not None or tag:
            raise Invalid("give a selector, or schema_name and tag, not both", "selector")
        chosen = parse_selector(json_object(selector, "selector"))
    elif schema_name is not None or tag:
        chosen = Selector(schema_name=schema_name, all_tags=tuple(tag) if tag else None)
    predicate = None if chosen is None else compile_selector(chosen).predicate
    return Wanted(predicate, frozenset(collection) if collection else None, frozenset(event) if event else None, view)


def _check_among(names: list[str] | None, known: Any, where: str) -> None:
    for name in names or ():
        if name not in known:
            raise Invalid(f"there is no {where} {name[:100]!r}; there are {', '.join(sorted(known))}", where)


def position(text: str | None) -> str | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise Invalid("a position is a number, the `id` of an event", "after")
    return text
