"""What `runs` and `agents` promise, behind every door."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
import pytest

from stigmergy import App
from stigmergy.agents.model import Definition
from stigmergy.agents.store import UnknownAgent
from stigmergy.engine.defining import OfProgram
from stigmergy.engine.watching import RunEvent, RunFailed
from stigmergy.errors import Conflict, CursorExpired, Invalid, NotFound, VersionConflict
from stigmergy.runs.model import InvalidTransition, Wait
from stigmergy.runs.waits import NotWaiting
from stigmergy.settings import Settings
from support.team import team

PATIENCE = 20
CLERK = Definition(name="clerk", model="scripted:nobody", instructions="Answer.", description="Answers.")


class Door(NamedTuple):
    runs: Any
    agents: Any
    ask: Any


@pytest.fixture
async def app(settings: Settings) -> AsyncIterator[App]:
    async with team(settings) as app:
        yield app


@pytest.fixture
def door(part: Callable[[str], Any]) -> Door:
    return Door(part("runs"), part("agents"), part("ask"))


async def waiting(door: Door, id: str) -> Wait:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = [wait for wait in await door.runs.waits() if wait.run_id == id]
            if found and (await door.runs.get(id)).run.status.startswith("waiting"):
                return found[0]
            await asyncio.sleep(0.01)


async def told(events: Any) -> list[RunEvent]:
    async with asyncio.timeout(PATIENCE), aclosing(events):
        return [event async for event in events if event.kind != "text"]


# ---- runs ----


async def test_a_question_is_answered(door: Door) -> None:
    assert await door.ask("lead", "price BTC", timeout=PATIENCE) == "It is: 97000.0"


async def test_a_run_is_started_looked_at_and_has_its_result(door: Door) -> None:
    handle = await door.runs.start("lead", "price BTC", metadata={"ticket": 7})
    assert await handle.result(PATIENCE) == "It is: 97000.0"
    run = (await handle.view()).run
    assert run == (await door.runs.get(handle.id)).run
    assert (run.id, run.agent, run.owner_id, run.status, run.step) == (handle.id, handle.agent, "app", "completed", 2)
    assert (run.metadata, run.result, run.cause.kind) == ({"ticket": 7}, "It is: 97000.0", "api")
    assert run.created_at <= (run.started_at or 0) <= (run.ended_at or 0) < run.deadline
    assert (await door.runs.list(agent="lead")).items == [run]


async def test_the_same_key_starts_one_run(door: Door) -> None:
    first, again = [await door.runs.start("lead", "hello", key="k") for _ in range(2)]
    assert first.id == again.id
    assert (await door.runs.start("lead", "hello")).id != first.id


async def test_a_run_that_fails_says_why_and_one_that_takes_too_long_is_waited_for_no_longer(door: Door) -> None:
    handle = await door.runs.start("lead", "here")
    with pytest.raises(TimeoutError):
        await handle.result(0.05)
    canceled = await handle.cancel("enough")
    assert (canceled.status, canceled.error) == ("canceled", "enough")
    with pytest.raises(RunFailed, match="enough"):
        await handle.result(PATIENCE)
    assert (await door.runs.cancel(handle.id, "again")).error == "enough"


async def test_runs_are_listed_in_pages(door: Door) -> None:
    handles = [await door.runs.start("lead", f"number {n}") for n in range(3)]
    for handle in handles:
        await handle.result(PATIENCE)
    parent = await door.runs.start("lead", "delegate it")
    await parent.result(PATIENCE)
    page = await door.runs.list(agent="lead", status="completed", limit=3)
    rest = await door.runs.list(agent="lead", status="completed", limit=3, cursor=page.next)
    assert {run.id for run in (*page.items, *rest.items)} == {each.id for each in (*handles, parent)}
    assert rest.next is None
    (child,) = (await door.runs.list(parent=parent.id)).items
    assert (child.agent, child.parent_run_id) == ("helper", parent.id)
    assert {run.id for run in (await door.runs.list(space_id=child.space_id)).items} == {parent.id, child.id}


async def test_the_tree_and_the_log_of_a_run_are_read(door: Door) -> None:
    handle = await door.runs.start("lead", "delegate it")
    await handle.result(PATIENCE)
    tree = await door.runs.tree(handle.id)
    assert (tree.run.id, [child.run.agent for child in tree.children]) == (handle.id, ["helper"])
    messages = await door.runs.messages(handle.id)
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert await door.runs.messages(handle.id, after=messages[1].pos, limit=2) == messages[2:4]
    (call,) = await door.runs.calls(handle.id)
    assert (call.id, call.tool_name, call.status, call.args["agent"]) == ("call_1_1", "create_task", "success", "helper")
    assert call.result["result"] == "helped with it"
    (thought,) = await door.runs.thoughts(handle.id)
    assert thought.content == "I call create_task."
    assert [point.step for point in await door.runs.checkpoints(handle.id)] == [1, 2]
    prompt = await door.runs.prompt(handle.id, 2)
    assert prompt.messages[-1].content == messages[3].content
    said = await door.runs.openai_messages(handle.id)
    assert said[2]["tool_calls"][0]["function"]["name"] == "create_task"
    assert (await door.runs.openai_messages(handle.id, after=messages[3].pos)) == said[4:]


async def test_a_completed_run_goes_on_with_what_it_hears(door: Door) -> None:
    handle = await door.runs.start("lead", "hello")
    await handle.result(PATIENCE)
    heard = await door.runs.hear(handle.id, "and more")
    assert (heard.role, heard.content, heard.run_id) == ("user", "and more", handle.id)
    assert await handle.result(PATIENCE) == "You said: and more"


async def test_a_run_is_watched_to_its_end_and_from_a_position_on(door: Door) -> None:
    handle = await door.runs.start("lead", "price BTC")
    events = await told(handle.events())
    assert [(event.kind, event.status or event.role) for event in events] == [
        ("status", "queued"),
        ("message", "user"),
        ("status", "running"),
        ("message", "assistant"),
        ("call", "running"),
        ("result", "success"),
        ("message", "assistant"),
        ("status", "completed"),
    ]
    assert (events[4].tool, events[4].args, events[5].result) == ("price", {"symbol": "BTC"}, 97000.0)
    assert await told(door.runs.events(handle.id, after=events[3].seq)) == events[4:]
    assert await told(door.runs.events(handle.id, after=events[-1].seq)) == events[-1:]
    with pytest.raises(CursorExpired):
        await told(door.runs.events((await door.runs.start("lead", "here")).id, after=10**6))


# ---- what waits ----


async def test_what_waits_is_answered_by_what_is_asked(door: Door) -> None:
    answers = {
        "ask Which?": ({"text": "the red one"}, "reply"),
        "drop users": ({"decision": "approve"}, "approval"),
        "here": ({"result": {"lat": 1}}, "tool"),
    }
    for instruction, (answer, kind) in answers.items():
        handle = await door.runs.start("lead", instruction)
        wait = await waiting(door, handle.id)
        assert (wait.kind, wait.for_entity, wait.status) == (kind, "app", "open")
        assert await door.runs.waits(mine=True) == [wait]
        assert (await handle.view()).wait_state["kind"] == kind
        with pytest.raises(Invalid):
            await door.runs.answer(wait.id, text=None)
        run = await door.runs.answer(wait.id, **answer)
        assert run.id == handle.id
        assert "It is: " in await handle.result(PATIENCE)
        with pytest.raises(NotWaiting):
            await door.runs.answer(wait.id, **answer)
    assert await door.runs.waits() == []


async def test_a_client_answers_for_its_tool_once(door: Door) -> None:
    for given, result in (({"result": [1]}, "It is: [1]"), ({"error": "gone"}, "It is: error: gone")):
        handle = await door.runs.start("lead", "here")
        wait = await waiting(door, handle.id)
        assert (await door.runs.tool_result(handle.id, wait.call_id, **given)).id == handle.id
        assert await handle.result(PATIENCE) == result
        with pytest.raises(NotWaiting):
            await door.runs.tool_result(handle.id, wait.call_id, **given)
    with pytest.raises(NotFound):
        await door.runs.tool_result(handle.id, "call_7_7", 1)


async def test_a_task_is_given(door: Door) -> None:
    task, run = await door.runs.give_task("agent:helper", "sort it")
    assert (task.name, task.instruction, task.status, task.run_id) == ("agent:helper", "sort it", "running", run.id)
    assert await door.runs.result(run.id, timeout=PATIENCE) == "helped with sort it"


# ---- what is refused ----


@pytest.mark.parametrize("id", ["nothing", "", "..", "a/b", "a\0b"])
async def test_what_is_not_there_is_not_found(door: Door, id: str) -> None:
    runs = door.runs
    for asked in (runs.get(id), runs.tree(id), runs.messages(id), runs.calls(id), runs.prompt(id, 1), runs.hear(id, "x")):
        with pytest.raises(NotFound):
            await asked
    for asked in (runs.cancel(id), runs.answer(id, text="x"), runs.tool_result(id, "c", 1), runs.result(id, timeout=PATIENCE)):
        with pytest.raises(NotFound):
            await asked
    with pytest.raises(NotFound):
        await told(runs.events(id))


async def test_what_cannot_be_is_refused(door: Door) -> None:
    with pytest.raises(UnknownAgent):
        await door.runs.start("nobody", "x")
    with pytest.raises(Invalid, match="answers"):
        await door.runs.start("lead", "x", metadata={"answers": ["a", "b"]})
    handle = await door.runs.start("lead", "here")
    await handle.cancel()
    with pytest.raises(InvalidTransition):
        await door.runs.hear(handle.id, "wake up")
    assert (await door.runs.list(agent="nobody")).items == []


# ---- agents ----


async def test_a_definition_is_put_changed_and_taken_away(door: Door) -> None:
    made = await door.agents.put(CLERK)
    assert (made.record.name, made.record.definition, made.record.version, made.notices) == ("clerk", CLERK, 1, [])
    assert (await door.agents.put(CLERK)).record == made.record
    better = msgspec.structs.replace(CLERK, instructions="Answer well.")
    assert (await door.agents.put(better, if_match=1)).record.version == 2
    with pytest.raises(VersionConflict):
        await door.agents.put(CLERK, if_match=1)
    assert (await door.agents.get("clerk")).definition == better
    assert [record.definition for record in await door.agents.versions("clerk")] == [better, CLERK]
    with pytest.raises(VersionConflict):
        await door.agents.delete("clerk", if_match=1)
    await door.agents.delete("clerk")
    for gone in (
        door.agents.get("clerk"),
        door.agents.delete("clerk"),
        door.agents.versions("clerk"),
        door.agents.tools("clerk"),
    ):
        with pytest.raises(NotFound):
            await gone


async def test_a_config_is_read_with_notices(door: Door) -> None:
    config = {"model": "scripted:nobody", "tools": [{"name": "look", "executionType": "client", "displayTool": True}]}
    made = await door.agents.put(config, name="old")
    assert made.notices == ["tools[0]: displayTool True was migrated to visibility 'visible'"]
    tool = next(tool for tool in await door.agents.tools("old") if tool.name == "look")
    assert (tool.name, tool.execution_type, tool.visibility) == ("look", "client", "visible")
    assert (await door.agents.put({**config, "name": "older"})).record.name == "older"
    for given, name in (({"model": "x", "name": "one"}, "two"), ({"model": "x"}, None), ({"name": "x"}, None)):
        with pytest.raises(Invalid):
            await door.agents.put(given, name=name)


async def test_agents_of_the_program_are_listed_and_stay_its_own(door: Door) -> None:
    assert [record.name for record in await door.agents.list()] == ["helper", "lead"]
    assert [record.name for record in await door.agents.list(after="helper", limit=1)] == ["lead"]
    tools = {tool.name: tool for tool in await door.agents.tools("lead")}
    assert {"price", "drop", "fail", "here", "final_answer", "create_task"} <= tools.keys()
    assert (tools["here"].execution_type, tools["price"].parameters["required"]) == ("client", ["symbol"])
    with pytest.raises(OfProgram):
        await door.agents.delete("lead")
    assert issubclass(OfProgram, Conflict)


@pytest.mark.postgres
@pytest.mark.parametrize("engine", ["postgres"])
async def test_on_postgres_all_of_it_is_so(door: Door) -> None:
    await test_a_run_is_started_looked_at_and_has_its_result(door)
    await test_the_tree_and_the_log_of_a_run_are_read(door)
    await test_a_run_is_watched_to_its_end_and_from_a_position_on(door)
    await test_a_definition_is_put_changed_and_taken_away(door)


@pytest.mark.postgres
@pytest.mark.parametrize("engine", ["postgres"])
async def test_on_postgres_what_waits_is_answered_and_lists_are_paged(door: Door) -> None:
    await test_runs_are_listed_in_pages(door)
    await test_what_waits_is_answered_by_what_is_asked(door)
