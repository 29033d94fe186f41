"""What a receiver is told: the change that fired, as JSON on the wire and as an object for Python handlers. Pure.

On the wire times are ISO 8601, and what is the store's own business (tenant, journal position of the row) is left out. What is
too large for one request is sent by reference: where it can be asked for is said in its place.
"""

from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import msgspec

from stigmergy.breadcrumbs.assembly import Assembly
from stigmergy.kernel.journal import Change, Event
from stigmergy.kernel.record import COLLECTIONS, Record
from stigmergy.triggers.model import Delivery

MOST_BYTES = 256 * 1024
_OURS = ("tenant", "seq")
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Happened(NamedTuple):
    """A delivery with the bodies its change led from and to. Both are None where they were erased."""

    delivery: Delivery
    record: Record | None
    before: Record | None


class Fired(NamedTuple):
    """What a Python handler gets. `record` and `before` are the records as they were; `data` is the record as plain values;
    `assembly` is what was gathered for a handler that has sources."""

    trigger: str
    delivery: str
    tenant: str
    collection: str
    id: str
    version: int
    event: str
    path: str
    actor: str
    at: int
    seq: int
    cause: int | None
    depth: int
    record: Any
    before: Any
    assembly: Assembly | None = None

    @property
    def change(self) -> Change:
        """What fired, as the journal has it."""
        return Change(
            self.tenant,
            self.seq,
            self.collection,
            self.id,
            self.version,
            cast(Event, self.event),
            self.actor,
            self.at,
            self.cause,
            self.depth,
            self.record,
            self.before,
        )

    @property
    def data(self) -> dict[str, Any]:
        return {} if self.record is None else msgspec.to_builtins(self.record)


def fired(happened: Happened) -> Fired:
    delivery = happened.delivery
    return Fired(
        trigger=delivery.trigger_id,
        delivery=delivery.id,
        tenant=delivery.tenant,
        collection=delivery.collection,
        id=delivery.document_id,
        version=delivery.document_version,
        event=delivery.event,
        path=path_of(happened) or "",
        actor=delivery.actor,
        at=delivery.at,
        seq=delivery.change_seq,
        cause=delivery.cause,
        depth=delivery.depth,
        record=happened.record,
        before=happened.before,
    )


def body_of(happened: Happened, most: int = MOST_BYTES) -> bytes:
    """The body of a webhook: the same bytes at every try, as long as nothing of it is erased."""
    whole = _encode(event_of(happened))
    if len(whole) <= most:
        return whole
    event = event_of(happened._replace(record=None, before=None))
    document = event["event"]["document"]
    document["path"] = path_of(happened)
    document["reference"] = f"/v1/deliveries/{happened.delivery.id}/event"
    document["bytes"] = len(whole)
    return _encode(event)


def event_of(happened: Happened) -> dict[str, Any]:
    delivery = happened.delivery
    return {
        "id": delivery.id,
        "trigger": delivery.trigger_id,
        "event": {
            "type": delivery.event,
            "actor": delivery.actor,
            "at": moment(delivery.at),
            "seq": delivery.change_seq,
            "cause": delivery.cause,
            "depth": delivery.depth,
            "document": {
                "id": delivery.document_id,
                "collection": delivery.collection,
                "path": path_of(happened),
                "version": delivery.document_version,
                "data": shown(happened.record),
                "before": shown(happened.before),
            },
        },
    }


def path_of(happened: Happened) -> str | None:
    return None if happened.record is None else COLLECTIONS[happened.delivery.collection].path_of(happened.record)


def shown(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    fields: dict[str, Any] = msgspec.to_builtins(record)
    return concealed({name: _on_the_wire(name, value) for name, value in fields.items() if name not in _OURS})


def concealed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of any record without what is told to nobody: the secret of a trigger's action, the hash of a service key."""
    hidden: dict[str, Any] = {"digest": ""} if "digest" in fields else {}
    if isinstance(fields.get("action"), dict) and "secret" in (action := cast(dict[str, Any], fields["action"])):
        hidden["action"] = action | {"secret": "whsec_…"}
    return fields | hidden if hidden else fields


def _on_the_wire(name: str, value: Any) -> Any:
    return moment(value) if name.endswith("_at") and value.__class__ is int else value


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
