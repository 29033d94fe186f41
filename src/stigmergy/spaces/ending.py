"""What the end of a run means for the space it was in: cursors move, a failure is told, and what nobody heard starts a run.

It is found out while the run's last change is written, so whoever ends a run has nothing to remember. Telling takes the space's
lock, which comes before a run's; so it is a unit of its own, set off by a timer that is due at once.
"""

from typing import Any

from stigmergy.errors import NotFound
from stigmergy.kernel.journal import Change
from stigmergy.kernel.rules import MAX_DEPTH
from stigmergy.kernel.timers import Timer, set_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.model import ENDED, RUNS, Run
from stigmergy.spaces.commands import tell
from stigmergy.spaces.history import ANSWERED, WINDOW, mark_seen, shown_pos
from stigmergy.spaces.model import Roster, Space, SpaceMessage
from stigmergy.spaces.store import MESSAGES_AFTER, roster_of
from stigmergy.spaces.waking import addressed, hears_in_same_run, start_for

TELL = "space.tell"


async def run_changed(tx: Transaction, change: Change) -> None:
    run, before = change.record, change.before
    if not isinstance(run, Run) or change.event != "update" or run.status not in ENDED:
        return
    if isinstance(before, Run) and before.status in ENDED:
        return
    if run.status == "completed":
        await mark_seen(tx, run)
    elif run.status == "failed" and run.parent_run_id is None:
        await set_timer(tx, TELL, run.id, tx.now)
    if run.active_space_id is not None and change.depth < MAX_DEPTH:
        await _start_for_unheard(tx, change, run, run.active_space_id)


async def tell_failure(tx: Transaction, timer: Timer) -> None:
    """The timer's effect: those in the space hear that a run failed, and why."""
    run = await tx.get(Run, timer.id)
    if run is None or run.status != "failed":
        return
    space_id = run.active_space_id or run.space_id
    if await tx.get(Space, space_id) is None:
        return
    name = run.agent
    member = (await roster_of(tx, space_id)).by_id.get(run.entity_id)
    if member is not None:
        name = member.name
    about = {"run": {"id": run.id, "status": run.status, "agent": run.agent}}
    await tell(tx, space_id, f"{name} could not finish: {(run.error or 'failed')[:1_000]}", run_id=run.id, metadata=about)


async def _start_for_unheard(tx: Transaction, change: Change, run: Run, space_id: str) -> None:
    """An agent that takes what comes meanwhile into the run that is on has not heard what came after its last look: of that
    the last message starts a run, which sees them all."""
    if not await hears_in_same_run(tx, run.agent):
        return
    after = await _last_look(tx, run, space_id)
    if after is None:
        return
    try:
        roster = await roster_of(tx, space_id)
    except NotFound:
        return
    missed = await tx.find(MESSAGES_AFTER, space_id=space_id, after=after, limit=10 * WINDOW)
    if not missed:
        return
    answers = {(wait.answer or {}).get("message_id") for wait in await tx.find(ANSWERED, run_id=run.id)}
    unheard = [each for each in missed if each.id not in answers and _is_for(roster, each, run.entity_id)]
    if unheard:
        await start_for(tx, change, unheard[-1], run.entity_id)


async def _last_look(tx: Transaction, run: Run, space_id: str) -> int | None:
    shown = shown_pos(run, space_id)
    if shown is not None or run.cause.message_id is None:
        return shown
    message = await tx.get(SpaceMessage, run.cause.message_id)
    return message.pos if message is not None and message.space_id == space_id else None


def _is_for(roster: Roster, message: SpaceMessage, entity_id: str) -> bool:
    if message.role not in ("human", "agent") or message.deleted or entity_id in message.wakes:
        return False
    return any(member.id == entity_id for member in addressed(roster, message.author, message.mentions))


def _after(first: Any, then: Any) -> Any:
    async def both(tx: Transaction, change: Change) -> None:
        await first(tx, change)
        await then(tx, change)

    return both if first is not None else then


RUNS.derive = _after(RUNS.derive, run_changed)
