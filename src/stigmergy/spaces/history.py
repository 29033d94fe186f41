"""What of a space an agent's run has before it, what is new in that, and how far it has come when the run is over.

A run looks at a space once, up to the last message at that moment: what comes meanwhile is `[NEW]` for the next run. (By its
definition's setting `second_message: same_run` it looks again at every step.) How far it looked is in the run's metadata under
`SHOWN`, written with the step that looked; when the run completes, the agent's cursor in that space moves there, and on over
what the run itself said and the answers it had waited for. It never moves back, and a run that failed moves nothing.
"""

from typing import Any, Literal, NamedTuple

from stigmergy.agents.model import Definition
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.model import WAITS, JsonObject, Run
from stigmergy.spaces.model import Membership, Roster, SpaceMessage
from stigmergy.spaces.store import MESSAGES_AFTER, MESSAGES_UPTO, last_pos, roster_of

# The key of a run's metadata: for each space that it looked at, [pos, message id] of the last message it saw.
SHOWN = "shown"
# How many messages a prompt has.
WINDOW = 50

ANSWERED = WAITS.query(
    "answered_replies", "WHERE tenant = :tenant AND run_id = :run_id AND kind = 'reply' AND status = 'answered'"
)

Mark = Literal["SEEN", "NEW"]


class Line(NamedTuple):
    """One message of a history."""

    message: SpaceMessage
    mark: Mark
    is_trigger: bool


class History(NamedTuple):
    """What a run sees of a space."""

    roster: Roster
    lines: list[Line]
    last: SpaceMessage | None


async def history(tx: Snapshot, run: Run, definition: Definition, space_id: str, *, limit: int = WINDOW) -> History:
    roster = await roster_of(tx, space_id)
    upto = await last_pos(tx, space_id)
    looked = _shown(run).get(space_id)
    if looked is not None and definition.second_message == "new_run":
        upto = looked[0]
    messages = await tx.find(MESSAGES_UPTO, space_id=space_id, upto=upto, limit=limit)
    messages.reverse()
    membership = await tx.get(Membership, space_id, run.entity_id)
    seen = 0 if membership is None else membership.last_processed_pos
    lines = [Line(each, _mark(each, run, seen), each.id == run.cause.message_id) for each in messages]
    return History(roster, lines, messages[-1] if messages else None)


def _mark(message: SpaceMessage, run: Run, seen: int) -> Mark:
    return "SEEN" if message.pos <= seen or message.author == run.entity_id else "NEW"


def looked_at(run: Run, space_id: str, last: SpaceMessage | None) -> JsonObject:
    """The run's metadata after a prompt that showed a space up to this message."""
    if last is None:
        return run.metadata
    return {**run.metadata, SHOWN: {**_shown(run), space_id: [last.pos, last.id]}}


def _shown(run: Run) -> dict[str, list[Any]]:
    return run.metadata.get(SHOWN) or {}


def shown_pos(run: Run, space_id: str) -> int | None:
    """The number of the last message that a prompt of the run had; None when it never looked."""
    looked = _shown(run).get(space_id)
    return None if looked is None else looked[0]


async def mark_seen(tx: Transaction, run: Run) -> None:
    """A run completed: what its prompts showed, its agent has dealt with."""
    for space_id, (pos, message_id) in sorted(_shown(run).items()):
        membership = await tx.lock(Membership, space_id, run.entity_id)
        if membership is None:
            continue  # it left, or was let go
        pos, message_id = await _own_and_answers(tx, run, space_id, pos, message_id)
        if pos > membership.last_processed_pos:
            await tx.update(membership, last_processed_pos=pos, last_processed_message_id=message_id)


async def _own_and_answers(tx: Transaction, run: Run, space_id: str, pos: int, message_id: str) -> tuple[int, str]:
    """How far the run knows the space without a gap: on from what it was shown."""
    after = await tx.find(MESSAGES_AFTER, space_id=space_id, after=pos, limit=WINDOW)
    if not after:
        return pos, message_id
    answers = {(wait.answer or {}).get("message_id") for wait in await tx.find(ANSWERED, run_id=run.id)}
    for message in after:
        if message.author != run.entity_id and message.run_id != run.id and message.id not in answers:
            break
        pos, message_id = message.pos, message.id
    return pos, message_id
