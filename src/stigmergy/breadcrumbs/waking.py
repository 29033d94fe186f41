"""What wakes: trigger subscriptions as rules of the kernel, so that they are matched while the change is written.

A part above says with `RuleBook.start_with` what a woken subscriber does, be it an agent, a handler or a tool. Its starter
asks `may_wake` first, and writes under `firing_id`: of several subscriptions of one subscriber that match one change, one
starts the work. A context subscription has no rule: it is a source for later.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stigmergy.breadcrumbs.audience import Reader, could_see
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.subscriptions import Subscription
from stigmergy.errors import Invalid
from stigmergy.kernel.journal import Change
from stigmergy.kernel.rules import MAX_DEPTH, Rule

# A record that is there, or there in a new version. That something is gone wakes nobody: there is nothing to look at.
EVENTS = ["create", "update"]
_PLAIN = re.compile(r"[^'\\\x00-\x1f\x7f]{1,200}")


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
    """The rules of a subscriber, for `declare_rules(tx, owner, …)`. `entity` is who it is in the journal: what it wrote itself
    does not wake it unless it says so. Any collection wakes: a sentence said in a space is a `user.message.v1` like any other."""
    if _PLAIN.fullmatch(entity) is None:
        raise Invalid("who subscribes has 1 to 200 printable characters, and no quote or backslash", "entity")
    return [
        Rule(
            id=f"{owner}/{place}",
            owner=owner,
            kind=kind,
            collection="*",
            events=EVENTS,
            selector=msgspec.to_builtins(each.selector),
            condition=None if on_own_writes else f"event.actor != '{entity}'",
            action={**(action or {}), "entity": entity, "as": each.as_},
            position=-each.priority,
            max_depth=max_depth,
        )
        for place, each in enumerate(subscriptions)
        if each.role == "trigger"
    ]


def may_wake(reader: Reader, change: Change) -> bool:
    """Whether a subscriber may see what changed. A rule matches without regard to anybody's rights."""
    return not isinstance(change.record, Breadcrumb) or could_see(reader, change.record)


def firing_id(rule: Rule, change: Change) -> str:
    """The key of what a subscriber starts because of a change: the same for all of its subscriptions."""
    return f"{rule.owner}@{change.seq}"
