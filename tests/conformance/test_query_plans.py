"""Queries that must stay short however much there is go by an index: asked of the planner of each engine."""

from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from stigmergy.kernel.query import Statement
from stigmergy.runs import store as runs
from stigmergy.spaces import clients, following, prompt, waking
from stigmergy.spaces import store as spaces
from stigmergy.triggers import store as triggers
from support.stores import OpenStore

_SUCH = {"status": None, "executor": None, "owner_id": None, "space_id": None, "below": 10**15, "limit": 50}
_CHOSEN = {"agent": None, "status": None, "entity": "mia", "spaces": "[]", "everything": True, "below": 10**15, "limit": 50}
_IDS = msgspec.json.encode([str(n) for n in range(64)]).decode()
# Those that say by which index SQLite is to go: of these it is asked which of its columns it uses.
SAID: list[tuple[Statement, dict[str, Any], str]] = [
    (runs.REPLIES_OF_PARTY, {"party": "mia", "space_id": "s"}, "waits_party (tenant=? AND party=? AND space_id=?)"),
    (runs.CHILD_OF_PARTY, {"party": "r"}, "waits_party (tenant=? AND party=?)"),
    (runs.ACTIVE, {"agent": "ada", "run_id": "r"}, "run_heads_active (tenant=? AND agent=?)"),
    (runs.LOCK_ACTIVE, {"agent": "ada", "run_id": "r"}, "run_heads_active (tenant=? AND agent=?)"),
    (runs.PARKED, {"agent": "ada"}, "run_heads_parked (tenant=? AND agent=?)"),
    (following.WAITING_FOR, {"entity_id": "mia", "space_id": "s"}, "waits_inbox (tenant=? AND for_entity=?)"),
    (following.AT_WORK, {"space_id": "s"}, "runs_agent (tenant=? AND agent=? AND status=?)"),
    (clients.OPEN_FOR, {"entity_id": "mia", "limit": 50}, "waits_inbox (tenant=? AND for_entity=? AND kind=?)"),
    (clients.CLIENTS_OF, {"entity_id": "mia", "now": 0}, "clients_entity (tenant=? AND entity_id=?)"),
    (waking.BUSY, {"agent": "ada", "space_id": "s"}, "runs_agent (tenant=? AND agent=? AND status=?)"),
    (prompt.OTHER_RUNS, {"agent": "ada", "run_id": "r", "limit": 10}, "runs_agent (tenant=? AND agent=? AND status=?)"),
    (spaces.MESSAGES_UPTO, {"space_id": "s", "upto": 5, "limit": 50}, "space_messages_pos (tenant=? AND space_id=? AND pos<?)"),
    (spaces.SPACES_OF, {"entity_id": "mia", "after": "", "limit": 20}, "memberships_entity (tenant=? AND entity_id=?)"),
    (spaces.JOINED, {"entity_id": "mia", "limit": 20}, "memberships_entity (tenant=? AND entity_id=?)"),
    (spaces.GOALS_OF, {"entity_id": "mia", "status": None, "limit": 20}, "goals_entity (tenant=? AND entity_id=?)"),
    (spaces.PLANS_OF, {"entity_id": "mia", "limit": 20}, "plans_entity (tenant=? AND entity_id=?)"),
    (spaces.KEYS_OF, {"agent": "ada"}, "service_keys_agent (tenant=? AND agent=?)"),
]
# What is asked, and the index that it goes by on SQLite and on PostgreSQL.
GOING_BY: list[tuple[Statement, dict[str, Any], str, str]] = [
    (runs.TASKS_OF_SPACE, _SUCH | {"space_id": "s"}, "tasks_space", "tasks_space"),
    (runs.TASKS_OF_OWNER, _SUCH | {"owner_id": "mia"}, "tasks_owner", "Index Scan using tasks_"),
    (runs.TASKS_OF_MESSAGE, _SUCH | {"trigger_message_id": "m"}, "tasks_trigger_message", "tasks_trigger_message"),
    (runs.NEWEST_TASKS, _SUCH, "tasks_seq", "tasks_seq"),
    (runs.OUTSIDE_OF_TASK, {"task_id": "t", "status": None, "below": 10**15, "limit": 50}, "runs_task", "runs_task"),
    (runs.MESSAGES_FROM, {"run_id": "r", "after": 0, "upto": 10**15, "limit": 50}, "PRIMARY KEY", "run_messages_pkey"),
    (runs.CALLS_FROM, {"run_id": "r", "step": 0}, "run_tool_calls", "run_tool_calls"),
    (triggers.NEXT, {"lanes": _IDS, "beyond": 8, "everything": 10**15}, "deliveries_lane", "deliveries_lane"),
    (triggers.at_seqs("tasks"), {"seqs": _IDS}, "tasks_seq (tenant=? AND seq=?)", "tasks_seq"),
    (triggers.LIST_DEAD, {"trigger_id": None, "below": "~", "limit": 50}, "deliveries_dead", "deliveries_dead"),
    (runs.NEWEST_RUNS, _CHOSEN, "runs_seq", "runs_seq"),
    (runs.OF_AGENT, _CHOSEN | {"agent": "a", "status": "running"}, "runs_agent", "runs_agent"),
    (runs.OF_PARENT, _CHOSEN | {"parent": "r"}, "runs_root", "Index Scan using runs_"),
    (runs.OF_SPACE, _CHOSEN | {"space_id": "s"}, "runs_space", "Index Scan using runs_"),
    (runs.INBOX, {"for_entity": "mia", "entity": "mia", "everything": True, "after": 0, "limit": 50}, "waits_open", "waits_"),
]


@pytest.fixture
async def explain(engine: str, open_store: OpenStore, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    await (await open_store()).close()

    async def sqlite(statement: Statement, given: dict[str, Any]) -> str:
        connection = apsw.Connection(str(tmp_path / "store.db"))
        try:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statement.sqlite}", statement.bind(given, "main")).fetchall()
        finally:
            connection.close()
        return "\n".join(str(row[3]) for row in rows)

    async def postgres(statement: Statement, given: dict[str, Any]) -> str:
        connection = await asyncpg.connect(request.getfixturevalue("postgres_database").owner)
        try:
            # a table that is empty would be read as a whole
            await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
            rows = await connection.fetch(f"EXPLAIN {statement.postgres}", *statement.bind(given, "main"))
        finally:
            await connection.close()
        return "\n".join(row[0] for row in rows)

    return sqlite if engine == "sqlite" else postgres


@pytest.mark.parametrize("asked", GOING_BY, ids=lambda asked: asked[0].name)
async def test_a_query_goes_by_its_index(engine: str, explain: Any, asked: tuple[Statement, dict[str, Any], str, str]) -> None:
    statement, given, on_sqlite, on_postgres = asked
    plan = await explain(statement, given)
    assert (on_sqlite if engine == "sqlite" else on_postgres) in plan, plan


async def test_what_is_next_is_looked_up_lane_by_lane_however_many_wait(engine: str, explain: Any) -> None:
    """One plan read every delivery that waited, for each lane."""
    plan = await explain(triggers.NEXT, GOING_BY[7][1])
    if engine == "sqlite":
        assert "deliveries_lane (tenant=?)" not in plan, plan
        assert "deliveries_lane (tenant=? AND lane=? AND change_seq<?)" in plan, plan
    else:
        assert "Seq Scan on deliveries" not in plan, plan


@pytest.mark.parametrize("asked", SAID, ids=lambda asked: asked[0].name)
async def test_a_query_of_conversations_reads_no_more_than_is_its_own(
    engine: str, explain: Any, asked: tuple[Statement, dict[str, Any], str]
) -> None:
    statement, given, wanted = asked
    plan = await explain(statement, given)
    assert wanted in plan if engine == "sqlite" else "Seq Scan" not in plan, plan
