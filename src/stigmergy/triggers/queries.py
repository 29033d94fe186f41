"""What may be asked of triggers and deliveries."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.feed import edges, read_page
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.matching import explain
from stigmergy.kernel.query import as_each
from stigmergy.kernel.record import COLLECTIONS, Record
from stigmergy.kernel.rules import Diagnostic, Rule, compiled
from stigmergy.kernel.subjects import EVENTS, Subject
from stigmergy.kernel.transaction import Snapshot
from stigmergy.triggers.events import event_of
from stigmergy.triggers.lanes import happened
from stigmergy.triggers.model import KINDS, Answer, Delivery, Status
from stigmergy.triggers.store import COUNTS, DIAGNOSED, LAST_TRY, LIST, LIST_DEAD, NAMED, TRIGGERS

PAGE = 500
NEWEST = "~"  # after every id


async def triggers(tx: Snapshot, *, after: str = "", limit: int = PAGE) -> list[Rule]:
    """The triggers that hold for a tenant, by id: its own, and those of the program."""
    return await tx.find(TRIGGERS, after=after, limit=limit)


async def all_triggers(tx: Snapshot) -> list[Rule]:
    found: list[Rule] = []
    while page := await triggers(tx, after=found[-1].id if found else ""):
        found += page
    return found


async def trigger(tx: Snapshot, id: str) -> Rule:
    for rule in reversed(await tx.find(NAMED, ids=as_each([id]))):
        if rule.kind in KINDS:
            return rule
    raise NotFound(f"no trigger {id}")


async def diagnostics(tx: Snapshot, id: str, limit: int = 20) -> list[Diagnostic]:
    """What went wrong while a trigger was matched, newest first."""
    await trigger(tx, id)
    return await tx.find(DIAGNOSED, rule=id, limit=limit)


# ---- would it fire? ----


class Told(NamedTuple):
    """Whether a trigger fires for a change, and why not."""

    id: str
    fires: bool
    why_not: str | None


class Supposed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change that did not happen: a record of a collection, and for an update the fields that it had before."""

    collection: str
    event: str = "create"
    data: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    before: dict[str, Any] | None = None
    actor: str = "someone"


async def would_fire(tx: Snapshot, supposed: Supposed, rules: Sequence[Rule] | None = None) -> list[Told]:
    """For each trigger, or each of these: whether such a change would set it off, or what speaks against it."""
    return told(await all_triggers(tx) if rules is None else rules, supposed_change(supposed))


async def would_fire_at(tx: Snapshot, seq: int, rules: Sequence[Rule] | None = None) -> list[Told]:
    """The same for a change of the journal, as the triggers are now."""
    return told(await all_triggers(tx) if rules is None else rules, await change_at(tx, seq))


async def change_at(tx: Snapshot, seq: int) -> Change:
    if not 0 < seq <= (await edges(tx)).last:
        raise NotFound(f"no change {seq}")
    (change,) = await read_page(tx, seq - 1, 1)
    if change.record is None:
        raise NotFound(f"the body of change {seq} is gone")
    return change


def told(rules: Sequence[Rule], change: Change) -> list[Told]:
    return [_told(rule, change) for rule in rules]


def _told(rule: Rule, change: Change) -> Told:
    if not rule.enabled:
        return Told(rule.id, False, "it is disabled")
    try:
        ready = compiled(rule)
    except Invalid as error:
        return Told(rule.id, False, f"it cannot be matched here: {error}")
    if change.depth >= rule.max_depth:
        return Told(
            rule.id, False, f"the change is {change.depth} deep in its chain of causes, and {rule.max_depth} is the limit"
        )
    why = explain(ready, cast(Subject, Seen(change)))
    return Told(rule.id, why is None, why)


def supposed_change(supposed: Supposed) -> Change:
    collection = COLLECTIONS.get(supposed.collection)
    if collection is None:
        known = ", ".join(sorted(COLLECTIONS))
        raise Invalid(f"there is no collection {supposed.collection!r}; there are {known}", "collection", "unknown_collection")
    if supposed.event not in EVENTS:
        raise Invalid(f"{supposed.event!r} is not an event; there are {', '.join(EVENTS)}", "event", "unknown_event")
    kind = cast(type[Record], collection.record)
    record = _record(kind, supposed.data, "data")
    before = None
    if supposed.event == "update":
        before = _record(kind, {**supposed.data, **(supposed.before or {})}, "before")
    version = 2 if supposed.event == "update" else 1
    at = record.updated_at
    return Change(
        "", 0, collection.name, "supposed", version, cast(Any, supposed.event), supposed.actor, at, None, 0, record, before
    )


def _record(kind: type[Record], data: Mapping[str, Any], where: str) -> Record:
    """A record with these fields; those that must be there and are not are empty."""
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    if unknown := [name for name in data if name not in known]:
        raise Invalid(f"{unknown[0]!r} is no field of it; there are {', '.join(sorted(known))}", where, "unknown_field")
    try:
        given = {name: msgspec.convert(value, known[name].type) for name, value in data.items()}
    except msgspec.ValidationError as error:
        raise Invalid(str(error), where) from None
    missing = {name: _EMPTY.get(field.type) for name, field in known.items() if field.required and name not in given}
    return kind(**missing, **given)


_EMPTY: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, dict: {}, list: []}


# ---- deliveries ----


class Shown(NamedTuple):
    """A delivery with what its last try came to, as far as it is known, and when the next one is."""

    delivery: Delivery
    tries: int
    answer: Answer | None
    next_at: int | None


async def deliveries(
    tx: Snapshot, *, status: Status | None = None, trigger_id: str | None = None, below: str = NEWEST, limit: int = 50
) -> list[Delivery]:
    """Newest first."""
    if status == "dead":
        return await tx.find(LIST_DEAD, trigger_id=trigger_id, below=below, limit=limit)
    return await tx.find(LIST, status=status, trigger_id=trigger_id, below=below, limit=limit)


async def delivery(tx: Snapshot, id: str) -> Shown:
    found = await tx.get(Delivery, id)
    if found is None:
        raise NotFound(f"no delivery {id}")
    rows = await tx.rows(LAST_TRY, id=id) if found.status == "pending" else []
    if not rows:
        return Shown(found, found.tries, found.answer, None)
    tries, next_at, answer = rows[0]
    return Shown(found, tries, None if answer is None else msgspec.json.decode(answer, type=Answer), next_at)


async def event(tx: Snapshot, id: str) -> dict[str, Any]:
    """The whole body of a delivery, however large it is."""
    found = await tx.get(Delivery, id)
    if found is None:
        raise NotFound(f"no delivery {id}")
    return event_of(await happened(tx, found))


async def counts(tx: Snapshot) -> dict[str, int]:
    return dict[str, int](await tx.rows(COUNTS))  # type: ignore[arg-type]
