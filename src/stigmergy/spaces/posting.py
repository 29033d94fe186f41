"""Messages that a trigger posts: the action `space_message`, `{text, space_id?, sender?}`.

The text is a template over the change. Without a sender it is told by the system and wakes nobody; a sender is a member who
says it. What goes wrong is a diagnostic; the write that fired the trigger stands.
"""

from typing import Any

import msgspec

from stigmergy.breadcrumbs.templates import RuleFailed, Template
from stigmergy.errors import Conflict, Invalid, NotFound
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.rules import Rule, report
from stigmergy.kernel.transaction import Transaction
from stigmergy.spaces.commands import Said, post, tell
from stigmergy.spaces.model import Space

POSTING = "space_message"


async def post_for_change(tx: Transaction, rule: Rule, change: Change) -> None:
    """The starter of rules of this kind."""
    action = rule.action
    space_id = action.get("space_id") or getattr(change.record, "space_id", None)
    try:
        if space_id is None or await tx.get(Space, space_id) is None:
            raise NotFound(f"there is no space {space_id} to post to; name one in the action")
        text = Template(action["text"], "text")(_about(change))
        sender = action.get("sender")
        if sender is None:
            await tell(tx, space_id, text, metadata={"trigger": rule.id})
        else:
            await post(tx, sender, space_id, Said(content=text, metadata={"trigger": rule.id}))
    except (Invalid, NotFound, Conflict, RuleFailed) as error:
        await report(tx, rule, change, "not_posted", str(error), once_per=str(change.seq))


def _about(change: Change) -> dict[str, Any]:
    """What a text can say of a change."""
    seen = Seen(change)
    about = {name: getattr(change, name) for name in ("id", "collection", "event", "version", "actor")}
    shown = {"schema_name": seen.schema_name, "tags": list(seen.tags), "context": seen.context, "data": seen.data}
    return about | msgspec.to_builtins(shown)
