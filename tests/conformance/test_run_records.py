"""The records of runs as others look at them: by the indexes that they are asked through, under the names that they know."""

import json
from typing import Any

import pytest

from stigmergy import App, tool
from stigmergy.kernel.database import Database
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from stigmergy.runs.model import (
    CALL_TRANSITIONS,
    RUN_TRANSITIONS,
    SUB_AGENT_STATUS,
    TASK_TRANSITIONS,
    InvalidTransition,
    RunStatus,
    check_transition,
)
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, calls, ended, until_status, until_waiting
from support.units import whole_journal


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


# What each index of the seed is for: how it is asked, and through which index.
ASKED = {
    "tasks of a chat": ("SELECT id FROM tasks WHERE tenant = :tenant AND space_id = :key ORDER BY created_at", "tasks_space"),
    "tasks of a user": ("SELECT id FROM tasks WHERE tenant = :tenant AND owner_id = :key ORDER BY created_at", "tasks_owner"),
    "tasks of a message": ("SELECT id FROM tasks WHERE tenant = :tenant AND trigger_message_id = :key", "tasks_trigger_message"),
    "runs of a user": ("SELECT id FROM runs WHERE tenant = :tenant AND owner_id = :key ORDER BY created_at", "runs_owner"),
    "runs of a task": ("SELECT id FROM runs WHERE tenant = :tenant AND task_id = :key", "runs_task"),
    "messages of a run": ("SELECT pos FROM run_messages WHERE tenant = :tenant AND run_id = :key ORDER BY pos", "run_messages"),
    "messages of a user": (
        "SELECT pos FROM run_messages WHERE tenant = :tenant AND owner_id = :key ORDER BY created_at",
        "run_messages_owner",
    ),
    "calls of a run": ("SELECT id FROM run_tool_calls WHERE tenant = :tenant AND run_id = :key", "run_tool_calls"),
    "calls of a user": ("SELECT id FROM run_tool_calls WHERE tenant = :tenant AND owner_id = :key", "run_tool_calls_owner"),
    "sub-agents of a task": ("SELECT id FROM sub_agents WHERE tenant = :tenant AND task_id = :key", "runs_task"),
    "messages of a sub-agent": (
        "SELECT id FROM sub_agent_messages WHERE tenant = :tenant AND sub_agent_id = :key",
        "run_messages",
    ),
}


@pytest.mark.parametrize("what", ASKED)
async def test_what_the_indexes_are_for_is_found_through_them(store: Database, what: str) -> None:
    sql, index = ASKED[what]
    plan = await store.write(_plan, sql)
    assert index in plan, plan
    assert "SCAN" not in plan.replace("SCAN CONSTANT", "")
    assert "Seq Scan" not in plan


async def _plan(tx: Transaction, sql: str) -> str:
    """How the engine means to find it; PostgreSQL without the way that small tables tempt it to."""
    version = await tx.rows(Statement("test.engine", "-- sqlite:\nSELECT 'sqlite'\n-- postgres:\nSELECT 'postgres'"))
    if version[0][0] == "postgres":
        await tx.rows(Statement("test.no_scan", "SELECT set_config('enable_seqscan', 'off', TRUE)"))
        await tx.rows(Statement("test.no_bitmap", "SELECT set_config('enable_bitmapscan', 'off', TRUE)"))
    text = f"-- sqlite:\nEXPLAIN QUERY PLAN {sql}\n-- postgres:\nEXPLAIN {sql}"
    return "\n".join(str(column) for row in await tx.rows(Statement("test.plan", text), key="x") for column in row)


VIEWS = {
    "sub_agents": "tenant id user_id chat_id task_id role status iteration_count created_at updated_at",
    "sub_agent_messages": "tenant id user_id sub_agent_id role content tool_call_id tool_calls name created_at",
    "sub_agent_tool_calls": "tenant id user_id sub_agent_id tool_name args status result error created_at",
    "tasks": "tenant id owner_id space_id type name instruction run_id trigger_message_id status result error",
}


@pytest.mark.parametrize("view", VIEWS)
async def test_the_views_have_the_columns_that_other_programs_know(store: Database, view: str) -> None:
    columns = VIEWS[view].replace(" ", ", ")
    assert await store.read(_rows, f"SELECT {columns} FROM {view} WHERE tenant = :tenant") == []


async def _rows(tx: Snapshot, sql: str) -> list[tuple[Any, ...]]:
    return await tx.rows(Statement("test.rows", sql))


def parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


async def test_a_run_under_the_names_that_other_programs_know(settings: Settings) -> None:
    script = Steps(calls(asked("add", a=1, b=2), asked("add", '{"a": '), text="Adding"), call("ask_user", question="?"), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[add])]) as app:
        task, run = await app.runs.give_task("agent:ada", "add")
        assert run is not None
        (wait,) = await until_waiting(app)
        await until_status(app, run.id, "waiting_reply")
        of = "FROM sub_agents WHERE tenant = :tenant"
        assert await app.read(_rows, f"SELECT id, task_id, role, status, iteration_count {of}") == [
            (run.id, task.id, "ada", "waiting_for_user", 2)
        ]
        await app.runs.answer(wait.id, text="yes")
        await ended(app, run.id)
        assert await app.read(_rows, f"SELECT status {of}") == [("completed",)]
        messages = await app.read(
            _rows,
            "SELECT role, content, tool_call_id, tool_calls, name FROM sub_agent_messages WHERE tenant = :tenant"
            " AND role IN ('assistant', 'tool') ORDER BY id",
        )
        adding = next(row for row in messages if row[1] == "Adding")
        first, second = parsed(adding[3])
        assert (first["id"], first["type"], first["function"]["name"]) == ("call_1_1", "function", "add")
        assert json.loads(first["function"]["arguments"]) == {"a": 1, "b": 2}
        assert second["function"]["arguments"] == '{"a": '
        assert next(row[3] for row in messages if row[1] == "done") is None
        assert sorted(row[2] for row in messages if row[0] == "tool") == ["call_1_1", "call_1_2", "call_2_1"]
        found = await app.read(
            _rows, "SELECT id, status, result FROM sub_agent_tool_calls WHERE tenant = :tenant AND tool_name = 'add' ORDER BY id"
        )
        assert [(id, status, parsed(result)) for id, status, result in found] == [
            ("call_1_1", "success", 3),
            ("call_1_2", "failed", None),
        ]


async def test_nothing_is_seen_of_another_tenant_through_the_views(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps("done"))]) as app:
        await app.ask("ada", "go", timeout=20)
        for view in ("sub_agents", "sub_agent_messages", "sub_agent_tool_calls"):
            sql = f"SELECT id FROM {view} WHERE tenant = :tenant"
            assert await app.database.read(_rows, sql, scope=Scope("other")) == []


TABLES = {"task": TASK_TRANSITIONS, "run": RUN_TRANSITIONS, "call": CALL_TRANSITIONS}


@pytest.mark.parametrize("kind", TABLES)
def test_what_a_table_of_transitions_does_not_have_is_refused(kind: str) -> None:
    table = TABLES[kind]
    for before in table:
        for after in table:
            if after in table[before]:
                check_transition(table, kind, before, after)
            else:
                with pytest.raises(InvalidTransition) as refused:
                    check_transition(table, kind, before, after)
                assert (refused.value.status, refused.value.code) == (409, "invalid_transition")


def test_every_status_of_a_run_has_a_name_for_other_programs() -> None:
    assert set(SUB_AGENT_STATUS) == set(RunStatus.__args__)
    assert set(SUB_AGENT_STATUS.values()) == {"active", "waiting_for_user", "completed", "failed"}


async def test_a_task_and_its_run_move_in_one_transaction(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps("done"))]) as app:
        _, run = await app.runs.give_task("agent:ada", "go")
        assert run is not None
        await ended(app, run.id)
        journal = [change for change in await whole_journal(app.database) if change.collection in ("tasks", "runs")]
        last_run = max(change.seq for change in journal if change.collection == "runs")
        last_task = max(change.seq for change in journal if change.collection == "tasks")
        assert abs(last_run - last_task) == 1
        assert {change.at for change in journal if change.seq in (last_run, last_task)} == {journal[-1].at}
