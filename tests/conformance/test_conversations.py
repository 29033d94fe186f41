"""People and agents in spaces, with the engine at work: what each sees, sends and waits for."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stigmergy import App
from stigmergy.agents.agent import Agent
from stigmergy.agents.config import parse_config
from stigmergy.agents.models.port import Asked, Reply, Request
from stigmergy.agents.models.scripted import ScriptedModel
from stigmergy.agents.tools import tool
from stigmergy.runs.model import ENDED, Run
from stigmergy.settings import Settings
from stigmergy.spaces.model import Space
from stigmergy.spaces.queries import Message
from support.postgres import DatabaseUrls
from support.web import Web

T = TypeVar("T")
PATIENCE = 20
Script = Callable[[Request], Reply | str]


@pytest.fixture
def settings(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    if engine == "sqlite":
        return Settings(store=str(tmp_path / "app.db"))
    server = request.getfixturevalue("postgres_server")
    urls: DatabaseUrls = server.urls(server.create_database())
    return Settings(store=urls.app, owner_store=urls.owner)


def call(name: str, **arguments: Any) -> Reply:
    return Reply(text="", tool_calls=(Asked("x", name, json.dumps(arguments)),))


def heard(request: Request) -> str:
    """The last thing that was said to the agent, or that a tool of it gave."""
    return [message for message in request.messages if message.role != "system"][-1].content


def system(request: Request) -> str:
    return "\n\n".join(message.content for message in request.messages if message.role == "system")


def steps_done(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def agent(name: str, script: Script, **more: Any) -> Agent:
    return Agent(name, ScriptedModel(script, name=name), **more)


def says(text: str) -> Script:
    """Says this once, and is done."""
    return lambda request: call("send_message", text=text) if steps_done(request) == 0 else "done"


async def runs_of(app: App, name: str) -> list[Run]:
    return sorted((await app.runs.list(agent=name)).items, key=lambda run: run.id)


async def until(found: Callable[[], Awaitable[T | None]]) -> T:
    """What is found, as soon as there is something."""
    async with asyncio.timeout(PATIENCE):
        while (there := await found()) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return there


async def settled(app: App, *, runs: int) -> None:
    """Wait until so many runs have been started and are over."""

    async def over() -> bool | None:
        found = (await app.runs.list(limit=200)).items
        return (len(found) >= runs and all(run.status in ENDED for run in found)) or None

    await until(over)


async def said(app: App, space: Space) -> list[tuple[str, str]]:
    return [(message.author_name, message.content) for message in await app.spaces_of(space.owner_id).messages(space.id)]


async def until_said(app: App, space: Space, text: str) -> Message:
    async def found() -> Message | None:
        messages = await app.spaces_of(space.owner_id).messages(space.id)
        return next((message for message in messages if text in message.content), None)

    return await until(found)


async def test_an_agent_answers_in_the_space_and_its_own_words_stay_its_own(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", says("Hello Mia"))]) as app:
        space = await app.spaces_of("mia").create("us", members=["agent:ada"])
        await app.spaces_of("mia").post(space.id, "hello")
        await settled(app, runs=1)
        assert await said(app, space) == [("mia", "hello"), ("ada", "Hello Mia")]
        member = (await app.spaces_of("mia").members(space.id))[1]
        assert (member.entity_id, member.last_processed_seq) == ("agent:ada", 2)


async def test_what_a_prompt_says_of_the_conversation(settings: Settings) -> None:
    prompts: list[Request] = []

    def look(request: Request) -> str:
        prompts.append(request)
        return "done"

    async with App(settings=settings, agents=[agent("ada", look, instructions="You are Ada.")]) as app:
        mia = app.spaces_of("mia")
        space = await mia.create("The plan", about="What to build.", members=["tom", "agent:ada"])
        await mia.set_memory("colour", {"is": "green"}, entity_id="agent:ada")
        await mia.add_goal("ship it", entity_id="agent:ada", priority=3)
        plan = await mia.plan("agent:ada", "tidy up", cron="0 9 * * *", time_zone="Europe/Berlin")
        first = await app.spaces_of("tom").post(space.id, "Something to read")
        trigger = await mia.post(space.id, "@ada, what now?", reply_to=first.id)
        await settled(app, runs=1)
    (request,) = prompts
    texts = [message.content for message in request.messages]
    order = ["You are Ada.", "ship it", "colour", plan.id, "The spaces you are in", "You are in the space", "What was said there"]
    places = [next(place for place, text in enumerate(texts) if part in text) for part in order]
    assert places == sorted(places)
    history = texts[places[-1]]
    assert f"[NEW] {first.id} tom: Something to read" in history
    assert f"[NEW] [TRIGGER] {trigger.id} mia in reply to {first.id}: @ada, what now?" in history
    assert "- ada (agent, agent:ada) (you)" in texts[places[5]]
    last = request.messages[-1]
    assert (last.role, last.content) == (
        "user",
        f"{trigger.id} mia in reply to {first.id}: @ada, what now?\nsenderExpectsReply: true",
    )
    names = [shown.name for shown in request.tools]
    assert {"enter_space", "send_message", "send_reply", "read_messages", "set_memory", "set_plan", "ask_user"} <= set(names)


async def test_what_comes_while_a_run_is_on_is_new_in_the_next_one(settings: Settings) -> None:
    prompts: list[str] = []
    at_work = asyncio.Event()

    @tool
    async def work() -> str:
        """Take a while."""
        at_work.set()
        await asyncio.sleep(0.3)
        return "worked"

    def script(request: Request) -> Reply | str:
        prompts.append(system(request))
        return call("work") if "one" in heard(request) else "done"

    async with App(settings=settings, agents=[agent("ada", script, tools=[work])]) as app:
        space = await app.spaces_of("mia").create("us", members=["tom", "agent:ada"])
        one = await app.spaces_of("mia").post(space.id, "@ada one")
        await at_work.wait()
        two = await app.spaces_of("tom").post(space.id, "by the way")
        await settled(app, runs=1)
        three = await app.spaces_of("mia").post(space.id, "@ada, next")
        await settled(app, runs=2)
    assert all(f"[NEW] [TRIGGER] {one.id}" in prompt and two.id not in prompt for prompt in prompts[:2])
    assert f"[SEEN] {one.id}" in prompts[-1]
    assert f"[NEW] {two.id}" in prompts[-1]
    assert f"[NEW] [TRIGGER] {three.id}" in prompts[-1]


async def test_a_failed_run_moves_no_cursor_and_is_told(settings: Settings) -> None:
    def script(request: Request) -> Reply | str:
        raise RuntimeError("no model today")

    async with App(settings=settings, agents=[agent("ada", script)]) as app:
        space = await app.spaces_of("mia").create("us", members=["agent:ada"])
        await app.spaces_of("mia").post(space.id, "hello")
        await settled(app, runs=1)
        told = await until_said(app, space, "could not finish")
        assert (told.role, told.author, told.seq) == ("system", "system", 2)
        assert "no model today" in told.content
        (run,) = await runs_of(app, "ada")
        assert (run.status, told.run_id) == ("failed", run.id)
        assert (await app.spaces_of("mia").members(space.id))[1].last_processed_message_id is None


async def test_or_a_second_message_is_taken_into_the_run_that_is_on(settings: Settings) -> None:
    thinking, spoken = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Take a while."""
        thinking.set()
        await spoken.wait()
        return "worked"

    def script(request: Request) -> Reply | str:
        if steps_done(request) == 0:
            return call("work")
        words = [message.content for message in request.messages if message.role == "user"]
        return call("send_message", text=f"I heard {len(words)} messages") if steps_done(request) == 1 else "done"

    ada = agent("ada", script, tools=[work], second_message="same_run")
    async with App(settings=settings, agents=[ada]) as app:
        space = await app.spaces_of("mia").create("us", members=["agent:ada"])
        await app.spaces_of("mia").post(space.id, "one")
        await thinking.wait()
        await app.spaces_of("mia").post(space.id, "two")
        spoken.set()
        await settled(app, runs=1)
        assert await said(app, space) == [("mia", "one"), ("mia", "two"), ("ada", "I heard 2 messages")]
        assert (await app.spaces_of("mia").members(space.id))[1].last_processed_seq == 3


# ---- plans, and where one may speak ----


async def test_a_plans_run_must_enter_before_it_speaks(settings: Settings) -> None:
    results: list[str] = []

    def script(request: Request) -> Reply | str:
        if request.messages[-1].role == "tool":
            results.append(request.messages[-1].content)
        steps = [
            call("send_message", text="too early"),
            call("enter_space", space="Secrets"),
            call("send_message", text="still too early"),
            call("enter_space", space="work"),
            call("send_message", text="Good morning"),
        ]
        return steps[steps_done(request)] if steps_done(request) < len(steps) else "done"

    async with App(settings=settings, agents=[agent("ada", script)]) as app:
        mia = app.spaces_of("mia")
        secrets = await mia.create("Secrets", members=["tom"])
        work = await mia.create("Work", members=["tom", "agent:ada"])
        await mia.plan("agent:ada", "say good morning", after_ms=1)
        await settled(app, runs=1)
        assert await said(app, work) == [("ada", "Good morning")]
        assert await said(app, secrets) == []
        (run,) = await runs_of(app, "ada")
        assert (run.cause.kind, run.active_space_id, run.owner_id) == ("plan", work.id, "mia")
        (plan,) = await mia.plans("agent:ada")
        assert (plan.enabled, plan.next_at, plan.firings) == (False, None, 1)
    assert results[0] == results[2] == "error: you are in no space; call enter_space first"
    assert results[1].startswith("error: you are in no space 'Secrets'; yours are:")


async def test_long_names_and_long_words_start_a_run_as_well(settings: Settings) -> None:
    name, words = "a" * 128, "word\n" * 200
    async with App(settings=settings, agents=[agent(name, lambda request: "done")]) as app:
        await app.spaces.plan(f"agent:{name}", words, after_ms=1)
        await settled(app, runs=1)
        await app.spaces.trigger(name, (await app.spaces.create_key(name)).text, words)
        await settled(app, runs=2)
        assert sorted(run.cause.kind for run in await runs_of(app, name)) == ["plan", "service"]


async def test_a_program_outside_starts_an_agent_with_its_key(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", lambda request: f"did: {heard(request)}")]) as app:
        mia = app.spaces_of("mia")
        made = await mia.create_key("ada", note="ci")
        run = await mia.trigger("ada", made.text, "build it", idempotency_key="1")
        again = await mia.trigger("ada", made.text, "build it", idempotency_key="1")
        await settled(app, runs=1)
        assert again.run_id == run.run_id
        (run,) = await runs_of(app, "ada")
        assert (run.cause.kind, run.active_space_id, run.result) == ("service", None, "did: build it")


# ---- waiting for replies ----


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_person_and_two_agents_settle_a_question_and_a_restart_leaves_no_trace(
    settings: Settings, restarts: bool
) -> None:
    def lead(request: Request) -> Reply | str:
        done = steps_done(request)
        if done == 0:
            return call("send_message", text="@mia, for which mood?", wait=True)
        if done == 1:
            mood = json.loads(heard(request))["replies"][0]["text"]
            return call("send_message", text=f"@designer and @mia, which colour is {mood}?", wait=True)
        if done == 2:
            answer = json.loads(heard(request))
            votes = " and ".join(f"{reply['from']} says {reply['text']}" for reply in answer["replies"])
            return call("send_reply", text=f"{answer['status']}: {votes}", reply_to=answer["replies"][-1]["message_id"])
        return "done"

    def designer(request: Request) -> Reply | str:
        assert "senderExpectsReply: true" in request.messages[-1].content or steps_done(request)
        return call("send_message", text="green") if steps_done(request) == 0 else "done"

    async with AsyncExitStack() as stack:

        async def begin() -> App:
            return await stack.enter_async_context(
                App(settings=settings, agents=[agent("lead", lead), agent("designer", designer)])
            )

        async def again(app: App) -> App:
            if not restarts:
                return app
            await stack.aclose()
            return await begin()

        app = await begin()
        space = await app.spaces_of("mia").create("us", members=["agent:lead", "agent:designer"])
        await app.spaces_of("mia").post(space.id, "@lead, find a colour")
        await until_said(app, space, "for which mood?")
        app = await again(app)
        await app.spaces_of("mia").post(space.id, "calm")
        await until_said(app, space, "green")
        app = await again(app)
        last = await app.spaces_of("mia").post(space.id, "blue")
        answer = await until_said(app, space, "resolved")
        await settled(app, runs=2)
        assert answer.reply_to == last.id
        assert await said(app, space) == [
            ("mia", "@lead, find a colour"),
            ("lead", "@mia, for which mood?"),
            ("mia", "calm"),
            ("lead", "@designer and @mia, which colour is calm?"),
            ("designer", "green"),
            ("mia", "blue"),
            ("lead", "resolved: designer says green and mia says blue"),
        ]
        assert [len(await runs_of(app, name)) for name in ("lead", "designer")] == [1, 1]
        members = {each.name: each.last_processed_seq for each in await app.spaces_of("mia").members(space.id)}
        assert members == {"mia": 0, "lead": 7, "designer": 5}


async def test_a_question_goes_to_the_person_in_the_runs_own_space(settings: Settings) -> None:
    def script(request: Request) -> Reply | str:
        return call("ask_user", question="Which city?") if steps_done(request) == 0 else f"I heard {heard(request)}"

    async with App(settings=settings, agents=[agent("ada", script)], entity="mia") as app:
        handle = await app.runs.start("ada", "the weather, please")

        async def asks() -> Run | None:
            run = (await app.runs.get(handle.id)).run
            return run if run.status == "waiting_reply" else None

        space = await app.spaces.get((await until(asks)).space_id)
        assert await said(app, space) == [("ada", "Which city?")]
        await app.spaces.post(space.id, "Oslo")
        assert "Oslo" in await handle.result(PATIENCE)
        assert [run.id for run in await runs_of(app, "ada")] == [handle.id]


@pytest.mark.parametrize("knows", [True, False])
async def test_a_tasks_question_is_put_to_the_agent_that_gave_it_first(settings: Settings, knows: bool) -> None:
    def lead(request: Request) -> Reply | str:
        if "to whom you gave a task, asks" in request.messages[-1].content:
            assert "in Oslo" in request.messages[-1].content
            return "Oslo" if knows else call("ask_user", question="pass it on")
        if request.messages[-1].role == "tool" and steps_done(request) == 1 and "person was asked" in heard(request):
            return "done"
        if steps_done(request) == 0:
            return call("create_task", agent="helper", instruction="Find the weather")
        return f"So: {heard(request)}"

    def helper(request: Request) -> Reply | str:
        return call("ask_user", question="In which city?") if steps_done(request) == 0 else f"sunny, says {heard(request)}"

    team = [agent("lead", lead, delegates=["helper"]), agent("helper", helper)]
    async with App(settings=settings, agents=team, entity="mia") as app:
        handle = await app.runs.start("lead", "I am in Oslo; what is the weather?")
        if not knows:
            (space,) = await app.spaces.find()
            await until_said(app, space, "In which city?")
            await app.spaces.post(space.id, "Bergen")
        answer = await handle.result(PATIENCE)
        assert ("Oslo" if knows else "Bergen") in answer
        if knows:
            spaces = await app.spaces.find()
            assert [await app.spaces.messages(space.id) for space in spaces] == [[] for _ in spaces]


# ---- what the others see of tools ----


@pytest.mark.parametrize(
    ("visibility", "shown"),
    [
        ("visible", ["price is at work", "price is done"]),
        ("result-only", ["price is done"]),
        ("hidden", []),
    ],
)
async def test_a_tool_is_seen_as_its_visibility_says(settings: Settings, visibility: Any, shown: list[str]) -> None:
    @tool(visibility=visibility)
    async def price(symbol: str) -> float:
        """The price of a coin."""
        return 42.5

    script = lambda request: call("price", symbol="@mia") if steps_done(request) == 0 else "done"  # noqa: E731
    async with App(settings=settings, agents=[agent("ada", script, tools=[price])]) as app:
        mia = app.spaces_of("mia")
        space = await mia.create("us", members=["agent:ada"])
        await mia.post(space.id, "hello")
        await settled(app, runs=1)
        messages = (await mia.messages(space.id))[1:]
        assert [message.content for message in messages] == shown
        assert all((each.role, each.author, each.mentions) == ("tool", "agent:ada", []) for each in messages)
        about = [(each.metadata or {})["tool"] for each in messages]
        expected = [
            {"type": "call", "name": "price", "call_id": "call_1_1", "args": {"symbol": "@mia"}},
            {"type": "result", "name": "price", "call_id": "call_1_1", "status": "success", "result": 42.5},
        ]
        assert about == [each for each in expected if f"price is {'at work' if each['type'] == 'call' else 'done'}" in shown]


async def test_a_visible_tool_in_no_space_is_shown_nowhere_and_logged(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(visibility="visible")
    async def price() -> float:
        """The price of a coin."""
        return 42.5

    script = lambda request: call("price") if steps_done(request) == 0 else "done"  # noqa: E731
    caplog.set_level(logging.WARNING)
    async with App(settings=settings, agents=[agent("ada", script, tools=[price])], entity="mia") as app:
        handle = await app.runs.start("ada", "go")
        assert await handle.result(PATIENCE) == "done"
        assert await app.spaces.find() != []
        assert [await app.spaces.messages(space.id) for space in await app.spaces.find()] == [[]]
    assert "uses the visible tool price in no space" in caplog.text


async def test_a_gateway_tool_of_a_config_is_called_and_seen(settings: Settings) -> None:
    def script(request: Request) -> Reply | str:
        return call("fetchWeather", city="São Paulo") if steps_done(request) == 0 else f"It is {heard(request)}"

    with Web() as web:
        web.answer_json({"temperature": 21})
        config = {
            "name": "weatherman",
            "model": "code:weatherman",
            "tools": [
                {
                    "name": "fetchWeather",
                    "description": "Get current weather for a city",
                    "executionType": "gateway",
                    "visibility": "visible",
                    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
                    "execution": {"url": f"{web.url}/current?city={{{{input.city}}}}", "method": "GET", "timeout": 10000},
                }
            ],
        }
        tools = parse_config(config).definition.tools
        async with App(settings=settings, agents=[agent("weatherman", script, tools=tools)]) as app:
            mia = app.spaces_of("mia")
            space = await mia.create("us", members=["agent:weatherman"])
            await mia.post(space.id, "how is it there?")
            await settled(app, runs=1)
            assert [name for name, _ in await said(app, space)] == ["mia", "weatherman", "weatherman"]
            shown = (await mia.messages(space.id))[2].metadata
            assert shown is not None
            assert shown["tool"]["result"] == {"temperature": 21}
            (run,) = await runs_of(app, "weatherman")
            assert run.result == 'It is {"temperature":21}'
        assert [asked.path for asked in web.asked] == ["/current?city=S%C3%A3o%20Paulo"]
