"""How much an agent may wait for replies to what it says: so often in a run, one wait after another, and in so many runs at once.

What is over a limit is refused before anything is said, so that nobody is asked for a reply that nobody waits for.
"""

from stigmergy.agents.model import Limits
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.model import Run
from stigmergy.spaces.model import Entity

OTHERS_WAITING = Statement(
    "runs.others_waiting_for_replies",
    """SELECT r.id FROM runs r {by:runs_agent}
       WHERE r.tenant = :tenant AND r.agent = :agent AND r.id <> :run_id AND r.status IN ('running', 'waiting_reply')
         AND EXISTS (SELECT 1 FROM waits w
                     WHERE w.tenant = r.tenant AND w.run_id = r.id AND w.kind = 'reply' AND w.status = 'open')
       LIMIT :limit""",
)
# Since the run began, or was last woken.
WAITED = Statement(
    "waits.of_run_since",
    """SELECT count(DISTINCT w.call_id) FROM waits w
       JOIN run_tool_calls c ON c.tenant = w.tenant AND c.run_id = w.run_id AND c.id = w.call_id
       WHERE w.tenant = :tenant AND w.run_id = :run_id AND w.kind = 'reply' AND c.step > :since""",
)


async def why_not_wait(tx: Transaction, run: Run, limits: Limits) -> str | None:
    """What speaks against one wait more."""
    ((waited,),) = await tx.rows(WAITED, run_id=run.id, since=run.max_steps - limits.max_steps)
    if waited >= limits.successive_waits:
        return f"you have waited {waited} times, one after another, and may not wait again; go on with what you know"
    others = await _others_waiting(tx, run, limits.waiting_runs)
    if others + limits.concurrent_runs >= limits.waiting_runs:
        # others may be about to wait as well: they come here one by one, and each sees those before it
        await tx.lock(Entity, run.entity_id)
        others = await _others_waiting(tx, run, limits.waiting_runs)
    if others >= limits.waiting_runs:
        return f"{others} other runs of yours wait for replies already; send it without waiting, or stop one with stop_run"
    return None


async def _others_waiting(tx: Transaction, run: Run, limit: int) -> int:
    return len(await tx.rows(OTHERS_WAITING, agent=run.agent, run_id=run.id, limit=limit))
