"""The runs' SQL: what is asked of tasks, runs, their logs and waits, and the heads beside them."""

from typing import NamedTuple

from stigmergy.errors import NotFound
from stigmergy.kernel.leases import Claim, lost
from stigmergy.kernel.query import Statement, either
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.model import CHECKPOINTS, RUN_MESSAGES, RUNS, TASKS, THOUGHTS, TOOL_CALLS, VARIABLES, WAITS, Run

_MINE = "tenant = :tenant AND run_id = :run_id"
_NEWEST = "AND seq < :below ORDER BY tenant, seq DESC LIMIT :limit"
# Where something else chooses a few: an index of the order alone would have all looked at, and cannot be used with this.
_NEWEST_OF_FEW = "AND seq + 0 < :below ORDER BY seq + 0 DESC LIMIT :limit"

ADD_HEAD = Statement(
    "run_heads.add",
    """INSERT INTO run_heads (tenant, run_id, pos, agent, queue, active, parked)
       VALUES (:tenant, :run_id, :pos, :agent, :queue, FALSE, FALSE)""",
)
LOCK_HEAD = Statement("run_heads.lock", f"SELECT pos, agent, queue, active FROM run_heads WHERE {_MINE} {{for_update}}")
QUEUE = Statement("run_heads.queue", f"SELECT queue, active FROM run_heads WHERE {_MINE}")
POSITION = Statement("run_heads.position", f"SELECT pos FROM run_heads WHERE {_MINE}")
_ADVANCE = f"UPDATE run_heads SET pos = pos + :count WHERE {_MINE}"
ADVANCE = Statement("run_heads.advance", f"{_ADVANCE} RETURNING pos")
_HELD = (
    "ready.tenant = :tenant AND ready.queue = :queue AND ready.id = :run_id AND ready.worker = :worker AND ready.fence = :fence"
)
# The same for a worker, if the run is still its own; as one statement, since each step needs it twice. As everywhere the head is
# locked before the claim.
ADVANCE_HELD = Statement(
    "run_heads.advance_held",
    either(
        f"{_ADVANCE} AND EXISTS (SELECT 1 FROM ready WHERE {_HELD}) RETURNING pos",
        f"WITH head AS ({_ADVANCE} RETURNING pos) SELECT head.pos FROM head, ready WHERE {_HELD} FOR UPDATE OF ready",
    ),
)
MARK = Statement(
    "run_heads.mark",
    f"UPDATE run_heads SET active = CAST(:active AS BOOLEAN), parked = CAST(:parked AS BOOLEAN) WHERE {_MINE}",
)
ACTIVE = Statement(
    "run_heads.active",
    "SELECT count(*) FROM run_heads {by:run_heads_active}"
    " WHERE tenant = :tenant AND agent = :agent AND active AND run_id <> :run_id",
)
# Who is about to wait for room waits first for those who make some at this moment.
LOCK_ACTIVE = Statement(
    "run_heads.lock_active",
    """SELECT run_id FROM run_heads {by:run_heads_active}
       WHERE tenant = :tenant AND agent = :agent AND active AND run_id <> :run_id ORDER BY run_id {for_update}""",
)
# Those who began at once must see each other.
LOCK_AGENT = Statement("agents.lock", "SELECT name FROM agents WHERE tenant IN (:tenant, '*') AND name = :agent {for_update}")
PARKED = Statement(
    "run_heads.parked",
    "SELECT run_id, queue FROM run_heads {by:run_heads_parked}"
    " WHERE tenant = :tenant AND agent = :agent AND parked ORDER BY run_id LIMIT 1",
)

FIRST_CHANGE = Statement("runs.first_change", f"SELECT min(seq) FROM run_messages WHERE {_MINE} AND pos = 1")
OF_CAUSE = RUNS.query("of_cause", "WHERE tenant = :tenant AND cause_key = :cause_key")
OF_TREE = RUNS.query("of_tree", "WHERE tenant = :tenant AND root_id = :root_id ORDER BY tenant, root_id, nesting, id")
# What a list is narrowed to, and what whoever asks may see.
_CHOSEN = """tenant = :tenant
  AND (CAST(:agent AS TEXT) IS NULL OR agent = :agent) AND (CAST(:status AS TEXT) IS NULL OR status = :status)
  AND (CAST(:everything AS BOOLEAN) OR owner_id = :entity OR space_id IN (SELECT value FROM {each:spaces}))"""
NEWEST_RUNS = RUNS.query("newest", f"WHERE {_CHOSEN} {_NEWEST}")
# Of an agent in a status: those that are not over are few, however many it ever had.
OF_AGENT = RUNS.query("of_agent", f"WHERE agent = :agent AND status = :status AND {_CHOSEN} {_NEWEST_OF_FEW}")
OF_PARENT = RUNS.query(
    "of_parent",
    f"""WHERE root_id = (SELECT root_id FROM runs WHERE tenant = :tenant AND id = :parent)
        AND parent_run_id = :parent AND {_CHOSEN} {_NEWEST_OF_FEW}""",
)
OF_SPACE = RUNS.query("of_space", f"WHERE space_id = :space_id AND {_CHOSEN} {_NEWEST_OF_FEW}")
_OUTSIDE = "tenant = :tenant AND executor = 'external' AND (CAST(:status AS TEXT) IS NULL OR status = :status)"
OUTSIDE = RUNS.query("outside", f"WHERE {_OUTSIDE} {_NEWEST}")
OUTSIDE_OF_TASK = RUNS.query("outside_of_task", f"WHERE task_id = :task_id AND {_OUTSIDE} {_NEWEST_OF_FEW}")
COUNT_WAITING = Statement(
    "runs.count_waiting",
    "SELECT count(*) FROM runs WHERE tenant = :tenant AND agent = :agent AND status = 'waiting_reply' AND id <> :run_id",
)
COUNT_CHILDREN = Statement("runs.count_children", "SELECT count(*) FROM tasks WHERE tenant = :tenant AND parent_run_id = :run_id")

LAST_MESSAGES = RUN_MESSAGES.query(
    "last", f"WHERE {_MINE} AND pos > :after AND pos <= :upto ORDER BY tenant, run_id, pos DESC LIMIT :limit"
)
MESSAGES_FROM = RUN_MESSAGES.query(
    "from", f"WHERE {_MINE} AND pos > :after AND pos <= :upto ORDER BY tenant, run_id, pos LIMIT :limit"
)
SYSTEM_MESSAGE = RUN_MESSAGES.query("system", f"WHERE {_MINE} AND pos = 1 AND role = 'system'")
OF_STEP = RUN_MESSAGES.query("of_step", f"WHERE {_MINE} AND step = :step AND role = 'assistant'")
HEARD_SINCE = Statement(
    "run_messages.heard_since", f"SELECT 1 FROM run_messages WHERE {_MINE} AND pos > :after AND role = 'user' LIMIT 1"
)
CALLS_FROM = TOOL_CALLS.query("from_step", f"WHERE {_MINE} AND step >= :step ORDER BY opened_pos")
CALLS_OF_STEP = TOOL_CALLS.query("of_step", f"WHERE {_MINE} AND step = :step ORDER BY opened_pos")
OPEN_CALLS = TOOL_CALLS.query("open", f"WHERE {_MINE} AND step = :step AND status IN ('pending', 'running') ORDER BY opened_pos")
COUNT_OPEN = Statement(
    "run_tool_calls.count_open", f"SELECT count(*) FROM run_tool_calls WHERE {_MINE} AND step = :step AND settled_pos IS NULL"
)
LAST_CALLS = Statement(
    "run_tool_calls.last", f"SELECT tool_name, args FROM run_tool_calls WHERE {_MINE} ORDER BY step DESC, opened_pos DESC LIMIT 6"
)
THOUGHTS_OF = THOUGHTS.query("of_run", f"WHERE {_MINE} AND pos > :after ORDER BY pos LIMIT :limit")
VARIABLES_OF = VARIABLES.query("of_run", f"WHERE {_MINE} ORDER BY pos")
CHECKPOINTS_OF = CHECKPOINTS.query("of_run", f"WHERE {_MINE} ORDER BY pos")

WAITS_OF_STEP = WAITS.query(
    "of_step",
    f"""WHERE {_MINE} AND (call_id IN (:pause, :before) OR call_id IN (SELECT c.id FROM run_tool_calls c
          WHERE c.tenant = :tenant AND c.run_id = :run_id AND c.step = :step)) ORDER BY call_id, party""",
)
WAITS_OF_RUN = WAITS.query("of_run", f"WHERE {_MINE} AND status = 'open'")
WAITS_OF_CALL = WAITS.query("of_call", f"WHERE {_MINE} AND call_id = :call_id ORDER BY party")
REPLIES_OF_PARTY = WAITS.query(
    "replies_of_party",
    "{by:waits_party} WHERE tenant = :tenant AND party = :party AND space_id = :space_id AND status = 'open' AND kind = 'reply'"
    " ORDER BY run_id",
)
CHILD_OF_PARTY = WAITS.query(
    "child_of_party", "{by:waits_party} WHERE tenant = :tenant AND party = :party AND status = 'open' AND kind = 'child'"
)
WAIT_BY_ID = WAITS.query("by_id", "WHERE tenant = :tenant AND id = :id")
INBOX = WAITS.query(
    "inbox",
    "{by:waits_open} WHERE tenant = :tenant AND status = 'open' AND kind <> 'child' AND seq > :after"
    " AND (CAST(:for_entity AS TEXT) IS NULL OR for_entity = :for_entity)"
    " AND (CAST(:everything AS BOOLEAN) OR for_entity = :entity OR EXISTS"
    " (SELECT 1 FROM runs r WHERE r.tenant = waits.tenant AND r.id = waits.run_id AND r.owner_id = :entity))"
    " ORDER BY seq LIMIT :limit",
)

TASK_OF_RUN = TASKS.query("of_run", "WHERE tenant = :tenant AND id = :task_id")
_SUCH_TASKS = (
    "tenant = :tenant AND (CAST(:status AS TEXT) IS NULL OR status = :status)"
    " AND (CAST(:executor AS TEXT) IS NULL OR executor = :executor) AND (CAST(:owner_id AS TEXT) IS NULL OR owner_id = :owner_id)"
)
TASKS_OF_SPACE = TASKS.query("of_space", f"WHERE space_id = :space_id AND {_SUCH_TASKS} {_NEWEST_OF_FEW}")
TASKS_OF_OWNER = TASKS.query("of_owner", f"WHERE owner_id = :owner_id AND {_SUCH_TASKS} {_NEWEST_OF_FEW}")
TASKS_OF_MESSAGE = TASKS.query(
    "of_message",
    "WHERE trigger_message_id = :trigger_message_id AND (CAST(:space_id AS TEXT) IS NULL OR space_id = :space_id)"
    f" AND {_SUCH_TASKS} {_NEWEST_OF_FEW}",
)
NEWEST_TASKS = TASKS.query("newest", f"WHERE {_SUCH_TASKS} {_NEWEST}")


class Head(NamedTuple):
    """What is kept beside a run. Who holds it locked, on PostgreSQL, is the only one to write to the run."""

    pos: int
    agent: str
    queue: str
    active: bool


async def lock_head(tx: Transaction, run_id: str) -> Head:
    rows = await tx.rows(LOCK_HEAD, run_id=run_id)
    if not rows:
        raise NotFound(f"no run {run_id}")
    return Head(*rows[0])


async def advance(tx: Transaction, run_id: str, count: int) -> int:
    """Take so many positions of a run's log, and lock it. Gives the first."""
    ((pos,),) = await tx.rows(ADVANCE, run_id=run_id, count=count)
    return pos - count + 1


async def advance_held(tx: Transaction, worker: str, claim: Claim, count: int) -> int:
    """The same for the worker that has claimed the run: refused unless it is still its own, and stays so until the commit."""
    held = {"queue": claim.queue, "worker": worker, "fence": claim.fence}
    rows = await tx.rows(ADVANCE_HELD, run_id=claim.id, count=count, **held)
    if not rows:
        raise lost(claim)
    return rows[0][0] - count + 1


async def locked_run(tx: Transaction, run_id: str) -> Run:
    """A run as it is now, kept so until this unit ends."""
    await lock_head(tx, run_id)
    return await the_run(tx, run_id)


async def the_run(tx: Snapshot, run_id: str) -> Run:
    run = await tx.get(Run, run_id)
    if run is None:
        raise NotFound(f"no run {run_id}")
    return run
