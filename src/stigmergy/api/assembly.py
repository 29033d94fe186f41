"""`/v1/assembly/preview`: exactly what an agent would see."""

from typing import Annotated, Any

import msgspec
from litestar import Request, post
from litestar.datastructures import State
from litestar.params import JSONBody
from msgspec import Meta

from stigmergy.access.model import Claims, Forbidden
from stigmergy.api.auth import claims_of, reader_of, unit_scope
from stigmergy.breadcrumbs import queries
from stigmergy.breadcrumbs.assembly import Assembly, gather
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.subscriptions import parse_subscriptions
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Snapshot


class PreviewIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent's subscriptions, as it has them, and the breadcrumb that would trigger it; the current version if none is said."""

    subscriptions: Any
    trigger_id: str
    trigger_version: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    budget: Annotated[int, Meta(ge=1, le=10**9)] | None = None


@post(
    "/v1/assembly/preview",
    status_code=200,
    summary="What an agent with these subscriptions would see",
    operation_id="preview_assembly",
    tags=["breadcrumbs"],
)
async def preview(request: Request[Any, Any, State], data: JSONBody[PreviewIn]) -> Assembly:
    claims = claims_of(request)
    claims.demand("read")
    subscriptions = parse_subscriptions(data.subscriptions)
    if any(each.fetch.view == "full" for each in subscriptions) and "operate" not in claims.grants:
        raise Forbidden("the view `full` in an assembly is an operator's to ask for")
    database: Database = request.app.state.database
    trigger = await database.read(_trigger, claims, data, scope=unit_scope(claims))
    return await gather(
        database,
        request.app.state.searcher,
        reader_of(claims),
        subscriptions,
        trigger,
        scope=unit_scope(claims),
        budget=data.budget,
    )


async def _trigger(tx: Snapshot, claims: Claims, data: PreviewIn) -> Breadcrumb:
    reader = reader_of(claims)
    if data.trigger_version is None:
        return await queries.get(tx, reader, data.trigger_id)
    return await queries.at_version(tx, reader, data.trigger_id, data.trigger_version)
