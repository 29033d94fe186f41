"""How runs begin: asked for by somebody, or set off by a change that an agent subscribes to or a trigger names.

A run that is started outside of any conversation gets a space of its own. What a rule starts is written with the change, once per
agent and change, however many of its subscriptions match.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from stigmergy.agents import store as agents
from stigmergy.agents.model import Definition, JsonObject, entity_of
from stigmergy.breadcrumbs import queries as breadcrumbs
from stigmergy.breadcrumbs.audience import Reader, sees
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.subscriptions import Subscription, parse_subscriptions
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.journal import Change, Seen
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.delegation import NewTask, create_task
from stigmergy.runs.model import Cause, Run, Task
from stigmergy.spaces.asking import ANSWERS
from stigmergy.spaces.commands import ensure_space
from stigmergy.spaces.model import Space

RULE_KIND = "agent"
LONGEST_SHOWN = 100_000
LARGEST_METADATA = 16_384


async def start(tx: Transaction, given: Start) -> Run:
    """Start a run; in a space of its own where none is named."""
    check_metadata(given.metadata)
    id = given.id or tx.new_id()
    space_id = given.space_id or id
    if not given.space_id:
        await agents.named(tx, given.agent)
        await ensure_space(tx, id, given.owner_id)
    return await start_run(tx, msgspec.structs.replace(given, id=id, space_id=space_id))


def check_metadata(metadata: JsonObject) -> None:
    """It is kept with every version of its run; and one key in it is the engine's own."""
    if ANSWERS in metadata:
        raise Invalid(f"{ANSWERS!r} is a key of the engine's own; choose another", f"metadata.{ANSWERS}")
    if len(msgspec.json.encode(metadata)) > LARGEST_METADATA:
        raise Invalid(f"metadata has at most {LARGEST_METADATA:,} bytes as JSON", "metadata", "too_large")


async def give_task(tx: Transaction, given: NewTask) -> tuple[Task, Run | None]:
    """The same for a task. Who owns the space that is named owns the task, so that both have one path."""
    if given.space_id:
        space = await tx.get(Space, given.space_id)
        if space is None:
            raise NotFound(f"no space {given.space_id}; without one the task gets a space of its own")
        return await create_task(tx, msgspec.structs.replace(given, owner_id=space.owner_id))
    id = given.id or tx.new_id()
    await ensure_space(tx, id, given.owner_id)
    return await create_task(tx, msgspec.structs.replace(given, id=id, space_id=id))


# ---- set off by a change ----


def subscription_rules(owner: str, definitions: Iterable[Definition]) -> list[Rule]:
    """What has to be matched for these agents: a rule for each trigger subscription and collection that can show its schema."""
    rules: list[Rule] = []
    for definition in definitions:
        if definition.executor == "external":
            continue  # a program outside is woken by triggers
        for place, subscription in enumerate(parse_subscriptions(list(definition.subscriptions))):
            if subscription.role == "trigger":
                rules += (_rule(owner, definition, place, subscription, name) for name in _shown_in(subscription))
    return rules


def _shown_in(subscription: Subscription) -> list[str]:
    """The collections in which a record can have the schema that is asked for."""
    wanted = subscription.selector.schema_name
    if wanted is None:
        return list(COLLECTIONS)
    return [name for name, of in COLLECTIONS.items() if not isinstance(of.schema_name, str) or _fits(of.schema_name, wanted)]


def _fits(name: str, wanted: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted


def _rule(owner: str, definition: Definition, place: int, subscription: Subscription, collection: str) -> Rule:
    return Rule(
        id=f"subscription:{definition.name}:{place}:{collection}",
        owner=owner,
        kind=RULE_KIND,
        collection=collection,
        events=["create", "update"],
        selector=msgspec.to_builtins(subscription.selector),
        action={"agent": definition.name, "on_own": definition.triggers_on_own, "cause": "subscription"},
    )


async def start_for_change(tx: Transaction, rule: Rule, change: Change) -> None:
    """The starter of rules of the kind `agent`."""
    name: str = rule.action["agent"]
    if change.actor == entity_of(name) and not rule.action.get("on_own", False):
        return
    trigger = await as_trigger(tx, name, change)
    if trigger is None:
        return
    record = change.record
    space_id = getattr(record, "space_id", None)
    await start(
        tx,
        Start(
            agent=name,
            instruction=text_of(trigger),
            owner_id=getattr(record, "owner_id", change.actor),
            space_id=space_id or "",
            active_space_id=space_id if change.collection == "space_messages" else None,
            cause=Cause(
                "subscription" if rule.action.get("cause") == "subscription" else "trigger",
                change.seq,
                change.id if change.collection == "space_messages" else None,
            ),
            cause_key=f"change:{change.seq}:{name}",
        ),
    )


class Trigger(NamedTuple):
    """What fired, as its agent may see it: a breadcrumb, or another record in a breadcrumb's clothes."""

    crumb: Breadcrumb
    shown: JsonObject


async def as_trigger(tx: Snapshot, agent: str, change: Change) -> Trigger | None:
    """None when the agent may not see it."""
    if isinstance(change.record, Breadcrumb):
        if not await sees(tx, Reader(entity_of(agent)), change.record):
            return None
        view = (await breadcrumbs.shown(tx, [change.record]))[0]
        return Trigger(change.record, view.context)
    if change.record is None:
        return None
    seen = Seen(change)
    clothed = Breadcrumb(
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
    return Trigger(clothed, clothed.context)


def text_of(trigger: Trigger) -> str:
    """A trigger as the first thing that its run hears."""
    text = trigger.shown.get("text")
    if isinstance(text, str) and text.strip():
        return text
    whole = {"schema_name": trigger.crumb.schema_name, "title": trigger.crumb.title, "context": trigger.shown}
    return msgspec.json.encode({name: value for name, value in whole.items() if value}).decode()[:LONGEST_SHOWN]
