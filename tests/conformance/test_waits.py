"""Waits: their form, their ends, and answers in the same moment; over clients, replies and restarts."""

import asyncio
import json
from typing import Any

import pytest

from stigmergy import App, Reply, Request
from stigmergy.agents.model import AgentRecord, ToolSpec
from stigmergy.errors import Conflict, Invalid, NotFound
from stigmergy.kernel.database import Database
from stigmergy.kernel.timers import Timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import queries, waits
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.model import Run, RunMessage, ToolCall
from stigmergy.runs.settling import timer_id
from stigmergy.runs.store import advance
from stigmergy.runs.tools import Party, Waiting
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, calls, ended, results, until_status, until_waiting
from support.talk import add_agents

BOTH = (Party("agent:b", "B", "agent"), Party("agent:c", "C", "agent"))
CLIENT = ToolSpec(name="pick", execution_type="client", display={"customUI": "picker"})


async def a_waiting_run(tx: Transaction, timeout_ms: int = 300_000, parties: tuple[Party, ...] = BOTH) -> Run:
    """A run that waits for replies in a space, as its worker would have left it."""
    if await tx.get(AgentRecord, "a") is None:
        await add_agents(tx, "a")
    run = await start_run(tx, Start(agent="a", instruction="go", owner_id="mia", space_id="s1"))
    run = await tx.update(run, status="running", step=1)
    pos = await advance(tx, run.id, 2)
    await tx.insert(RunMessage(run_id=run.id, pos=pos, owner_id="mia", space_id="s1", step=1, role="assistant", content=""))
    await tx.insert(
        ToolCall(
            run_id=run.id,
            id="c1",
            owner_id="mia",
            space_id="s1",
            opened_pos=pos + 1,
            step=1,
            tool_name="send_message",
            args={},
            status="running",
        )
    )
    waiting = Waiting(kind="reply", parties=parties, timeout_ms=timeout_ms, space_id="s1", message_id="m1")
    await waits.open_waits(tx, run, "c1", waiting)
    return await tx.update(run, status="waiting_reply")


async def reply(tx: Transaction, who: str, text: str) -> list[str]:
    return await waits.answer_reply(
        tx, space_id="s1", entity_id=who, entity_name=who[-1].upper(), text=text, message_id=f"m-{who}"
    )


async def expire(tx: Transaction, run: Run) -> None:
    await waits.expire(tx, Timer("main", "run.wait", timer_id(run.id, "c1"), 0))


async def result_of(store: Database, run: Run) -> Any:
    (called,) = await store.read(queries.calls, run.id)
    return called.result


async def test_works_when_5_one_resume_with_both_replies_after_the_last_one(store: Database) -> None:
    run = await store.write(a_waiting_run)
    await store.write(reply, "agent:b", "from b")
    view = await store.read(queries.view, run.id)
    assert view.run.status == "waiting_reply"
    await store.write(reply, "agent:c", "from c")
    view = await store.read(queries.view, run.id)
    assert (view.run.status, view.wait_state) == ("running", None)
    result = await result_of(store, run)
    assert (result["status"], [each["text"] for each in result["replies"]]) == ("resolved", ["from b", "from c"])
    messages = [message for message in await store.read(queries.messages, run.id) if message.role == "tool"]
    assert len(messages) == 1
    assert await store.write(reply, "agent:c", "and again") == []


async def test_works_when_5_only_one_before_the_deadline_is_a_partial_timeout_that_names_the_other(store: Database) -> None:
    run = await store.write(a_waiting_run)
    await store.write(reply, "agent:b", "from b")
    await store.write(expire, run)
    result = await result_of(store, run)
    assert (result["status"], result["missing"], len(result["replies"])) == ("partial_timeout", ["C"], 1)
    await store.write(expire, run)
    assert (await store.read(queries.view, run.id)).run.status == "running"


async def test_nobody_before_the_deadline_is_a_timeout(store: Database) -> None:
    run = await store.write(a_waiting_run)
    await store.write(expire, run)
    result = await result_of(store, run)
    assert (result["status"], result["missing"], result["replies"]) == ("timeout", ["B", "C"], [])


async def test_works_when_5_answers_and_the_deadline_in_the_same_moment_are_neither_lost_nor_doubled(store: Database) -> None:
    for _ in range(20):
        run = await store.write(a_waiting_run)
        await asyncio.gather(
            store.write(reply, "agent:b", "from b"), store.write(reply, "agent:c", "from c"), store.write(expire, run)
        )
        view = await store.read(queries.view, run.id)
        assert view.run.status == "running"
        result = await result_of(store, run)
        assert len(result["replies"]) + len(result.get("missing", ())) == 2
        messages = [message for message in await store.read(queries.messages, run.id) if message.role == "tool"]
        assert len(messages) == 1


async def test_works_when_5_an_answer_in_the_same_moment_as_its_wait_is_seen(store: Database) -> None:
    """Whoever comes second sees the other: the wait is answered, or there is nobody who waits and the answer is a message."""

    async def wait_now(tx: Transaction) -> Run:
        return await a_waiting_run(tx, parties=(BOTH[0],))

    for _ in range(20):
        run, answered = await asyncio.gather(store.write(wait_now), store.write(reply, "agent:b", "from b"))
        if run.id not in answered:
            assert await store.write(reply, "agent:b", "from b") == [run.id]
        assert (await result_of(store, run))["status"] == "resolved"


async def test_the_wait_state_has_the_form_that_other_programs_know(store: Database) -> None:
    run = await store.write(a_waiting_run)
    await store.write(reply, "agent:b", "Looks good")
    view = await store.read(queries.view, run.id)
    assert view.wait_state is not None
    (replied,) = view.wait_state["replies"]
    assert view.wait_state == {
        "kind": "reply",
        "spaceId": "s1",
        "messageId": "m1",
        "toolCallId": "c1",
        "waitingFor": [
            {"entityId": "agent:b", "entityName": "B", "entityType": "agent", "responded": True},
            {"entityId": "agent:c", "entityName": "C", "entityType": "agent", "responded": False},
        ],
        "startedAt": view.wait_state["startedAt"],
        "timeout": 300_000,
        "replies": [
            {
                "entityId": "agent:b",
                "entityName": "B",
                "text": "Looks good",
                "messageId": "m-agent:b",
                "timestamp": replied["timestamp"],
            }
        ],
    }
    for time in (view.wait_state["startedAt"], replied["timestamp"]):
        assert time.endswith("Z")
        assert time[10] == "T"


async def test_how_long_is_waited(settings: Settings) -> None:
    script = Steps(calls(asked("ask_user", question="?"), asked("pick")))
    async with App(settings=settings, agents=[agent("ada", script, tools=[CLIENT])]) as app:
        await app.runs.start("ada", "go")
        found = await until_waiting(app, 2)
        assert {wait.kind: wait.deadline - wait.created_at for wait in found} == {"reply": 300_000, "tool": 600_000}


async def test_a_clients_tool_waits_for_its_result_and_takes_one(settings: Settings) -> None:
    script = Steps(call("pick", what="colour"), lambda request: results(request)[0])
    spec = ToolSpec(name="pick", execution_type="client", parameters={"type": "object"})
    async with App(settings=settings, agents=[agent("ada", script, tools=[spec])]) as app:
        run = await app.runs.start("ada", "go", owner_id="mia")
        at = await until_status(app, run.id, "waiting_tool")
        (wait,) = await app.runs.waits()
        assert (wait.kind, wait.for_entity, wait.details) == ("tool", "mia", {"tool": "pick", "args": {"what": "colour"}})
        with pytest.raises(NotFound):
            await app.runs.tool_result(run.id, "unknown", 1)
        with pytest.raises(NotFound):
            await app.runs.tool_result("nowhere", wait.call_id, 1)
        with pytest.raises(Invalid):
            await app.runs.answer(wait.id, text="a text is no result")
        assert (await app.runs.get(run.id)).run == at
        await app.runs.tool_result(run.id, wait.call_id, {"chosen": "blue"})
        assert json.loads(await run.result(20)) == {"chosen": "blue"}
        with pytest.raises(Conflict):
            await app.runs.tool_result(run.id, wait.call_id, "again")


async def test_two_answers_at_once_are_one_answer_and_one_conflict(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps(call("pick"), "done"), tools=[CLIENT])]) as app:
        run = await app.runs.start("ada", "go")
        (wait,) = await until_waiting(app)
        given = [app.runs.tool_result(run.id, wait.call_id, n) for n in range(5)]
        outcomes = await asyncio.gather(*given, return_exceptions=True)
        assert sum(isinstance(each, Run) for each in outcomes) == 1
        assert sum(isinstance(each, Conflict) for each in outcomes) == 4
        assert await run.result(20) == "done"


async def test_a_client_says_that_its_tool_failed(settings: Settings) -> None:
    script = Steps(call("pick"), lambda request: results(request)[0])
    async with App(settings=settings, agents=[agent("ada", script, tools=[CLIENT])]) as app:
        run = await app.runs.start("ada", "go")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, error="the window was closed")
        assert await run.result(20) == "error: the window was closed"


async def test_a_wait_outlives_the_process_and_its_deadline_too(settings: Settings) -> None:
    def script(request: Request) -> Reply | str:
        return results(request)[0] if results(request) else call("ask_user", question="Which?")

    ada = agent("ada", script)
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "go")
        await until_waiting(app)
        await until_status(app, run.id, "waiting_reply")
    async with App(settings=settings, agents=[ada]) as app:
        (wait,) = await app.runs.waits()
        await app.runs.answer(wait.id, text="this one")
        over = await ended(app, run.id)
        said = json.loads(over.result)
        assert (said["status"], said["replies"][0]["text"]) == ("resolved", "this one")


async def test_the_inbox_is_for_somebody_or_for_all(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps(call("ask_user", question="?")))], entity="mia") as app:
        await app.runs.start("ada", "go")
        await app.runs.start("ada", "go", owner_id="tom")
        found = await until_waiting(app, 2)
        assert {wait.for_entity for wait in found} == {"mia", "tom"}
        assert [wait.for_entity for wait in await app.runs.waits(mine=True)] == ["mia"]
        page = await app.runs.waits(limit=1)
        (other,) = await app.runs.waits(after=page[0].seq)
        assert {page[0].id, other.id} == {wait.id for wait in found}
