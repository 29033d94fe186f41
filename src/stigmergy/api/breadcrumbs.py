"""`/v1/breadcrumbs` and `/v1/schemas`."""

from typing import Annotated, Any, NamedTuple

from litestar import Controller, delete, get, patch, post, put
from litestar.params import JSONBody, PathParameter, QueryParameter

from stigmergy.access.model import Claims, Forbidden
from stigmergy.api import wire
from stigmergy.api.auth import claims_of, reader_of
from stigmergy.api.input import json_object
from stigmergy.api.requests import AnyRequest, Cursor, IdempotencyKey, IfMatch, IfNoneMatch, once, read, write
from stigmergy.api.responses import JsonResponse
from stigmergy.breadcrumbs import commands, queries
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb, Schema
from stigmergy.breadcrumbs.queries import ViewKind
from stigmergy.breadcrumbs.schemas import Schemas
from stigmergy.errors import Invalid, VersionConflict
from stigmergy.kernel.selectors import Selector, parse_selector
from stigmergy.kernel.transaction import Snapshot, Transaction

View = Annotated[
    ViewKind, QueryParameter(description="`context`: what a model sees. `full`: as it was written; its owner's or an operator's.")
]
Id = Annotated[str, PathParameter(description="Its id.")]
Name = Annotated[str, PathParameter(description="A schema name.")]
Shown = JsonResponse[wire.BreadcrumbOut]


class Tagged(NamedTuple):
    """A view and its entity tag. A view changes with the hints that its schema has for it, so these are in the tag."""

    view: queries.View
    etag: str


def answer(shown: Tagged, status: int = 200) -> Shown:
    return JsonResponse(wire.breadcrumb_out(shown.view), status_code=status, headers={"ETag": shown.etag})


def answer_unless(if_none_match: str | None, shown: Tagged) -> JsonResponse[Any]:
    """The breadcrumb, unless the caller has it as it is."""
    if wire.is_among(shown.etag, if_none_match):
        return JsonResponse(None, status_code=304, headers={"ETag": shown.etag})
    return answer(shown)


class BreadcrumbRoutes(Controller):
    path = "/v1/breadcrumbs"
    tags = ("breadcrumbs",)

    @post(summary="Write a breadcrumb", operation_id="create_breadcrumb")
    async def create(self, request: AnyRequest, data: JSONBody[wire.DraftIn], key: IdempotencyKey = None) -> Shown:
        body = await request.body() if key is not None else b""
        return answer(await write(request, _create, reader_of(claims_of(request)), data, key, body), 201)

    @post("/bulk", summary="Write many breadcrumbs, all or none", operation_id="create_breadcrumbs")
    async def create_many(
        self, request: AnyRequest, data: JSONBody[list[wire.DraftIn]], key: IdempotencyKey = None
    ) -> list[wire.BreadcrumbOut]:
        if len(data) > 1_000:
            raise Invalid("at most 1,000 breadcrumbs at once", "body")
        if not data:
            raise Invalid("at least one breadcrumb is expected", "body")
        body = await request.body() if key is not None else b""
        views: list[queries.View] = await write(request, _create_many, reader_of(claims_of(request)), data, key, body)
        return [wire.breadcrumb_out(view) for view in views]

    @get(summary="List breadcrumbs, newest first", operation_id="list_breadcrumbs")
    async def find(
        self,
        request: AnyRequest,
        schema_name: Annotated[str | None, QueryParameter(description="A schema name; it may end in `*`.")] = None,
        tag: Annotated[list[str] | None, QueryParameter(description="Tags that all must be there.")] = None,
        selector: Annotated[
            str | None, QueryParameter(description="A selector as JSON, in place of `schema_name` and `tag`.")
        ] = None,
        limit: wire.Limit = 50,
        cursor: Cursor = None,
        view: View = "context",
    ) -> wire.BreadcrumbPage:
        wanted = _selector(selector, schema_name, tag)
        claims = claims_of(request)
        page, views = await read(request, _find, claims, wanted, wire.below(cursor), limit, view)
        return wire.BreadcrumbPage([wire.breadcrumb_out(each) for each in views], None if page.next is None else str(page.next))

    @get("/{id:str}", summary="One breadcrumb as a model sees it", operation_id="get_breadcrumb")
    async def one(
        self, request: AnyRequest, id: Id, if_none_match: IfNoneMatch = None
    ) -> JsonResponse[wire.BreadcrumbOut | None]:
        return answer_unless(if_none_match, await read(request, _get, reader_of(claims_of(request)), id))

    @get("/{id:str}/full", summary="One breadcrumb as it was written", operation_id="get_breadcrumb_full")
    async def full(
        self, request: AnyRequest, id: Id, if_none_match: IfNoneMatch = None
    ) -> JsonResponse[wire.BreadcrumbOut | None]:
        return answer_unless(if_none_match, await read(request, _get_full, claims_of(request), id))

    @get("/{id:str}/history", summary="Its versions, newest first", operation_id="get_breadcrumb_history")
    async def history(self, request: AnyRequest, id: Id, limit: wire.Limit = 50, cursor: Cursor = None) -> wire.BreadcrumbPage:
        views = await read(request, _history, reader_of(claims_of(request)), id, wire.below(cursor), limit)
        more = str(views[-1].version) if len(views) == limit and views[-1].version > 1 else None
        return wire.BreadcrumbPage([wire.breadcrumb_out(each) for each in views], more)

    @get("/{id:str}/versions/{version:int}", summary="One of its versions", operation_id="get_breadcrumb_version")
    async def version(
        self,
        request: AnyRequest,
        id: Id,
        version: Annotated[int, PathParameter(ge=1, le=10**15, description="Its number.")],
        if_none_match: IfNoneMatch = None,
    ) -> JsonResponse[wire.BreadcrumbOut | None]:
        return answer_unless(if_none_match, await read(request, _version, reader_of(claims_of(request)), id, version))

    @patch("/{id:str}", summary="Change a breadcrumb", operation_id="patch_breadcrumb")
    async def change(self, request: AnyRequest, id: Id, data: JSONBody[wire.PatchIn], if_match: IfMatch = None) -> Shown:
        reader = reader_of(claims_of(request))
        return answer(await write(request, _patch, reader, id, data, wire.expected(if_match)))

    @put("/{id:str}", summary="Replace a breadcrumb, or bring a deleted one back", operation_id="replace_breadcrumb")
    async def replace(self, request: AnyRequest, id: Id, data: JSONBody[wire.DraftIn], if_match: IfMatch = None) -> Shown:
        reader = reader_of(claims_of(request))
        return answer(await write(request, _replace, reader, id, data, wire.expected(if_match), wire.is_any(if_match)))

    @post("/{id:str}/tags", status_code=200, summary="Add and remove tags", operation_id="retag_breadcrumb")
    async def retag(self, request: AnyRequest, id: Id, data: JSONBody[wire.TagsIn]) -> Shown:
        return answer(await write(request, _retag, reader_of(claims_of(request)), id, data))

    @delete("/{id:str}", summary="Take a breadcrumb away; its history stays", operation_id="delete_breadcrumb")
    async def remove(self, request: AnyRequest, id: Id, if_match: IfMatch = None) -> None:
        await write(request, commands.delete, reader_of(claims_of(request)), id, if_match=wire.expected(if_match))


class SchemaRoutes(Controller):
    path = "/v1/schemas"
    tags = ("schemas",)

    @get(summary="What is said of schema names", operation_id="list_schemas")
    async def all(self, request: AnyRequest, limit: wire.Limit = 50, cursor: Cursor = None) -> wire.SchemaPage:
        found = await read(request, queries.schemas, after=cursor or "", limit=limit)
        return wire.SchemaPage([wire.schema_out(schema) for schema in found], found[-1].name if len(found) == limit else None)

    @get("/{name:str}", summary="What is said of one schema name", operation_id="get_schema")
    async def one(self, request: AnyRequest, name: Name) -> wire.SchemaOut:
        return wire.schema_out(await read(request, queries.schema, name))

    @put("/{name:str}", summary="Say something of a schema name", operation_id="put_schema")
    async def put(self, request: AnyRequest, name: Name, data: JSONBody[wire.SchemaIn]) -> wire.SchemaOut:
        schema = Schema(name=name, json_schema=data.json_schema, llm_hints=data.llm_hints, ttl_ms=data.ttl_ms)
        return wire.schema_out(await write(request, commands.put_schema, schema, grant="operate"))

    @delete("/{name:str}", summary="Say nothing of a schema name any more", operation_id="delete_schema")
    async def remove(self, request: AnyRequest, name: Name) -> None:
        await write(request, commands.delete_schema, name, grant="operate")


# ---- units of work: a command, and its answer in the same transaction ----


async def _create(tx: Transaction, reader: Reader, data: wire.DraftIn, key: str | None, body: bytes) -> Tagged:
    async def make() -> Tagged:
        schemas = Schemas(tx)
        return await _shown(schemas, await commands.create(tx, wire.draft(data), schemas, reader=reader))

    return await once(tx, "create_breadcrumb", key, body, make, Tagged)


async def _create_many(
    tx: Transaction, reader: Reader, data: list[wire.DraftIn], key: str | None, body: bytes
) -> list[queries.View]:
    async def make() -> list[queries.View]:
        schemas = Schemas(tx)
        made = await commands.create_many(tx, [wire.draft(each) for each in data], schemas, reader=reader)
        return await queries.shown(tx, made, schemas=schemas)

    return await once(tx, "create_breadcrumbs", key, body, make, list[queries.View])


async def _patch(tx: Transaction, reader: Reader, id: str, data: wire.PatchIn, if_match: int | None) -> Tagged:
    return await _shown(Schemas(tx), await commands.patch(tx, reader, id, wire.patch(data), if_match=if_match))


async def _replace(tx: Transaction, reader: Reader, id: str, data: wire.DraftIn, if_match: int | None, is_there: bool) -> Tagged:
    if is_there and not await queries.exists(tx, reader, id):
        raise VersionConflict(f"breadcrumb {id} is not there, as `If-Match: *` asks; replace it without If-Match")
    return await _shown(Schemas(tx), await commands.replace(tx, reader, id, wire.draft(data), if_match=if_match))


async def _retag(tx: Transaction, reader: Reader, id: str, data: wire.TagsIn) -> Tagged:
    return await _shown(Schemas(tx), await commands.retag(tx, reader, id, add=data.add, remove=data.remove))


async def _find(
    tx: Snapshot, claims: Claims, selector: Selector, below: int, limit: int, kind: ViewKind
) -> tuple[queries.Page, list[queries.View]]:
    page = await queries.find(tx, reader_of(claims), selector, below=below, limit=limit)
    if kind == "full":
        for crumb in page.crumbs:
            _demand_full(claims, crumb)
    return page, await queries.shown(tx, page.crumbs, kind)


async def _get(tx: Snapshot, reader: Reader, id: str) -> Tagged:
    return await _shown(Schemas(tx), await queries.get(tx, reader, id))


async def _get_full(tx: Snapshot, claims: Claims, id: str) -> Tagged:
    crumb = await queries.get(tx, reader_of(claims), id)
    _demand_full(claims, crumb)
    return Tagged(queries.view(crumb, None, "full"), wire.etag(crumb.version))


async def _history(tx: Snapshot, reader: Reader, id: str, below: int, limit: int) -> list[queries.View]:
    return await queries.shown(tx, await queries.history(tx, reader, id, below=below, limit=limit))


async def _version(tx: Snapshot, reader: Reader, id: str, version: int) -> Tagged:
    return await _shown(Schemas(tx), await queries.at_version(tx, reader, id, version))


async def _shown(schemas: Schemas, crumb: Breadcrumb) -> Tagged:
    schema = await schemas.of(crumb.schema_name)
    hinted = schema.version if schema is not None and schema.llm_hints is not None and crumb.llm_hints is None else 0
    return Tagged(queries.view(crumb, schema), wire.etag(crumb.version, hinted))


def _demand_full(claims: Claims, crumb: Breadcrumb) -> None:
    if crumb.owner_id != claims.entity and "operate" not in claims.grants:
        raise Forbidden(f"breadcrumb {crumb.id} in full is its owner's to see, or an operator's; ask for the view `context`")


def _selector(text: str | None, schema_name: str | None, tag: list[str] | None) -> Selector:
    if text is None:
        return Selector(schema_name=schema_name, all_tags=tuple(tag) if tag else None)
    if schema_name is not None or tag:
        raise Invalid("give a selector, or schema_name and tag, not both", "selector")
    return parse_selector(json_object(text, "selector"))
