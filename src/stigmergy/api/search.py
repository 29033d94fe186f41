"""`/v1/breadcrumbs/search`: by words, by meaning, or by both."""

from typing import Annotated, Any

import msgspec
from litestar import Request, post
from litestar.datastructures import State
from litestar.params import JSONBody
from msgspec import Meta

from stigmergy.api import wire
from stigmergy.api.auth import claims_of, reader_of, unit_scope
from stigmergy.breadcrumbs.model import JsonObject
from stigmergy.breadcrumbs.namespace import Breadcrumbs
from stigmergy.breadcrumbs.search import LONGEST_TEXT, MOST_HITS, Method, Searcher
from stigmergy.kernel.database import Database


class SearchIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to look for, and a selector for what it may be found among."""

    query: Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]
    selector: JsonObject | None = None
    method: Method = "hybrid"
    limit: Annotated[int, Meta(ge=1, le=MOST_HITS)] = 10


class FoundOut(msgspec.Struct, frozen=True):
    """A hit. Scores order the hits of one answer; they mean nothing beside those of another."""

    score: float
    breadcrumb: wire.BreadcrumbOut


class SearchedOut(msgspec.Struct, frozen=True):
    """Best first. `stale` breadcrumbs are not in the index yet; `cut` when too much was looked at in vain."""

    items: list[FoundOut]
    stale: int
    cut: bool


@post(
    "/v1/breadcrumbs/search",
    status_code=200,
    summary="Find breadcrumbs by a text, the best first",
    operation_id="search_breadcrumbs",
    tags=["breadcrumbs"],
)
async def search(request: Request[Any, Any, State], data: JSONBody[SearchIn]) -> SearchedOut:
    claims = claims_of(request)
    claims.demand("read")
    database: Database = request.app.state.database
    searcher: Searcher = request.app.state.searcher
    crumbs = Breadcrumbs(database, unit_scope(claims), reader_of(claims), searcher)
    found = await crumbs.search(data.query, data.selector, method=data.method, limit=data.limit)
    items = [FoundOut(each.score, wire.breadcrumb_out(each.breadcrumb)) for each in found.items]
    return SearchedOut(items, found.stale, found.cut)
