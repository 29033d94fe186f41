"""Runs whose model is reached over OpenAI's protocol, at a real HTTP server: the whole way, and what goes wrong on it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stigmergy import Agent, App, tool
from stigmergy.settings import Settings
from support.agents import ended
from support.model_server import Answer, ModelServer, chunk, refused, streamed
from support.model_server import call as piece

MADE: list[int] = []


@tool
async def double(n: int) -> int:
    """Twice as much."""
    MADE.append(n)
    return 2 * n


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    MADE.clear()
    async with ModelServer() as server:
        yield server


def ada(server: ModelServer, **more: Any) -> Agent:
    return Agent("ada", server.model, "Be brief.", tools=[double], builtin_tools=(), **more)


def two_calls(first: str = '{"n": 1}', second: str = '{"n": 2}') -> Answer:
    half = len(first) // 2
    deltas = [piece(0, "a", "double", first[:half]), piece(1, "b", "double", second), piece(0, None, None, first[half:])]
    return streamed(deltas, finish="tool_calls")


async def test_works_when_8_a_run_over_the_wire_streams_calls_in_parallel_and_outlives_a_429_and_a_cut_stream(
    settings: Settings, server: ModelServer
) -> None:
    cut = Answer(chunks=[chunk({"role": "assistant", "content": "Half an ans"})], broken=True)
    server.answers.extend(
        [
            refused(429, "slow down", retry_after="0"),
            two_calls(),
            cut,
            streamed([{"role": "assistant", "content": "2 and "}, {"content": "4"}]),
        ]
    )
    async with App(settings=settings, agents=[ada(server)]) as app:
        run = await app.runs.start("ada", "double 1 and 2")
        events = [event async for event in run.events()]
        assert await run.result(20) == "2 and 4"
        assert sorted(MADE) == [1, 2]
        assert len(server.asked) == 4
        sent = server.asked[3]["messages"]
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
        assert [json.loads(each["function"]["arguments"]) for each in sent[2]["tool_calls"]] == [{"n": 1}, {"n": 2}]
        assert [message["content"] for message in sent[3:]] == ["2", "4"]
        assert [message["tool_call_id"] for message in sent[3:]] == [each["id"] for each in sent[2]["tool_calls"]]
        view = (await app.runs.get(run.id)).run
        assert (view.step, view.tokens_used) == (2, 36)
        said = [event.text for event in events if event.kind == "message" and event.role == "assistant"]
        assert said == ["", "2 and 4"]


async def test_a_server_that_refuses_for_good_fails_the_run_with_its_words(settings: Settings, server: ModelServer) -> None:
    server.answers.append(refused(401, "no such key"))
    async with App(settings=settings, agents=[ada(server)]) as app:
        run = await ended(app, (await app.runs.start("ada", "go")).id)
        assert run.status == "failed"
        assert str(run.error).startswith("model: ")
        assert "no such key" in str(run.error)
        assert len(server.asked) == 1


async def test_a_server_that_never_recovers_is_asked_as_often_as_the_agent_says(settings: Settings, server: ModelServer) -> None:
    server.answers.extend(refused(500, "oh", retry_after="0") for _ in range(3))
    async with App(settings=settings, agents=[ada(server, model_tries=3)]) as app:
        space = await app.spaces_of("mia").create("us", members=["agent:ada"])
        task, run = await app.runs.give_task("agent:ada", "go", space_id=space.id)
        assert run is not None
        over = await ended(app, run.id)
        assert (over.status, "(3 tries)" in str(over.error), len(server.asked)) == ("failed", True, 3)
        assert task.run_id == run.id


async def test_a_server_that_is_too_slow_is_given_up(settings: Settings, server: ModelServer) -> None:
    server.answers.append(Answer(body={}, after=60))
    async with App(settings=settings, agents=[ada(server, model_tries=1, model_timeout_ms=200)]) as app:
        run = await ended(app, (await app.runs.start("ada", "go")).id)
        assert "did not answer within 0.2 s" in str(run.error)


async def test_arguments_that_are_no_json_are_told_to_the_model_over_the_wire(settings: Settings, server: ModelServer) -> None:
    server.answers.extend([two_calls('{"n": }'), streamed([{"role": "assistant", "content": "sorry"}])])
    async with App(settings=settings, agents=[ada(server)]) as app:
        assert await app.ask("ada", "go", timeout=20) == "sorry"
        assert MADE == [2]
        assert "are not JSON" in server.asked[1]["messages"][3]["content"]


async def test_canceling_a_run_hangs_up(settings: Settings, server: ModelServer) -> None:
    server.answers.append(Answer(body={}, after=60))
    async with App(settings=settings, agents=[ada(server)]) as app:
        run = await app.runs.start("ada", "go")
        await server.waited_for.wait()
        await run.cancel()
        await server.hung_up.wait()
        assert (await ended(app, run.id)).status == "canceled"
