"""What may be asked of breadcrumbs: one, a list by selector, their history; as views or in full.

A view is what a model sees: the context after the hints of the breadcrumb or of its schema. It is the default everywhere; the
raw context needs the right to it. A view is computed once per version and hints.
"""

import threading
from collections import OrderedDict
from typing import Any, Literal, NamedTuple

import msgspec

from stigmergy.breadcrumbs.audience import Reader, could_see, sees, with_spaces
from stigmergy.breadcrumbs.hints import apply_hints, effective, parse_hints
from stigmergy.breadcrumbs.model import Audience, Breadcrumb, JsonObject, Schema
from stigmergy.breadcrumbs.schemas import Schemas
from stigmergy.breadcrumbs.store import NEWEST, NEWEST_OF_SCHEMA, NEWEST_WITH_TAG, READ_SCHEMAS, as_given
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.history import EVERYTHING, read_history, read_version
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.predicates import ConditionFailed
from stigmergy.kernel.query import Query
from stigmergy.kernel.selectors import Selector, compile_selector
from stigmergy.kernel.subjects import Subject
from stigmergy.kernel.transaction import Snapshot

ViewKind = Literal["context", "full"]

# Rows that a list looks at for one page at the most; what is left is behind the cursor.
SCAN = 5_000
# Views kept in memory, and their bytes.
VIEWS = 10_000
VIEWS_BYTES = 64 * 1024 * 1024


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A breadcrumb as it is shown. `context` went through the hints unless `full` was asked for and allowed."""

    id: str
    owner_id: str
    schema_name: str
    title: str
    context: JsonObject
    version: int
    created_at: int
    updated_at: int
    created_by: str
    updated_by: str
    checksum: str
    audience: Audience
    tags: list[str] = msgspec.field(default_factory=list[str])
    description: str | None = None
    space_id: str | None = None
    expires_at: int | None = None
    llm_hints: JsonObject | None = None
    hint_errors: list[JsonObject] = msgspec.field(default_factory=list[JsonObject])


class Page(NamedTuple):
    """Some of a list, newest first, and where to go on; None at the end."""

    crumbs: list[Breadcrumb]
    next: int | None


async def get(tx: Snapshot, reader: Reader, id: str) -> Breadcrumb:
    crumb = await tx.get(Breadcrumb, id)
    if crumb is None or not await sees(tx, reader, crumb):
        raise NotFound(f"no breadcrumb {id}")
    return crumb


async def exists(tx: Snapshot, reader: Reader, id: str) -> bool:
    """Whether it is there for this reader."""
    crumb = await tx.get(Breadcrumb, id)
    return crumb is not None and await sees(tx, reader, crumb)


async def history(tx: Snapshot, reader: Reader, id: str, *, below: int = EVERYTHING, limit: int = 50) -> list[Breadcrumb]:
    """Its versions, newest first. Of a deleted one too, for who could see its last version. A version that was not for this
    reader when it was written is not for them later either."""
    if limit < 1:
        raise Invalid("a page has at least 1 version", "limit")
    reader = await with_spaces(tx, reader)
    newest = await read_history(tx, Breadcrumb, id, limit=1)
    if not newest or not could_see(reader, newest[0]):
        raise NotFound(f"no breadcrumb {id}")
    found: list[Breadcrumb] = []
    while len(found) < limit:
        versions = await read_history(tx, Breadcrumb, id, below=below, limit=limit)
        found += [version for version in versions if could_see(reader, version)]
        if len(versions) < limit:
            break
        below = versions[-1].version
    return found[:limit]


async def at_version(tx: Snapshot, reader: Reader, id: str, version: int) -> Breadcrumb:
    reader = await with_spaces(tx, reader)
    await history(tx, reader, id, limit=1)
    found = await read_version(tx, Breadcrumb, id, version=version)
    if not could_see(reader, found):
        raise NotFound(f"breadcrumb {id} has no version {version}")
    return found


async def find(
    tx: Snapshot, reader: Reader, selector: Selector, *, below: int = EVERYTHING, limit: int = 50, scan: int = SCAN
) -> Page:
    """A page of what a selector matches, newest first. What an index can say is said to it; the rest is asked of each row, up
    to a bound: a page may be short and still have a `next`."""
    wanted = compile_selector(selector).predicate
    if limit < 1:
        raise Invalid("a page has at least 1 breadcrumb", "limit")
    found: list[Breadcrumb] = []
    if selector.any_tags is not None and not selector.any_tags:
        return Page([], None)
    reader = await with_spaces(tx, reader)
    looked = 0
    step = limit
    while True:
        rows = await _scan(tx, reader, selector, below, step)
        for crumb in rows:
            below = crumb.seq
            looked += 1
            if _matches(wanted, crumb):
                found.append(crumb)
                if len(found) == limit:
                    return Page(found, below)
        if len(rows) < step:
            return Page(found, None)
        if looked >= scan:
            return Page(found, below)
        step = min(step * 4, scan - looked)


async def _scan(tx: Snapshot, reader: Reader, selector: Selector, below: int, limit: int) -> list[Breadcrumb]:
    """The next rows of the index that leaves the fewest: one tag that all must have, else the schema, else all."""
    given: dict[str, Any] = {
        "below": below,
        "now": tx.now,
        "limit": limit,
        **as_given(reader),
    }
    query: Query[Breadcrumb] = NEWEST
    exact = None if selector.schema_name is None or selector.schema_name.endswith("*") else selector.schema_name
    required = selector.all_tags or (selector.any_tags if selector.any_tags and len(selector.any_tags) == 1 else None)
    if required:
        query, given["tag"], given["schema_name"] = NEWEST_WITH_TAG, required[0], exact
    elif exact is not None:
        query, given["schema_name"] = NEWEST_OF_SCHEMA, exact
    return await tx.find(query, **given)


def _matches(wanted: Any, crumb: Breadcrumb) -> bool:
    try:
        return wanted(as_subject(crumb))
    except ConditionFailed:
        return False


def as_subject(crumb: Breadcrumb) -> Subject:
    """A stored breadcrumb as a selector sees it."""
    change = Change(
        crumb.tenant,
        crumb.seq,
        "breadcrumbs",
        crumb.id,
        crumb.version,
        "update",
        crumb.updated_by,
        crumb.updated_at,
        None,
        0,
        crumb,
    )
    seen: Any = Seen(change)
    return seen


async def schemas(tx: Snapshot, *, after: str = "", limit: int = 100) -> list[Schema]:
    return await tx.find(READ_SCHEMAS, after=after, limit=limit)


async def schema(tx: Snapshot, name: str) -> Schema:
    found = await tx.get(Schema, name)
    if found is None:
        raise NotFound(f"no schema {name}")
    return found


async def shown(tx: Snapshot, crumbs: list[Breadcrumb], kind: ViewKind = "context", schemas: Schemas | None = None) -> list[View]:
    """Breadcrumbs as they are shown. `schemas` are those that the unit has read."""
    if kind == "full":
        return [view(crumb, None, kind) for crumb in crumbs]
    schemas = schemas or Schemas(tx)
    return [view(crumb, await schemas.of(crumb.schema_name)) for crumb in crumbs]


class _Kept(msgspec.Struct):
    """What hints made of a context, as JSON: each reader gets an object of its own, and may change it."""

    context: JsonObject
    errors: list[JsonObject]


_kept = msgspec.json.Decoder(_Kept)


class _Views:
    """The views that were made last, by the content of context and hints, so that none can be out of date."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, bytes, bytes], bytes] = OrderedDict()
        self._bytes = 0
        self._alone = threading.Lock()

    def get(self, key: tuple[str, bytes, bytes]) -> bytes | None:
        return self._made.get(key)

    def keep(self, key: tuple[str, bytes, bytes], made: bytes) -> None:
        with self._alone:
            self._bytes += len(made) - len(self._made.pop(key, b""))
            self._made[key] = made
            while len(self._made) > VIEWS or self._bytes > VIEWS_BYTES:
                self._bytes -= len(self._made.popitem(last=False)[1])


_views = _Views()


def view(crumb: Breadcrumb, of: Schema | None, kind: ViewKind = "context") -> View:
    if kind == "full":
        return _view(crumb, crumb.context, [], crumb.llm_hints)
    if crumb.llm_hints is None and (of is None or of.llm_hints is None):
        return _view(crumb, crumb.context, [], None)
    key = (crumb.checksum, msgspec.json.encode(crumb.llm_hints), msgspec.json.encode(of and of.llm_hints))
    known = _views.get(key)
    if known is None:
        hints = effective(parse_hints(crumb.llm_hints), parse_hints(of.llm_hints) if of is not None else None)
        seen = apply_hints(hints, crumb.context)
        kept = _Kept(seen.context, [msgspec.to_builtins(error) for error in seen.errors])
        known = msgspec.json.encode(kept)
        if crumb.checksum:  # without one it is another record in a breadcrumb's clothes
            _views.keep(key, known)
    shown = _kept.decode(known)
    return _view(crumb, shown.context, shown.errors, None)


def _view(crumb: Breadcrumb, context: JsonObject, errors: list[JsonObject], hints: JsonObject | None) -> View:
    return View(
        id=crumb.id,
        owner_id=crumb.owner_id,
        schema_name=crumb.schema_name,
        title=crumb.title,
        description=crumb.description,
        tags=crumb.tags,
        context=context,
        llm_hints=hints,
        audience=crumb.audience,
        space_id=crumb.space_id,
        expires_at=crumb.expires_at,
        version=crumb.version,
        created_at=crumb.created_at,
        updated_at=crumb.updated_at,
        created_by=crumb.created_by,
        updated_by=crumb.updated_by,
        checksum=crumb.checksum,
        hint_errors=errors,
    )
