"""What a breadcrumb is, and the rules about it: pure."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from stigmergy.breadcrumbs.depth import DEEPEST, is_too_deep
from stigmergy.errors import Invalid
from stigmergy.kernel.record import Record, declare

Audience = Literal["public", "team", "private"]
JsonObject = dict[str, Any]

LARGEST_CONTEXT = 1 << 20
MOST_TAGS = 64
LONGEST_TAG = 128
LONGEST_NAME = 200
LONGEST_TEXT = 10_000
LATEST_MS = 253_402_300_799_999  # the last millisecond of the year 9999
LONGEST_TTL_MS = 100 * 365 * 24 * 3600 * 1000


class Breadcrumb(Record, frozen=True, kw_only=True):
    id: str
    owner_id: str
    schema_name: str
    title: str
    description: str | None = None
    tags: list[str] = msgspec.field(default_factory=list[str])
    context: JsonObject = msgspec.field(default_factory=JsonObject)
    llm_hints: JsonObject | None = None
    audience: Audience = "public"
    space_id: str | None = None
    expires_at: int | None = None
    checksum: str = ""
    created_by: str = ""
    updated_by: str = ""


class Schema(Record, frozen=True, kw_only=True):
    """What is said once of all breadcrumbs with a schema_name: their JSON Schema, default hints, default time to live."""

    name: str
    json_schema: JsonObject | None = None
    llm_hints: JsonObject | None = None
    ttl_ms: int | None = None


class Draft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A breadcrumb as its writer gives it."""

    schema_name: str
    title: str = ""
    id: str | None = None
    owner_id: str | None = None
    description: str | None = None
    tags: list[str] = msgspec.field(default_factory=list[str])
    context: JsonObject = msgspec.field(default_factory=JsonObject)
    llm_hints: JsonObject | None = None
    audience: Audience = "public"
    space_id: str | None = None
    expires_at: int | None = None


class Patch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a breadcrumb; what is not given stays. `context` is a JSON Merge Patch (RFC 7396)."""

    title: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    tags: list[str] | UnsetType = UNSET
    context: JsonObject | UnsetType = UNSET
    llm_hints: JsonObject | UnsetType | None = UNSET
    audience: Audience | UnsetType = UNSET
    space_id: str | UnsetType | None = UNSET
    expires_at: int | UnsetType | None = UNSET


def _schema_name(crumb: Breadcrumb) -> str:
    return crumb.schema_name


def _tags(crumb: Breadcrumb) -> list[str]:
    return crumb.tags


def _context(crumb: Breadcrumb) -> JsonObject:
    return crumb.context


BREADCRUMBS = declare(
    Breadcrumb,
    "breadcrumbs",
    path="users/{owner_id}/breadcrumbs/{schema_name}",
    schema_name=_schema_name,
    tags=_tags,
    context=_context,
    clients_write=("schema_name", "title", "description", "tags", "context", "llm_hints", "audience", "space_id", "expires_at"),
)
SCHEMAS = declare(Schema, "schemas", path="schemas/{name}", key=("name",))


def is_live(crumb: Breadcrumb, now: int) -> bool:
    """An expired breadcrumb is not there, whether it was swept or not."""
    return crumb.expires_at is None or crumb.expires_at > now


def check_name(name: str, where: str = "schema_name") -> None:
    if not name or len(name) > LONGEST_NAME or "\0" in name or "*" in name:
        raise Invalid(f"a name has 1 to {LONGEST_NAME} characters, no `*` and no NUL", where)


def check_text(text: str | None, where: str) -> None:
    if text is not None and (len(text) > LONGEST_TEXT or "\0" in text):
        raise Invalid(f"a text has at most {LONGEST_TEXT} characters and no NUL", where)


def check_time(at: int | None, where: str) -> None:
    if at is not None and (at.__class__ is not int or not 0 <= at <= LATEST_MS):
        raise Invalid("a time is between the years 1970 and 9999, in milliseconds", where)


def check_tags(tags: list[str]) -> list[str]:
    """The tags, each once, in the order given."""
    once = list(dict.fromkeys(tags))
    if len(once) > MOST_TAGS:
        raise Invalid(f"there may be at most {MOST_TAGS} tags, here are {len(once)}", "tags")
    for place, tag in enumerate(once):
        if not 0 < len(tag) <= LONGEST_TAG or "\0" in tag:
            raise Invalid(f"a tag has 1 to {LONGEST_TAG} characters and no NUL", f"tags[{place}]")
    return once


def checked_context(context: JsonObject) -> str:
    """The context's checksum. Refuses what is too large or too deep and what JSON cannot say."""
    if not isinstance(context, dict):  # pyright: ignore[reportUnnecessaryIsInstance] (it may come from anybody's program)
        raise Invalid("a context is an object", "context")
    try:
        encoded = msgspec.json.encode(context, order="sorted")
    except (UnicodeEncodeError, TypeError, OverflowError, RecursionError, ValueError) as error:
        raise Invalid(f"this cannot be written as JSON ({error})", "context") from error
    if len(encoded) > LARGEST_CONTEXT:
        raise Invalid(f"a context has at most 1 MiB, this one {len(encoded):,} bytes", "context", code="too_large")
    if is_too_deep(encoded):
        raise Invalid(f"at most {DEEPEST} levels of objects and lists are allowed", "context", code="too_deep")
    if b"\\u0000" in encoded and holds_nul(context):
        raise Invalid("a text may not contain NUL", "context")
    if b"null" in encoded and not _is_finite(context):
        raise Invalid("NaN and infinity are not JSON; leave the field out or use null", "context")
    return hashlib.sha256(encoded).hexdigest()


def holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        members = cast(JsonObject, value)
        return any("\0" in name or holds_nul(member) for name, member in members.items())
    if isinstance(value, list | tuple):
        return any(holds_nul(item) for item in cast(Sequence[Any], value))
    return False


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_is_finite(member) for member in cast(JsonObject, value).values())
    if isinstance(value, list | tuple):
        return all(_is_finite(item) for item in cast(Sequence[Any], value))
    return True


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. To Python 1, 1.0 and true are equal; to who reads them they are not."""
    return one == other and msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396. Neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(cast(JsonObject, target)) if isinstance(target, dict) else JsonObject()
    for name, value in cast(JsonObject, patch).items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
