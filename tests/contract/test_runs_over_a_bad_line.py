"""Runs when answers are lost and connections cut: each thing happens once, and what is watched is told whole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from stigmergy import Agent, App
from stigmergy.client import Stigmergy, SyncStigmergy
from stigmergy.engine.watching import RunEvent
from stigmergy.errors import OutcomeUnknown
from stigmergy.settings import Settings
from support.loopback import LiveServer, Proxy, ThreadedRuns
from support.team import Slow, team

PATIENCE = 20


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
async def app(settings: Settings, slow: Slow) -> AsyncIterator[App]:
    async with team(settings, Agent("slow", slow, "Be slow.")) as app:
        yield app


@pytest.fixture
async def proxy(server: LiveServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture(params=["asyncio", "blocking"])
async def runs(request: pytest.FixtureRequest, server: LiveServer, proxy: Proxy) -> AsyncIterator[Any]:
    token = await server.token("mia")
    async with AsyncExitStack() as stack:
        if request.param == "asyncio":
            yield (await stack.enter_async_context(Stigmergy(proxy.url, token, timeout=10))).runs
        else:
            yield ThreadedRuns(stack.enter_context(SyncStigmergy(proxy.url, token, timeout=10)).runs)


async def test_a_run_whose_start_was_not_answered_is_started_once(app: App, runs: Any, proxy: Proxy) -> None:
    proxy.lose = 2
    handle = await runs.start("lead", "hello")
    assert await handle.result(PATIENCE) == "You said: hello"
    proxy.lose = 1
    await runs.hear(handle.id, "and more")
    assert await handle.result(PATIENCE) == "You said: and more"
    assert [run.id for run in (await app.runs.list()).items] == [handle.id]
    said = [message.content for message in await app.runs.messages(handle.id) if message.role == "user"]
    assert said == ["hello", "and more"]
    proxy.lose = 1
    assert (await runs.cancel(handle.id)).status == "completed"


async def test_an_answer_that_was_lost_may_have_been_given(app: App, runs: Any, proxy: Proxy) -> None:
    handle = await runs.start("lead", "ask Which?")
    async with asyncio.timeout(PATIENCE):
        while not (found := await app.runs.waits()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    proxy.lose = 1
    with pytest.raises(OutcomeUnknown):
        await runs.answer(found[0].id, text="the red one")
    assert "the red one" in await handle.result(PATIENCE)


async def test_a_run_is_watched_over_cut_connections_and_nothing_of_its_log_is_told_twice(
    app: App, runs: Any, proxy: Proxy, slow: Slow
) -> None:
    handle = await runs.start("slow", "go")
    events: list[RunEvent] = []
    text = ""
    async with asyncio.timeout(PATIENCE):
        async for event in handle.events():
            if event.kind != "text":
                events.append(event)
            else:
                text = text[: event.offset] + (event.text or "")
            if event.kind == "status" and event.status == "running":
                proxy.cut()
                slow.go()
            if event.kind == "text" and text in ("one ", "one two "):
                proxy.cut()
                slow.go()
    assert "one two three".startswith(text)
    seqs = [event.seq for event in events]
    assert seqs == sorted({seq for seq in seqs if seq is not None})
    whole = [event async for event in app.runs.events(handle.id) if event.kind != "text"]
    assert events == whole
