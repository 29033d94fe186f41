"""What `spaces` promises, behind every door."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from stigmergy import App
from stigmergy.access.model import Unauthorized
from stigmergy.errors import AlreadyExists, Conflict, Invalid, NotFound, VersionConflict
from stigmergy.runs.waits import NotWaiting
from stigmergy.spaces.clients import ClientCall
from stigmergy.spaces.following import Event
from stigmergy.spaces.mentions import AmbiguousName, UnknownName
from support.loopback import AsEntity
from support.talk import add_agents, client_call

DAY_MS = 24 * 3_600_000


@pytest.fixture
async def mia(door: AsEntity) -> Any:
    return await door("spaces", "mia")


@pytest.fixture
async def tom(door: AsEntity) -> Any:
    return await door("spaces", "tom")


async def first(events: Any, count: int) -> list[Event]:
    async with asyncio.timeout(20), aclosing(events):
        return [await anext(events) for _ in range(count)]


# ---- spaces and members ----


async def test_a_space_that_was_made_is_found_by_its_members(mia: Any, tom: Any) -> None:
    made = await mia.create("The plan ä", members=["tom"], about="what", id="s-1", metadata={"a": [1]})
    assert (made.id, made.owner_id, made.name, made.about, made.metadata) == ("s-1", "mia", "The plan ä", "what", {"a": [1]})
    assert made.created_at == made.updated_at > 1_700_000_000_000
    for each in (mia, tom):
        assert (await each.get("s-1")).name == made.name
        assert [space.id for space in await each.find()] == ["s-1"]
    with pytest.raises(AlreadyExists):
        await tom.create(id="s-1")


async def test_spaces_are_read_in_pages(mia: Any) -> None:
    ids = [(await mia.create(str(number))).id for number in range(5)]
    assert [space.id for space in await mia.find(limit=2)] == ids[:2]
    assert [space.id for space in await mia.find(after=ids[1], limit=3)] == ids[2:]


async def test_members_come_and_go(mia: Any, tom: Any) -> None:
    space = await mia.create()
    added = await mia.add(space.id, "tom")
    assert (added.entity_id, added.type, added.last_processed_seq) == ("tom", "human", 0)
    assert [member.entity_id for member in await tom.members(space.id)] == ["mia", "tom"]
    await tom.remove(space.id, "tom")
    with pytest.raises(NotFound):
        await tom.get(space.id)
    with pytest.raises(NotFound):
        await mia.add(space.id, "agent:nobody")
    with pytest.raises(NotFound):
        await mia.remove(space.id, "tom")


async def test_a_space_is_changed_under_its_version(mia: Any, tom: Any) -> None:
    space = await mia.create(members=["tom"])
    changed = await tom.change(space.id, if_match=1, name="new", metadata={"a": 1})
    assert (changed.version, changed.name, changed.metadata) == (2, "new", {"a": 1})
    with pytest.raises(VersionConflict):
        await mia.change(space.id, if_match=1, name="newer")
    with pytest.raises(Conflict):
        await tom.delete(space.id)
    await mia.delete(space.id)
    with pytest.raises(NotFound):
        await mia.get(space.id)


@pytest.mark.parametrize("id", ["nothing", "", "..", "a/b", "a\0b"])
async def test_what_is_not_there_is_not_found(mia: Any, id: str) -> None:
    space = await mia.create()
    for asked in (mia.get(id), mia.members(id), mia.messages(id), mia.post(id, "x"), mia.message(space.id, id)):
        with pytest.raises(NotFound):
            await asked


# ---- messages ----


async def test_what_was_said_is_read_from_either_end(mia: Any, tom: Any) -> None:
    space = await mia.create(members=["tom"])
    said = [await mia.post(space.id, f"message {number}") for number in range(5)]
    assert [message.seq for message in said] == [1, 2, 3, 4, 5]
    assert await tom.messages(space.id) == said
    assert await tom.messages(space.id, limit=2) == said[3:]
    assert await tom.messages(space.id, before=4, limit=2) == said[1:3]
    assert await tom.messages(space.id, after=1, limit=2) == said[1:3]
    assert await tom.message(space.id, said[0].id) == said[0]


async def test_a_message_of_ones_own_id_is_one_message(mia: Any, tom: Any) -> None:
    space = await mia.create(members=["tom"])
    one = await mia.post(space.id, "hello @tom", id="mine", metadata={"a": 1})
    again = await mia.post(space.id, "hello @tom", id="mine", metadata={"a": 1})
    reply = await tom.post(space.id, "hello", reply_to="mine", mentions=["mia"])
    assert (one, one.mentions, one.metadata) == (again, ["tom"], {"a": 1})
    assert (reply.reply_to, reply.mentions, reply.author_name, reply.role) == ("mine", ["mia"], "tom", "human")
    with pytest.raises(AlreadyExists):
        await tom.post(space.id, "hello @tom", id="mine")


async def test_an_edit_and_a_deletion_are_versions(mia: Any, tom: Any) -> None:
    space = await mia.create(members=["tom"])
    message = await mia.post(space.id, "helo")
    edited = await mia.edit(space.id, message.id, "hello", if_match=1)
    assert (edited.version, edited.seq, edited.content) == (2, 1, "hello")
    with pytest.raises(VersionConflict):
        await mia.edit(space.id, message.id, "hi", if_match=1)
    with pytest.raises(Conflict):
        await tom.unsay(space.id, message.id)
    gone = await mia.unsay(space.id, message.id)
    assert (gone.deleted, gone.content) == (True, "")
    assert [each.content for each in await tom.history(space.id, message.id)] == ["", "hello", "helo"]


async def test_what_may_not_be_said_is_refused_with_its_reason(mia: Any) -> None:
    space = await mia.create(members=["tom", "tim"])
    await mia.rename("Tom", "tim")
    for content, kind in (("@nobody", UnknownName), ("@Tom", AmbiguousName), (" ", Invalid), ("x" * 70_000, Invalid)):
        with pytest.raises(kind) as refused:
            await mia.post(space.id, content)
        assert refused.value.where == "content"
    with pytest.raises(AmbiguousName, match=r"@tim \(Tom\)"):
        await mia.post(space.id, "@Tom")
    assert await mia.messages(space.id) == []


async def test_who_has_read_what_is_seen(mia: Any, tom: Any) -> None:
    space = await mia.create(members=["tom", "tim"])
    one, two = await mia.post(space.id, "one"), await mia.post(space.id, "two")
    member = await tom.processed(space.id, one.id)
    assert (member.last_processed_seq, member.last_processed_message_id) == (1, one.id)
    assert [each.entity_id for each in await mia.seen(space.id, one.id)] == ["mia", "tom"]
    assert [each.entity_id for each in await mia.seen(space.id, two.id)] == ["mia"]


# ---- as it happens ----


async def test_a_space_is_followed_from_any_position(mia: Any, tom: Any) -> None:
    space = await mia.create(members=["tom"])
    events = tom.follow(space.id)
    coming = asyncio.ensure_future(first(events, 3))
    await asyncio.sleep(0.3)  # until it follows: it begins with what comes from then on
    message = await mia.post(space.id, "hello")
    await mia.edit(space.id, message.id, "hello!")
    await mia.processed(space.id, message.id)
    seen = await coming
    assert [event.kind for event in seen] == ["message.created", "message.updated", "member.read"]
    assert (seen[0].message, seen[0].entity_id) == (message, "mia")
    again = await first(tom.follow(space.id, after=seen[0].seq), 2)
    assert [event.seq for event in again] == [event.seq for event in seen[1:]]
    with pytest.raises(NotFound):
        await first(tom.follow("nothing"), 1)


async def test_who_came_back_is_told_all_of_it(mia: Any, tom: Any) -> None:
    space = await mia.create(members=["tom"])
    await mia.remove(space.id, "tom")
    await mia.post(space.id, "he is gone")
    await mia.add(space.id, "tom")
    told = await first(tom.follow(space.id, after=0), 5)
    assert [event.kind for event in told] == ["member.joined"] * 2 + ["member.left", "message.created", "member.joined"]


async def test_who_is_writing_is_told(mia: Any, tom: Any) -> None:
    space = await mia.create(members=["tom"])
    coming = asyncio.ensure_future(first(tom.follow(space.id, after=0), 3))
    while not coming.done():
        await mia.typing(space.id)
        await asyncio.sleep(0.05)
    assert ("typing", "mia", "active") in [(event.kind, event.entity_id, event.status) for event in await coming]


# ---- what entities keep ----


async def test_memories_and_goals_are_ones_own(mia: Any) -> None:
    await mia.create()
    made = await mia.set_memory("colour", {"is": "green"}, importance=0.9)
    assert (made.entity_id, made.value, made.importance, made.version) == ("mia", {"is": "green"}, 0.9, 1)
    await mia.set_memory("size", 3)
    assert [memory.key for memory in await mia.memories()] == ["colour", "size"]
    assert [memory.key for memory in await mia.memories(entity_id="mia", limit=1)] == ["colour"]
    await mia.delete_memory("colour")
    with pytest.raises(NotFound):
        await mia.delete_memory("colour")
    goal = await mia.add_goal("be done", priority=3)
    done = await mia.change_goal(goal.id, status="done")
    assert (done.text, done.status, done.priority, done.version) == ("be done", "done", 3, 2)
    assert (await mia.goals(status="open"), [each.id for each in await mia.goals()]) == ([], [goal.id])
    await mia.delete_goal(goal.id)
    assert await mia.goals() == []


async def test_plans_are_made_and_changed(mia: Any, app: App) -> None:
    await app.write(add_agents, "ada")
    plan = await mia.plan("agent:ada", "look", cron="0 9 * * *", time_zone="Europe/Berlin")
    assert (plan.kind, plan.owner_id, plan.enabled, plan.next_at > plan.created_at) == ("cron", "mia", True, True)
    stopped = await mia.change_plan("agent:ada", plan.id, enabled=False)
    assert (stopped.enabled, stopped.next_at) == (False, None)
    later = await mia.change_plan("agent:ada", plan.id, what="look again", after_ms=60_000)
    assert (later.what, later.kind, later.enabled) == ("look again", "after", True)
    assert [each.id for each in await mia.plans("agent:ada")] == [plan.id]
    on_new_clocks = await mia.change_plan("agent:ada", plan.id, time_zone="Asia/Tokyo")
    assert (on_new_clocks.time_zone, on_new_clocks.next_at) == ("Asia/Tokyo", later.next_at)
    daily = await mia.change_plan("agent:ada", plan.id, cron="0 9 * * *")
    assert (daily.time_zone, daily.next_at % DAY_MS) == ("Asia/Tokyo", 0)  # nine in Tokyo is midnight in UTC
    for kept in ({"after_ms": 0}, {"time_zone": "Mars/Olympus"}, {"time_zone": ""}, {"cron": ""}):
        with pytest.raises(Invalid):
            await mia.change_plan("agent:ada", plan.id, **kept)
    moved = await mia.change_plan("agent:ada", plan.id, time_zone="UTC")
    assert (moved.spec, moved.next_at % DAY_MS, moved.enabled) == ("0 9 * * *", 9 * DAY_MS // 24, True)
    for timing, code in (
        ({"cron": "every day"}, "invalid_cron"),
        ({"at": "2001-01-01"}, "in_the_past"),
        ({"after_ms": 5, "time_zone": "Mars/Olympus"}, "unknown_time_zone"),
        ({}, "invalid"),
    ):
        with pytest.raises(Invalid) as refused:
            await mia.plan("agent:ada", "look", **timing)
        assert refused.value.code == code
    await mia.delete_plan("agent:ada", plan.id)
    assert await mia.plans("agent:ada") == []


async def test_entities_are_listed_and_called_as_they_say(mia: Any) -> None:
    await mia.create(members=["tom"])
    assert (await mia.rename("Mia the First")).name == "Mia the First"
    assert [(each.id, each.name) for each in await mia.entities()] == [("mia", "Mia the First"), ("tom", "tom")]
    assert ((await mia.entity()).id, (await mia.entity("tom")).type) == ("mia", "human")


# ---- clients, and programs outside ----


async def test_a_client_answers_what_waits_for_it(mia: Any, app: App) -> None:
    await app.write(add_agents, "ada")
    await app.write(client_call, "r1", "mia")
    client = await mia.connect("browser", tools=["pick"])
    assert (await mia.stay(client.id)).expires_at >= client.expires_at
    assert [each.id for each in await mia.clients()] == [client.id]
    (call,) = await mia.calls(client.id)
    assert isinstance(call, ClientCall)
    assert (call.run_id, call.call_id, call.tool, call.custom_ui) == ("r1", "c1", "pick", "ColourPicker")
    answered = await mia.answer_call(client.id, "r1", "c1", {"colour": "green"})
    assert (answered.run_id, answered.agent, answered.status) == ("r1", "ada", "running")
    with pytest.raises(NotWaiting):
        await mia.answer_call(client.id, "r1", "c1", error="no")
    await mia.disconnect(client.id)
    with pytest.raises(NotFound):
        await mia.calls(client.id)


async def test_a_key_starts_its_agent_until_it_is_revoked(mia: Any, app: App) -> None:
    await app.write(add_agents, "ada")
    made = await mia.create_key("ada", note="the job")
    one = await mia.trigger("ada", made.text, "look", metadata={"job": 1}, idempotency_key="k")
    again = await mia.trigger("ada", made.text, "look", metadata={"job": 1}, idempotency_key="k")
    # a worker may have begun with it meanwhile: the status is that of now
    assert (one.run_id, one.agent) == (again.run_id, "ada")
    (listed,) = await mia.keys("ada")
    assert (listed.id, listed.note, listed.owner_id, listed.digest) == (made.key.id, "the job", "mia", "")
    assert (await mia.revoke_key("ada", made.key.id)).revoked_at is not None
    with pytest.raises(Unauthorized):
        await mia.trigger("ada", made.text, "look")


@pytest.mark.parametrize("engine", ["postgres"])
async def test_postgresql_is_behind_the_same_doors(mia: Any, tom: Any, engine: str) -> None:
    space = await mia.create("here too", members=["tom"])
    message = await mia.post(space.id, "hello @tom")
    await tom.processed(space.id, message.id)
    kinds = [event.kind for event in await first(mia.follow(space.id, after=0), 4)]
    assert kinds == ["member.joined", "member.joined", "message.created", "member.read"]
