"""The shapes on the wire where they differ from those in the store: times are ISO 8601 in UTC, cursors are texts."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from litestar.params import QueryParameter
from msgspec import UNSET, Meta, UnsetType

from stigmergy.breadcrumbs.model import LATEST_MS, LONGEST_TTL_MS, Audience, Draft, JsonObject, Patch, Schema
from stigmergy.breadcrumbs.queries import View
from stigmergy.errors import Invalid
from stigmergy.kernel.history import EVERYTHING

Limit = Annotated[int, QueryParameter(ge=1, le=500, description="How many at the most.")]


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
Moment = Annotated[datetime, Meta(tz=True)]


def moment(ms: int) -> datetime:
    return EPOCH + ms * MILLISECOND


def milliseconds(at: datetime) -> int:
    ms = (at - EPOCH) // MILLISECOND  # in integers: as a float many a millisecond is a little less than itself
    if not 0 <= ms <= LATEST_MS:
        raise Invalid("a time is between the years 1970 and 9999 in UTC", "expires_at")
    return ms


class Health(msgspec.Struct):
    """Whether the store answers."""

    status: str
    version: str
    store: str


class BrowserToken(msgspec.Struct):
    """A token for an EventSource, which cannot set headers: `/v1/events?token=…`, `/v1/spaces/{id}/events?token=…`."""

    token: str
    expires_in: int


class BreadcrumbOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A breadcrumb as it is shown. `context` is a view, what a model sees, unless `full` was asked for."""

    id: str
    owner_id: str
    schema_name: str
    title: str
    context: JsonObject
    audience: Audience
    version: int
    checksum: str
    created_at: Moment
    created_by: str
    updated_at: Moment
    updated_by: str
    tags: list[str]
    description: str | None = None
    space_id: str | None = None
    expires_at: Moment | None = None
    llm_hints: JsonObject | None = None
    hint_errors: list[JsonObject] = []


def breadcrumb_out(view: View) -> BreadcrumbOut:
    return BreadcrumbOut(
        id=view.id,
        owner_id=view.owner_id,
        schema_name=view.schema_name,
        title=view.title,
        context=view.context,
        audience=view.audience,
        version=view.version,
        checksum=view.checksum,
        created_at=moment(view.created_at),
        created_by=view.created_by,
        updated_at=moment(view.updated_at),
        updated_by=view.updated_by,
        tags=view.tags,
        description=view.description,
        space_id=view.space_id,
        expires_at=None if view.expires_at is None else moment(view.expires_at),
        llm_hints=view.llm_hints,
        hint_errors=view.hint_errors,
    )


class BreadcrumbPage(msgspec.Struct):
    """Newest first. `cursor` asks for what follows; without one there is no more."""

    items: list[BreadcrumbOut]
    cursor: str | None


class DraftIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A breadcrumb to write."""

    schema_name: str
    title: str = ""
    id: str | None = None
    description: str | None = None
    tags: list[str] = msgspec.field(default_factory=list[str])
    context: JsonObject = msgspec.field(default_factory=JsonObject)
    llm_hints: JsonObject | None = None
    audience: Audience = "public"
    space_id: str | None = None
    expires_at: Moment | None = None


def draft(given: DraftIn) -> Draft:
    fields = {name: getattr(given, name) for name in DraftIn.__struct_fields__}
    if given.expires_at is not None:
        fields["expires_at"] = milliseconds(given.expires_at)
    return Draft(**fields)


class PatchIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change; what is not given stays. `context` is a JSON Merge Patch."""

    title: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    tags: list[str] | UnsetType = UNSET
    context: JsonObject | UnsetType = UNSET
    llm_hints: JsonObject | UnsetType | None = UNSET
    audience: Audience | UnsetType = UNSET
    space_id: str | UnsetType | None = UNSET
    expires_at: Moment | UnsetType | None = UNSET


def patch(given: PatchIn) -> Patch:
    fields = {name: getattr(given, name) for name in PatchIn.__struct_fields__}
    if isinstance(given.expires_at, datetime):
        fields["expires_at"] = milliseconds(given.expires_at)
    return Patch(**fields)


class TagsIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    add: list[str] = msgspec.field(default_factory=list[str])
    remove: list[str] = msgspec.field(default_factory=list[str])


class SchemaIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to say of all breadcrumbs with a schema_name."""

    json_schema: JsonObject | None = None
    llm_hints: JsonObject | None = None
    ttl_ms: Annotated[int, Meta(ge=1, le=LONGEST_TTL_MS)] | None = None


class SchemaOut(msgspec.Struct, kw_only=True):
    name: str
    json_schema: JsonObject | None
    llm_hints: JsonObject | None
    ttl_ms: int | None
    version: int
    updated_at: Moment


class SchemaPage(msgspec.Struct):
    """By name. `cursor` asks for what follows; without one there is no more."""

    items: list[SchemaOut]
    cursor: str | None


def schema_out(schema: Schema) -> SchemaOut:
    return SchemaOut(
        name=schema.name,
        json_schema=schema.json_schema,
        llm_hints=schema.llm_hints,
        ttl_ms=schema.ttl_ms,
        version=schema.version,
        updated_at=moment(schema.updated_at),
    )


def below(cursor: str | None) -> int:
    """The position that a page's cursor stands for."""
    if cursor is None:
        return EVERYTHING
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > 15:
        raise Invalid("this is no cursor of a page before it", "cursor")
    return int(cursor)


def position(cursor: str | None) -> int:
    """The same for a page that goes upwards: everything behind it follows."""
    return 0 if cursor is None else below(cursor)


def etag(version: int, hinted: int = 0) -> str:
    """What a reader has: a version, and where a schema's hints shaped it the version of that schema."""
    return f'"{version}.{hinted}"' if hinted else f'"{version}"'


_ETAG = re.compile(r'"?([0-9]{1,15})(?:\.[0-9]{1,15})?"?')


def is_any(if_match: str | None) -> bool:
    """Whether an If-Match header asks for any version, as long as there is one."""
    return if_match is not None and if_match.strip() == "*"


def expected(if_match: str | None) -> int | None:
    """The version of an If-Match header; `*` is any. What a schema made of it does not matter to a writer."""
    if if_match is None or is_any(if_match):
        return None
    found = _ETAG.fullmatch(if_match.strip())
    if found is None:
        raise Invalid('If-Match is one version in quotes, such as "3"', "If-Match")
    return int(found[1])


def is_among(tag: str, if_none_match: str | None) -> bool:
    """Whether an If-None-Match header names this tag."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or tag in (part.strip().removeprefix("W/") for part in if_none_match.split(","))
