"""What agents can do with breadcrumbs: leave some, read them, search them.

Tenant, owner and rights are the run's, never what a model says: what is written belongs to whom the run works for, and is
caused by what set the run off; what is read is what the agent may see, as a view.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from stigmergy.access.model import Forbidden
from stigmergy.breadcrumbs import commands, queries
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb, Draft, Patch
from stigmergy.breadcrumbs.output import CATALOG
from stigmergy.breadcrumbs.queries import View
from stigmergy.breadcrumbs.search import Hits, Method, Query, search
from stigmergy.errors import Conflict, Invalid, NotFound, VersionConflict
from stigmergy.kernel.selectors import Selector
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from stigmergy.runs.model import JsonObject, Run
from stigmergy.runs.tools import Acting, Asking, Builtin, Done, Outcome, Outside, Refused, asking, builtin
from stigmergy.spaces.queries import space_ids_of

# How many a tool gives at once.
MOST = 50

Count = Annotated[int, Meta(ge=1, le=MOST)]
Schema = Annotated[str | None, Meta(description="Only of this schema; it may end in *.")]
Tags = Annotated[list[str], Meta(description="Only with all of these tags.")]


class WriteBreadcrumb(msgspec.Struct, forbid_unknown_fields=True):
    schema_name: Annotated[str, Meta(description="Its kind, such as note.v1.", min_length=1)]
    context: Annotated[dict[str, Any], Meta(description="What it says.")]
    title: str = ""
    tags: list[str] = []
    audience: Annotated[
        Literal["public", "team"], Meta(description="Who may read it: all, or the members of the space you are in.")
    ] = "public"
    id: Annotated[
        str | None, Meta(description="A breadcrumb to change: what is given is merged into it; null removes a key.")
    ] = None


class ReadBreadcrumbs(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str | None, Meta(description="Only the one with this id.")] = None
    schema_name: Schema = None
    tags: Tags = []
    limit: Count = 10


class SearchBreadcrumbs(msgspec.Struct, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description="What it is about, in words.", min_length=1)]
    schema_name: Schema = None
    tags: Tags = []
    limit: Count = 5


async def write_breadcrumb(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    given = msgspec.convert(args, WriteBreadcrumb)
    try:
        written = await _created(tx, acting.run, given) if given.id is None else await _changed(tx, acting.run, given, given.id)
    except VersionConflict:
        raise  # it lost to another write, and is run again
    except (Invalid, NotFound, Conflict, Forbidden) as error:  # refused before anything was written
        return Refused(str(error))
    return Done({"id": written.id, "version": written.version})


async def _created(tx: Transaction, run: Run, given: WriteBreadcrumb) -> Breadcrumb:
    _check_own(given.schema_name)
    draft = Draft(
        schema_name=given.schema_name,
        title=given.title,
        tags=given.tags,
        context=given.context,
        audience=given.audience,
        space_id=(run.active_space_id or run.space_id) if given.audience == "team" else None,
        owner_id=run.owner_id,
    )
    return await commands.create(tx, draft)


async def _changed(tx: Transaction, run: Run, given: WriteBreadcrumb, id: str) -> Breadcrumb:
    reader = await _reader(tx, run)
    stored = await queries.get(tx, reader, id)
    _check_own(stored.schema_name)
    if stored.schema_name != given.schema_name:
        raise Invalid(f"{id} is a {stored.schema_name}, and stays one", "schema_name")
    return await commands.patch(
        tx, reader, id, Patch(context=given.context, title=given.title or UNSET, tags=given.tags or UNSET)
    )


def _check_own(schema_name: str) -> None:
    if schema_name == CATALOG:
        raise Invalid("the catalogue of an agent's tools is kept by the engine; write something else", "schema_name")


async def _reader(tx: Snapshot, run: Run) -> Reader:
    return Reader(run.entity_id, await space_ids_of(tx, run.entity_id))


async def read_breadcrumbs(outside: Outside, acting: Acting, args: JsonObject) -> list[JsonObject]:
    return await outside.database.read(_found, acting.run, msgspec.convert(args, ReadBreadcrumbs), scope=_scope(acting.run))


async def _found(tx: Snapshot, run: Run, wanted: ReadBreadcrumbs) -> list[JsonObject]:
    reader = await _reader(tx, run)
    if wanted.id is not None:
        return await _shown(tx, [await queries.get(tx, reader, wanted.id)])
    page = await queries.find(tx, reader, _selector(wanted.schema_name, wanted.tags), limit=wanted.limit)
    return await _shown(tx, page.crumbs)


async def search_breadcrumbs(outside: Outside, acting: Acting, args: JsonObject) -> list[JsonObject]:
    """By words and by meaning; by words alone where there is nothing that knows meanings."""
    wanted = msgspec.convert(args, SearchBreadcrumbs)
    asked = Query(wanted.query) if outside.searcher is None else await outside.searcher.ask(wanted.query)
    method: Method = "text" if asked.vector is None else "hybrid"
    return await outside.database.read(_searched, acting.run, wanted, asked, method, scope=_scope(acting.run))


async def _searched(tx: Snapshot, run: Run, wanted: SearchBreadcrumbs, asked: Query, method: Method) -> list[JsonObject]:
    selector = _selector(wanted.schema_name, wanted.tags)
    hits: Hits = await search(tx, await _reader(tx, run), selector, asked, method=method, limit=wanted.limit)
    return await _shown(tx, [hit.crumb for hit in hits.hits])


def _selector(schema_name: str | None, tags: list[str]) -> Selector:
    return Selector(schema_name=schema_name, all_tags=tuple(tags) or None)


def _scope(run: Run) -> Scope:
    return Scope(run.tenant, run.entity_id)


async def _shown(tx: Snapshot, crumbs: list[Breadcrumb]) -> list[JsonObject]:
    return [_said(view) for view in await queries.shown(tx, crumbs)]


def _said(view: View) -> JsonObject:
    """What a model reads of a breadcrumb."""
    fields = ("id", "schema_name", "title", "tags", "context", "version")
    said = {name: value for name in fields if (value := getattr(view, name))}
    return said | {"updated_at": view.updated_at}


TOOLS: tuple[Builtin | Asking, ...] = (
    builtin("write_breadcrumb", "Leave a breadcrumb for others, or change one.", WriteBreadcrumb, write_breadcrumb),
    asking("read_breadcrumbs", "Read breadcrumbs, the newest first.", ReadBreadcrumbs, read_breadcrumbs),
    asking(
        "search_breadcrumbs", "Find breadcrumbs by what they are about, the best first.", SearchBreadcrumbs, search_breadcrumbs
    ),
)
