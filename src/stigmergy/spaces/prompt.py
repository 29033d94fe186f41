"""The blocks of a prompt that come from spaces and from what an agent keeps: what changes seldom first, so that the beginning of
a prompt stays the same from step to step and providers' caches hit.

The message that started a run is what the run hears first, after all of these. What an agent writes without a tool is not shown
in a space; only what it sends is.
"""

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from stigmergy.errors import NotFound
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs.model import RUNS, Run
from stigmergy.spaces.history import History, Line, history, line_text
from stigmergy.spaces.model import Goal, Member, Memory, Plan, Roster
from stigmergy.spaces.store import GOALS_OF, JOINED, MEMORIES_OF, PLANS_OF

# How many of each a prompt has.
MEMORIES = 50
GOALS = 20
PLANS = 20
SPACES = 20
RUNS_SHOWN = 10
# Characters of one memory's value.
LONGEST_VALUE = 500

OTHER_RUNS = RUNS.query(
    "others_of_agent",
    """{by:runs_agent} WHERE tenant = :tenant AND agent = :agent AND id <> :run_id
         AND status IN ('queued', 'running', 'waiting_tool', 'waiting_reply') ORDER BY id DESC LIMIT :limit""",
)


class Block(NamedTuple):
    name: str
    text: str


async def blocks(tx: Snapshot, run: Run) -> list[Block]:
    """In this order; those that have nothing to say are left out."""
    me = run.entity_id
    found = [
        Block("goals", _goals(await tx.find(GOALS_OF, entity_id=me, status="open", limit=GOALS))),
        Block("memories", _memories(await tx.find(MEMORIES_OF, entity_id=me, limit=MEMORIES))),
        Block("plans", _plans([plan for plan in await tx.find(PLANS_OF, entity_id=me, limit=PLANS) if plan.enabled])),
        Block("my_spaces", await _spaces(tx, me)),
    ]
    seen = await _active(tx, run)
    if seen is not None:
        found.append(Block("active_space", _active_space(seen.roster, me)))
        found.append(Block("history", _history(seen.lines)))
    found.append(Block("other_runs", _other_runs(await tx.find(OTHER_RUNS, agent=run.agent, run_id=run.id, limit=RUNS_SHOWN))))
    return [block for block in found if block.text]


async def _active(tx: Snapshot, run: Run) -> History | None:
    if run.active_space_id is None:
        return None
    try:
        seen = await history(tx, run, run.active_space_id)
    except NotFound:
        return None  # it was deleted meanwhile
    return seen if run.entity_id in seen.roster.by_id else None


def _goals(goals: list[Goal]) -> str:
    return _list("Your goals, the most urgent first:", [f"- {goal.id} (priority {goal.priority}): {goal.text}" for goal in goals])


def _memories(memories: list[Memory]) -> str:
    return _list("What you remember, the most important first:", [f"- {each.key}: {_value(each.value)}" for each in memories])


def _value(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + " …"


def _plans(plans: list[Plan]) -> str:
    return _list("Your plans:", [f"- {plan.id}: {plan.what} ({_when(plan)})" for plan in plans])


def _when(plan: Plan) -> str:
    next_time = "" if plan.next_at is None else f", next at {_time(plan.next_at)}"
    return (f"cron {plan.spec} in {plan.time_zone}" if plan.kind == "cron" else plan.kind) + next_time


async def _spaces(tx: Snapshot, me: str) -> str:
    spaces = await tx.find(JOINED, entity_id=me, limit=SPACES)
    return _list("The spaces you are in:", [f"- {space.id}: {space.name or 'without a name'}" for space in spaces])


def _active_space(roster: Roster, me: str) -> str:
    space = roster.space
    about = f"\n{space.about}" if space.about else ""
    who = "\n".join(f"- {member.name} ({_kind(member)}){' (you)' if member.id == me else ''}" for member in roster.members[:100])
    return (
        f"You are in the space {space.name or 'without a name'} ({space.id}).{about}\nIts members:\n{who}\n"
        "Only what you send with send_message or send_reply is seen there. Name somebody with @ to have them act."
    )


def _kind(member: Member) -> str:
    return member.type if member.id == member.name else f"{member.type}, {member.id}"


def _history(lines: list[Line]) -> str:
    return _list("What was said there last, oldest first:", [line_text(line) for line in lines])


def _other_runs(others: list[Run]) -> str:
    return _list(
        "Other runs of yours that are under way:",
        [f"- {other.id}: {other.status}, because of {_because(other)}" for other in others],
    )


def _because(run: Run) -> str:
    of = f" {run.cause.message_id}" if run.cause.message_id is not None else ""
    where = f" in the space {run.active_space_id}" if run.active_space_id is not None else ""
    return f"{run.cause.kind}{of}{where}"


def _list(title: str, lines: list[str]) -> str:
    return f"{title}\n" + "\n".join(lines) if lines else ""


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
