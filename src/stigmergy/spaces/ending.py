"""What the end of a run means for the space it was in: cursors move, a failure is told, what nobody has thought about yet starts
a run, and a question that it was started for has its answer.

It is found out while the run's last change is written, so whoever ends a run has nothing to remember. Speaking takes the space's
lock, which comes before a run's; so it is a unit of its own, set off by a timer that is due at once.
"""

from typing import Any

from stigmergy.kernel.journal import Change
from stigmergy.kernel.query import Statement
from stigmergy.kernel.rules import MAX_DEPTH
from stigmergy.kernel.timers import Timer, set_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.model import ENDED, RUNS, Run
from stigmergy.spaces.asking import question_ended
from stigmergy.spaces.commands import tell
from stigmergy.spaces.history import HEARD, mark_seen
from stigmergy.spaces.model import Space, SpaceMessage
from stigmergy.spaces.store import roster_of
from stigmergy.spaces.waking import start_for

TELL = "space.tell"

UNHEARD = Statement(
    "run_messages.unheard",
    """SELECT name FROM run_messages WHERE tenant = :tenant AND run_id = :run_id AND role = 'user' AND name LIKE 'space:%'
         AND pos > (SELECT coalesce(max(m.pos), 0) FROM run_messages m
                    WHERE m.tenant = :tenant AND m.run_id = :run_id AND m.role = 'assistant')
       ORDER BY pos DESC LIMIT 1""",
)


async def run_changed(tx: Transaction, change: Change) -> None:
    run, before = change.record, change.before
    if not isinstance(run, Run) or change.event != "update" or run.status not in ENDED:
        return
    if isinstance(before, Run) and before.status in ENDED:
        return
    if run.status == "completed":
        await mark_seen(tx, run)
    elif run.active_space_id is not None and change.depth < MAX_DEPTH:
        await _start_for_unheard(tx, change, run)
    if run.status == "failed" and run.parent_run_id is None and run.executor == "engine":
        await set_timer(tx, TELL, run.id, tx.now)
    await question_ended(tx, run)


async def tell_failure(tx: Transaction, timer: Timer) -> None:
    """The timer's effect: those in the space hear that a run failed, and why."""
    run = await tx.get(Run, timer.id)
    if run is None or run.status != "failed":
        return
    space_id = run.active_space_id or run.space_id
    if await tx.get(Space, space_id) is None:
        return
    member = (await roster_of(tx, space_id)).by_id.get(run.entity_id)
    name = member.name if member is not None else run.agent
    about = {"run": {"id": run.id, "status": run.status, "agent": run.agent}}
    await tell(tx, space_id, f"{name} could not finish: {(run.error or 'failed')[:1_000]}", run_id=run.id, metadata=about)


async def _start_for_unheard(tx: Transaction, change: Change, run: Run) -> None:
    """What came while the run was on, and was put into its log after its last thought, was thought about by nobody: of that the
    last message starts a run of its own."""
    for (name,) in await tx.rows(UNHEARD, run_id=run.id):
        message = await tx.get(SpaceMessage, name.removeprefix(HEARD))
        if message is not None and not message.deleted:
            await start_for(tx, change, message, run.entity_id)


def _after(first: Any, then: Any) -> Any:
    async def both(tx: Transaction, change: Change) -> None:
        await first(tx, change)
        await then(tx, change)

    return both if first is not None else then


RUNS.derive = _after(RUNS.derive, run_changed)
