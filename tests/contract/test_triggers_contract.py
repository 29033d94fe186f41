"""What `triggers`, `deliveries` and `tasks` promise, behind every door."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from stigmergy import App
from stigmergy.agents.model import Definition
from stigmergy.errors import AlreadyExists, Conflict, Invalid, NotFound, VersionConflict
from stigmergy.runs.external import NotExternal
from stigmergy.runs.model import InvalidTransition, Usage
from stigmergy.runs.steps import NewCall
from support.receiver import Receiver, answer

PATIENCE = 20
TRIGGER: dict[str, Any] = {"id": "t", "collection": "tasks", "event": "update (status='failed')"}


class Door(NamedTuple):
    triggers: Any
    deliveries: Any
    tasks: Any


@pytest.fixture
def door(part: Callable[[str], Any]) -> Door:
    return Door(part("triggers"), part("deliveries"), part("tasks"))


def calls(receiver: Receiver, **more: Any) -> dict[str, Any]:
    """A trigger that calls a receiver, and gives up at the first failure."""
    return TRIGGER | {"action": {"type": "webhook", "url": f"{receiver.url}/hook", "retry": {"tries": 1}}} | more


async def fail(door: Door) -> Any:
    task = await door.tasks.give("agent:researcher", "Look.")
    return await door.tasks.change(task.id, "failed", error="nobody knows")


async def settled(door: Door, status: str) -> Any:
    async with asyncio.timeout(PATIENCE):
        while not (found := await door.deliveries.find(status=status)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


async def test_a_trigger_is_put_changed_listed_and_taken_away(door: Door) -> None:
    made = await door.triggers.add(TRIGGER | {"action": "POST http://127.0.0.1:9/", "order": 3})
    assert (made.id, made.kind, made.events, made.position, made.version) == ("t", "webhook", [TRIGGER["event"]], 3, 1)
    with pytest.raises(VersionConflict):
        await door.triggers.add(TRIGGER | {"action": "POST http://127.0.0.1:9/"}, if_match=7)
    both = await door.triggers.add_all([TRIGGER | {"id": id, "action": "POST http://127.0.0.1:9/"} for id in ("u", "v")])
    assert [each.id for each in both] == ["u", "v"]
    with pytest.raises(Invalid) as refused:
        await door.triggers.add_all([TRIGGER | {"id": "w", "action": "POST http://127.0.0.1:9/"}, {"id": "x"}])
    assert refused.value.where == "triggers[1]"
    assert [each.id for each in await door.triggers.all()] == ["t", "u", "v"]
    await door.triggers.delete("u", if_match=1)
    with pytest.raises(NotFound):
        await door.triggers.get("u")
    assert (await door.triggers.get("t")).owner == "app"
    assert await door.triggers.diagnostics("t") == []


async def test_it_can_be_asked_what_looks_wrong_and_what_would_fire(door: Door) -> None:
    every = {"id": "every", "collection": "**", "event": "create", "action": "POST http://127.0.0.1:9/"}
    assert [(each.where, each.code) for each in await door.triggers.check([every])] == [("every", "self_start")]
    await door.triggers.add(TRIGGER | {"action": "POST http://127.0.0.1:9/"})
    change = {"collection": "tasks", "event": "update", "data": {"status": "failed"}, "before": {"status": "failed"}}
    (told,) = await door.triggers.test(change)
    assert (told.id, told.fires, "becomes so" in told.why_not) == ("t", False, True)
    (told,) = await door.triggers.test(change | {"before": {"status": "running"}})
    assert (told.fires, told.why_not) == (True, None)
    with pytest.raises(NotFound):
        await door.triggers.test(10_000)


async def test_a_dead_delivery_is_looked_at_retried_and_another_given_up(door: Door) -> None:
    async with Receiver() as receiver:
        await door.triggers.add(calls(receiver))
        receiver.always = answer(500, "no")
        task = await fail(door)
        (dead,) = await settled(door, "dead")
        assert (dead.trigger_id, dead.document_id, dead.document_version, dead.tries) == ("t", task.id, task.version, 1)
        shown = await door.deliveries.get(dead.id)
        assert shown.answer is not None
        assert (shown.answer.status, shown.answer.body, shown.next_at) == (500, "no", None)
        assert await door.deliveries.event(dead.id) == receiver.received[0].body
        receiver.always = answer(204)
        assert (await door.deliveries.retry(dead.id)).status == "pending"
        (delivered,) = await settled(door, "delivered")
        assert delivered.settled_at is not None
        with pytest.raises(Conflict):
            await door.deliveries.discard(dead.id)
        receiver.always = answer(404)
        await fail(door)
        (dead,) = await settled(door, "dead")
        assert await door.deliveries.retry_all("t") == 1
        (dead,) = await settled(door, "dead")
        assert (await door.deliveries.discard(dead.id)).status == "discarded"
        with pytest.raises(NotFound):
            await door.deliveries.retry("none")


async def test_a_task_is_taken_up_and_done_outside(door: Door) -> None:
    task = await door.tasks.give("agent:researcher", "Look.", trigger_message_id="m1", id="t1")
    assert (task.status, task.executor, task.owner_id) == ("pending", "external", "app")
    with pytest.raises(AlreadyExists):
        await door.tasks.give("agent:researcher", "Look.", id="t1")
    run = await door.tasks.take_up(task.id, instructions="You look.", max_steps=2)
    assert (run.agent, run.status, run.max_steps, run.task_id) == ("researcher", "running", 2, "t1")
    assert (await door.tasks.take_up(task.id)).id == run.id
    call = NewCall(id="c1", tool_name="search", args={"q": 1}, execution_type="internal", visibility="hidden", begun=False)
    said = await door.tasks.say(run.id, "assistant", "I look.", calls=[call], usage=Usage(7, 3), if_match=run.version)
    assert (said.role, said.pos, said.step) == ("assistant", 3, 1)
    with pytest.raises(VersionConflict):
        await door.tasks.say(run.id, "assistant", "I look.", if_match=run.version)
    settled_call = await door.tasks.change_call(run.id, "c1", "success", result={"found": True}, duration_ms=4)
    assert (settled_call.result, settled_call.args, settled_call.settled_pos) == ({"found": True}, {"q": 1}, 5)
    with pytest.raises(InvalidTransition):
        await door.tasks.change_call(run.id, "c1", "failed", error="x")
    more = NewCall(id="c2", tool_name="search", args={}, execution_type="internal", visibility="hidden", begun=False)
    assert (await door.tasks.add_call(run.id, more)).status == "pending"
    assert [each.id for each in await door.tasks.calls(run.id)] == ["c1", "c2"]
    assert (await door.tasks.say(run.id, "tool", "nothing", tool_call_id="c2")).tool_call_id == "c2"
    assert [each.role for each in await door.tasks.messages(run.id)] == ["system", "user", "assistant", "tool", "tool"]
    assert [each.pos for each in await door.tasks.messages(run.id, after=3)] == [6, 9]
    assert (await door.tasks.move(run.id, "waiting_for_user")).status == "waiting_reply"
    assert (await door.tasks.get(task.id)).status == "waiting"
    await door.tasks.say(run.id, "user", "Go on.")
    ended = await door.tasks.change(task.id, "success", result="done")
    assert (ended.result, ended.completions) == ("done", 1)
    shown = await door.tasks.run(run.id)
    assert (shown.status, shown.result, shown.step, shown.tokens_used) == ("completed", "done", 1, 10)
    assert [each.id for each in (await door.tasks.runs(task_id=task.id)).items] == [run.id]
    assert [each.id for each in (await door.tasks.find(trigger_message_id="m1", status="success")).items] == ["t1"]
    with pytest.raises(NotFound):
        await door.tasks.run("none")


async def test_lists_of_tasks_come_in_pages(door: Door) -> None:
    for _ in range(5):
        await door.tasks.give("agent:researcher", "Look.")
    first = await door.tasks.find(limit=3)
    rest = await door.tasks.find(limit=3, cursor=first.next)
    assert len({each.id for each in (*first.items, *rest.items)}) == 5
    assert rest.next is None


async def test_what_the_engine_executes_is_not_moved(door: Door, app: App) -> None:
    await app.agents.put(Definition(name="own", model="scripted:nobody"))
    run = await app.runs.start("own", "Hello")
    with pytest.raises(NotExternal):
        await door.tasks.move(run.id, "completed")
