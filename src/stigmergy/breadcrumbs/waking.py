"""What wakes: trigger subscriptions as rules of the kernel, so that they are matched while the change is written.

A part above says with `RuleBook.start_with` what a woken subscriber does. Its starter asks `is_own` and `sees_change` first,
and writes under a key of subscriber and change: of several subscriptions of one subscriber that match one change, one starts
the work. A context subscription has no rule: it is a source for later.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stigmergy.breadcrumbs.audience import Reader, sees
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.subscriptions import Subscription
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.rules import MAX_DEPTH, Rule
from stigmergy.kernel.transaction import Snapshot

# A record that is there, or there in a new version. That something is gone wakes nobody: there is nothing to look at.
EVENTS = ["create", "update"]


def subscription_rules(
    owner: str,
    subscriptions: Sequence[Subscription],
    *,
    kind: str,
    entity: str,
    action: Mapping[str, Any] | None = None,
    on_own_writes: bool = False,
    max_depth: int = MAX_DEPTH,
) -> list[Rule]:
    """The rules of a subscriber, for `declare_rules(tx, owner, …)`. `entity` is who it is in the journal. Any collection wakes: a
    sentence said in a space is a `user.message.v1` like any other."""
    return [
        Rule(
            id=f"subscription:{entity}:{place}",
            owner=owner,
            kind=kind,
            collection="*",
            events=EVENTS,
            selector=msgspec.to_builtins(each.selector),
            action={**(action or {}), **({"on_own_writes": True} if on_own_writes else {})},
            position=-each.priority,
            max_depth=max_depth,
        )
        for place, each in enumerate(subscriptions)
        if each.role == "trigger"
    ]


def is_own(rule: Rule, change: Change, entity: str) -> bool:
    """Whether a subscriber wrote this itself, and does not want to be woken by that."""
    return change.actor == entity and not rule.action.get("on_own_writes", False)


async def sees_change(tx: Snapshot, reader: Reader, change: Change) -> bool:
    """Whether a subscriber may see what changed. A rule matches without regard to anybody's rights."""
    return change.record is not None and (not isinstance(change.record, Breadcrumb) or await sees(tx, reader, change.record))


def as_crumb(change: Change) -> Breadcrumb:
    """What fired: a breadcrumb, or another record in a breadcrumb's clothes."""
    if isinstance(change.record, Breadcrumb):
        return change.record
    seen = Seen(change)
    return Breadcrumb(
        id=change.id,
        owner_id=getattr(change.record, "owner_id", change.actor),
        schema_name=seen.schema_name,
        title="",
        tags=list(seen.tags),
        context=dict(seen.context),
        version=change.version,
        seq=change.seq,
        updated_at=change.at,
    )
