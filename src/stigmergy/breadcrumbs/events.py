"""What a follower is told of a breadcrumb's change: by its rights of now, with the context as a model sees it.

What it may not see it is not told. What it could see and may not see any longer, and a body that was erased, is a `delete` with
nothing but its id, its version and its position.
"""

from typing import Any, Literal

import msgspec

from stigmergy.breadcrumbs import queries
from stigmergy.breadcrumbs.audience import Reader, could_see, sees
from stigmergy.breadcrumbs.model import Breadcrumb, JsonObject
from stigmergy.kernel.history import read_history
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.journal import Event as Kind
from stigmergy.kernel.predicates import ConditionFailed, Predicate
from stigmergy.kernel.transaction import Snapshot

Told = Literal["whole", "gone"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change as a follower is told of it. `seq` is the position to go on after."""

    seq: int
    event: Kind
    id: str
    version: int
    updated_at: int
    owner_id: str | None = None
    schema_name: str | None = None
    tags: list[str] = msgspec.field(default_factory=list[str])
    context: JsonObject | None = None
    hint_errors: list[JsonObject] = msgspec.field(default_factory=list[JsonObject])
    cause: int | None = None
    actor: str | None = None


def told(reader: Reader, wanted: Predicate, change: Change) -> Told | None:
    """How this reader is told of a change, as far as the change itself says; None when it is not told."""
    crumb, before = change.record, change.before
    if not isinstance(crumb, Breadcrumb):
        return "gone"
    seen_before = isinstance(before, Breadcrumb) and could_see(reader, before)
    if not could_see(reader, crumb):
        lost = change.event == "update" and seen_before
        return "gone" if lost and _holds(wanted, msgspec.structs.replace(change, record=before, before=None)) else None
    return "whole" if _holds(wanted, change if seen_before else msgspec.structs.replace(change, before=None)) else None


def _holds(wanted: Predicate, change: Change) -> bool:
    seen: Any = Seen(change)
    try:
        return bool(wanted(seen))
    except ConditionFailed:
        return False


async def event_of(tx: Snapshot, reader: Reader, change: Change, as_what: Told) -> Event:
    crumb = change.record
    if as_what == "gone" or not isinstance(crumb, Breadcrumb) or not await _is_visible(tx, reader, change):
        return Event(seq=change.seq, event="delete", id=change.id, version=change.version, updated_at=change.at)
    shown = (await queries.shown(tx, [crumb]))[0] if change.event != "delete" else None
    return Event(
        seq=change.seq,
        event=change.event,
        id=change.id,
        version=change.version,
        updated_at=change.at,
        owner_id=crumb.owner_id,
        schema_name=crumb.schema_name,
        tags=crumb.tags,
        context=shown and shown.context,
        hint_errors=shown.hint_errors if shown else [],
        cause=change.cause,
        actor=change.actor,
    )


async def _is_visible(tx: Snapshot, reader: Reader, change: Change) -> bool:
    """Whether the reader may still see what changed: by its last body, whether it is still there or not."""
    if change.event == "delete":
        return True
    last = await tx.get(Breadcrumb, change.id)
    if last is None:
        kept = await read_history(tx, Breadcrumb, change.id, limit=1)
        last = kept[0] if kept else None
    return last is not None and await sees(tx, reader, last)
