"""What a trigger is and what a delivery is: definitions, actions, their limits and states. Pure.

A trigger is stored as a `Rule`: its action's type is the rule's kind, and the action as it was checked is the rule's action.
A delivery is the record of one firing of a webhook or a handler. It copies what the journal says of its change, so that the
journal may be shortened while it waits.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from stigmergy.errors import Invalid
from stigmergy.kernel.journal import Change
from stigmergy.kernel.record import Record, declare
from stigmergy.kernel.rules import Rule

Status = Literal["pending", "delivered", "dead", "discarded"]
STATUSES: tuple[Status, ...] = ("pending", "delivered", "dead", "discarded")
# What may happen to a delivery. What was delivered or given up stays so.
TRANSITIONS: dict[Status, tuple[Status, ...]] = {
    "pending": ("delivered", "dead", "discarded"),
    "dead": ("pending", "discarded"),
    "delivered": (),
    "discarded": (),
}

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_Milliseconds = Annotated[int, Meta(ge=1)]


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often a delivery is tried, and how long the pauses are: each twice as long as the one before it."""

    tries: Annotated[int, Meta(ge=1, le=100)] = 8
    first_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 500
    most_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 300_000


class Write(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a receiver is known to write, for the lint: `event` as in a trigger, with the fields it sets."""

    collection: str
    event: str


class _Delivered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"):
    """What every action has whose firings are deliveries. `concurrency` is how many may be on their way at once,
    `per_second` how many are started; neither is bounded when it is not given."""

    timeout_ms: Annotated[int, Meta(ge=100, le=600_000)] = 10_000
    retry: Retry = Retry()
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    per_second: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    writes: tuple[Write, ...] = ()


class Webhook(_Delivered, frozen=True, kw_only=True, tag="webhook"):
    url: str
    secret: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class Handler(_Delivered, frozen=True, kw_only=True, tag="handler"):
    """A Python function that a program has registered under this name."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    timeout_ms: Annotated[int, Meta(ge=100, le=24 * 3_600_000)] = 60_000


class StartAgent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="agent"):
    agent: Annotated[str, Meta(min_length=1, max_length=200)]


class PostSpaceMessage(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="space_message"
):
    """A message from `sender`, in the space that is named or, without one, in that of the document. `text` is a template over the
    change: `{{ context.data.error }}`."""

    text: Annotated[str, Meta(min_length=1, max_length=65_536)]
    space_id: str | None = None
    sender: str | None = None


Action = Webhook | Handler | StartAgent | PostSpaceMessage
KINDS = ("webhook", "handler", "agent", "space_message")
# Triggers of these kinds are written down as deliveries; the others are started by the parts that they belong to.
DELIVERED = ("webhook", "handler")

_decode_action = msgspec.json.Decoder(Action).decode


class Trigger(NamedTuple):
    """A rule that is a trigger, with its action read."""

    rule: Rule
    action: Action


def trigger_of(rule: Rule) -> Trigger:
    return Trigger(rule, _decode_action(msgspec.json.encode(rule.action)))


def delivered_action(rule: Rule) -> Webhook | Handler:
    action = trigger_of(rule).action
    assert isinstance(action, Webhook | Handler)
    return action


def check_id(id: str, where: str = "id") -> str:
    if _ID.fullmatch(id) is None:
        raise Invalid("an id has 1 to 100 letters, digits or _.- and starts with a letter or a digit", where)
    return id


def signing_key(secret: str, where: str = "secret") -> bytes:
    """The key in a secret of Standard Webhooks: `whsec_` and 24 to 64 bytes in base64."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_") + "==", validate=False)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith("whsec_") or not 24 <= len(key) <= 64:
        raise Invalid("a secret is `whsec_` and 24 to 64 random bytes in base64; `stigmergy triggers secret` makes one", where)
    return key


# ---- deliveries ----


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a try: a status and the beginning of the answer's body, or what went wrong instead."""

    status: int | None = None
    body: str | None = None
    error: str | None = None
    at: int = 0
    took_ms: int = 0


class Delivery(Record, frozen=True, kw_only=True):
    id: str
    trigger_id: str
    trigger_version: int
    kind: str
    lane: str
    queue: str
    collection: str
    document_id: str
    document_version: int
    event: str
    change_seq: int
    actor: str
    at: int
    cause: int | None
    depth: int
    status: Status = "pending"
    tries: int = 0
    answer: Answer | None = None
    settled_at: int | None = None


DELIVERIES = declare(Delivery, "deliveries", path="deliveries/{trigger_id}", schema_name="delivery.v1", keep_versions=1)


def lane_of(rule: Rule, change: Change) -> str:
    return f"{rule.id} {change.collection}/{change.id}"


def base_queue(kind: str, action: Mapping[str, Any]) -> str:
    """Where its deliveries wait: handlers by name, so that a process takes only those that it has."""
    return "webhooks" if kind == "webhook" else f"handlers/{action['name']}"


def has_limits(action: Mapping[str, Any]) -> bool:
    return "concurrency" in action or "per_second" in action


def queue_of(tenant: str, rule: Rule) -> str:
    """A trigger with limits has a queue of its own, so that what may not start yet is not looked at again and again."""
    base = base_queue(rule.kind, rule.action)
    return f"{base}/{tenant}/{rule.id}" if has_limits(rule.action) else base


def may_become(delivery: Delivery, status: Status) -> bool:
    return status in TRANSITIONS[delivery.status]


def shown_action(rule: Rule) -> dict[str, Any]:
    """An action for eyes: its secret is not told again."""
    return {name: "whsec_…" if name == "secret" else value for name, value in rule.action.items()}
