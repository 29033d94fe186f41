"""Between the shapes on the wire and ours: there a time is ISO 8601 and a cursor a text, here both are integers."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET

from stigmergy.breadcrumbs.assembly import Assembly
from stigmergy.breadcrumbs.events import Event
from stigmergy.breadcrumbs.model import Draft, JsonObject, Patch, Schema, checked_context
from stigmergy.breadcrumbs.namespace import Found, Listed, Searched, Selecting
from stigmergy.breadcrumbs.queries import View
from stigmergy.errors import Invalid, StoreUnusable
from stigmergy.kernel.journal import Event as Kind

T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
TIMES = frozenset(
    {"created_at", "updated_at", "expires_at", "joined_at", "next_at", "last_at", "revoked_at", "deadline"}
    | {"started_at", "ended_at", "answered_at"},
)
KINDS: dict[str, Kind] = {
    "breadcrumb.created": "create",
    "breadcrumb.updated": "update",
    "breadcrumb.deleted": "delete",
}


def milliseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // MILLISECOND


def moment(ms: int) -> datetime:
    try:
        return EPOCH + ms * MILLISECOND
    except OverflowError as error:
        raise Invalid("a time is between the years 1970 and 9999 in UTC", "expires_at") from error


# ---- what is sent ----


def selector(given: Selecting) -> str | None:
    return None if given is None else msgspec.json.encode(given).decode()


def draft(given: Draft) -> JsonObject:
    checked_context(given.context)
    fields = {name: getattr(given, name) for name in Draft.__struct_fields__}
    return _with_moment({name: value for name, value in fields.items() if value is not None})


def patch(fields: JsonObject) -> JsonObject:
    change = Patch(**fields)
    if change.context is not UNSET:
        checked_context(change.context)
    return _with_moment(dict(fields))


def _with_moment(fields: JsonObject) -> JsonObject:
    if fields.get("expires_at") is not None:
        fields["expires_at"] = moment(fields["expires_at"])
    return fields


def schema_body(schema: Schema) -> JsonObject:
    return {"json_schema": schema.json_schema, "llm_hints": schema.llm_hints, "ttl_ms": schema.ttl_ms}


# ---- what comes back ----


def view(fields: Any) -> View:
    return converted(fields, View)


def views(items: Any) -> list[View]:
    return [view(each) for each in converted(items, list[JsonObject])]


def searched(answer: Any) -> Searched:
    fields = converted(answer, JsonObject)
    items = [
        Found(converted(each.get("score"), float), view(each.get("breadcrumb")))
        for each in converted(fields.get("items"), list[JsonObject])
    ]
    return Searched(items, converted(fields.get("stale"), int), converted(fields.get("cut"), bool))


def listed(page: Any) -> Listed:
    fields = converted(page, JsonObject)
    cursor = fields.get("cursor")
    return Listed(views(fields.get("items")), None if cursor is None else converted(cursor, int, strict=False))


def schema(fields: Any) -> Schema:
    return converted(fields, Schema)


def schemas(page: Any) -> list[Schema]:
    return [schema(each) for each in converted(converted(page, JsonObject).get("items"), list[JsonObject])]


def assembly(fields: Any) -> Assembly:
    return converted(fields, Assembly)


def event(name: str, data: bytes) -> Event | None:
    """The event of a frame; None for a kind that we do not know."""
    kind = KINDS.get(name)
    return None if kind is None else converted(decoded(data, JsonObject) | {"event": kind}, Event)


def body(text: bytes) -> Any:
    """What an answer holds; None when it is empty."""
    return decoded(text, object) if text else None


def decoded(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise _foreign(error) from error


def converted(value: Any, kind: type[T], *, strict: bool = True) -> T:
    try:
        if isinstance(value, dict):
            fields = cast(JsonObject, value)
            value = {name: _read_time(name, each) for name, each in fields.items()}
        return msgspec.convert(value, kind, strict=strict)
    except ValueError as error:  # msgspec's ValidationError is one
        raise _foreign(error) from error


def _read_time(name: str, value: Any) -> Any:
    return milliseconds(value) if name in TIMES and isinstance(value, str) else value


def _foreign(error: Exception) -> StoreUnusable:
    return StoreUnusable(f"this is not the answer of a Stigmergy server of our kind ({error}); check its address and version")
