"""What the API refuses, with which code and place; bodies beyond their bounds, large answers, and time."""

import gzip
import json
import socket
import time
from typing import Any

import apsw
import pytest
import zstandard

from support.requests import NOTE, made, problem
from support.server import Server

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
