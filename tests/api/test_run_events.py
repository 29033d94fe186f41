"""A run watched over server-sent events: from its beginning, from the middle, again, and to its end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import ServerSentEvent, aconnect_sse

from stigmergy import Agent, App, Reply, Request
from stigmergy.access.commands import list_tokens, revoke_token
from stigmergy.agents.models.port import ModelFailed
from stigmergy.kernel.retention import Policy, sweep
from stigmergy.settings import Settings
from support.loopback import LiveServer
from support.run_service import PATIENCE, Connect, code, done, ended, started, waiting
from support.team import Slow


@asynccontextmanager
async def watching(
    client: httpx.AsyncClient, id: str, *, last: str | None = None, **params: Any
) -> AsyncGenerator[AsyncIterator[ServerSentEvent]]:
    headers = {} if last is None else {"Last-Event-ID": last}
    async with (
        asyncio.timeout(PATIENCE),
        aconnect_sse(client, "GET", f"/v1/runs/{id}/events", params=params, headers=headers) as source,
    ):
        source.response.raise_for_status()
        yield source.aiter_sse()


async def watched(client: httpx.AsyncClient, id: str, **how: Any) -> list[ServerSentEvent]:
    """All that is told until the stream ends, but for blocks that are no events."""
    async with watching(client, id, **how) as events:
        return [event async for event in events if event.data]


def brief(event: ServerSentEvent) -> tuple[Any, ...]:
    said = event.json()
    what = {"status": "status", "message": "text", "text": "text", "call": "tool", "result": "result", "wait": "question"}
    return event.event, said.get("agent"), said.get(what.get(event.event, ""))


async def test_all_that_happens_is_told_in_order_until_the_end(mia: httpx.AsyncClient) -> None:
    id = (await started(mia, "delegate this"))["id"]
    events = [each for each in await watched(mia, id) if each.event not in ("text", "withdrawn")]
    (child,) = (await mia.get(f"/v1/runs/{id}/tree")).json()["children"]
    told = [brief(event) for event in events]
    assert [each for each in told if each[1] == "lead"][:4] == [
        ("status", "lead", "queued"),
        ("message", "lead", "delegate this"),
        ("status", "lead", "running"),
        ("message", "lead", ""),
    ]
    assert ("call", "lead", "create_task") in told
    assert [each for each in told if each[1] == "helper"] == [
        ("status", "helper", "queued"),
        ("message", "helper", "this"),
        ("status", "helper", "running"),
        ("message", "helper", "helped with this"),
        ("status", "helper", "completed"),
    ]
    assert ("status", "lead", "waiting_tool") in told
    assert told[-2:] == [("status", "lead", "completed"), ("end", None, None)]
    ids = [int(event.id) for event in events]
    assert ids == sorted(ids)
    begun = next(event.json() for event in events if event.json().get("agent") == "helper")
    assert (begun["run_id"], begun["parent_run_id"]) == (child["run"]["id"], id)
    last = events[-2].json()
    assert (last["status"], last["seq"]) == ("completed", (await mia.get(f"/v1/runs/{id}")).json()["seq"])


async def test_who_comes_in_the_middle_gets_the_text_so_far_and_then_the_rest(mia: httpx.AsyncClient, slow: Slow) -> None:
    id = (await started(mia, "go", agent="slow"))["id"]
    slow.go()
    await slow.began.wait()
    text = ""
    stream_id = None
    seen: list[str] = []
    async with watching(mia, id) as events:
        async for event in events:
            if not event.data:
                continue
            said = event.json()
            if event.event == "text":
                assert said["offset"] <= len(text)
                text = text[: said["offset"]] + said["text"]
                stream_id = said["stream_id"]
                seen.append(text)
                slow.go()
            if event.event == "message" and said["role"] == "assistant":
                assert (said["text"], said["stream_id"]) == ("one two three", stream_id)
                break
    assert seen[:2] == ["one ", "one two "]
    assert (await ended(mia, id))["result"] == "one two three"


class Stumbling:
    """Its first answer breaks off in the middle."""

    name = "stumbling"

    def __init__(self) -> None:
        self._stumbles = True

    async def request(self, request: Request, on_text: Any = None) -> Reply:
        on_text("one " if self._stumbles else "two")
        if self._stumbles:
            self._stumbles = False
            await asyncio.sleep(0.1)  # the piece is on its way
            raise ModelFailed("the line was cut", retryable=True)
        return Reply(text="two")


async def test_text_that_came_to_nothing_is_withdrawn(tmp_path: Path) -> None:
    settings = Settings(store=str(tmp_path / "other.db"), embedder="off")
    async with (
        App(agents=[Agent("stumbling", Stumbling())], settings=settings) as app,
        LiveServer(app) as server,
        httpx.AsyncClient(base_url=server.url, headers={"Authorization": f"Bearer {await server.token('mia')}"}) as mia,
    ):
        events = [each.json() for each in await watched(mia, (await started(mia, "go", agent="stumbling"))["id"])]
    told = [(each.get("kind"), each.get("text"), each.get("stream_id")) for each in events]
    first = next(stream for kind, text, stream in told if (kind, text) == ("text", "one "))
    assert ("withdrawn", "", first) in told
    assert told.index(("withdrawn", "", first)) < next(place for place, each in enumerate(told) if each[1] == "two")
    assert ("message", "two") in [each[:2] for each in told]


async def test_who_comes_back_is_told_what_follows_and_nothing_twice(mia: httpx.AsyncClient) -> None:
    id = (await done(mia, "price BTC"))["id"]
    whole = await watched(mia, id)
    for place, event in enumerate(whole[:-1]):
        rest = await watched(mia, id, last=event.id)
        wanted = whole[place + 1 :]
        if event is whole[-2]:
            wanted = whole[-2:]  # it has ended, which is told again
        assert [each.data for each in rest] == [each.data for each in wanted]
        assert [each.data for each in await watched(mia, id, after=event.id)] == [each.data for each in wanted]


async def test_a_run_that_went_on_after_it_had_ended_is_told_to_its_last_end(mia: httpx.AsyncClient) -> None:
    id = (await done(mia, "hello"))["id"]
    await mia.post(f"/v1/runs/{id}/messages", json={"text": "once more"})
    await ended(mia, id)
    told = [brief(event) for event in await watched(mia, id)]
    assert told.count(("status", "lead", "completed")) == 2
    assert told[-3] == ("message", "lead", "You said: once more")


async def test_what_is_waited_for_is_told(mia: httpx.AsyncClient) -> None:
    id = (await started(mia, "drop users"))["id"]
    wait = await waiting(mia, id)
    async with watching(mia, id) as events:
        async for event in events:
            if event.event == "wait":
                said = event.json()
                assert (said["wait_id"], said["wait_kind"]) == (wait["id"], "approval")
                assert said["question"] == "May lead call drop?"
                answer = await mia.post(f"/v1/waits/{said['wait_id']}/answer", json={"decision": "approve"})
                assert answer.status_code == 200
            if event.event == "result":
                assert event.json()["result"] == "dropped users for mia"


async def test_members_of_the_space_are_told_how_runs_stand_and_no_more(app: App, connect: Connect) -> None:
    space = await app.spaces_of("mia").create("talk", members=["tom"])
    mia, tom = await connect("mia", "read", "write"), await connect("tom", "read")
    id = (await done(mia, "delegate this", space_id=space.id))["id"]
    events = await watched(tom, id)
    assert {event.event for event in events} == {"status", "end"}
    assert "completed" in events[-2].data


async def test_a_follower_of_a_silent_run_is_told_that_the_server_lives(
    mia: httpx.AsyncClient, live_server: LiveServer, slow: Slow
) -> None:
    live_server.beat_every(0.05)
    id = (await started(mia, "go", agent="slow"))["id"]
    async with asyncio.timeout(PATIENCE), mia.stream("GET", f"/v1/runs/{id}/events") as answer:
        beats = 0
        async for line in answer.aiter_lines():
            beats = beats + 1 if line.startswith("id:") else 0 if line else beats
            if beats == 3:
                break
    slow.go(3)
    await ended(mia, id)


async def test_a_server_that_closes_ends_the_stream_and_does_not_say_that_the_run_has_ended(
    mia: httpx.AsyncClient, live_server: LiveServer
) -> None:
    id = (await started(mia, "go", agent="slow"))["id"]
    async with watching(mia, id) as events:
        kinds = [(await anext(events)).event]
        live_server.end_feeds()
        kinds += [event.event async for event in events]
    assert "end" not in kinds


async def test_a_token_that_is_revoked_is_told_nothing_more(
    app: App, mia: httpx.AsyncClient, slow: Slow, live_server: LiveServer
) -> None:
    live_server.beat_every(0.05)
    id = (await started(mia, "go", agent="slow"))["id"]
    async with watching(mia, id) as events:
        await anext(events)
        (token,) = await app.read(list_tokens)
        await app.write(revoke_token, token.id)
        rest = [event.event async for event in events]
    assert "end" not in rest


async def test_a_browser_watches_with_a_token_in_the_address(mia: httpx.AsyncClient, live_server: LiveServer) -> None:
    id = (await done(mia, "hello"))["id"]
    token = (await mia.post("/v1/tokens/browser")).json()["token"]
    async with httpx.AsyncClient(base_url=live_server.url) as browser:
        assert (await watched(browser, id, token=token))[-1].event == "end"
        assert code(await browser.get(f"/v1/runs/{id}", params={"token": token})) == (401, "unauthorized")


async def test_a_position_that_the_journal_no_longer_has_is_reset(app: App, mia: httpx.AsyncClient) -> None:
    id = (await done(mia, "price BTC"))["id"]
    await sweep(app.database, Policy(max_changes=2))
    events = await watched(mia, id, last="1")
    assert events[0].event == "reset"
    assert [event.event for event in events][-2:] == ["status", "end"]
    await sweep(app.database, Policy(max_changes=0))
    assert [brief(event) for event in await watched(mia, id)] == [("status", "lead", "completed"), ("end", None, None)]
    ahead = await watched(mia, id, last="999999")
    assert [event.event for event in ahead] == ["status", "end"]


@pytest.mark.parametrize("last", ["x", "-1", "1" * 16])
async def test_a_position_is_a_number(mia: httpx.AsyncClient, last: str) -> None:
    id = (await done(mia, "hello"))["id"]
    assert code(await mia.get(f"/v1/runs/{id}/events", headers={"Last-Event-ID": last})) == (422, "invalid")
