"""The feed over server-sent events, as its readers meet it."""

import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from httpx_sse import EventSource

from stigmergy.kernel.bus import LocalBus
from stigmergy.kernel.retention import Policy, sweep
from support.reader import NOTE, events, following, make, until
from support.server import PATIENCE, Server, ServerProcess

# ---- what an event says ----


def test_an_event_says_what_changed_by_whom_and_why(server: Server) -> None:
    client = server.client()
    id = make(client, tags=["x"], llm_hints={"exclude": ["secret"]}, context={"n": 1, "secret": "s"})
    with following(client, after="0") as feed:
        event = next(feed)
    assert (event.id, event.event) == ("1", "breadcrumb.created")
    data = event.json()
    assert data.pop("updated_at").endswith("Z")
    assert data == {
        "type": "breadcrumb.created",
        "id": id,
        "breadcrumb_id": id,
        "owner_id": "local",
        "version": 1,
        "tags": ["x"],
        "schema_name": "note.v1",
        "context": {"n": 1},
        "seq": 1,
        "cause": None,
        "actor": "local",
    }


def test_changes_come_as_they_happen_in_order(server: Server) -> None:
    client = server.client()
    writer = server.client()
    with following(client) as feed:
        until(lambda: server.app.state.feeds.count() == 1)
        id = make(writer)
        writer.patch(f"/v1/breadcrumbs/{id}", json={"title": "x"}).raise_for_status()
        writer.delete(f"/v1/breadcrumbs/{id}").raise_for_status()
        seen = [next(feed) for _ in range(3)]
    assert [(event.id, event.event) for event in seen] == [
        ("1", "breadcrumb.created"),
        ("2", "breadcrumb.updated"),
        ("3", "breadcrumb.deleted"),
    ]
    assert "context" not in seen[2].json()


def test_any_text_comes_through_as_it_is(server: Server) -> None:
    text = 'a\rb\nc\r\nd\u2028e\u2029f\ufeffg\x85h\x0bi\x1cj"\\ id: 9\n\nevent: x\n\ndata: 😀'
    client = server.client()
    make(client, context={text: text}, tags=[text])
    make(client, context={"after": 1})
    first, second = events(client, 2)
    assert (first["context"], first["tags"], second["context"]) == ({text: text}, [text], {"after": 1})


def test_an_event_is_named_by_one_record_of_its_collection(server: Server) -> None:
    client = server.client()
    client.put("/v1/entities/me/memories/k", json={"value": 1}).raise_for_status()
    assert events(client, 1, collection="memories")[0]["type"] == "memory.created"


def test_contexts_as_they_were_written_are_for_operators(guarded: Server) -> None:
    owner = guarded.client_of("mia", "read", "write")
    make(owner, context={"n": 1, "secret": "s"}, llm_hints={"exclude": ["secret"]})
    assert owner.get("/v1/events", params={"view": "full", "after": "0"}).status_code == 403
    operator = guarded.client_of("ops")
    assert events(operator, 1, collection="breadcrumbs", view="full")[0]["context"] == {"n": 1, "secret": "s"}
    assert events(operator, 1, collection="breadcrumbs")[0]["context"] == {"n": 1}


# ---- positions ----


def test_a_reader_goes_on_after_its_last_event(server: Server) -> None:
    client = server.client()
    for n in range(120):
        make(client, context={"n": n})
    assert [event["seq"] for event in events(client, 120)] == list(range(1, 121))
    assert events(client, 1, after="117")[0]["seq"] == 118
    with following(client, after="1", last_event_id=119) as feed:
        assert next(feed).id == "120"


@pytest.mark.parametrize("position", ["x", "-1", "1.5", "9" * 30])
def test_a_position_is_a_number(open_server: Server, position: str) -> None:
    for answer in (
        open_server.client().get("/v1/events", params={"after": position}),
        open_server.client().get("/v1/events", headers={"Last-Event-ID": position}),
    ):
        assert (answer.status_code, answer.json()["where"]) == (422, "after")


def test_nothing_is_missed_or_doubled_when_the_server_is_killed(tmp_path: Path) -> None:
    """Writers and a reader live through kill -9, again and again; what was acknowledged is seen once."""
    acknowledged: list[str] = []
    seen: list[dict[str, Any]] = []
    port = 0
    for _ in range(4):
        with ServerProcess(tmp_path, port=port) as server:
            port = server.port
            writer = threading.Thread(target=_write_until_it_dies, args=(server.url, acknowledged))
            writer.start()
            wanted = len(seen) + 25
            with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
                last = seen[-1]["seq"] if seen else 0
                with following(client, last_event_id=last) as feed:
                    for event in feed:
                        seen.append(event.json())
                        if len(seen) == wanted:
                            server.kill()  # in the middle of writes, and of this stream
                            break
            writer.join(PATIENCE)
    with ServerProcess(tmp_path, port=port) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        rest = make(client)
        with following(client, last_event_id=seen[-1]["seq"]) as feed:
            while not seen or seen[-1]["id"] != rest:
                seen.append(next(feed).json())
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert len({event["id"] for event in seen}) == len(seen)
    assert set(acknowledged) <= {event["id"] for event in seen}
    assert len(acknowledged) >= 90


def _write_until_it_dies(url: str, acknowledged: list[str]) -> None:
    with httpx.Client(base_url=url, timeout=PATIENCE) as client:
        try:
            while True:
                acknowledged.append(make(client))
        except httpx.TransportError:
            return


def test_a_position_that_the_journal_no_longer_reaches_back_to_is_reset(server: Server) -> None:
    client = server.client()
    for _ in range(10):
        make(client)
    server.run(sweep(server.database, Policy(max_changes=4)))
    with following(client, after="2") as feed:
        reset, first = next(feed), next(feed)
    assert (reset.event, reset.id, reset.json()) == ("reset", "6", {"oldest": 7})
    assert (first.event, first.id) == ("breadcrumb.created", "7")


def test_a_position_ahead_of_the_journal_is_reset(server: Server) -> None:
    client = server.client()
    make(client)
    with following(client, after="1000") as feed:
        reset, first = next(feed), next(feed)
    assert (reset.event, reset.json(), first.id) == ("reset", {"oldest": 1}, "1")


@pytest.fixture
def lively(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "store.db", heartbeat=0.1) as server:
        yield server


def test_a_heartbeat_moves_the_position_of_a_reader_whom_nothing_concerns(lively: Server) -> None:
    client = lively.client()
    with client.stream("GET", "/v1/events", params={"schema_name": "other.v1", "after": "0"}) as feed:
        blocks = _blocks(feed)
        assert next(blocks) == "id: 0\nretry: 2000"
        for n in range(1, 4):
            make(client)
            assert any(block == f"id: {n}" for block in islice(blocks, 100))


def test_a_heartbeat_comes_while_others_write_without_pause(lively: Server) -> None:
    client = lively.client()
    writer = lively.client()
    enough = threading.Event()

    def write() -> None:
        while not enough.is_set():
            make(writer)

    writing = threading.Thread(target=write)
    with client.stream("GET", "/v1/events", params={"schema_name": "other.v1"}) as feed:
        blocks = _blocks(feed)
        next(blocks)
        writing.start()
        positions = [int(block.removeprefix("id: ")) for block in islice(blocks, 4)]
        enough.set()
        writing.join()
    assert positions == sorted(positions)
    assert positions[-1] > positions[0]


def _blocks(feed: httpx.Response) -> Iterator[str]:
    text = ""
    for part in feed.iter_text():
        text += part
        *whole, text = text.split("\n\n")
        yield from whole


# ---- filters ----


def test_a_feed_is_filtered(server: Server) -> None:
    client = server.client()
    one = make(client, schema_name="a.v1", tags=["x", "y"], context={"n": 1})
    two = make(client, schema_name="a.v2", tags=["x"], context={"n": 2})
    client.patch(f"/v1/breadcrumbs/{two}", json={"context": {"n": 3}}).raise_for_status()
    client.put("/v1/schemas/a.v1", json={"ttl_ms": 9_000_000}).raise_for_status()
    client.delete(f"/v1/breadcrumbs/{one}").raise_for_status()
    make(client, schema_name="end", tags=["x", "y", "end"], context={"n": 9})

    def seqs(**params: Any) -> list[int]:
        found: list[int] = []
        with following(client, after="0", **params) as feed:
            for event in feed:
                found.append(int(event.id))
                if event.id == "6":
                    return found
        return found

    assert seqs() == [1, 2, 3, 4, 5, 6]
    assert seqs(selector=json.dumps({"schema_name": "end"})) == [6]
    assert seqs(tag="x") == [1, 2, 3, 5, 6]
    assert seqs(tag=["x", "y"]) == [1, 5, 6]
    assert seqs(collection="breadcrumbs") == [1, 2, 3, 5, 6]
    assert seqs(event="created") == [1, 2, 4, 6]
    assert seqs(event=["updated", "created"], collection="breadcrumbs") == [1, 2, 3, 6]
    assert seqs(selector=json.dumps({"context_match": [{"path": "n", "op": "gt", "value": 2}]})) == [3, 6]
    make(client, schema_name="a.v3")
    assert [event["seq"] for event in events(client, 4, schema_name="a.*")] == [1, 2, 3, 5]


def test_the_view_none_has_no_contexts(server: Server) -> None:
    client = server.client()
    make(client)
    client.put("/v1/schemas/note.v1", json={"llm_hints": {"exclude": ["n"]}}).raise_for_status()
    crumb, schema = events(client, 2, view="none")
    assert "context" not in crumb
    assert "llm_hints" not in schema
    crumb, schema = events(client, 2)
    assert crumb["context"] == {}
    assert (schema["type"], schema["name"], schema["llm_hints"]) == ("schema.created", "note.v1", {"exclude": ["n"]})


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"collection": "nothing"}, "collection"),
        ({"event": "create"}, "event"),
        ({"view": "all"}, "view"),
        ({"selector": "{"}, "selector"),
        ({"selector": '{"where": "1 +"}'}, "where"),
        ({"selector": "{}", "tag": "x"}, "selector"),
        ({"tag": "\0"}, "query"),
    ],
)
def test_a_bad_filter_is_a_problem_and_no_stream(open_server: Server, params: dict[str, str], where: str) -> None:
    answer = open_server.client().get("/v1/events", params=params)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.status_code == 422
    assert answer.json()["where"].startswith(where)


# ---- connections ----


def test_a_cut_connection_frees_what_it_held(server: Server) -> None:
    feeds = server.app.state.feeds
    for _ in range(3):
        sockets = [_raw_feed(server) for _ in range(10)]
        until(lambda: feeds.count() == 10)
        for each in sockets:
            each.close()
        until(lambda: feeds.count() == 0)
    bus = server.database.bus
    assert isinstance(bus, LocalBus)
    until(lambda: "changes/main" not in bus._listeners)


def _raw_feed(server: Server | ServerProcess, buffer: int | None = None) -> socket.socket:
    connection = socket.socket()
    if buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(PATIENCE)
    host = server.url.removeprefix("http://")
    connection.connect(("127.0.0.1", int(host.rpartition(":")[2])))
    connection.sendall(f"GET /v1/events?after=0 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return connection


@pytest.mark.serial
def test_slow_readers_do_not_grow_the_servers_memory(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        text = "x" * 100_000

        def write(count: int) -> None:
            for _ in range(count):
                client.post("/v1/breadcrumbs", json=NOTE | {"context": {"x": text}}).raise_for_status()

        write(250)  # what the store's own caches take, and a tail's fill
        slow = [_raw_feed(server, 4_096) for _ in range(20)]
        write(20)
        before = psutil.Process(server.process.pid).memory_info().rss
        write(300)  # 30 MB for each of them
        grown = psutil.Process(server.process.pid).memory_info().rss - before
        assert grown < 60 * 1024 * 1024, f"{grown:,} bytes"
        assert client.get("/health").status_code == 200
        for each in slow:
            each.close()


def test_a_slow_reader_misses_nothing_once_it_reads(server: Server) -> None:
    client = server.client()
    writer = server.client()
    with following(client, after="0") as feed:
        for n in range(60):
            make(writer, context={"n": n, "x": "x" * 50_000})
        assert [next(feed).json()["context"]["n"] for _ in range(60)] == list(range(60))


def test_shutdown_ends_every_stream_at_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        ended: queue.Queue[float] = queue.Queue()

        def follow() -> None:
            with httpx.Client(base_url=server.url, timeout=PATIENCE) as own, following(own) as feed:
                ready.release()
                list(feed)
                ended.put(time.monotonic())

        ready = threading.Semaphore(0)
        threads = [threading.Thread(target=follow) for _ in range(5)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert ready.acquire(timeout=PATIENCE)
        make(client)
        stuck = _raw_feed(server, 4_096)
        start = time.monotonic()
        server.process.terminate()
        assert max(ended.get(timeout=PATIENCE) for _ in threads) - start < 2
        assert server.process.wait(PATIENCE) == 0
        stuck.close()
        for thread in threads:
            thread.join(PATIENCE)


def test_a_store_that_closes_ends_its_streams(server: Server) -> None:
    client = server.client()
    with following(client) as feed:
        until(lambda: server.app.state.feeds.count() == 1)
        server.run(server.database.close())
        with pytest.raises(httpx.RemoteProtocolError):
            list(feed)
    assert client.get("/v1/breadcrumbs").json()["code"] == "store_closed"


def test_the_stream_says_what_it_is(server: Server) -> None:
    with server.client().stream("GET", "/v1/events", headers={"Accept-Encoding": "gzip"}) as feed:
        EventSource(feed)._check_content_type()
        assert feed.headers["cache-control"] == "no-store"
        assert "content-encoding" not in feed.headers
