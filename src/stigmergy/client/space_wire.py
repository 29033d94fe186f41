"""Between the shapes of spaces on the wire and ours."""

from typing import Any, TypeVar

import msgspec

from stigmergy.client.wire import converted, decoded
from stigmergy.spaces.following import Event
from stigmergy.spaces.model import JsonObject, ServiceKey
from stigmergy.spaces.queries import Message
from stigmergy.spaces.service import NewKey

T = TypeVar("T")


def one(fields: Any, kind: type[T]) -> T:
    return converted(fields, kind)


def items(page: Any, kind: type[T]) -> list[T]:
    return [converted(each, kind) for each in converted(converted(page, JsonObject).get("items"), list[JsonObject])]


def given(**fields: Any) -> JsonObject:
    """The fields that are there: on the wire what is not given is left out."""
    return {name: value for name, value in fields.items() if value is not None}


def new_key(fields: Any) -> NewKey:
    shown = converted(fields, JsonObject)
    return NewKey(converted(shown.get("key"), ServiceKey), converted(shown.get("text"), str))


def event(_: str, data: bytes) -> Event | None:
    """The event of a frame; None for a kind that we do not know."""
    if not data:
        return None
    fields = decoded(data, JsonObject)
    if "message" in fields:
        fields["message"] = converted(fields["message"], Message)
    try:
        return msgspec.convert(fields, Event)
    except msgspec.ValidationError:
        return None
