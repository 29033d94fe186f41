"""How far an agent has read a space when its run is over, however the run came to look at it; and who may say so."""

import json
from typing import Any

import pytest

from stigmergy import App, tool
from stigmergy.agents.agent import on
from stigmergy.errors import AlreadyExists, Conflict, Invalid
from stigmergy.settings import Settings
from stigmergy.spaces.model import Space
from stigmergy.spaces.namespace import Spaces
from support.agents import Steps, agent, call, ended, runs_of, system, until, until_waiting


async def read_by_ada(mia: Spaces, space: Space) -> int:
    return next(each for each in await mia.members(space.id) if each.entity_id == "agent:ada").last_processed_seq


async def first_run(app: App) -> str:
    async def there() -> str | None:
        return next((run.id for run in await runs_of(app, "ada")), None)

    return await until(there)


@pytest.mark.parametrize("begins", ["subscription", "api", "plan"])
async def test_what_a_prompt_showed_is_seen_and_what_came_later_is_not(settings: Settings, begins: str) -> None:
    @tool
    async def work() -> str:
        """Meanwhile somebody says something that wakes nobody."""
        await app.spaces_of("agent:bob").post(space.id, "by the way")
        return "worked"

    entering = [call("enter_space", space="us")] if begins == "plan" else []
    script = Steps(*entering, call("work"), "done")
    ada = agent("ada", script, tools=[work], subscriptions=[on("user.message.v1")] if begins == "subscription" else [])
    app = App(settings=settings, agents=[ada, agent("bob", lambda request: "done")], entity="mia")
    async with app:
        mia = app.spaces
        space = await mia.create("us", members=["tom", "agent:ada", "agent:bob"])
        if begins == "plan":  # in which nothing was said so far
            await mia.plan("agent:ada", "look there", after_ms=1)
        else:
            await mia.post(space.id, "to nobody")
        if begins == "api":
            await app.runs.start("ada", "look there", space_id=space.id)
        run = await ended(app, await first_run(app))
        assert (run.status, run.cause.kind) == ("completed", begins)
        assert [message.content for message in await mia.messages(space.id)][-1] == "by the way"
        assert not any("by the way" in system(request) for request in script.asked)
        assert await read_by_ada(mia, space) == (0 if begins == "plan" else 1)


OURS: list[tuple[str, dict[str, Any]]] = [
    ("shown", {"shown": {"SPACE": [99, "x"]}}),
    ("shown", {"shown": 3}),
    ("answers", {"answers": ["RUN", "call_1_1"]}),
    ("answers", {"answers": "x"}),
]


@pytest.mark.parametrize(("key", "metadata"), OURS)
async def test_who_starts_a_run_says_neither_what_it_has_seen_nor_whom_it_answers(
    settings: Settings, key: str, metadata: dict[str, Any]
) -> None:
    async with App(settings=settings, agents=[agent("ada", lambda request: "done")]) as app:
        made = await app.spaces.create_key("ada")
        with pytest.raises(Invalid, match="engine's own") as by_key:
            await app.spaces.trigger("ada", made.text, "look", metadata=metadata)
        with pytest.raises(Invalid, match="engine's own") as started:
            await app.runs.start("ada", "look", metadata=metadata)
        assert by_key.value.where == started.value.where == f"metadata.{key}"
        assert await runs_of(app, "ada") == []


@pytest.mark.parametrize("metadata", [metadata for _, metadata in OURS])
async def test_what_a_program_outside_says_of_its_run_is_not_believed(settings: Settings, metadata: dict[str, Any]) -> None:
    asks = Steps(call("ask_user", question="Which city?"), lambda request: request.messages[-1].content)
    async with App(settings=settings, agents=[agent("ada", asks)], entity="mia") as app:
        space = await app.spaces.create("us", id="SPACE", members=["agent:ada"])
        asking = await app.runs.start("ada", "the weather")
        (wait,) = await until_waiting(app)
        given = json.loads(json.dumps(metadata).replace("RUN", asking.id))
        task = await app.tasks.give("agent:outside", "be quick")
        run = await app.tasks.take_up(task.id, metadata=given)
        await app.tasks.move(run.id, "completed", result="Atlantis")
        assert [each.id for each in await app.runs.waits()] == [wait.id]
        await app.runs.answer(wait.id, text="Oslo")
        assert "Oslo" in await asking.result(20)
        assert await read_by_ada(app.spaces, space) == 0


async def test_a_key_sent_again_with_another_request_is_refused(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", lambda request: "done")]) as app:
        key = (await app.spaces.create_key("ada")).text
        await app.spaces.trigger("ada", key, "look", metadata={"job": 1}, idempotency_key="k")
        with pytest.raises(Conflict):
            await app.spaces.trigger("ada", key, "look", metadata={"job": 2}, idempotency_key="k")


async def test_the_id_of_a_deleted_space_is_given_to_nobody_else(settings: Settings) -> None:
    @tool
    async def delete() -> str:
        """Meanwhile its owner deletes the space."""
        await app.spaces_of("mia").delete("ours")
        return "deleted"

    asks = Steps(call("delete"), call("ask_user", question="Which city?"), lambda request: request.messages[-1].content)
    app = App(settings=settings, agents=[agent("ada", asks, tools=[delete])], entity="tom")
    async with app:
        mia, tom = app.spaces_of("mia"), app.spaces
        await mia.create("Ours", id="ours")
        await mia.post("ours", "the password is 123")
        asking = await app.runs.start("ada", "the weather", space_id="ours")
        # what a run asks that was in it is asked elsewhere
        (wait,) = await until_waiting(app)
        assert wait.space_id not in (None, "ours")
        for who in (tom, mia):
            with pytest.raises(AlreadyExists, match="choose another id"):
                await who.create("Mine", id="ours")
        assert [message.content for message in await tom.messages(wait.space_id)] == ["Which city?"]
        await tom.post(wait.space_id, "Oslo")
        assert "Oslo" in await asking.result(20)
