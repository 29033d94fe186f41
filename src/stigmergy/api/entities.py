"""`/v1/entities`: humans and agents, and what they keep: memories, goals and plans.

What an entity keeps is its own, to see and to change, and an operator's. A plan for an agent anybody may make, as anybody may
start its run; it is theirs, the agent's and an operator's.
"""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, delete, get, patch, post, put
from litestar.params import JSONBody, PathParameter, QueryParameter

from stigmergy.access.model import Claims, Forbidden
from stigmergy.agents.store import named
from stigmergy.api import wire
from stigmergy.api.auth import claims_of
from stigmergy.api.requests import AnyRequest, Cursor, read, write
from stigmergy.api.space_shapes import (
    EntityIn,
    EntityOut,
    EntityPage,
    GoalChangeIn,
    GoalIn,
    GoalOut,
    GoalsOut,
    MemoriesOut,
    MemoryIn,
    MemoryOut,
    PlanChangeIn,
    PlanIn,
    PlanOut,
    PlansOut,
    out,
    timing,
)
from stigmergy.errors import NotFound
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.spaces import commands, keeping, queries
from stigmergy.spaces.model import AGENT, Entity, Goal, GoalStatus, Memory, Plan

Id = Annotated[str, PathParameter(description="An entity's id, such as `agent:researcher`; `me` is whoever asks.")]
ME = "me"
Key = Annotated[str, PathParameter(description="A memory's key.")]
GoalId = Annotated[str, PathParameter(description="A goal's id.")]
PlanId = Annotated[str, PathParameter(description="A plan's id.")]
Status = Annotated[GoalStatus | Literal["any"], QueryParameter(description="Only those.")]


def _asked(request: AnyRequest, id: str) -> tuple[Claims, str]:
    """Who asks, and about whom."""
    claims = claims_of(request)
    return claims, claims.entity if id == ME else id


class EntityRoutes(Controller):
    path = "/v1/entities"
    tags = ("entities",)

    @get(summary="The humans and agents that there are", operation_id="list_entities")
    async def find(self, request: AnyRequest, limit: wire.Limit = 50, cursor: Cursor = None) -> EntityPage:
        found: list[Entity] = await read(request, queries.entities, after=cursor or "", limit=limit)
        return EntityPage([out(EntityOut, each) for each in found], found[-1].id if len(found) == limit else None)

    @get("/{id:str}", summary="One entity", operation_id="get_entity")
    async def one(self, request: AnyRequest, id: Id) -> EntityOut:
        return out(EntityOut, await read(request, queries.entity, _asked(request, id)[1]))

    @patch("/{id:str}", summary="Call it something else", operation_id="rename_entity")
    async def rename(self, request: AnyRequest, id: Id, data: JSONBody[EntityIn]) -> EntityOut:
        return out(EntityOut, await write(request, _rename, *_asked(request, id), data.name))

    # ---- memories ----

    @get("/{id:str}/memories", summary="What it remembers", operation_id="list_memories")
    async def memories(self, request: AnyRequest, id: Id, limit: wire.Limit = 50) -> MemoriesOut:
        found = await read(request, _own, *_asked(request, id), keeping.memories_of, limit)
        return MemoriesOut([out(MemoryOut, memory) for memory in found])

    @put("/{id:str}/memories/{key:str}", summary="Remember a value", operation_id="put_memory")
    async def remember(self, request: AnyRequest, id: Id, key: Key, data: JSONBody[MemoryIn]) -> MemoryOut:
        made: Memory = await write(request, _own, *_asked(request, id), keeping.set_memory, key, data.value, data.importance)
        return out(MemoryOut, made)

    @delete("/{id:str}/memories/{key:str}", summary="Forget it", operation_id="delete_memory")
    async def forget(self, request: AnyRequest, id: Id, key: Key) -> None:
        await write(request, _own, *_asked(request, id), keeping.delete_memory, key)

    # ---- goals ----

    @get("/{id:str}/goals", summary="What it wants", operation_id="list_goals")
    async def goals(self, request: AnyRequest, id: Id, status: Status = "any", limit: wire.Limit = 100) -> GoalsOut:
        found = await read(request, _own, *_asked(request, id), keeping.goals_of, None if status == "any" else status, limit)
        return GoalsOut([out(GoalOut, goal) for goal in found])

    @post("/{id:str}/goals", summary="Set a goal", operation_id="create_goal")
    async def aim(self, request: AnyRequest, id: Id, data: JSONBody[GoalIn]) -> GoalOut:
        made: Goal = await write(request, _own, *_asked(request, id), keeping.add_goal, data.text, data.priority)
        return out(GoalOut, made)

    @patch("/{id:str}/goals/{goal_id:str}", summary="Change a goal, or end it", operation_id="patch_goal")
    async def change_goal(self, request: AnyRequest, id: Id, goal_id: GoalId, data: JSONBody[GoalChangeIn]) -> GoalOut:
        fields = msgspec.structs.asdict(data)
        return out(GoalOut, await write(request, _own, *_asked(request, id), keeping.change_goal, goal_id, **fields))

    @delete("/{id:str}/goals/{goal_id:str}", summary="Take a goal away", operation_id="delete_goal")
    async def drop_goal(self, request: AnyRequest, id: Id, goal_id: GoalId) -> None:
        await write(request, _own, *_asked(request, id), keeping.delete_goal, goal_id)

    # ---- plans ----

    @get("/{id:str}/plans", summary="What an agent is to do, and when", operation_id="list_plans")
    async def plans(self, request: AnyRequest, id: Id) -> PlansOut:
        return PlansOut([out(PlanOut, plan) for plan in await read(request, _plans, *_asked(request, id))])

    @post("/{id:str}/plans", summary="Have an agent do something at a time", operation_id="create_plan")
    async def plan(self, request: AnyRequest, id: Id, data: JSONBody[PlanIn]) -> PlanOut:
        return out(PlanOut, await write(request, _plan, *_asked(request, id), data))

    @patch("/{id:str}/plans/{plan_id:str}", summary="Change a plan, stop it or let it go on", operation_id="patch_plan")
    async def change_plan(self, request: AnyRequest, id: Id, plan_id: PlanId, data: JSONBody[PlanChangeIn]) -> PlanOut:
        return out(PlanOut, await write(request, _change_plan, *_asked(request, id), plan_id, data))

    @delete("/{id:str}/plans/{plan_id:str}", summary="Take a plan away", operation_id="delete_plan")
    async def drop_plan(self, request: AnyRequest, id: Id, plan_id: PlanId) -> None:
        await write(request, _delete_plan, *_asked(request, id), plan_id)


# ---- whose it is ----


async def _own(tx: Any, claims: Claims, id: str, unit: Any, *args: Any, **kwargs: Any) -> Any:
    """What an entity keeps: for itself and for operators."""
    if id != claims.entity:
        if "operate" not in claims.grants:
            raise Forbidden(f"what {id[:100]} keeps is its own, or an operator's to see")
        await _known(tx, id)
    return await unit(tx, id, *args, **kwargs)


async def _known(tx: Snapshot, id: str) -> None:
    """An entity, or an agent that was in no space yet."""
    if id.startswith(AGENT):
        await named(tx, id.removeprefix(AGENT))
    else:
        await queries.entity(tx, id)


async def _rename(tx: Transaction, claims: Claims, id: str, name: str) -> Entity:
    if id != claims.entity:
        if "operate" not in claims.grants:
            raise Forbidden(f"how {id[:100]} is called is its own to say, or an operator's")
        await _known(tx, id)
    await commands.ensure_entity(tx, id)
    return await commands.rename(tx, id, name)


def _may(claims: Claims, plan: Plan) -> bool:
    return claims.entity in (plan.owner_id, plan.entity_id) or "operate" in claims.grants


async def _plans(tx: Snapshot, claims: Claims, id: str) -> list[Plan]:
    if id != claims.entity:
        await _known(tx, id)
    return [plan for plan in await keeping.plans_of(tx, id) if _may(claims, plan)]


async def _plan(tx: Transaction, claims: Claims, id: str, data: PlanIn) -> Plan:
    await _known(tx, id)
    return await keeping.add_plan(tx, id, claims.entity, data.what, timing(data))


async def _my_plan(tx: Transaction, claims: Claims, id: str, plan_id: str) -> None:
    plan = await tx.get(Plan, plan_id)
    if plan is None or plan.entity_id != id or not _may(claims, plan):
        raise NotFound(f"no plan {plan_id}")


async def _change_plan(tx: Transaction, claims: Claims, id: str, plan_id: str, data: PlanChangeIn) -> Plan:
    await _my_plan(tx, claims, id, plan_id)
    return await keeping.change_plan(tx, id, plan_id, what=data.what, timing=timing(data), enabled=data.enabled)


async def _delete_plan(tx: Transaction, claims: Claims, id: str, plan_id: str) -> None:
    await _my_plan(tx, claims, id, plan_id)
    await keeping.delete_plan(tx, id, plan_id)


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (
    *(EntityOut, EntityPage, EntityIn, MemoryIn, MemoryOut, MemoriesOut, GoalIn, GoalChangeIn, GoalOut, GoalsOut),
    *(PlanIn, PlanChangeIn, PlanOut, PlansOut),
)
MORE: dict[str, tuple[int, ...]] = {
    "get_entity": (404,),
    "rename_entity": (404,),
    "list_memories": (404,),
    "put_memory": (404, 409),
    "delete_memory": (404,),
    "list_goals": (404,),
    "create_goal": (404, 409),
    "patch_goal": (404,),
    "delete_goal": (404,),
    "list_plans": (404,),
    "create_plan": (404, 409),
    "patch_plan": (404,),
    "delete_plan": (404,),
}
EXAMPLES: dict[str, Any] = {
    "rename_entity": {"name": "Mia"},
    "put_memory": {"value": {"colour": "green"}, "importance": 0.8},
    "create_goal": {"text": "The report is out by Friday", "priority": 10},
    "patch_goal": {"status": "done"},
    "create_plan": {"what": "Say what is new", "cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin"},
    "patch_plan": {"enabled": False},
}
