"""Whom a message wakes: one run for each agent that it names, or for the other one where there are just two.

One message starts one run of an agent, however often it is delivered. Who waited for the speaker has its answer, and no extra
run. The runs are started while the message's change is written, caused by it and one deeper in the chain of causes: so that an
answer to an answer is heard, and a runaway ends at the depth limit with one diagnostic.
"""

from collections.abc import Sequence

from stigmergy.agents.store import Pinned, UnknownAgent, in_force
from stigmergy.kernel.journal import Change
from stigmergy.kernel.rules import MAX_DEPTH, Diagnostic
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import store as runs
from stigmergy.runs.commands import Start, hear, open_run, start_run
from stigmergy.runs.model import ENDED, RUNS, Cause, Run
from stigmergy.spaces.history import heard_as, looked_at, message_text
from stigmergy.spaces.model import AGENT, SPACE_MESSAGES, Member, Roster, SpaceMessage

BUSY = RUNS.query(
    "busy_in",
    """{by:runs_agent} WHERE tenant = :tenant AND agent = :agent AND active_space_id = :space_id
         AND status IN ('queued', 'running', 'waiting_tool', 'waiting_reply') ORDER BY id LIMIT 1""",
)


def addressed(roster: Roster, author: str, mentions: Sequence[str]) -> list[Member]:
    """The agents that a message is for."""
    is_for_all = len(roster.members) == 2  # whomever it names: who names oneself has still said it to the other
    return [each for each in roster.others(author) if each.type == "agent" and (is_for_all or each.id in mentions)]


async def woken(tx: Transaction, roster: Roster, message: SpaceMessage, answered: Sequence[str]) -> list[str]:
    """The agents among them for which a run is to start. `answered` are the runs that had waited for this message. An agent that
    is at work here and hears what comes meanwhile in that run has heard it."""
    found = addressed(roster, message.author, message.mentions)
    if found and answered:
        waited = {run.entity_id for id in answered if (run := await tx.get(Run, id)) is not None}
        found = [member for member in found if member.id not in waited]
    if not found:
        return []
    known = await in_force(tx, [member.id.removeprefix(AGENT) for member in found])
    return [member.id for member in found if not await _hears_otherwise(tx, member, message, known)]


async def _hears_otherwise(tx: Transaction, member: Member, message: SpaceMessage, known: dict[str, Pinned]) -> bool:
    """Whether no run is to start for it: it is told in the run it is in, or is no business of ours."""
    name = member.id.removeprefix(AGENT)
    if name not in known:
        return False
    definition = known[name].definition
    if definition.executor == "external":
        return True
    if definition.second_message != "same_run":
        return False
    for run in await tx.find(BUSY, agent=name, space_id=message.space_id):
        if (await runs.locked_run(tx, run.id)).status not in ENDED:
            await hear(tx, run.id, f"[NEW] {message_text(message)}", name=heard_as(message.id))
            return True
    return False


async def start_woken(tx: Transaction, change: Change) -> None:
    """Start the runs of a message that was just written."""
    message = change.record
    if change.event != "create" or not isinstance(message, SpaceMessage) or not message.wakes:
        return
    if change.depth >= MAX_DEPTH:
        text = (
            f"a chain of {change.depth} causes ends here, where message {message.id} would have woken {', '.join(message.wakes)}"
        )
        await _report(tx, change, "depth_limit", text)
        return
    known = await in_force(tx, [entity_id.removeprefix(AGENT) for entity_id in message.wakes])
    for entity_id in message.wakes:
        current = known.get(entity_id.removeprefix(AGENT))
        if current is None:
            await start_for(tx, change, message, entity_id)  # which says that there is no such agent
            continue
        with tx.caused_by(change):
            # a new message has started no run yet, so none is looked for
            await open_run(tx, await _start(tx, change, message, entity_id), current)


async def start_for(tx: Transaction, change: Change, message: SpaceMessage, entity_id: str) -> None:
    """The run of one agent for one message: once."""
    with tx.caused_by(change):
        try:
            await start_run(tx, await _start(tx, change, message, entity_id))
        except UnknownAgent as error:
            # what was said is said, whoever is not there to hear it
            await _report(tx, change, "unknown_agent", str(error), entity_id.removeprefix(AGENT))


async def _start(tx: Transaction, change: Change, message: SpaceMessage, entity_id: str) -> Start:
    agent = entity_id.removeprefix(AGENT)
    return Start(
        agent=agent,
        instruction=await _trigger(tx, message, entity_id),
        owner_id=message.owner_id,
        space_id=message.space_id,
        active_space_id=message.space_id,
        cause=Cause("mention" if entity_id in message.mentions else "direct", change.seq, message.id),
        cause_key=cause_key(message.id, agent),
        metadata=looked_at({}, message.space_id, message.pos, message.id),
    )


async def _trigger(tx: Transaction, message: SpaceMessage, entity_id: str) -> str:
    """What the run hears first. An agent says by waiting that it expects a reply; a person always does."""
    expects = message.role == "human"
    if message.role == "agent":
        waits = await tx.find(runs.REPLIES_OF_PARTY, party=entity_id, space_id=message.space_id)
        expects = any(wait.message_id == message.id for wait in waits)
    return f"{message_text(message)}\nsenderExpectsReply: {'true' if expects else 'false'}"


def cause_key(message_id: str, agent: str) -> str:
    return f"mention:{message_id}:{agent}"


async def _report(tx: Transaction, change: Change, kind: str, message: str, about: str = "") -> None:
    id = f"{kind}:mention:{change.id}:{about}"
    with tx.caused_by(change):
        await tx.insert_new(Diagnostic(id=id, kind=kind, rule=None, message=message, change_seq=change.seq))


SPACE_MESSAGES.derive = start_woken
