"""Breadcrumbs and schemas over HTTP, as a client meets them."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from support.requests import NOTE, made, problem
from support.server import Server


def pages(client: httpx.Client, path: str, **params: Any) -> list[list[dict[str, Any]]]:
    """Every page of a list, by its cursors."""
    found: list[list[dict[str, Any]]] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get(path, params=params | cursor).raise_for_status().json()
        found.append(page["items"])
        if page["cursor"] is None:
            return found
        cursor = {"cursor": page["cursor"]}


# ---- one breadcrumb ----


def test_what_was_written_is_read(server: Server) -> None:
    client = server.client()
    answer = client.post("/v1/breadcrumbs", json=NOTE | {"description": "why", "expires_at": "2126-01-01T00:00:00+02:00"})
    assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
    crumb = answer.json()
    assert crumb["context"] == NOTE["context"]
    assert crumb["expires_at"] == "2125-12-31T22:00:00Z"
    assert client.get(f"/v1/breadcrumbs/{crumb['id']}").json() == crumb


def test_a_breadcrumb_is_patched_replaced_retagged_deleted_and_brought_back(server: Server) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    patched = client.patch(path, json={"context": {"n": None, "m": 2}, "description": "new"}).json()
    assert (patched["context"], patched["description"], patched["version"]) == ({"m": 2, "secret": "s"}, "new", 2)
    retagged = client.post(f"{path}/tags", json={"add": ["c"], "remove": ["a"]})
    assert (retagged.status_code, retagged.json()["tags"]) == (200, ["b", "c"])
    replaced = client.put(path, json={"schema_name": "other.v1"}).json()
    assert (replaced["schema_name"], replaced["context"], replaced["tags"], replaced["version"]) == ("other.v1", {}, [], 4)
    assert client.delete(path).status_code == 204
    assert problem(client.get(path)) == (404, "not_found", None)
    assert problem(client.delete(path)) == (404, "not_found", None)
    assert client.put(path, json=NOTE).json()["version"] == 6
    assert [each["version"] for each in client.get(f"{path}/history").json()["items"]] == [6, 4, 3, 2, 1]
    assert client.get(f"{path}/versions/2").json() == patched
    assert problem(client.get(f"{path}/versions/7")) == (404, "not_found", None)


def test_hints_shape_every_view_and_full_keeps_the_rest(server: Server) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client, llm_hints={'exclude': ['secret']})['id']}"
    assert client.get(path).json()["context"] == {"n": 1}
    assert client.get(f"{path}/full").json()["context"] == {"n": 1, "secret": "s"}
    assert client.get(f"{path}/full").json()["llm_hints"] == {"exclude": ["secret"]}
    for place in ("/v1/breadcrumbs", f"{path}/history"):
        assert [each["context"] for each in client.get(place).json()["items"]] == [{"n": 1}]
    assert client.get(f"{path}/versions/1").json()["context"] == {"n": 1}
    assert client.get("/v1/breadcrumbs?view=full").json()["items"][0]["context"] == {"n": 1, "secret": "s"}


def test_full_is_for_the_owner_and_operators(guarded: Server) -> None:
    mia, tom, boss = guarded.client_of("mia", "read", "write"), guarded.client_of("tom", "read"), guarded.client_of("boss")
    path = f"/v1/breadcrumbs/{made(mia)['id']}/full"
    assert mia.get(path).status_code == boss.get(path).status_code == 200
    assert problem(tom.get(path)) == (403, "forbidden", None)
    assert problem(tom.get("/v1/breadcrumbs?view=full")) == (403, "forbidden", None)


def test_a_private_breadcrumb_is_there_for_its_owner_alone(guarded: Server) -> None:
    mia, tom = guarded.client_of("mia", "read", "write"), guarded.client_of("tom", "read", "write")
    path = f"/v1/breadcrumbs/{made(mia, audience='private')['id']}"
    assert mia.get(path).status_code == 200
    for answer in (
        tom.get(path),
        tom.get(f"{path}/full"),
        tom.get(f"{path}/history"),
        tom.get(f"{path}/versions/1"),
        tom.patch(path, json={"title": "x"}),
        tom.put(path, json=NOTE),
        tom.post(f"{path}/tags", json={"add": ["x"]}),
        tom.delete(path),
    ):
        assert problem(answer) == (404, "not_found", None)
    assert tom.get("/v1/breadcrumbs").json()["items"] == []


def test_a_version_that_was_private_stays_so_when_the_breadcrumb_is_published(guarded: Server) -> None:
    mia, tom = guarded.client_of("mia", "read", "write"), guarded.client_of("tom", "read")
    path = f"/v1/breadcrumbs/{made(mia, audience='private')['id']}"
    mia.patch(path, json={"audience": "public", "context": {"secret": None}}).raise_for_status()
    assert [each["version"] for each in tom.get(f"{path}/history").json()["items"]] == [2]
    assert problem(tom.get(f"{path}/versions/1")) == (404, "not_found", None)
    assert [each["version"] for each in mia.get(f"{path}/history").json()["items"]] == [2, 1]


# ---- conditional requests ----


async def test_of_fifty_patches_of_version_one_one_wins_and_the_others_are_told(server: Server) -> None:
    path = f"/v1/breadcrumbs/{made(server.client())['id']}"
    async with server.async_client() as client:
        answers = await asyncio.gather(
            *(client.patch(path, json={"context": {"n": n}}, headers={"If-Match": '"1"'}) for n in range(2, 52))
        )
        assert sorted(answer.status_code for answer in answers) == [200] + 49 * [412]
        assert {problem(answer) for answer in answers if answer.status_code == 412} == {(412, "version_conflict", None)}
        winner = next(answer.json() for answer in answers if answer.status_code == 200)
        history = (await client.get(f"{path}/history")).json()["items"]
    assert [(each["version"], each["context"]["n"]) for each in history] == [(2, winner["context"]["n"]), (1, 1)]


@pytest.mark.parametrize(("method", "body"), [("PATCH", {"title": "x"}), ("PUT", NOTE), ("DELETE", None)])
def test_a_write_with_the_wrong_version_writes_nothing(server: Server, method: str, body: Any) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    assert problem(client.request(method, path, json=body, headers={"If-Match": '"2"'})) == (412, "version_conflict", None)
    assert problem(client.request(method, path, json=body, headers={"If-Match": "new"})) == (422, "invalid", "If-Match")
    assert client.get(path).json()["version"] == 1
    assert client.request(method, path, json=body, headers={"If-Match": '"1"'}).is_success
    assert problem(client.put("/v1/breadcrumbs/none", json=NOTE, headers={"If-Match": '"1"'}))[0] == 412


def test_any_version_is_one_that_is_there(server: Server) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    assert client.put(path, json=NOTE, headers={"If-Match": "*"}).status_code == 200
    client.delete(path).raise_for_status()
    assert problem(client.put(path, json=NOTE, headers={"If-Match": "*"}))[:2] == (412, "version_conflict")
    assert client.get(path).status_code == 404


def test_a_reader_with_the_current_version_gets_no_body(server: Server) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    etag = client.get(path).headers["etag"]
    for known in (etag, f'"9", {etag}', f"W/{etag}", "*"):
        answer = client.get(path, headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    client.patch(path, json={"title": "new"}).raise_for_status()
    assert client.get(path, headers={"If-None-Match": etag}).status_code == 200


def test_every_way_to_read_one_is_conditional(server: Server) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    for rest in ("", "/full", "/versions/1"):
        first = client.get(path + rest)
        again = client.get(path + rest, headers={"If-None-Match": first.headers["etag"]})
        assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
        assert client.get(path + rest, headers={"If-None-Match": '"9"'}).status_code == 200


def test_a_view_that_changed_with_its_schema_is_sent_again(server: Server) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    seen = [client.get(path).headers["etag"]]
    for hints in ({"exclude": ["secret"]}, {"include": ["n"]}, None):
        client.put("/v1/schemas/note.v1", json={"llm_hints": hints}).raise_for_status()
        answer = client.get(path, headers={"If-None-Match": seen[-1]})
        assert answer.status_code == 200
        seen.append(answer.headers["etag"])
    assert client.patch(path, json={"title": "x"}, headers={"If-Match": seen[1]}).status_code == 200


# ---- idempotency ----


def test_the_same_key_and_body_give_the_first_answer(server: Server) -> None:
    client = server.client()
    first, second = (client.post("/v1/breadcrumbs", json=NOTE, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, first.headers["etag"], first.json()) == (second.status_code, second.headers["etag"], second.json())
    assert len(client.get("/v1/breadcrumbs").json()["items"]) == 1


def test_the_same_key_with_another_body_is_a_conflict(server: Server) -> None:
    client = server.client()
    made_first = client.post("/v1/breadcrumbs", json=NOTE, headers={"Idempotency-Key": "k"})
    assert made_first.status_code == 201
    other = client.post("/v1/breadcrumbs", json=NOTE | {"title": "x"}, headers={"Idempotency-Key": "k"})
    assert problem(other) == (409, "idempotency_key_reused", None)
    assert len(client.get("/v1/breadcrumbs").json()["items"]) == 1


def test_many_that_are_sent_again_are_written_once(server: Server) -> None:
    client = server.client()
    first, second = (client.post("/v1/breadcrumbs/bulk", json=[NOTE, NOTE], headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, first.json()) == (201, second.json())
    other = client.post("/v1/breadcrumbs/bulk", json=[NOTE], headers={"Idempotency-Key": "k"})
    assert problem(other) == (409, "idempotency_key_reused", None)
    # a key is one route's own
    assert client.post("/v1/breadcrumbs", json=NOTE, headers={"Idempotency-Key": "k"}).status_code == 201
    assert len(client.get("/v1/breadcrumbs").json()["items"]) == 3


async def test_ten_requests_with_one_key_at_once_write_one_record(server: Server) -> None:
    async with server.async_client() as client:
        answers = await asyncio.gather(
            *(client.post("/v1/breadcrumbs", json=NOTE, headers={"Idempotency-Key": "k"}) for _ in range(10))
        )
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert len((await client.get("/v1/breadcrumbs")).json()["items"]) == 1


def test_a_key_is_something(server: Server) -> None:
    """One that was left empty would be the same for everything that its caller writes."""
    answer = server.client().post("/v1/breadcrumbs", json=NOTE, headers={"Idempotency-Key": ""})
    assert problem(answer)[:2] == (422, "invalid")


def test_a_stranger_to_a_space_writes_nothing_for_its_team(guarded: Server) -> None:
    space = guarded.client_of("mia", "read", "write").post("/v1/spaces", json={"name": "ours"}).raise_for_status().json()
    note = NOTE | {"audience": "team", "space_id": space["id"]}
    tom = guarded.client_of("tom", "read", "write")
    assert problem(tom.post("/v1/breadcrumbs", json=note)) == (422, "invalid", "space_id")
    assert problem(tom.post("/v1/breadcrumbs/bulk", json=[note])) == (422, "invalid", "[0].space_id")
    assert problem(tom.put("/v1/breadcrumbs/x", json=note)) == (422, "invalid", "space_id")


def test_a_refused_request_does_not_use_its_key_up(server: Server) -> None:
    client = server.client()
    refused = client.post("/v1/breadcrumbs", json=NOTE | {"tags": [""]}, headers={"Idempotency-Key": "k"})
    assert problem(refused) == (422, "invalid", "tags[0]")
    assert client.post("/v1/breadcrumbs", json=NOTE, headers={"Idempotency-Key": "k"}).status_code == 201


def test_a_key_is_one_callers_own(guarded: Server) -> None:
    ids = {made(guarded.client(guarded.token(who), **{"Idempotency-Key": "k"}))["id"] for who in ("mia", "tom")}
    assert len(ids) == 2


# ---- lists ----


def test_lists_are_paged_newest_first_without_gaps(server: Server) -> None:
    client = server.client()
    titles = [str(n) for n in range(25)]
    client.post("/v1/breadcrumbs/bulk", json=[NOTE | {"title": title} for title in titles]).raise_for_status()
    found = pages(client, "/v1/breadcrumbs", limit=10)
    assert [len(page) for page in found] == [10, 10, 5]
    assert [crumb["title"] for page in found for crumb in page] == titles[::-1]


def test_history_is_paged_newest_first_without_gaps(server: Server) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    for n in range(2, 8):
        client.patch(path, json={"context": {"n": n}}).raise_for_status()
    found = pages(client, f"{path}/history", limit=3)
    assert [[each["version"] for each in page] for page in found] == [[7, 6, 5], [4, 3, 2], [1]]


def test_schemas_are_paged_by_name(server: Server) -> None:
    client = server.client()
    for name in "cab":
        client.put(f"/v1/schemas/{name}", json={"ttl_ms": 5_000}).raise_for_status()
    found = pages(client, "/v1/schemas", limit=2)
    assert [[each["name"] for each in page] for page in found] == [["a", "b"], ["c"]]


def test_lists_are_filtered_by_schema_tags_and_selector(server: Server) -> None:
    client = server.client()
    for title, schema_name, tags in (("1", "a.v1", ["x", "y"]), ("2", "a.v2", ["x"]), ("3", "b.v1", ["y"])):
        made(client, title=title, schema_name=schema_name, tags=tags)

    def titles(**params: Any) -> str:
        return "".join(each["title"] for each in client.get("/v1/breadcrumbs", params=params).json()["items"])

    assert titles(schema_name="a.v1") == "1"
    assert titles(schema_name="a.*") == "21"
    assert titles(tag="x") == "21"
    assert titles(tag=["x", "y"]) == "1"
    assert titles(selector=json.dumps({"any_tags": ["y"], "context_match": [{"path": "n", "op": "eq", "value": 1}]})) == "31"
    assert titles(selector=json.dumps({"where": "context.n > 1"})) == ""


def test_many_are_written_in_order_or_none(server: Server) -> None:
    client = server.client()
    answer = client.post("/v1/breadcrumbs/bulk", json=[NOTE | {"title": "1"}, NOTE | {"title": "2"}])
    assert (answer.status_code, [each["title"] for each in answer.json()]) == (201, ["1", "2"])
    refused = client.post("/v1/breadcrumbs/bulk", json=[NOTE, NOTE | {"tags": ["ok", ""]}])
    assert problem(refused) == (422, "invalid", "[1].tags[1]")
    assert problem(client.post("/v1/breadcrumbs/bulk", json=[])) == (422, "invalid", "body")
    assert problem(client.post("/v1/breadcrumbs/bulk", json=[NOTE] * 1_001)) == (422, "invalid", "body")
    assert len(client.get("/v1/breadcrumbs").json()["items"]) == 2


def test_a_schema_checks_contexts_and_is_read_and_deleted(server: Server) -> None:
    client = server.client()
    schema = {"json_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    put = client.put("/v1/schemas/note.v1", json=schema).json()
    assert client.get("/v1/schemas/note.v1").json() == put
    refused = client.post("/v1/breadcrumbs", json=NOTE | {"context": {"n": "x"}})
    assert problem(refused) == (422, "schema_violation", "context.n")
    assert client.delete("/v1/schemas/note.v1").status_code == 204
    assert problem(client.get("/v1/schemas/note.v1")) == (404, "not_found", None)
    assert problem(client.delete("/v1/schemas/note.v1")) == (404, "not_found", None)


@pytest.mark.parametrize("at", ["2039-07-05T04:43:38.798Z", "2039-06-05T10:13:19.194Z", "2038-11-03T08:40:37.285Z"])
def test_a_time_comes_back_as_it_was_sent(server: Server, at: str) -> None:
    """As a number with a point each of these is a little less than its milliseconds."""
    assert made(server.client(), expires_at=at)["expires_at"].replace("000Z", "Z") == at
