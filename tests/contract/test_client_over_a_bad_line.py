"""What a client does when answers are lost, servers are away, and others answer in their place."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from stigmergy import App
from stigmergy.access.commands import revoke_token
from stigmergy.access.model import Forbidden, Unauthorized, verified
from stigmergy.breadcrumbs.events import Event
from stigmergy.breadcrumbs.model import Draft, Schema
from stigmergy.client import attempts
from stigmergy.errors import AlreadyExists, Invalid, OutcomeUnknown, StigmergyError, StoreUnavailable, StoreUnusable
from stigmergy.kernel.feed import edges
from stigmergy.kernel.transaction import Scope
from support.loopback import LiveServer, Proxy
from support.server import SECRET
from support.units import until

Connect = Callable[..., Any]

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
FAR = BUSY.replace(b"Retry-After: 1", b"Retry-After: 3600")
GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
STRANGER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
GONE = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"


@pytest.fixture
async def proxy(server: LiveServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def crumbs(connect: Connect, server: LiveServer, proxy: Proxy) -> Any:
    return connect(proxy.url, await server.token("mia"))


async def last(app: App) -> int:
    return (await app.database.read(edges)).last


async def take(events: Any, count: int) -> list[Event]:
    async with asyncio.timeout(20), aclosing(events):
        return [await anext(events) for _ in range(count)]


# ---- one call ----


async def test_a_create_whose_answer_was_lost_is_made_once(app: App, crumbs: Any, proxy: Proxy) -> None:
    before = await last(app)
    proxy.lose = 2
    made = await crumbs.create("note.v1", context={"n": 1})
    assert proxy.asked == 3
    assert await last(app) == before + 1
    proxy.lose = 1
    many = await crumbs.create_many([Draft(schema_name="note.v1"), Draft(schema_name="note.v1")])
    assert await last(app) == before + 3
    assert {view.id for view in (await crumbs.find()).items} == {made.id, *(view.id for view in many)}


async def test_a_read_whose_answer_was_lost_is_asked_again(crumbs: Any, proxy: Proxy) -> None:
    made = await crumbs.create("note.v1")
    for read in (crumbs.get(made.id), crumbs.find(), crumbs.history(made.id), crumbs.search("note", method="text")):
        proxy.lose = 1
        await read
    assert proxy.asked == 9


async def test_a_write_that_must_not_be_done_twice_is_not_and_its_outcome_is_unknown(app: App, crumbs: Any, proxy: Proxy) -> None:
    made = await crumbs.create("note.v1", context={"n": 1})
    asked = proxy.asked
    writes = [
        lambda: crumbs.patch(made.id, context={"n": 2}),
        lambda: crumbs.retag(made.id, add=["x"]),
        lambda: crumbs.put_schema(Schema(name="note.v1", ttl_ms=1_000_000)),
        lambda: crumbs.delete(made.id),
    ]
    for number, write in enumerate(writes, 1):
        proxy.lose = 1
        with pytest.raises(OutcomeUnknown, match="read before you write again"):
            await write()
        assert proxy.asked == asked + number
    assert [view.version for view in await crumbs.history(made.id)] == [3, 2, 1]


async def test_a_conditional_write_is_repeated_and_its_own_success_is_not_taken_for_anothers(crumbs: Any, proxy: Proxy) -> None:
    """After a lost answer, `412` may be because of what this very call did."""
    made = await crumbs.create("note.v1", context={"n": 1})
    proxy.lose = 1
    with pytest.raises(OutcomeUnknown):
        await crumbs.patch(made.id, context={"n": 2}, if_match=1)
    assert (await crumbs.get(made.id)).context == {"n": 2}
    proxy.answers.append(GATEWAY)  # which did not hand it on
    assert (await crumbs.patch(made.id, context={"n": 3}, if_match=2)).version == 3
    proxy.lose = 1
    with pytest.raises(OutcomeUnknown):
        await crumbs.delete(made.id, if_match=3)


async def test_who_says_when_to_come_back_is_believed_unless_it_is_far_away(crumbs: Any, proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    proxy.answers.append(BUSY)
    began = loop.time()
    await crumbs.create("note.v1")
    assert 1 <= loop.time() - began < 15
    proxy.answers.append(FAR)
    with pytest.raises(StoreUnavailable):
        await crumbs.create("note.v1")


async def test_a_busy_server_did_not_do_what_it_refused(crumbs: Any, proxy: Proxy) -> None:
    proxy.answers.append(FAR)
    with pytest.raises(StoreUnavailable):
        await crumbs.put_schema(Schema(name="note.v1"))
    assert await crumbs.schemas() == []


@pytest.mark.parametrize("answer", [STRANGER, GONE])
async def test_an_answer_that_is_not_ours_is_told_as_such(crumbs: Any, proxy: Proxy, answer: bytes) -> None:
    proxy.answers.append(answer)
    with pytest.raises(StoreUnusable, match=r"not .*Stigmergy server"):
        await crumbs.find()


async def test_a_refusal_is_not_repeated(crumbs: Any, proxy: Proxy) -> None:
    await crumbs.create("note.v1", id="taken")
    asked = proxy.asked
    with pytest.raises(AlreadyExists):
        await crumbs.create("note.v1", id="taken")
    with pytest.raises(Invalid) as refused:
        await crumbs.create("note.v1", tags=[""])
    assert refused.value.where == "tags[0]"
    assert proxy.asked == asked + 2


async def test_a_server_that_comes_late_is_waited_for_and_one_that_does_not_come_is_named(
    app: App, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LiveServer(app) as first:
        crumbs = connect(first.url, await first.token("mia"))
    creating = asyncio.create_task(crumbs.create("note.v1"))
    await asyncio.sleep(0.3)
    async with LiveServer(app, first.port):
        made = await creating
        assert (await crumbs.get(made.id)).id == made.id
    monkeypatch.setattr(attempts, "FIRST_SECONDS", 0.01)
    with pytest.raises(StoreUnavailable, match=first.url):
        await crumbs.get(made.id)


@pytest.mark.parametrize(
    ("url", "token"), [("ftp://host", None), ("host:8420", None), ("http://", None), ("http://127.0.0.1:1", "two\nlines")]
)
async def test_what_cannot_be_an_address_or_a_token_is_refused_at_once(connect: Connect, url: str, token: str | None) -> None:
    with pytest.raises(Invalid):
        connect(url, token)


async def test_what_a_token_does_not_allow_is_told(connect: Connect, server: LiveServer) -> None:
    reader = connect(server.url, await server.token("mia", "read"))
    with pytest.raises(Forbidden):
        await reader.create("note.v1")
    with pytest.raises(Unauthorized):
        await connect(server.url, "nonsense").find()


# ---- the feed ----


async def test_a_feed_is_followed_over_cut_connections(crumbs: Any, proxy: Proxy) -> None:
    events: list[Event] = []

    async def read() -> None:
        async with aclosing(crumbs.follow({"schema_name": "note.v1"}, after=0)) as feed:
            async for event in feed:
                events.append(event)
                if len(events) == 12:
                    return

    made: list[str] = [(await crumbs.create("note.v1")).id for _ in range(4)]
    reading = asyncio.create_task(read())
    async with asyncio.timeout(30):
        await until(lambda: len(events) == 4)
        for _ in range(2):
            proxy.cut()
            made += [(await crumbs.create("note.v1")).id for _ in range(4)]
        await reading
    assert [event.id for event in events] == made
    assert [event.seq for event in events] == sorted({event.seq for event in events})


async def test_a_feed_from_now_on_misses_nothing_when_it_is_cut_before_it_said_anything(
    app: App, crumbs: Any, proxy: Proxy, server: LiveServer
) -> None:
    reading = asyncio.create_task(take(crumbs.follow({"schema_name": "note.v1"}), 1))
    await until(lambda: bool(server.feeds and proxy.told))
    await asyncio.sleep(0.1)  # until the client has read what it was told
    proxy.cut()
    made = await app.breadcrumbs.create("note.v1")
    assert [event.id for event in await reading] == [made.id]


async def test_a_feed_is_followed_over_a_restart_of_the_server(app: App, connect: Connect) -> None:
    async with LiveServer(app) as first:
        crumbs = connect(first.url, await first.token("mia"))
        made = [(await crumbs.create("note.v1")).id for _ in range(3)]
        events = crumbs.follow(after=0)
        async with asyncio.timeout(20):
            seen = [await anext(events) for _ in range(3)]
    made += [(await app.breadcrumbs.create("note.v1")).id for _ in range(2)]  # while nobody serves
    async with LiveServer(app, first.port), asyncio.timeout(20):
        seen += [await anext(events) for _ in range(2)]
        await events.aclose()
    assert [event.id for event in seen] == made


async def test_the_first_connection_is_given_up_like_any_call(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_SECONDS", 0.01)
    with pytest.raises(StoreUnavailable):
        await take(connect("http://127.0.0.1:9").follow(), 1)


async def test_a_feed_ends_when_its_token_is_revoked(app: App, connect: Connect, server: LiveServer) -> None:
    token = await server.token("mia")
    crumbs = connect(server.url, token)
    await crumbs.create("note.v1")
    events = crumbs.follow(after=0)
    async with asyncio.timeout(20):
        await anext(events)
        await app.database.write(revoke_token, verified(token, SECRET, 0).id, scope=Scope("main", "system"))
        with pytest.raises(StigmergyError) as ended:
            await anext(events)
    assert type(ended.value) is Unauthorized
