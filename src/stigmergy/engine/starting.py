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
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.subscriptions import parse_subscriptions
from stigmergy.breadcrumbs.waking import as_crumb, is_own, sees_change, subscription_rules
from stigmergy.engine.code import DIRECT
from stigmergy.errors import KeyReused, NotFound
from stigmergy.kernel.journal import Change
from stigmergy.kernel.rules import Rule, report
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.commands import Start, start_run, started_before
from stigmergy.runs.delegation import NewTask, create_task
from stigmergy.runs.model import Cause, Run, Task
from stigmergy.spaces.commands import ensure_space
from stigmergy.spaces.history import looking
from stigmergy.spaces.model import Membership, Space, SpaceMessage
from stigmergy.spaces.run_metadata import check_run_metadata
from stigmergy.spaces.waking import cause_key

RULE_KIND = "agent"
LONGEST_SHOWN = 100_000


async def start(tx: Transaction, given: Start) -> Run:
    """Start a run that somebody asks for; in a space of its own where none is named. Asked again with the same key, the run that
    there is."""
    check_run_metadata(given.metadata)
    before = await started_before(tx, given.cause_key)
    if before is not None:
        if before.agent != given.agent:
            raise KeyReused(f"this key has started run {before.id} of {before.agent}; take another key for {given.agent}")
        return before
    if given.space_id and await tx.get(Space, given.space_id) is None:
        raise NotFound(f"no space {given.space_id}; without one the run gets a space of its own")
    return await _start(tx, given)


async def _start(tx: Transaction, given: Start) -> Run:
    if given.active_space_id is not None:
        given = msgspec.structs.replace(given, metadata=await looking(tx, given.metadata, given.active_space_id))
    id = given.id or tx.new_id()
    space_id = given.space_id or id
    if not given.space_id:
        await agents.named(tx, given.agent)
        await ensure_space(tx, id, given.owner_id)
    return await start_run(tx, msgspec.structs.replace(given, id=id, space_id=space_id))


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


def rules_of(owner: str, definitions: Iterable[Definition]) -> list[Rule]:
    """What has to be matched for these agents. A program outside is woken by triggers, and has none here."""
    rules: list[Rule] = []
    for definition in definitions:
        if definition.executor == "engine":
            rules += subscription_rules(
                owner,
                parse_subscriptions(list(definition.subscriptions)),
                kind=RULE_KIND,
                entity=entity_of(definition.name),
                action={"agent": definition.name, "cause": "subscription", **_arguments(definition)},
                on_own_writes=definition.triggers_on_own,
            )
    return rules


def _arguments(definition: Definition) -> JsonObject:
    """For a tool that is woken by itself: what of a trigger it takes."""
    return {"arguments": list(definition.tools[0].parameters.get("properties", {}))} if definition.model == DIRECT else {}


async def start_for_change(tx: Transaction, rule: Rule, change: Change) -> None:
    """The starter of rules of the kind `agent`. Where there is no such agent (any more), the write that fired stands."""
    try:
        await _start_for_change(tx, rule, change)
    except agents.UnknownAgent as error:  # nothing was written yet
        await report(tx, rule, change, "unknown_agent", str(error))


async def _start_for_change(tx: Transaction, rule: Rule, change: Change) -> None:
    name: str = rule.action["agent"]
    trigger = None if is_own(rule, change, entity_of(name)) else await as_trigger(tx, name, change)
    if trigger is None:
        return
    record, arguments = change.record, rule.action.get("arguments")
    message = record if isinstance(record, SpaceMessage) else None
    space_id = getattr(record, "space_id", None)
    await _start(
        tx,
        Start(
            agent=name,
            instruction=text_of(trigger) if arguments is None else _given(trigger, arguments),
            owner_id=getattr(record, "owner_id", change.actor),
            space_id=space_id or "",
            active_space_id=None if message is None else message.space_id,
            cause=Cause(
                "subscription" if rule.action.get("cause") == "subscription" else "trigger",
                change.seq,
                None if message is None else message.id,
            ),
            # whom a message also mentions, it has woken already
            cause_key=f"change:{change.seq}:{name}" if message is None else cause_key(message.id, name),
        ),
    )


class Trigger(NamedTuple):
    """What fired, as its agent sees it."""

    crumb: Breadcrumb
    shown: JsonObject


async def as_trigger(tx: Snapshot, agent: str, change: Change) -> Trigger | None:
    """None when the agent may not see it: what was said in a space is its members'."""
    record, entity = change.record, entity_of(agent)
    if isinstance(record, SpaceMessage) and await tx.get(Membership, record.space_id, entity) is None:
        return None
    if not await sees_change(tx, Reader(entity), change):
        return None
    crumb = as_crumb(change)
    return Trigger(crumb, (await breadcrumbs.shown(tx, [crumb]))[0].context)


def _given(trigger: Trigger, arguments: list[str]) -> str:
    """A trigger as the arguments of a tool."""
    return msgspec.json.encode({name: trigger.shown[name] for name in arguments if name in trigger.shown}).decode()


def text_of(trigger: Trigger) -> str:
    """A trigger as the first thing that its run hears."""
    text = trigger.shown.get("text")
    if isinstance(text, str) and text.strip():
        return text
    whole = {"schema_name": trigger.crumb.schema_name, "title": trigger.crumb.title, "context": trigger.shown}
    return msgspec.json.encode({name: value for name, value in whole.items() if value}).decode()[:LONGEST_SHOWN]
