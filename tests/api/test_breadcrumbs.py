"""Breadcrumbs and schemas over HTTP, as a client meets them."""

import asyncio
import gzip
import json
import socket
import time
from typing import Any

import apsw
import httpx
import pytest
import zstandard

from support.server import Server

NOTE = {"schema_name": "note.v1", "title": "a note", "tags": ["a", "b"], "context": {"n": 1, "secret": "s"}}


def made(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/breadcrumbs", json=NOTE | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def problem(answer: httpx.Response) -> tuple[int, str, str | None]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["status"] == answer.status_code
    assert body["type"] == f"urn:stigmergy:{body['code']}"
    assert body["detail"]
    assert "Traceback" not in answer.text
    return answer.status_code, body["code"], body.get("where")


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


def test_a_reader_with_the_current_version_gets_no_body(server: Server) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    etag = client.get(path).headers["etag"]
    for known in (etag, f'"9", {etag}', f"W/{etag}", "*"):
        answer = client.get(path, headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    client.patch(path, json={"title": "new"}).raise_for_status()
    assert client.get(path, headers={"If-None-Match": etag}).status_code == 200


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


# ---- what is refused ----

BODIES: dict[str, tuple[bytes, str, str | None]] = {
    "nothing": (b"", "invalid", "body"),
    "no JSON": (b"{", "malformed", "body"),
    "another type": (b"[]", "invalid", "body"),
    "a field missing": (b"{}", "invalid", "body"),
    "a field unknown": (b'{"schema_name": "a", "owner_id": "tom"}', "invalid", "body"),
    "a field of another type": (b'{"schema_name": 1}', "invalid", "schema_name"),
    "a number for a text": (b'{"schema_name": "a", "tags": ["b", 2]}', "invalid", "tags[1]"),
    "an empty name": (b'{"schema_name": ""}', "invalid", "schema_name"),
    "a star in a name": (b'{"schema_name": "a*"}', "invalid", "schema_name"),
    "a slash in an id": (b'{"schema_name": "a", "id": "a/b"}', "invalid", "id"),
    "an unknown audience": (b'{"schema_name": "a", "audience": "all"}', "invalid", "audience"),
    "a team without its space": (b'{"schema_name": "a", "audience": "team"}', "invalid", "space_id"),
    "a time without its offset": (b'{"schema_name": "a", "expires_at": "2030-01-01T00:00:00"}', "invalid", "expires_at"),
    "a time out of range": (b'{"schema_name": "a", "expires_at": "9999-12-31T23:59:59-12:00"}', "invalid", "expires_at"),
    "no time": (b'{"schema_name": "a", "expires_at": "soon"}', "invalid", "expires_at"),
    "NaN": (b'{"schema_name": "a", "context": {"x": NaN}}', "malformed", "body"),
    "a number out of range": (b'{"schema_name": "a", "context": {"x": 1e999}}', "invalid", "context[...]"),
    "an integer without end": (b'{"schema_name": "a", "context": {"x": ' + b"1" * 5_000 + b"}}", "invalid", "context[...]"),
    "a lone surrogate": (b'{"schema_name": "a", "context": {"x": "\\ud800"}}', "malformed", "body"),
    "half a pair": (b'{"schema_name": "a", "context": {"x": "\\udc00\\ud800"}}', "malformed", "body"),
    "no UTF-8": (b'{"schema_name": "a", "context": {"x": "\xff"}}', "malformed", "body"),
    "a byte order mark": (b'\xef\xbb\xbf{"schema_name": "a"}', "malformed", "body"),
    "NUL as it is": (b'{"schema_name": "a", "context": {"x": "\x00"}}', "malformed", "body"),
    "NUL escaped": (b'{"schema_name": "a", "context": {"x": "\\u0000"}}', "invalid", "body"),
    "NUL in a name": (b'{"schema_name": "a", "context": {"\\\\\\u0000": 1}}', "invalid", "body"),
    "NUL in hints": (b'{"schema_name": "a", "llm_hints": {"include": ["\\u0000"]}}', "invalid", "body"),
    "something after the end": (b'{"schema_name": "a"} {}', "malformed", "body"),
    "too deep": (b'{"schema_name": "a", "context": {"x": ' + b"[" * 99 + b"]" * 99 + b"}}", "too_deep", "body"),
    "far too deep": (b'{"schema_name": "a", "context": {"x": ' + b"[" * 9_999 + b"]" * 9_999 + b"}}", "too_deep", "body"),
    "too large a context": (b'{"schema_name": "a", "context": {"x": "' + b"x" * (1 << 20) + b'"}}', "too_large", "context"),
    "too many tags": (b'{"schema_name": "a", "tags": %s}' % json.dumps(list(map(str, range(65)))).encode(), "invalid", "tags"),
    "an unknown hint": (b'{"schema_name": "a", "llm_hints": {"x": 1}}', "invalid_hints", "llm_hints.x"),
    "a bad path": (b'{"schema_name": "a", "llm_hints": {"exclude": ["a..b"]}}', "invalid_hints", "llm_hints.exclude[0]"),
    "a bad JSONPath": (
        b'{"schema_name": "a", "llm_hints": {"transform": {"k": {"type": "extract", "value": "$["}}}}',
        "invalid_hints",
        "llm_hints.transform.k.value",
    ),
    "a bad template": (
        b'{"schema_name": "a", "llm_hints": {"transform": {"k": {"type": "template", "template": "{{"}}}}',
        "invalid_hints",
        "llm_hints.transform.k.template",
    ),
    "a bad rule": (
        b'{"schema_name": "a", "llm_hints": {"transform": {"k": {"type": "x"}}}}',
        "invalid_hints",
        "llm_hints.transform.k.type",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_a_problem_with_its_place(open_server: Server, name: str) -> None:
    body, code, where = BODIES[name]
    client = open_server.client()
    assert problem(client.post("/v1/breadcrumbs", content=body)) == (422, code, where)
    assert client.get("/v1/breadcrumbs").json()["items"] == []


ADDRESSES = {
    "/v1/breadcrumbs?limit=0": "limit",
    "/v1/breadcrumbs?limit=501": "limit",
    "/v1/breadcrumbs?limit=x": "limit",
    "/v1/breadcrumbs?cursor=x": "cursor",
    "/v1/breadcrumbs?cursor=-1": "cursor",
    "/v1/breadcrumbs?cursor=99999999999999999999": "cursor",
    "/v1/breadcrumbs?view=raw": "view",
    "/v1/breadcrumbs?selector={": "selector",
    "/v1/breadcrumbs?selector=[]": "selector",
    '/v1/breadcrumbs?selector={"x":1}': "selector",
    '/v1/breadcrumbs?selector={"any_tags":["%5Cu0000"]}': "selector",
    '/v1/breadcrumbs?selector={"any_tags":[]}&tag=x': "selector",
    '/v1/breadcrumbs?selector={"context_match":[{"path":"a","op":"is","value":1}]}': "context_match[0].op",
    '/v1/breadcrumbs?selector={"context_match":[{"path":"a..b","op":"eq","value":1}]}': "context_match[0].path",
    '/v1/breadcrumbs?selector={"where":"context.n =="}': "where",
    "/v1/breadcrumbs?schema_name=a*b": "schema_name",
    "/v1/breadcrumbs?tag=%00": "query",
    "/v1/breadcrumbs?schema_name=%00": "query",
    "/v1/breadcrumbs/%00": "path",
    "/v1/schemas/%00": "path",
    "/v1/breadcrumbs/x/versions/0": "version",
    "/v1/breadcrumbs/x/versions/99999999999999999999": "version",
    "/v1/breadcrumbs/x/history?cursor=x": "cursor",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_bad_parameter_is_a_problem_with_its_place(open_server: Server, address: str) -> None:
    status, code, where = problem(open_server.client().get(address))
    assert status == 422
    assert code.startswith("invalid") or code == "malformed"
    assert where is not None
    assert where.startswith(ADDRESSES[address])


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"json_schema": {"type": 5}}, "json_schema"),
        ({"json_schema": {"$ref": "http://127.0.0.1:1/x"}}, "json_schema"),
        ({"llm_hints": {"x": 1}}, "llm_hints.x"),
        ({"ttl_ms": 0}, "ttl_ms"),
        ({"ttl_ms": 10**18}, "ttl_ms"),
        ({"other": 1}, "body"),
    ],
)
def test_a_bad_schema_is_a_problem_with_its_place(open_server: Server, body: Any, where: str) -> None:
    status, _, place = problem(open_server.client().put("/v1/schemas/a", json=body))
    assert (status, place) == (422, where)


def test_of_a_key_given_twice_the_last_one_counts(server: Server) -> None:
    body = b'{"schema_name": "a", "schema_name": "b", "context": {"x": 1, "x": 2}}'
    crumb = server.client().post("/v1/breadcrumbs", content=body).json()
    assert (crumb["schema_name"], crumb["context"]) == ("b", {"x": 2})


def test_what_looks_like_nul_or_depth_in_a_text_is_text(server: Server) -> None:
    context = {"x": "\\u0000", "y": "[" * 500, "z": '\\"' + "{" * 500, "list": [[]] * 300}
    assert made(server.client(), context=context)["context"] == context


def test_the_deepest_context_that_is_taken_is_read_everywhere(server: Server) -> None:
    client = server.client()
    deep: Any = []
    for _ in range(97):
        deep = [deep]
    path = f"/v1/breadcrumbs/{made(client, context={'x': deep})['id']}"
    client.patch(path, json={"context": {"y": deep}}).raise_for_status()
    assert client.get(path).json()["context"] == {"x": deep, "y": deep}
    assert len(client.get(f"{path}/history").json()["items"]) == 2


def test_a_body_is_json(open_server: Server) -> None:
    client = open_server.client()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = client.post("/v1/breadcrumbs", content=b'{"schema_name": "a"}', headers={"Content-Type": kind})
        assert problem(answer) == (415, "unsupported_media_type", None)
    assert client.get("/v1/breadcrumbs").json()["items"] == []


def test_unknown_routes_and_methods_are_problems(open_server: Server) -> None:
    client = open_server.client()
    assert problem(client.get("/nowhere")) == (404, "not_found", None)
    assert "/openapi.json" in client.get("/nowhere").json()["detail"]
    assert problem(client.get("/v1/breadcrumbs/a/b/c/d")) == (404, "not_found", None)
    for method in ("PUT", "DELETE", "PATCH", "HEAD"):
        answer = client.request(method, "/v1/breadcrumbs")
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) >= {"GET", "POST"}
        assert method == "HEAD" or "OPTIONS says" in answer.json()["detail"]
    options = client.options("/v1/breadcrumbs/x")
    assert (options.status_code, options.headers["allow"]) == (204, "DELETE, GET, OPTIONS, PATCH, PUT")


def test_an_unexpected_failure_is_a_problem_without_its_traceback(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client)['id']}"
    connection = apsw.Connection(str(server.path))
    connection.execute("UPDATE breadcrumbs SET context = 'damaged'")
    connection.close()
    answer = client.get(path)
    assert problem(answer) == (500, "internal", None)
    assert "malformed" not in answer.text
    assert f"GET {path} failed" in caplog.text


# ---- bodies beyond the bound, and large answers ----


@pytest.fixture
def narrow(tmp_path: Any) -> Any:
    with Server(tmp_path / "store.db", max_body=10_000) as server:
        yield server


def test_a_body_beyond_the_bound_is_refused(narrow: Server) -> None:
    answer = narrow.client().post("/v1/breadcrumbs", json=NOTE | {"context": {"x": "x" * 10_000}})
    assert problem(answer) == (413, "too_large", None)
    assert "max_body" in answer.json()["detail"]


def test_a_body_is_refused_before_it_was_sent(narrow: Server) -> None:
    assert _raw(narrow, b"Content-Length: 1000000000\r\n\r\n{").startswith(b"HTTP/1.1 413")


def test_a_body_without_length_is_cut_off_at_the_bound(narrow: Server) -> None:
    chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    # the body would go on for ever: the answer comes, and the connection ends
    assert _raw(narrow, b"Transfer-Encoding: chunked\r\n\r\n" + 3 * chunk).startswith(b"HTTP/1.1 413")


def _raw(server: Server, rest: bytes) -> bytes:
    """What the server says to the beginning of a request until it closes the connection."""
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=10) as connection:
        head = f"POST /v1/breadcrumbs HTTP/1.1\r\nHost: {server.url.removeprefix('http://')}\r\n"
        connection.sendall(head.encode() + b"Content-Type: application/json\r\n" + rest)
        said = b""
        while more := connection.recv(65_536):
            said += more
        return said


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0, gzip;q=0.5", "gzip"),
        ("*", "zstd"),
        ("identity", None),
        ("gzip;q=0", None),
        ("br", None),
        ("", None),
    ],
)
def test_a_large_answer_is_compressed_for_who_can_read_it(server: Server, accepted: str, encoding: str | None) -> None:
    client = server.client()
    path = f"/v1/breadcrumbs/{made(client, context={'x': 'y' * 50_000})['id']}"
    with client.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers.get("content-encoding") == encoding
    assert int(answer.headers["content-length"]) == len(raw)
    assert (len(raw) < 1_000) == (encoding is not None)
    assert answer.headers.get("vary") == (None if encoding is None else "Accept-Encoding")
    whole = {"gzip": gzip.decompress, "zstd": zstandard.decompress, None: bytes}[encoding](raw)
    assert json.loads(whole)["context"] == {"x": "y" * 50_000}


def test_a_small_answer_is_not_compressed(server: Server) -> None:
    assert "content-encoding" not in server.client().get("/health").headers


# ---- time ----


@pytest.fixture
def hasty(tmp_path: Any) -> Any:
    with Server(tmp_path / "store.db", request_seconds=0.5) as server:
        yield server


def test_a_body_that_does_not_come_is_not_waited_for(hasty: Server) -> None:
    assert _raw(hasty, b"Content-Length: 100\r\nConnection: close\r\n\r\n{").startswith(b"HTTP/1.1 408")


def test_an_answer_that_takes_too_long_is_a_problem(hasty: Server) -> None:
    client = hasty.client()
    connection = apsw.Connection(str(hasty.path))
    connection.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    assert problem(client.post("/v1/breadcrumbs", json=NOTE)) == (504, "deadline_passed", None)
    assert time.monotonic() - began < 5
    connection.execute("COMMIT")
    connection.close()
    assert client.post("/v1/breadcrumbs", json=NOTE).status_code == 201
