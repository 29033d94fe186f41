"""A reader of the feed, and what it reads."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import httpx
from httpx_sse import ServerSentEvent, connect_sse

from support.server import PATIENCE

NOTE = {"schema_name": "note.v1", "context": {"n": 1}}


def make(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/v1/breadcrumbs", json=NOTE | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


@contextmanager
def following(client: httpx.Client, **params: Any) -> Generator[Iterator[ServerSentEvent]]:
    headers = {"Last-Event-ID": str(params.pop("last_event_id"))} if "last_event_id" in params else {}
    with connect_sse(client, "GET", "/v1/events", params=params, headers=headers) as source:
        source.response.raise_for_status()
        yield (event for event in source.iter_sse() if event.data)


def events(client: httpx.Client, count: int, **params: Any) -> list[dict[str, Any]]:
    """The data of so many events, of those that are there already."""
    with following(client, **({"after": "0"} | params)) as feed:
        return [event.json() for event in islice(feed, count)]


def brief(event: dict[str, Any]) -> tuple[str, int]:
    return event["type"].partition(".")[2], event["version"]


def until(condition: Callable[[], bool]) -> None:
    """For what has no event of its own to wait for."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
