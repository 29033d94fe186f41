"""What agents can do with spaces and with what they keep. Each tool is a unit: what it writes and its result are one transaction.

An agent acts as its own entity: in spaces that it is a member of, on memories, goals and plans that are its own.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stigmergy.errors import Conflict, Invalid, NotFound, VersionConflict
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.endings import cancel_run
from stigmergy.runs.model import JsonObject, Run
from stigmergy.runs.store import locked_run
from stigmergy.runs.tools import Acting, Builtin, Done, Outcome, Party, Refused, Unit, Waiting, builtin
from stigmergy.spaces import asking, commands, keeping, queries
from stigmergy.spaces.commands import Said
from stigmergy.spaces.history import entered, message_text
from stigmergy.spaces.keeping import Timing
from stigmergy.spaces.mentions import find_mentions
from stigmergy.spaces.model import GoalStatus, Member, Memory, Roster, Space, SpaceMessage
from stigmergy.spaces.prompt import OTHER_RUNS
from stigmergy.spaces.store import AFTER_ALL, GOALS_OF, JOINED, MEMORIES_OF, PLANS_OF, roster_of
from stigmergy.spaces.waiting import why_not_wait

REPLY_TIMEOUT_MS = 300_000
# Of how many spaces of an agent a name is looked for.
MOST_SPACES = 1_000
NOWHERE = "you are in no space; call enter_space first"

Arguments = JsonObject


class EnterSpace(msgspec.Struct, forbid_unknown_fields=True):
    space: Annotated[str, Meta(description="The id of one of your spaces, or its name.")]


class SendMessage(msgspec.Struct, forbid_unknown_fields=True):
    text: Annotated[str, Meta(description="What to say. @Name has somebody act.")]
    wait: Annotated[bool, Meta(description="Wait for the replies of those you name, or of the first other one.")] = False


class SendReply(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    reply_to: Annotated[str, Meta(description="The id of the message that you answer.")]
    wait: bool = False


class ReadMessages(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[str | None, Meta(description="Only what was said before the message with this id.")] = None


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


class StopRun(msgspec.Struct, forbid_unknown_fields=True):
    run_id: str
    reason: str = "stopped by its agent"


class SetMemory(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: Any
    importance: Annotated[float, Meta(ge=0, le=1)] = 0.5


class GetMemories(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str | None, Meta(description="Only the one with this key.")] = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class Key(msgspec.Struct, forbid_unknown_fields=True):
    key: str


class SetGoal(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str | None, Meta(description="The goal to change; without one, a new one.")] = None
    text: str | None = None
    status: GoalStatus | None = None
    priority: int | None = None


class GetGoals(msgspec.Struct, forbid_unknown_fields=True):
    status: GoalStatus | None = None


class Id(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class SetPlan(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str | None, Meta(description="The plan to change; without one, a new one.")] = None
    what: Annotated[str | None, Meta(description="What you are to do then.")] = None
    at: Annotated[str | None, Meta(description="A moment, such as 2030-05-01T09:00.")] = None
    after_ms: Annotated[int | None, Meta(description="Milliseconds from now.")] = None
    cron: Annotated[str | None, Meta(description="A cron expression of five fields.")] = None
    time_zone: Annotated[str | None, Meta(description="A name such as Europe/Berlin; UTC, if it was never said.")] = None
    enabled: bool | None = None


# ---- spaces ----


async def enter_space(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    """Nobody in the space sees that it is entered."""
    me = acting.run.entity_id
    space = await _my_space(tx, me, args["space"])
    if space is None:
        mine = ", ".join(f"{each.id} ({each.name})" for each in await tx.find(JOINED, entity_id=me, limit=20)) or "none"
        return Refused(f"you are in no space {args['space'][:100]!r}; yours are: {mine}")
    run = await locked_run(tx, acting.run.id)
    if run.active_space_id != space.id:
        await tx.update(run, active_space_id=space.id, metadata=await entered(tx, run, space.id))
    roster = await roster_of(tx, space.id)
    return Done({"space_id": space.id, "name": space.name, "members": [member.name for member in roster.members]})


async def _my_space(tx: Transaction, me: str, wanted: str) -> Space | None:
    spaces = await tx.find(JOINED, entity_id=me, limit=MOST_SPACES)
    by_id = next((space for space in spaces if space.id == wanted), None)
    named = [space for space in spaces if space.name.casefold() == wanted.casefold()]
    return by_id or (named[0] if len(named) == 1 else None)


async def send_message(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    return await _send(tx, acting, Said(content=args["text"]), wait=args.get("wait", False))


async def send_reply(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    return await _send(tx, acting, Said(content=args["text"], reply_to=args["reply_to"]), wait=args.get("wait", False))


async def _send(tx: Transaction, acting: Acting, said: Said, *, wait: bool) -> Outcome:
    run = await _fresh(tx, acting.run)
    if run.active_space_id is None:
        return Refused(NOWHERE)
    me = run.entity_id
    if not wait:
        message = await commands.post(tx, me, run.active_space_id, said, run_id=run.id)
        return Done({"message_id": message.id, "seq": message.pos})
    # whom to wait for is known before it is said: a question to nobody is not asked
    _, roster = await commands.locked(tx, me, run.active_space_id)
    waited = _waited_for(roster, me, find_mentions(said.content, roster))
    if not waited:
        return Refused("there is nobody else in this space to wait for")
    if (against := await why_not_wait(tx, run, acting.definition.limits)) is not None:
        return Refused(against)
    message = await commands.post(tx, me, run.active_space_id, said, run_id=run.id)
    return _waiting(message, waited)


def _waited_for(roster: Roster, me: str, mentions: list[str]) -> list[Member]:
    """Those who are named; where nobody is, the first other one."""
    others = roster.others(me)
    return [member for member in others if member.id in mentions] or others[:1]


def _waiting(message: SpaceMessage, waited: list[Member], question: str | None = None) -> Waiting:
    return Waiting(
        kind="reply",
        parties=[Party(member.id, member.name, member.type) for member in waited],
        timeout_ms=REPLY_TIMEOUT_MS,
        space_id=message.space_id,
        message_id=message.id,
        question=question,
    )


async def read_messages(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    run = await _fresh(tx, acting.run)
    if run.active_space_id is None:
        return Refused(NOWHERE)
    below = AFTER_ALL
    if args.get("before") is not None:
        before = await tx.get(SpaceMessage, args["before"])
        if before is None or before.space_id != run.active_space_id:
            return Refused(f"there is no message {args['before']} in this space")
        below = before.pos
    found = await queries.messages(tx, run.entity_id, run.active_space_id, below=below, limit=args.get("limit", 50))
    return Done([message_text(message) for message in reversed(found)])


async def get_my_runs(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    others = await tx.find(OTHER_RUNS, agent=acting.run.agent, run_id=acting.run.id, limit=50)
    return Done(
        [{"id": each.id, "status": each.status, "cause": each.cause.kind, "space": each.active_space_id} for each in others]
    )


async def stop_run(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    other = await tx.get(Run, args["run_id"])
    if other is None or other.agent != acting.run.agent:
        return Refused(f"you have no run {args['run_id']}")
    if other.id == acting.run.id:
        return Refused("this is the run that you are in; answer without a tool to end it")
    stopped = await cancel_run(tx, other.id, args.get("reason", "stopped by its agent"))
    return Done({"id": stopped.id, "status": stopped.status})


async def _fresh(tx: Transaction, run: Run) -> Run:
    """The run as it is now: another call of the same step may have moved it."""
    return await tx.get(Run, run.id) or run


# ---- memories, goals, plans ----


async def set_memory(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    me = acting.run.entity_id
    made = await keeping.set_memory(tx, me, args["key"], args["value"], args.get("importance", 0.5))
    return Done({"key": made.key, "version": made.version})


async def get_memories(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    me = acting.run.entity_id
    if args.get("key") is not None:
        one = await tx.get(Memory, me, args["key"])
        wanted = [] if one is None else [one]
    else:
        wanted = await tx.find(MEMORIES_OF, entity_id=me, limit=args.get("limit", 50))
    return Done([{"key": each.key, "value": each.value, "importance": each.importance} for each in wanted])


async def delete_memory(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    await keeping.delete_memory(tx, acting.run.entity_id, args["key"])
    return Done({"deleted": args["key"]})


async def set_goal(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    me = acting.run.entity_id
    if args.get("id") is not None:
        fields = {name: args.get(name) for name in ("text", "status", "priority")}
        return Done(_goal(await keeping.change_goal(tx, me, args["id"], **fields)))
    if args.get("text") is None:
        return Refused("a new goal has a text")
    goal = await keeping.add_goal(tx, me, args["text"], args.get("priority") or 0)
    return Done(_goal(goal))


async def get_goals(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    found = await tx.find(GOALS_OF, entity_id=acting.run.entity_id, status=args.get("status"), limit=100)
    return Done([_goal(goal) for goal in found])


def _goal(goal: Any) -> JsonObject:
    return {name: getattr(goal, name) for name in ("id", "text", "status", "priority")}


async def delete_goal(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    await keeping.delete_goal(tx, acting.run.entity_id, args["id"])
    return Done({"deleted": args["id"]})


async def set_plan(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    me = acting.run.entity_id
    timing = Timing(**{name: args.get(name) for name in ("at", "after_ms", "cron", "time_zone")})
    if args.get("id") is not None:
        changed = await keeping.change_plan(tx, me, args["id"], what=args.get("what"), timing=timing, enabled=args.get("enabled"))
        return Done(_plan(changed))
    if args.get("what") is None or not timing.says_when:
        return Refused("a new plan says what, and when with one of at, after_ms and cron")
    return Done(_plan(await keeping.add_plan(tx, me, acting.run.owner_id, args["what"], timing)))


async def get_plans(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    return Done([_plan(plan) for plan in await tx.find(PLANS_OF, entity_id=acting.run.entity_id, limit=100)])


def _plan(plan: Any) -> JsonObject:
    return {name: getattr(plan, name) for name in ("id", "what", "kind", "spec", "time_zone", "next_at", "enabled")}


async def delete_plan(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
    await keeping.delete_plan(tx, acting.run.entity_id, args["id"])
    return Done({"deleted": args["id"]})


def _refusing(unit: Unit) -> Unit:
    """What a command refuses, before it has written anything, the agent is told."""

    async def refused(tx: Transaction, acting: Acting, args: Arguments) -> Outcome:
        try:
            return await unit(tx, acting, args)
        except VersionConflict:
            raise  # it lost to another write, and is run again
        except (Invalid, NotFound, Conflict) as error:
            return Refused(str(error))

    return refused


def _tool(name: str, description: str, args: type[msgspec.Struct], unit: Unit) -> Builtin:
    return builtin(name, description, args, _refusing(unit))


TOOLS: tuple[Builtin, ...] = (
    *asking.TOOLS,
    _tool("enter_space", "Go into one of your spaces; what you send from now on is said there.", EnterSpace, enter_space),
    _tool("send_message", "Say something in the space that you are in.", SendMessage, send_message),
    _tool("send_reply", "Answer a message in the space that you are in.", SendReply, send_reply),
    _tool("read_messages", "Read what was said in the space that you are in, oldest first.", ReadMessages, read_messages),
    _tool("get_my_runs", "Your other runs that are under way.", Nothing, get_my_runs),
    _tool("stop_run", "Stop another run of yours.", StopRun, stop_run),
    _tool("set_memory", "Remember a value under a key.", SetMemory, set_memory),
    _tool("get_memories", "What you remember, the most important first.", GetMemories, get_memories),
    _tool("delete_memory", "Forget what is under a key.", Key, delete_memory),
    _tool("set_goal", "Set yourself a goal, or change one.", SetGoal, set_goal),
    _tool("get_goals", "Your goals.", GetGoals, get_goals),
    _tool("delete_goal", "Take a goal away.", Id, delete_goal),
    _tool("set_plan", "Plan to do something: at a moment, after a while or again and again.", SetPlan, set_plan),
    _tool("get_plans", "Your plans.", Nothing, get_plans),
    _tool("delete_plan", "Take a plan away.", Id, delete_plan),
)
