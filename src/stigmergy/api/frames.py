"""What a follower is told of a change: by its rights of now, in the view it asked for.

- What it may not see it is not told. What it could see and may not see any longer, and a body that was erased, is `deleted`,
  with nothing but its id, its version and its position.
- Everything else in a tenant than breadcrumbs and schemas is for operators, until its part says who may see it.
"""

from typing import Any, Literal, NamedTuple

import msgspec

from stigmergy.api.wire import moment
from stigmergy.breadcrumbs import queries
from stigmergy.breadcrumbs.audience import Reader, could_see, may_see
from stigmergy.breadcrumbs.model import Breadcrumb, JsonObject
from stigmergy.kernel.history import read_history
from stigmergy.kernel.journal import Change, Event, Seen
from stigmergy.kernel.predicates import ConditionFailed, Predicate
from stigmergy.kernel.transaction import Snapshot
from stigmergy.triggers.events import concealed

FeedView = Literal["context", "full", "none"]
NAMES: dict[Event, str] = {"create": "created", "update": "updated", "delete": "deleted"}
FOR_EVERYBODY = frozenset({"breadcrumbs", "schemas"})


class Wanted(NamedTuple):
    """What a follower asked for; None is all of it."""

    predicate: Predicate | None = None
    collections: frozenset[str] | None = None
    events: frozenset[str] | None = None
    view: FeedView = "context"


class Told(NamedTuple):
    """How a change is told: as which event, and whether with no more than its id."""

    event: Event
    bare: bool = False


async def newest(tx: Snapshot, change: Change) -> Breadcrumb | None:
    """The last body that a changed breadcrumb had, whether it is still there or not; None where it was erased."""
    if change.event == "delete":
        return None
    current = await tx.get(Breadcrumb, change.id)
    if current is not None:
        return current
    kept = await read_history(tx, Breadcrumb, change.id, limit=1)
    return kept[0] if kept else None


def told(reader: Reader, wanted: Wanted, change: Change, last: Breadcrumb | None, now: int) -> Told | None:
    """How a reader is told of a change, or None when it is not. `last` is the newest body of a breadcrumb that changed."""
    if wanted.collections is not None and change.collection not in wanted.collections:
        return None
    if change.collection not in FOR_EVERYBODY and not reader.everything:
        return None
    if change.collection == "breadcrumbs":
        as_what, body = _breadcrumb(reader, change, last, now)
    else:
        as_what, body = Told(change.event, change.record is None), change
    if as_what is None or (wanted.events is not None and NAMES[as_what.event] not in wanted.events):
        return None
    return as_what if body is None or wanted.predicate is None or _holds(wanted.predicate, body) else None


def _breadcrumb(reader: Reader, change: Change, last: Breadcrumb | None, now: int) -> tuple[Told | None, Change | None]:
    """The event, and the change in the form that a selector may ask: never a body that the reader cannot see."""
    crumb, before = change.record, change.before
    if not isinstance(crumb, Breadcrumb):
        return Told("delete", bare=True), None
    if not could_see(reader, crumb):
        if isinstance(before, Breadcrumb) and change.event == "update" and could_see(reader, before):
            return Told("delete", bare=True), msgspec.structs.replace(change, record=before, before=None)
        return None, None
    if change.event == "delete":
        return Told("delete"), change
    gone = last is None or not may_see(reader, last, now)
    if isinstance(before, Breadcrumb) and not could_see(reader, before):
        change = msgspec.structs.replace(change, before=None)
    return (Told("delete", bare=True) if gone else Told(change.event)), change


def _holds(predicate: Predicate, change: Change) -> bool:
    seen: Any = Seen(change)
    try:
        return change.record is not None and bool(predicate(seen))
    except ConditionFailed:
        return False


async def rendered(tx: Snapshot, change: Change, as_what: Told, view: FeedView) -> bytes:
    """The frame of a change."""
    data: JsonObject = {}
    record = change.record
    if change.collection == "breadcrumbs":
        data["breadcrumb_id"] = change.id
        if isinstance(record, Breadcrumb) and not as_what.bare:
            data |= await _breadcrumb_data(tx, record, as_what, view)
    elif record is not None and as_what.event != "delete" and view != "none":
        data = concealed(msgspec.to_builtins(record))
        data.pop("tenant")
    return frame(change.seq, _type(change, as_what), data | _about(change, as_what))


async def _breadcrumb_data(tx: Snapshot, crumb: Breadcrumb, as_what: Told, view: FeedView) -> JsonObject:
    data: JsonObject = {"owner_id": crumb.owner_id, "schema_name": crumb.schema_name, "tags": crumb.tags}
    if as_what.event != "delete" and view != "none":
        shown = (await queries.shown(tx, [crumb], view))[0]
        data["context"] = shown.context
        if shown.hint_errors:
            data["hint_errors"] = shown.hint_errors
    return data


def _about(change: Change, as_what: Told) -> JsonObject:
    about: JsonObject = {
        "type": _type(change, as_what),
        "id": change.id,
        "version": change.version,
        "updated_at": moment(change.at),
        "seq": change.seq,
    }
    return about if as_what.bare else about | {"cause": change.cause, "actor": change.actor}


def _type(change: Change, as_what: Told) -> str:
    many = change.collection
    one = f"{many[:-3]}y" if many.endswith("ies") else many.removesuffix("s")
    return f"{one}.{NAMES[as_what.event]}"


def frame(seq: int, event: str, data: JsonObject) -> bytes:
    # JSON has no line breaks of its own, so the data is one line whatever the texts in it hold
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, event.encode(), msgspec.json.encode(data))
