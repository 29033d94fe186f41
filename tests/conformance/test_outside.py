"""Tasks and runs that a program outside executes: the engine's transitions, positions and deadlines, and none of its workers."""

import asyncio
from typing import Any

import msgspec
import pytest

from stigmergy.agents.model import Definition, Limits
from stigmergy.agents.store import put_agent
from stigmergy.engine.starting import give_task, start
from stigmergy.errors import Conflict, Invalid, NotFound, VersionConflict
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.history import read_history
from stigmergy.kernel.query import Statement
from stigmergy.kernel.timers import fire, next_timers
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.runs import external, queries
from stigmergy.runs.commands import DEADLINE, LimitReached, Start
from stigmergy.runs.delegation import TASK_DEADLINE, NewTask
from stigmergy.runs.endings import cancel_run, pass_deadline
from stigmergy.runs.external import NotExternal, Outcome, Spoken, Taken, TakeUp
from stigmergy.runs.model import InvalidTransition, Run, RunMessage, Task, ToolCall
from stigmergy.runs.steps import NewCall
from stigmergy.spaces.commands import Said, add_member, create_space, post
from support.stores import OpenStore

READY = Statement("test.ready", "SELECT queue, id FROM ready WHERE tenant = :tenant")


async def give(store: Database, name: str = "agent:researcher", **fields: Any) -> Task:
    given: dict[str, Any] = {"name": name, "instruction": "Look it up.", "owner_id": "mia", "space_id": ""}
    given |= {"executor": "external", **fields}
    return (await store.write(give_task, NewTask(**given)))[0]


async def take_up(store: Database, task: Task, **fields: Any) -> Taken:
    given: dict[str, Any] = {"task_id": task.id, "instructions": "You look things up."}
    given |= fields
    return await store.write(external.take_up, TakeUp(**given))


async def begun(store: Database, **fields: Any) -> tuple[Task, Run]:
    task = await give(store)
    return task, (await take_up(store, task, **fields)).run


async def the_task(store: Database, id: str) -> Task:
    return await store.read(queries.task, id)


async def log(store: Database, run: Run) -> list[tuple[int, str, str]]:
    return [(each.pos, each.role, each.content) for each in await store.read(queries.messages, run.id)]


async def queue(store: Database) -> list[tuple[Any, ...]]:
    async def ready(tx: Transaction) -> list[tuple[Any, ...]]:
        return await tx.rows(READY)

    return await store.read(ready)


def call(id: str = "c1", tool: str = "search") -> NewCall:
    return NewCall(id=id, tool_name=tool, args={"q": "x"}, execution_type="internal", visibility="hidden", begun=False)


async def speak(
    store: Database, run: Run, role: Any, content: str = "x", *, if_match: int | None = None, **more: Any
) -> RunMessage:
    return await store.write(external.speak, run.id, Spoken(role=role, content=content, **more), if_match=if_match)


async def move(store: Database, run: Run, status: str, **outcome: Any) -> Run:
    return await store.write(external.change_run, run.id, Outcome(status, **outcome))


async def test_a_task_that_is_taken_up_twice_at_once_has_one_run_with_a_system_and_a_user_message(store: Database) -> None:
    task = await give(store)
    assert (task.status, task.executor, task.run_id) == ("pending", "external", None)
    taken = await asyncio.gather(*(take_up(store, task) for _ in range(8)))
    assert len({each.run.id for each in taken}) == 1
    assert [each.created for each in taken].count(True) == 1
    run = taken[0].run
    assert await log(store, run) == [(1, "system", "You look things up."), (2, "user", "Look it up.")]
    now = await the_task(store, task.id)
    assert (now.status, now.run_id, run.status, run.executor) == ("running", run.id, "running", "external")
    changes = await store.read(read_history, Task, task.id)
    assert [(each.status, each.run_id) for each in changes] == [("running", run.id), ("pending", None)]


async def test_no_worker_finds_anything_to_do(store: Database) -> None:
    _, run = await begun(store)
    await speak(store, run, "assistant", calls=[call()])
    await move(store, run, "waiting_tool")
    await store.write(external.change_call, run.id, "c1", Outcome("success", "found"))
    await move(store, run, "completed", result="done")
    await speak(store, run, "user", "And now?")
    assert await queue(store) == []


async def test_task_and_run_go_together_wherever_they_are_moved_from(store: Database) -> None:
    task, run = await begun(store)
    await move(store, run, "waiting_for_user")
    assert (await the_task(store, task.id)).status == "waiting"
    await store.write(external.change_task, task.id, Outcome("running"))
    assert (await store.get(Run, run.id)).status == "running"  # type: ignore[union-attr]
    await store.write(external.change_task, task.id, Outcome("success", {"price": 1}))
    ended = await store.get(Run, run.id)
    assert ended is not None
    assert (ended.status, ended.result) == ("completed", {"price": 1})
    done = await the_task(store, task.id)
    assert (done.status, done.result, done.completions) == ("success", {"price": 1}, 1)
    woken = await move(store, run, "active")
    assert (woken.status, (await the_task(store, task.id)).status) == ("running", "running")
    await move(store, run, "failed", error="no more")
    failed = await the_task(store, task.id)
    assert (failed.status, failed.error, failed.completions) == ("failed", "no more", 2)


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ([], "queued"),
        ([], "running"),
        (["waiting_reply"], "completed"),
        (["completed"], "completed"),
        (["completed"], "failed"),
        (["failed"], "running"),
        (["canceled"], "running"),
    ],
)
async def test_a_move_that_is_not_in_the_table_is_refused_and_writes_nothing(
    store: Database, path: list[str], refused: str
) -> None:
    task, run = await begun(store)
    for status in path:
        await move(store, run, status, error="because" if status == "failed" else None)
    before = await store.get(Run, run.id), await the_task(store, task.id), await log(store, run)
    with pytest.raises(InvalidTransition):
        await move(store, run, refused, error="because" if refused == "failed" else None)
    assert (await store.get(Run, run.id), await the_task(store, task.id), await log(store, run)) == before


async def test_a_version_that_was_seen_too_long_ago_is_refused(store: Database) -> None:
    task, run = await begun(store)
    with pytest.raises(VersionConflict):
        await store.write(external.change_task, task.id, Outcome("success"), if_match=task.version)
    with pytest.raises(VersionConflict):
        await store.write(external.change_run, run.id, Outcome("completed"), if_match=run.version + 1)
    opened = await store.write(external.add_call, run.id, call())
    with pytest.raises(VersionConflict):
        await store.write(external.change_call, run.id, "c1", Outcome("success"), if_match=opened.version + 1)
    assert (await the_task(store, task.id)).status == "running"


async def test_of_two_who_think_the_same_thought_one_is_heard(store: Database) -> None:
    _, run = await begun(store)
    thoughts = [speak(store, run, "assistant", f"thought {n}", if_match=run.version) for n in range(4)]
    came = await asyncio.gather(*thoughts, return_exceptions=True)
    assert [each.__class__ for each in came].count(VersionConflict) == 3
    assert len(await log(store, run)) == 3


async def test_a_call_and_its_result_take_the_positions_that_the_engines_own_would(store: Database) -> None:
    _, run = await begun(store)
    await speak(store, run, "assistant", "I look", calls=[call("c1"), call("c2")], model="m")
    first = await store.write(external.change_call, run.id, "c1", Outcome("running"))
    assert (first.status, first.attempts, first.opened_pos) == ("running", 1, 4)
    settled = await store.write(external.change_call, run.id, "c1", Outcome("success", {"a": 1}), duration_ms=5)
    assert (settled.settled_pos, settled.result, settled.duration_ms) == (6, {"a": 1}, 5)
    answered = await speak(store, run, "tool", "two", tool_call_id="c2")
    assert (answered.pos, answered.tool_call_id, answered.name) == (9, "c2", "search")
    assert await log(store, run) == [
        (1, "system", "You look things up."),
        (2, "user", "Look it up."),
        (3, "assistant", "I look"),
        (7, "tool", '{"a":1}'),
        (9, "tool", "two"),
    ]
    calls = await store.read(queries.calls, run.id)
    assert [(each.id, each.status, each.result, each.step) for each in calls] == [
        ("c1", "success", {"a": 1}, 1),
        ("c2", "success", "two", 1),
    ]
    (checkpoint,) = await store.read(queries.checkpoints, run.id)
    assert (checkpoint.pos, checkpoint.step) == (5, 1)


async def test_a_call_is_settled_once_and_the_last_one_lets_a_run_go_on_that_waits_for_it(store: Database) -> None:
    _, run = await begun(store)
    await speak(store, run, "assistant", calls=[call("c1"), call("c2")])
    await move(store, run, "waiting_tool")
    outcomes = [store.write(external.change_call, run.id, "c1", Outcome("success", n)) for n in range(4)]
    came = await asyncio.gather(*outcomes, return_exceptions=True)
    assert [each.__class__ for each in came].count(InvalidTransition) == 3
    assert (await store.get(Run, run.id)).status == "waiting_tool"  # type: ignore[union-attr]
    await store.write(external.change_call, run.id, "c2", Outcome("failed", error="not found"))
    assert (await store.get(Run, run.id)).status == "running"  # type: ignore[union-attr]
    with pytest.raises(InvalidTransition):
        await speak(store, run, "tool", "late", tool_call_id="c2")
    assert [role for _, role, _ in await log(store, run)] == ["system", "user", "assistant", "tool", "tool"]


async def test_what_a_user_says_answers_a_run_that_waits_and_wakes_one_that_is_done(store: Database) -> None:
    task, run = await begun(store)
    await move(store, run, "waiting_reply")
    await speak(store, run, "user", "In dollars.")
    assert (await the_task(store, task.id)).status == "running"
    await move(store, run, "completed", result="1")
    await speak(store, run, "user", "And in euros?")
    woken = await store.get(Run, run.id)
    assert woken is not None
    assert (woken.status, woken.result, (await the_task(store, task.id)).status) == ("running", None, "running")
    await move(store, run, "failed", error="no")
    with pytest.raises(InvalidTransition):
        await speak(store, run, "user", "Hello?")


async def test_a_run_makes_as_many_steps_as_it_may(store: Database) -> None:
    _, run = await begun(store, max_steps=2)
    for _ in range(2):
        await speak(store, run, "assistant")
    with pytest.raises(LimitReached, match="its 2 steps"):
        await speak(store, run, "assistant")
    assert len(await log(store, run)) == 4


@pytest.mark.parametrize(
    ("spoken", "error"),
    [
        (Spoken(role="tool", content="x"), Invalid),
        (Spoken(role="tool", content="x", tool_call_id="none"), NotFound),
        (Spoken(role="user", content="x", tool_call_id="c1"), Invalid),
        (Spoken(role="user", content="x", calls=[call()]), Invalid),
    ],
)
async def test_a_message_that_makes_no_sense_is_refused(store: Database, spoken: Spoken, error: type[Exception]) -> None:
    _, run = await begun(store)
    with pytest.raises(error):
        await store.write(external.speak, run.id, spoken)
    assert len(await log(store, run)) == 2


async def test_results_go_with_successes_and_reasons_with_failures(store: Database) -> None:
    task, run = await begun(store)
    for outcome in (Outcome("success", error="x"), Outcome("failed", "x"), Outcome("failed"), Outcome("waiting", "x")):
        with pytest.raises(Invalid):
            await store.write(external.change_task, task.id, outcome)
    await store.write(external.change_task, task.id, Outcome("success", "right"))
    before = await the_task(store, task.id)
    edited = await store.write(external.change_task, task.id, Outcome(result="righter"))
    assert (edited.status, edited.result, edited.completions) == ("success", "righter", 1)
    assert edited.version == before.version + 1
    assert (await store.get(Run, run.id)).status == "completed"  # type: ignore[union-attr]


async def test_what_is_the_engines_is_not_moved_from_outside(store: Database) -> None:
    await store.write(put_agent, Definition(name="own", model="scripted:x"), "tester")
    task = await give(store, "agent:own", executor="engine")
    assert (task.status, task.executor) == ("running", "engine")
    assert len(await queue(store)) == 1
    assert task.run_id is not None
    for unit, *args in (
        (external.change_task, task.id, Outcome("success")),
        (external.change_run, task.run_id, Outcome("completed")),
        (external.speak, task.run_id, Spoken(role="assistant", content="x")),
        (external.add_call, task.run_id, call()),
        (external.take_up, TakeUp(task_id=task.id)),
    ):
        with pytest.raises(NotExternal):
            await store.write(unit, *args)


async def test_nobody_takes_a_task_up_in_time(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    task = await give(store, deadline_ms=60_000)
    taken = await give(store, deadline_ms=60_000)
    await take_up(store, taken)
    clock.advance(61)
    effects = {TASK_DEADLINE: external.pass_task_deadline}
    for timer in await store.read(next_timers, effects):
        assert await store.write(fire, timer, effects[timer.kind], scope=Scope("main", "clock"))
    late = await the_task(store, task.id)
    assert (late.status, late.error, late.completions) == ("failed", "deadline: nobody was done with it within 61 s", 1)
    assert (await the_task(store, taken.id)).status == "running"
    with pytest.raises(InvalidTransition):
        await take_up(store, task)
    await store.close()


async def test_the_deadline_and_a_cancel_end_a_run_outside_and_its_task(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    task, run = await begun(store, deadline_ms=5_000)
    await speak(store, run, "assistant", calls=[call()])
    other, canceled = await begun(store)
    await store.write(cancel_run, canceled.id, "not wanted any more")
    assert (await the_task(store, other.id)).error == "not wanted any more"
    clock.advance(6)
    (timer,) = [each for each in await store.read(next_timers, [DEADLINE]) if each.id == run.id]
    assert await store.write(fire, timer, pass_deadline, scope=Scope("main", "clock"))
    late = await the_task(store, task.id)
    assert (late.status, late.error) == ("failed", "deadline: it was not done within 5 s")
    (broken_off,) = await store.read(queries.calls, run.id)
    assert broken_off.status == "canceled"
    await store.close()


async def test_an_agent_that_is_executed_outside_is_started_by_us_and_done_elsewhere(store: Database) -> None:
    """Its definition says so: its limits and instructions hold, no worker has it, and a message wakes nobody."""
    definition = Definition(
        name="outside", model="theirs", instructions="Be brief.", executor="external", limits=Limits(max_steps=3)
    )
    await store.write(put_agent, definition, "tester")
    run = await store.write(start, Start(agent="outside", owner_id="mia", space_id="", instruction="Hello"))
    assert (run.status, run.executor, run.max_steps) == ("queued", "external", 3)
    assert (await move(store, run, "running")).started_at is not None
    task = await give(store, "agent:outside", executor="engine")
    assert task.executor == "external"
    taken = await store.write(external.take_up, TakeUp(task_id=task.id))
    assert (taken.created, taken.run.status) == (False, "running")
    assert await log(store, taken.run) == [(1, "system", "Be brief."), (2, "user", "Look it up.")]
    space = await store.write(create_space, "mia", scope=Scope("main", "mia"))
    await store.write(add_member, "mia", space.id, "agent:outside")
    said = await store.write(post, "mia", space.id, Said(content="@outside, are you there?"))
    assert (said.mentions, said.wakes) == (["agent:outside"], [])
    assert await queue(store) == []


async def test_tasks_are_listed_by_what_is_asked(store: Database) -> None:
    space = await store.write(create_space, "mia")
    first = await give(store, space_id=space.id, trigger_message_id="m1")
    second = await give(store, space_id=space.id, trigger_message_id="m2")
    third = await give(store)
    await take_up(store, second)

    async def ids(**such: Any) -> set[str]:
        return {each.id for each in (await store.read(queries.tasks, queries.TaskFilter(**such))).items}

    assert await ids() == {first.id, second.id, third.id}
    assert await ids(space_id=space.id) == {first.id, second.id}
    assert await ids(trigger_message_id="m2") == {second.id}
    assert await ids(trigger_message_id="m2", space_id="elsewhere") == set()
    assert await ids(status="pending", executor="external") == {first.id, third.id}
    assert await ids(owner_id="tom") == set()
    page = await store.read(queries.tasks, limit=2)
    rest = await store.read(queries.tasks, below=page.next)
    assert len({each.id for each in (*page.items, *rest.items)}) == 3
    with pytest.raises(NotFound):
        await give(store, space_id="nowhere")


async def test_a_parent_hears_of_a_task_that_is_done_outside(store: Database) -> None:
    await store.write(put_agent, Definition(name="lead", model="scripted:x"), "tester")
    parent = await store.write(start, Start(agent="lead", owner_id="mia", space_id="", instruction="Hello"))
    task = await give(store, space_id=parent.space_id, parent=parent)
    taken = await take_up(store, task)
    assert (taken.run.parent_run_id, taken.run.root_id, taken.run.nesting) == (parent.id, parent.id, 1)
    await move(store, taken.run, "completed", result="97,000 dollars")
    heard = (await store.read(queries.messages, parent.id))[-1]
    assert (heard.role, heard.name) == ("user", f"task:{task.id}:1")
    assert "97,000 dollars" in heard.content


async def test_large_results_are_kept_as_blocks(store: Database) -> None:
    _, run = await begun(store)
    await speak(store, run, "assistant", calls=[call()])
    settled = await store.write(external.change_call, run.id, "c1", Outcome("success", "x" * 100_000))
    assert isinstance(settled, ToolCall)
    assert settled.result["clipped"] is True
    (message,) = [each for each in await store.read(queries.messages, run.id) if each.role == "tool"]
    assert message.parts is not None
    assert "is block" in message.content
    with pytest.raises(Conflict):
        await store.write(external.add_call, run.id, msgspec.structs.replace(call(), id="c1"))
