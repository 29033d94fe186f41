"""What entities keep: memories by key, goals, and plans with their times. One unit of work each.

An entity's own are its own: nobody else changes them. A plan is an agent's; when it is due, its run starts with no space.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stigmergy.agents.store import UnknownAgent, named
from stigmergy.errors import Conflict, Invalid, NotFound
from stigmergy.kernel.timers import Timer, cancel_timer, set_timer
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.model import Cause
from stigmergy.spaces.commands import ensure_space, name_for
from stigmergy.spaces.model import AGENT, Goal, GoalStatus, Memory, Plan, PlanKind, check_metadata, check_plain_text
from stigmergy.spaces.schedule import first_time, next_cron, zone
from stigmergy.spaces.store import GOALS_OF, MEMORIES_OF, PLANS_OF

PLAN = "plan"
# How much one entity keeps at the most.
MOST_MEMORIES = 1_000
MOST_GOALS = 200
MOST_PLANS = 100
LONGEST_KEY = 200

# ---- memories ----


async def set_memory(tx: Transaction, entity_id: str, key: str, value: Any, importance: float = 0.5) -> Memory:
    """Keep a value under a key; the one that was there becomes history."""
    if not 0 < len(key) <= LONGEST_KEY or "\0" in key or "/" in key:
        raise Invalid(f"a key has 1 to {LONGEST_KEY} characters, no slash and no NUL", "key")
    if not 0 <= importance <= 1:
        raise Invalid("importance is a number from 0 to 1", "importance")
    check_metadata({"value": value}, "value")
    stored = await tx.lock(Memory, entity_id, key)
    if stored is not None:
        return await tx.update(stored, value=value, importance=float(importance))
    if len(await tx.find(MEMORIES_OF, entity_id=entity_id, limit=MOST_MEMORIES)) >= MOST_MEMORIES:
        raise Conflict(f"an entity keeps at most {MOST_MEMORIES:,} memories; delete one first")
    return await tx.insert(Memory(entity_id=entity_id, key=key, value=value, importance=float(importance)))


async def memories_of(tx: Snapshot, entity_id: str, limit: int = 50) -> list[Memory]:
    """The most important first."""
    return await tx.find(MEMORIES_OF, entity_id=entity_id, limit=limit)


async def delete_memory(tx: Transaction, entity_id: str, key: str) -> None:
    stored = await tx.lock(Memory, entity_id, key)
    if stored is None:
        raise NotFound(f"no memory {key!r}")
    await tx.delete(stored)


# ---- goals ----


async def add_goal(tx: Transaction, entity_id: str, text: str, priority: int = 0) -> Goal:
    check_plain_text(text, "text")
    _check_priority(priority)
    if len(await tx.find(GOALS_OF, entity_id=entity_id, status="open", limit=MOST_GOALS)) >= MOST_GOALS:
        raise Conflict(f"an entity has at most {MOST_GOALS} open goals; end one first")
    return await tx.insert(Goal(id=tx.new_id(), entity_id=entity_id, text=text, priority=priority))


async def goals_of(tx: Snapshot, entity_id: str, status: GoalStatus | None = None, limit: int = 100) -> list[Goal]:
    """The most urgent first."""
    return await tx.find(GOALS_OF, entity_id=entity_id, status=status, limit=limit)


async def change_goal(
    tx: Transaction,
    entity_id: str,
    id: str,
    *,
    text: str | None = None,
    status: GoalStatus | None = None,
    priority: int | None = None,
) -> Goal:
    goal = await _goal(tx, entity_id, id)
    if text is not None:
        check_plain_text(text, "text")
    if priority is not None:
        _check_priority(priority)
    given = {"text": text, "status": status, "priority": priority}
    changed = {name: value for name, value in given.items() if value is not None and value != getattr(goal, name)}
    return await tx.update(goal, **changed) if changed else goal


async def delete_goal(tx: Transaction, entity_id: str, id: str) -> None:
    await tx.delete(await _goal(tx, entity_id, id))


async def _goal(tx: Transaction, entity_id: str, id: str) -> Goal:
    goal = await tx.lock(Goal, id)
    if goal is None or goal.entity_id != entity_id:
        raise NotFound(f"no goal {id}")
    return goal


def _check_priority(priority: int) -> None:
    if not -1_000 <= priority <= 1_000:
        raise Invalid("a priority is a number from -1,000 to 1,000", "priority")


# ---- plans ----


class Timing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When: exactly one of a moment, a while from now in milliseconds, and a cron expression; on the clocks of UTC, if nothing
    else is said. Of a plan that is there the time zone alone may be changed."""

    at: str | None = None
    after_ms: int | None = None
    cron: str | None = None
    time_zone: str | None = None

    def kind(self) -> tuple[PlanKind, str]:
        given: Mapping[PlanKind, str | int | None] = {"once": self.at, "after": self.after_ms, "cron": self.cron}
        found: list[tuple[PlanKind, str]] = [(kind, str(value)) for kind, value in given.items() if value is not None]
        if len(found) != 1:
            raise Invalid("say when with exactly one of at, after_ms and cron", "at")
        return found[0]

    @property
    def says_when(self) -> bool:
        return (self.at, self.after_ms, self.cron) != (None, None, None)

    @property
    def is_empty(self) -> bool:
        return not self.says_when and self.time_zone is None


async def add_plan(tx: Transaction, entity_id: str, owner_id: str, what: str, timing: Timing) -> Plan:
    """Have an agent do something at a time."""
    check_plain_text(what, "what")
    if not entity_id.startswith(AGENT):
        raise Invalid(f"{entity_id} is no agent, and only agents carry out plans", "entity_id")
    await named(tx, entity_id.removeprefix(AGENT))
    kind, spec = timing.kind()
    time_zone = "UTC" if timing.time_zone is None else timing.time_zone
    due = first_time(kind, spec, time_zone, tx.now)
    if len(await tx.find(PLANS_OF, entity_id=entity_id, limit=MOST_PLANS)) >= MOST_PLANS:
        raise Conflict(f"an agent has at most {MOST_PLANS} plans; delete one first")
    plan = Plan(
        id=tx.new_id(),
        entity_id=entity_id,
        owner_id=owner_id,
        what=what,
        kind=kind,
        spec=spec,
        time_zone=time_zone,
        next_at=due,
    )
    await set_timer(tx, PLAN, plan.id, due)
    return await tx.insert(plan)


async def plans_of(tx: Snapshot, entity_id: str, limit: int = MOST_PLANS) -> list[Plan]:
    return await tx.find(PLANS_OF, entity_id=entity_id, limit=limit)


async def change_plan(
    tx: Transaction,
    entity_id: str,
    id: str,
    *,
    what: str | None = None,
    timing: Timing | None = None,
    enabled: bool | None = None,
) -> Plan:
    """Say another thing or another time; stop a plan and let it go on."""
    plan = await _plan(tx, entity_id, id)
    fields: dict[str, Any] = {}
    if what is not None:
        fields["what"] = check_plain_text(what, "what")
    if timing is not None and not timing.is_empty:
        fields |= _retimed(plan, timing, tx.now)
    if enabled is not None:
        after = msgspec.structs.replace(plan, **fields)
        due = after.next_at if after.enabled else None
        if enabled and due is None:
            due = first_time(after.kind, after.spec, after.time_zone, tx.now)
        fields |= {"enabled": enabled, "next_at": due if enabled else None}
    if not fields:
        return plan
    changed = await tx.update(plan, **fields)
    await _time(tx, changed)
    return changed


def _retimed(plan: Plan, timing: Timing, now: int) -> dict[str, Any]:
    """A plan's fields at another time, at which it goes on; or the same time on other clocks, where it stands as it did."""
    time_zone = plan.time_zone if timing.time_zone is None else timing.time_zone
    kind, spec = timing.kind() if timing.says_when else (plan.kind, plan.spec)
    if timing.says_when:
        due = first_time(kind, spec, time_zone, now)
        return {"kind": kind, "spec": spec, "time_zone": time_zone, "next_at": due, "enabled": True}
    zone(time_zone)
    moves = plan.enabled and kind != "after"
    return {"time_zone": time_zone, "next_at": first_time(kind, spec, time_zone, now) if moves else plan.next_at}


async def delete_plan(tx: Transaction, entity_id: str, id: str) -> None:
    await tx.delete(await _plan(tx, entity_id, id))
    await cancel_timer(tx, PLAN, id)


async def carry_out(tx: Transaction, timer: Timer) -> None:
    """The effect of a plan's timer: its run, in a space of its own, and the next time. What was missed is done once."""
    plan = await tx.lock(Plan, timer.id)
    if plan is None or not plan.enabled or plan.next_at != timer.due_at:
        return
    next_at = next_cron(plan.spec, plan.time_zone, tx.now) if plan.kind == "cron" else None
    plan = await tx.update(plan, next_at=next_at, enabled=next_at is not None, last_at=tx.now, firings=plan.firings + 1)
    agent = plan.entity_id.removeprefix(AGENT)
    try:
        await named(tx, agent)
    except UnknownAgent:
        await tx.update(plan, enabled=False, next_at=None)
        return
    await _time(tx, plan)
    space_id = tx.new_id()
    await ensure_space(tx, space_id, plan.owner_id, name=name_for(agent, plan.what))
    await start_run(
        tx,
        Start(
            agent=agent,
            instruction=plan.what,
            owner_id=plan.owner_id,
            space_id=space_id,
            cause=Cause("plan"),
            cause_key=f"plan:{plan.id}:{timer.due_at}",
            metadata={"plan_id": plan.id},
        ),
    )


async def _time(tx: Transaction, plan: Plan) -> None:
    if plan.next_at is not None:
        await set_timer(tx, PLAN, plan.id, plan.next_at)
    else:
        await cancel_timer(tx, PLAN, plan.id)


async def _plan(tx: Transaction, entity_id: str, id: str) -> Plan:
    plan = await tx.lock(Plan, id)
    if plan is None or plan.entity_id != entity_id:
        raise NotFound(f"no plan {id}")
    return plan
