"""A space as it happens, over server-sent events."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
import msgspec
import pytest
from httpx_sse import ServerSentEvent, connect_sse

from stigmergy.access.commands import revoke_token
from stigmergy.access.model import signed
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.model import Run
from stigmergy.runs.pieces import Piece, stream_topic
from stigmergy.spaces.model import Space
from support.server import SECRET, Server
from support.talk import add_agents, client_call, runs_of, say, space_of


@contextmanager
def following(client: httpx.Client, space: str, **params: Any) -> Generator[Iterator[ServerSentEvent]]:
    headers = {"Last-Event-ID": str(params.pop("last_event_id"))} if "last_event_id" in params else {}
    with connect_sse(client, "GET", f"/v1/spaces/{space}/events", params=params, headers=headers) as source:
        source.response.raise_for_status()
        yield (event for event in source.iter_sse() if event.data)


@pytest.fixture
def space(guarded: Server) -> str:
    made: Space = guarded.write(space_of, "mia", "tom", "tim")
    return made.id


def post(client: httpx.Client, space: str, content: str) -> dict[str, Any]:
    return client.post(f"/v1/spaces/{space}/messages", json={"content": content}).raise_for_status().json()


async def at_work(tx: Transaction, run_id: str, status: Any = "running") -> None:
    """As if a worker had taken this run."""
    run = await tx.lock(Run, run_id)
    assert run is not None
    await tx.update(run, status=status)


def test_what_is_said_and_changed_comes_as_it_happens(guarded: Server, space: str) -> None:
    mia, tom = guarded.client_of("mia"), guarded.client_of("tom", "read", "write")
    with following(guarded.client_of("tim", "read"), space) as feed:
        one = post(mia, space, "helo @tom")
        path = f"/v1/spaces/{space}/messages/{one['id']}"
        mia.patch(path, json={"content": "hello @tom"}).raise_for_status()
        tom.post(f"/v1/spaces/{space}/read", json={"message_id": one["id"]}).raise_for_status()
        mia.delete(path).raise_for_status()
        mia.put(f"/v1/spaces/{space}/members/eve").raise_for_status()
        mia.delete(f"/v1/spaces/{space}/members/eve").raise_for_status()
        events = list(islice(feed, 6))
    assert [event.event for event in events] == [
        *("message.created", "message.updated", "member.read", "message.deleted", "member.joined", "member.left")
    ]
    assert events[0].json()["message"] == one
    assert [event.json()["message"]["content"] for event in (events[1], events[3])] == ["hello @tom", ""]
    assert (events[2].json()["entity_id"], events[2].json()["last_processed_seq"]) == ("tom", 1)
    assert [int(event.id) for event in events] == sorted(event.json()["seq"] for event in events)


def test_a_follower_that_was_cut_off_goes_on_where_it_was(guarded: Server, space: str) -> None:
    mia, tim = guarded.client_of("mia"), guarded.client_of("tim", "read")
    with following(tim, space) as feed:
        post(mia, space, "one")
        last = next(feed).id
    post(mia, space, "two")
    other: Space = guarded.write(space_of, "mia", "tim")
    post(mia, other.id, "elsewhere")
    with following(tim, space, last_event_id=last) as feed:
        post(mia, space, "three")
        assert [event.json()["message"]["content"] for event in islice(feed, 2)] == ["two", "three"]
    with following(tim, space, after=last) as feed:
        assert next(feed).json()["message"]["content"] == "two"


def test_agents_at_work_are_seen_by_all_and_heard_by_whom_their_run_belongs_to(guarded: Server) -> None:
    guarded.write(add_agents, "ada")
    made: Space = guarded.write(space_of, "mia", "agent:ada", "tom")
    guarded.write(say, "mia", made.id, "@ada, think", entity="mia")
    (run,) = guarded.run(guarded.database.read(runs_of, "ada"))
    mia, tom = guarded.client_of("mia", "read"), guarded.client_of("tom", "read")
    with following(mia, made.id, text=True) as feed, following(tom, made.id, text=True) as theirs:
        guarded.write(at_work, run.id)
        active = next(feed)
        assert (active.event, active.json()["run_id"], active.json()["entity_id"]) == ("agent.active", run.id, "agent:ada")
        assert next(theirs).event == "agent.active"
        with following(tom, made.id) as late:
            assert next(late).event == "agent.active"
        bus = guarded.database.bus
        for offset, text in ((0, "Let me "), (7, "think")):
            piece = Piece(run.id, "s1", offset, text)
            bus.publish(stream_topic("main", run.id), msgspec.json.encode(piece))
        assert [(event.event, event.json()["text"]) for event in islice(feed, 2)] == [("text", "Let me "), ("text", "think")]
        guarded.write(at_work, run.id, "completed")
        for ended in (islice(feed, 2), islice(theirs, 2)):
            assert {event.event for event in ended} == {"agent.inactive", "member.read"}


def test_what_waits_for_the_reader_is_told_to_nobody_else(guarded: Server) -> None:
    made: Space = guarded.write(space_of, "mia", "tom", id="s")
    guarded.write(client_call, "r1", "mia", space_id=made.id)
    mia, tom = guarded.client_of("mia"), guarded.client_of("tom")
    client = mia.post("/v1/clients", json={}).json()["id"]
    with following(mia, made.id) as mine, following(tom, made.id) as theirs:
        opened = next(mine)
        assert (opened.event, opened.json()["details"]["tool"], opened.json()["call_id"]) == ("wait.opened", "pick", "c1")
        answer = {"run_id": "r1", "call_id": "c1", "result": "green"}
        mia.post(f"/v1/clients/{client}/results", json=answer).raise_for_status()
        assert next(mine).json()["kind"] == "wait.closed"
        post(mia, made.id, "done")
        assert next(theirs).event == "message.created"


def test_who_is_writing_is_told_to_the_others(guarded: Server, space: str) -> None:
    mia, tom, tim = (guarded.client_of(name) for name in ("mia", "tom", "tim"))
    with following(tim, space) as feed, following(mia, space) as own:
        post(tom, space, "first")
        assert next(feed).event == next(own).event == "message.created"
        mia.post(f"/v1/spaces/{space}/typing", json={}).raise_for_status()
        mia.post(f"/v1/spaces/{space}/typing", json={"active": False}).raise_for_status()
        told = list(islice(feed, 2))
        assert [(event.event, event.json()["entity_id"], event.json()["status"]) for event in told] == [
            ("typing", "mia", "active"),
            ("typing", "mia", "inactive"),
        ]
        assert told[0].id == told[1].id
        post(tom, space, "second")
        assert next(own).json()["message"]["content"] == "second"


def test_who_is_let_go_hears_that_and_nothing_more(guarded: Server, space: str) -> None:
    mia, tim = guarded.client_of("mia"), guarded.client_of("tim", "read")
    with following(tim, space) as feed:
        mia.delete(f"/v1/spaces/{space}/members/tim").raise_for_status()
        post(mia, space, "he is gone")
        assert [event.event for event in feed] == ["member.left"]


def test_a_space_that_is_closed_ends_its_followers(guarded: Server, space: str) -> None:
    mia = guarded.client_of("mia")
    with following(mia, space) as feed:
        mia.delete(f"/v1/spaces/{space}").raise_for_status()
        assert "member.left" in [event.event for event in feed]


def test_a_follower_is_sent_away_with_its_token(guarded: Server, space: str) -> None:
    guarded.app.state.feeds.heartbeat = 0.05
    claims = guarded.claims("tim", "read")
    with following(guarded.client(signed(claims, SECRET)), space) as feed:
        guarded.write(revoke_token, claims.id)
        assert [event.event for event in feed] == []


def test_a_quiet_follower_moves_on_with_the_journal(guarded: Server, space: str) -> None:
    guarded.app.state.feeds.heartbeat = 0.05
    mia = guarded.client_of("mia")
    other: Space = guarded.write(space_of, "mia", "tim")
    with mia.stream("GET", f"/v1/spaces/{space}/events") as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("id: "))
        first = int(next(lines).removeprefix("id: "))
        post(mia, other.id, "elsewhere")
        while int(next(lines).removeprefix("id: ")) <= first:
            pass


def test_a_server_that_ends_ends_its_followers(guarded: Server, space: str) -> None:
    with following(guarded.client_of("mia"), space) as feed:
        guarded.stop()
        assert list(feed) == []
