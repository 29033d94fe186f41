"""What the feed tells to whom."""

import json
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from stigmergy.access.commands import revoke_token
from stigmergy.access.model import signed
from stigmergy.api.feeds import HEARTBEAT_SECONDS
from stigmergy.breadcrumbs.commands import erase
from stigmergy.spaces.commands import remove_member
from support.reader import brief, events, following, make, until
from support.server import SECRET, Server
from support.talk import space_of


def both_ways(server: Server, token: str, act: Callable[[], object], count: int, **params: Any) -> list[list[dict[str, Any]]]:
    """What a reader is told who follows while it happens, and what one who comes later."""
    with following(server.client(token), **params) as feed:
        until(lambda: server.app.state.feeds.count() == 1)
        act()
        live = [event.json() for event in islice(feed, count)]
    until(lambda: server.app.state.feeds.count() == 0)
    return [live, events(server.client(token), count, **params)]


def test_a_private_breadcrumb_is_told_to_its_owner_alone(guarded: Server) -> None:
    mia = guarded.client_of("mia", "read", "write")

    def act() -> None:
        id = make(mia, audience="private", schema_name="secret.v1")
        mia.patch(f"/v1/breadcrumbs/{id}", json={"title": "x"}).raise_for_status()
        mia.delete(f"/v1/breadcrumbs/{id}").raise_for_status()
        make(mia, schema_name="end")

    for told in both_ways(guarded, guarded.token("tom", "read"), act, 1):
        assert [event["schema_name"] for event in told] == ["end"]
    assert [brief(event) for event in events(guarded.client_of("mia", "read"), 3)] == [
        ("created", 1),
        ("updated", 2),
        ("deleted", 3),
    ]
    assert len(events(guarded.client_of("boss"), 4, collection="breadcrumbs")) == 4


def test_what_becomes_private_is_deleted_for_the_others_and_says_nothing_of_itself(guarded: Server) -> None:
    mia = guarded.client_of("mia", "read", "write")

    def act() -> None:
        id = make(mia)
        private = {"audience": "private", "context": {"n": "hidden"}, "tags": ["hidden"], "title": "hidden"}
        mia.patch(f"/v1/breadcrumbs/{id}", json=private).raise_for_status()
        mia.patch(f"/v1/breadcrumbs/{id}", json={"context": {"n": "hidden again"}}).raise_for_status()
        mia.delete(f"/v1/breadcrumbs/{id}").raise_for_status()
        make(mia, schema_name="end")

    token = guarded.token("tom", "read")
    live, later = both_ways(guarded, token, act, 3, collection="breadcrumbs")
    # who follows may be told of the creation before or after the right was lost; never of what came then
    assert [brief(event) for event in live] in (
        [("created", 1), ("deleted", 2), ("created", 1)],
        [("deleted", 1), ("deleted", 2), ("created", 1)],
    )
    assert [brief(event) for event in later] == [("deleted", 1), ("deleted", 2), ("created", 1)]
    for event in (*live, *later):
        assert "hidden" not in json.dumps(event)
    assert set(later[0]) == set(later[1]) == {"type", "id", "breadcrumb_id", "version", "updated_at", "seq"}
    assert [brief(event) for event in events(guarded.client(token), 2, event="deleted")] == [("deleted", 1), ("deleted", 2)]


def test_what_is_for_a_team_is_told_to_who_is_in_its_space_then(guarded: Server) -> None:
    space = guarded.write(space_of, "mia", "tom", entity="mia").id
    mia = guarded.client_of("mia", "read", "write")

    def act() -> None:
        make(mia, audience="team", space_id=space, schema_name="plan.v1", context={"n": 1})
        make(mia, schema_name="end")

    for who, expected in (("tom", ["plan.v1", "end"]), ("eve", ["end"])):
        for told in both_ways(guarded, guarded.token(who, "read"), act, len(expected)):
            assert [event["schema_name"] for event in told[: len(expected)]] == expected
    found = mia.get("/v1/breadcrumbs", params={"schema_name": "plan.v1"}).json()["items"]
    for who, status in (("tom", 200), ("eve", 404)):
        assert guarded.client_of(who, "read").get(f"/v1/breadcrumbs/{found[0]['id']}").status_code == status
    guarded.write(remove_member, "mia", space, "tom", entity="mia")
    with following(guarded.client_of("tom", "read")) as feed:
        until(lambda: guarded.app.state.feeds.count() == 1)
        act()
        assert next(feed).json()["schema_name"] == "end"


def test_a_selector_cannot_ask_what_a_private_version_holds(guarded: Server) -> None:
    mia = guarded.client_of("mia", "read", "write")
    id = make(mia, context={"n": 1})
    mia.patch(f"/v1/breadcrumbs/{id}", json={"audience": "private", "context": {"n": 2}}).raise_for_status()
    make(mia, context={"n": 2}, schema_name="end")
    probe = json.dumps({"context_match": [{"path": "n", "op": "eq", "value": 2}]})
    assert [event["schema_name"] for event in events(guarded.client_of("tom", "read"), 1, selector=probe)] == ["end"]


def test_an_erased_body_is_deleted(guarded: Server) -> None:
    mia = guarded.client_of("mia", "read", "write")
    id = make(mia, context={"n": "erased"})
    mia.patch(f"/v1/breadcrumbs/{id}", json={"context": {"n": "erased too"}}).raise_for_status()
    guarded.write(erase, id)
    make(mia, schema_name="end")
    for params in ({}, {"schema_name": "end"}):
        told = events(guarded.client_of("tom", "read"), 4, **params)
        assert [brief(event) for event in told] == [("deleted", 1), ("deleted", 2), ("deleted", 3), ("created", 1)]
        assert "erased" not in json.dumps(told)


def test_an_expired_breadcrumb_is_deleted_for_who_comes_later(server: Server) -> None:
    client = server.client()
    client.put("/v1/schemas/short.v1", json={"ttl_ms": 1}).raise_for_status()
    id = make(client, schema_name="short.v1")
    until(lambda: client.get(f"/v1/breadcrumbs/{id}").status_code == 404)
    assert [brief(event) for event in events(client, 1, collection="breadcrumbs")] == [("deleted", 1)]


def test_what_runs_the_store_is_told_to_operators_alone(guarded: Server) -> None:
    tom, boss = guarded.token("tom", "read"), guarded.token("boss")
    make(guarded.client_of("mia", "read", "write"))
    assert events(guarded.client(boss), 1)[0]["type"] == "token.created"
    assert events(guarded.client(tom), 1)[0]["type"] == "breadcrumb.created"


def test_a_feed_is_one_tenants(guarded: Server) -> None:
    first = guarded.client_of("mia", tenant="first")
    second = guarded.client_of("mia", tenant="second")
    with following(second, collection="breadcrumbs") as feed:
        until(lambda: guarded.app.state.feeds.count() == 1)
        make(first, schema_name="theirs")
        make(second, schema_name="ours", context={})
        assert next(feed).json()["schema_name"] == "ours"


def test_a_stream_ends_with_the_token_that_opened_it(guarded: Server) -> None:
    claims = guarded.claims("tom", "read")
    mia = guarded.client_of("mia", "read", "write")
    with following(guarded.client(signed(claims, SECRET))) as feed:
        until(lambda: guarded.app.state.feeds.count() == 1)
        make(mia)
        assert next(feed).event == "breadcrumb.created"
        guarded.write(revoke_token, claims.id)
        make(mia)
        assert list(feed) == []


@pytest.mark.parametrize("after", ["0", None])
def test_a_stream_on_which_nothing_happens_ends_with_its_token_too(guarded: Server, after: str | None) -> None:
    claims = guarded.claims("tom", "read")
    make(guarded.client_of("mia"))
    with following(guarded.client(signed(claims, SECRET)), **({} if after is None else {"after": after})) as feed:
        until(lambda: guarded.app.state.feeds.count() == 1)
        began = time.monotonic()
        guarded.write(revoke_token, claims.id)
        assert len(list(feed)) <= 1
        assert time.monotonic() - began < HEARTBEAT_SECONDS / 2
