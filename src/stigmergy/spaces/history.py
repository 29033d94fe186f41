"""What of a space an agent's run has before it, what is new in that, and how far it has come when the run is over.

A run looks at a space once: when it is started by a message there, up to that message; when it is started there otherwise or
enters, up to the last one. What comes later is `[NEW]` for the next run. How far it looked is in its metadata under `SHOWN`.
When the run completes, the agent's cursor in that space moves there, and on over what the run itself said, what it was told
meanwhile and the answers it had waited for. The cursor never moves back, and a run that failed moves nothing.
"""

from typing import Literal, NamedTuple

import msgspec

from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.model import WAITS, JsonObject, Run
from stigmergy.spaces.model import Membership, Roster, SpaceMessage
from stigmergy.spaces.run_metadata import SHOWN
from stigmergy.spaces.store import AFTER_ALL, MESSAGES_AFTER, MESSAGES_BELOW, MESSAGES_UPTO, last_pos, roster_of

# How many messages a prompt has.
WINDOW = 50
# Characters of one message in a prompt.
LONGEST_LINE = 4_000

ANSWERED = WAITS.query(
    "answered_replies", "WHERE tenant = :tenant AND run_id = :run_id AND kind = 'reply' AND status = 'answered'"
)

HEARD = "space:"
HEARD_BY = Statement(
    "run_messages.heard_by",
    "SELECT name FROM run_messages WHERE tenant = :tenant AND run_id = :run_id AND role = 'user' AND name LIKE 'space:%'",
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


async def history(tx: Snapshot, run: Run, space_id: str, *, limit: int = WINDOW) -> History:
    roster = await roster_of(tx, space_id)
    looked = _shown(run).get(space_id)
    upto = await last_pos(tx, space_id) if looked is None else looked[0]
    messages = await tx.find(MESSAGES_UPTO, space_id=space_id, upto=upto, limit=limit)
    messages.reverse()
    membership = await tx.get(Membership, space_id, run.entity_id)
    seen = 0 if membership is None else membership.last_processed_pos
    lines = [Line(each, _mark(each, run, seen), each.id == run.cause.message_id) for each in messages]
    return History(roster, lines, messages[-1] if messages else None)


def _mark(message: SpaceMessage, run: Run, seen: int) -> Mark:
    return "SEEN" if message.pos <= seen or message.author == run.entity_id else "NEW"


def looked_at(metadata: JsonObject, space_id: str, pos: int, message_id: str) -> JsonObject:
    """The metadata of a run that looked at a space up to this message."""
    return {**metadata, SHOWN: {**(metadata.get(SHOWN) or {}), space_id: [pos, message_id]}}


async def entered(tx: Snapshot, run: Run, space_id: str) -> JsonObject:
    """The metadata of a run that comes into a space. Coming back, it has looked already."""
    return run.metadata if space_id in _shown(run) else await looking(tx, run.metadata, space_id)


async def looking(tx: Snapshot, metadata: JsonObject, space_id: str) -> JsonObject:
    """The metadata of a run that looks at what was said in a space so far, were it nothing."""
    last = await tx.find(MESSAGES_BELOW, space_id=space_id, below=AFTER_ALL, limit=1)
    return looked_at(metadata, space_id, last[0].pos, last[0].id) if last else looked_at(metadata, space_id, 0, "")


def heard_as(message_id: str) -> str:
    """The name under which a message that came while a run was on stands in its log."""
    return f"{HEARD}{message_id}"


def _shown(run: Run) -> dict[str, tuple[int, str]]:
    """What has another form was written by a program outside, which says what it likes of its runs."""
    try:
        return msgspec.convert(run.metadata.get(SHOWN) or {}, dict[str, tuple[int, str]])
    except msgspec.ValidationError:
        return {}


async def mark_seen(tx: Transaction, run: Run) -> None:
    """A run completed: what its prompts showed, its agent has dealt with."""
    for space_id, (pos, message_id) in sorted(_shown(run).items()):
        membership = await tx.lock(Membership, space_id, run.entity_id)
        if membership is None:
            continue  # it left, or was let go
        pos, message_id = await _without_a_gap(tx, run, space_id, pos, message_id)
        if pos > membership.last_processed_pos:
            await tx.update(membership, last_processed_pos=pos, last_processed_message_id=message_id)


async def _without_a_gap(tx: Transaction, run: Run, space_id: str, pos: int, message_id: str) -> tuple[int, str]:
    """How far the run knows the space without a gap: on from what it was shown."""
    after = await tx.find(MESSAGES_AFTER, space_id=space_id, after=pos, limit=WINDOW)
    if not after:
        return pos, message_id
    known = {(wait.answer or {}).get("message_id") for wait in await tx.find(ANSWERED, run_id=run.id)}
    known |= {row[0].removeprefix(HEARD) for row in await tx.rows(HEARD_BY, run_id=run.id)}
    for message in after:
        if message.author != run.entity_id and message.run_id != run.id and message.id not in known:
            break
        pos, message_id = message.pos, message.id
    return pos, message_id


def line_text(line: Line) -> str:
    mark = f"[{line.mark}]{' [TRIGGER]' if line.is_trigger else ''}"
    return f"{mark} {message_text(line.message)}"


def message_text(message: SpaceMessage) -> str:
    """A message in one line of a prompt: its id, who said it, and what."""
    reply = f" in reply to {message.reply_to}" if message.reply_to is not None else ""
    said = "(deleted)" if message.deleted else message.content
    if len(said) > LONGEST_LINE:
        said = f"{said[:LONGEST_LINE]} … ({len(said):,} characters in all)"
    role = "" if message.role in ("human", "agent") else f" ({message.role})"
    return f"{message.id} {message.author_name}{role}{reply}: {said}"
