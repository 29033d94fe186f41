"""Who may come in, and what they may do: tokens, tenants, and the pages of a browser."""

import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stigmergy.access.commands import revoke_token
from stigmergy.access.model import Grant, signed
from stigmergy.api.auth import refuse_open_doors
from stigmergy.breadcrumbs.embeddings import WordLlama
from stigmergy.breadcrumbs.search_index import fill_all
from stigmergy.errors import Invalid
from stigmergy.settings import Settings
from support import commands
from support.routes import Operation, operations
from support.server import COMMAND, SECRET, Server, ServerProcess
from support.talk import client_call

NOTE = {"schema_name": "note.v1", "title": "of the first tenant", "context": {"n": 1}}
HOUR_MS = 3_600_000


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def now() -> int:
    return int(time.time() * 1000)


# ---- tokens ----


def test_without_a_token_only_what_says_nothing_is_answered(guarded: Server) -> None:
    client = guarded.client()
    for path in ("/health", "/openapi.json", "/docs"):
        assert client.get(path).status_code == 200
    answer = client.get("/v1/breadcrumbs")
    assert code(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "stigmergy token create" in answer.json()["detail"]


def test_a_token_says_who_writes_and_where(guarded: Server) -> None:
    crumb = guarded.client_of("mia", "read", "write", tenant="acme").post("/v1/breadcrumbs", json=NOTE).json()
    assert (crumb["owner_id"], crumb["created_by"]) == ("mia", "mia")
    assert len(guarded.client_of("tom", "read", tenant="acme").get("/v1/breadcrumbs").json()["items"]) == 1
    assert guarded.client_of("tom", "read").get("/v1/breadcrumbs").json()["items"] == []


def forged(server: Server) -> Iterator[tuple[str, str]]:
    claims = server.claims("mia", "read")
    good = signed(claims, SECRET)
    prefix, body, signature = good.split(".")
    said = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    other = base64.urlsafe_b64encode(json.dumps(said | {"tenant": "other"}).encode()).rstrip(b"=").decode()
    yield "another secret", signed(claims, "another secret for the tests")
    yield "other claims", f"{prefix}.{other}.{signature}"
    yield "no signature", f"{prefix}.{body}."
    yield "no body", f"{prefix}..{signature}"
    yield "another prefix", f"stx.{body}.{signature}"
    yield "something after it", f"{good}.x"
    yield "its padding", f"{prefix}.{body}=.{signature}"
    yield "nonsense", "nonsense"
    yield "signs that are not ASCII", "stg.\xe9.\xe9"
    for cut in (1, 5, len(signature), len(signature) + 1, len(good) - 4):
        yield f"cut by {cut}", good[:-cut]
    yield "expired", server.token("mia", "read", expires_at=now() - 1)


def test_a_token_that_is_not_whole_and_ours_opens_nothing(guarded: Server) -> None:
    for name, token in forged(guarded):
        headers = {b"Authorization": f"Bearer {token}".encode("latin-1")}
        assert code(guarded.client().get("/v1/breadcrumbs", headers=headers)) == (401, "unauthorized"), name
    for header in ("Bearer", "Basic bWlhOng=", guarded.token()):
        assert code(guarded.client().get("/v1/breadcrumbs", headers={"Authorization": header})) == (401, "unauthorized")


def test_a_revoked_token_opens_nothing_from_that_moment_on(guarded: Server) -> None:
    claims = guarded.claims("mia", "read")
    client = guarded.client(signed(claims, SECRET))
    assert client.get("/v1/breadcrumbs").status_code == 200
    guarded.write(revoke_token, claims.id)
    assert code(client.get("/v1/breadcrumbs")) == (401, "unauthorized")


def test_a_token_expires(guarded: Server) -> None:
    assert guarded.client(guarded.token("mia", expires_at=now() + HOUR_MS)).get("/v1/breadcrumbs").status_code == 200


@pytest.mark.parametrize(
    ("grants", "reads", "writes", "operates"),
    [
        (["read"], True, False, False),
        (["write"], False, True, False),
        (["operate"], False, False, True),
        (["read", "write"], True, True, False),
    ],
)
def test_a_token_allows_what_it_grants(guarded: Server, grants: list[Grant], reads: bool, writes: bool, operates: bool) -> None:
    client = guarded.client_of("mia", *grants)
    for allowed, answer in (
        (reads, client.get("/v1/breadcrumbs")),
        (writes, client.post("/v1/breadcrumbs", json=NOTE)),
        (operates, client.put("/v1/schemas/note.v1", json={})),
    ):
        assert answer.is_success if allowed else code(answer) == (403, "forbidden")


# ---- tokens of browsers ----


def test_a_browser_token_is_for_the_feed_alone_and_for_minutes(guarded: Server) -> None:
    answer = guarded.client_of("mia", "read", "write", "operate").post("/v1/tokens/browser").raise_for_status().json()
    assert 0 < answer["expires_in"] <= 300
    with guarded.client().stream("GET", "/v1/events", params={"token": answer["token"]}) as feed:
        assert feed.status_code == 200
    browser = guarded.client(answer["token"])
    for method, path in (("GET", "/v1/breadcrumbs"), ("POST", "/v1/breadcrumbs"), ("POST", "/v1/tokens/browser")):
        assert code(browser.request(method, path, json=NOTE)) == (403, "forbidden")
    assert code(guarded.client().get("/v1/breadcrumbs", params={"token": answer["token"]})) == (401, "unauthorized")


def test_a_record_with_the_name_of_a_way_in_is_none(guarded: Server) -> None:
    """A breadcrumb may be called `events`, an agent `trigger`: what is special about such addresses is not about these."""
    operator = guarded.client_of("mia", "read", "write", "operate")
    operator.post("/v1/breadcrumbs", json=NOTE | {"id": "events"}).raise_for_status()
    browser = operator.post("/v1/tokens/browser").json()["token"]
    assert code(guarded.client(browser).get("/v1/breadcrumbs/events")) == (403, "forbidden")
    assert code(guarded.client().get("/v1/breadcrumbs/events", params={"token": browser})) == (401, "unauthorized")
    assert code(operator.get("/v1/agents/trigger")) == (404, "unknown_agent")
    assert code(guarded.client().get("/v1/agents/trigger")) == (401, "unauthorized")


def test_a_browser_token_does_not_outlive_the_token_it_was_made_with(guarded: Server) -> None:
    claims = guarded.claims("mia", "read", expires_at=now() + 60_000)
    answer = guarded.client(signed(claims, SECRET)).post("/v1/tokens/browser").json()
    assert answer["expires_in"] <= 60
    guarded.write(revoke_token, claims.id)
    assert code(guarded.client().get("/v1/events", params={"token": answer["token"]})) == (401, "unauthorized")


def test_a_lasting_token_is_not_taken_from_an_address(guarded: Server) -> None:
    assert code(guarded.client().get("/v1/events", params={"token": guarded.token()})) == (403, "forbidden")


def test_an_open_server_gives_no_tokens(server: Server) -> None:
    assert code(server.client().post("/v1/tokens/browser")) == (422, "no_secret")


# ---- without a secret ----


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.0.2:8420", "", "["]
)
def test_an_open_server_does_not_answer_to_another_name(open_server: Server, host: str) -> None:
    answer = open_server.client().get("/v1/breadcrumbs", headers={"Host": host})
    assert answer.status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "127.8.8.8", "[::1]:8420", "LOCALHOST:99"])
def test_an_open_server_answers_to_the_names_of_this_machine(open_server: Server, host: str) -> None:
    assert open_server.client().get("/v1/breadcrumbs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "x"])
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_page_of_another_site_cannot_write_to_an_open_server(open_server: Server, origin: str, kind: str) -> None:
    headers = {"Origin": origin, "Content-Type": kind}
    answer = open_server.client().post("/v1/breadcrumbs", content=json.dumps(NOTE), headers=headers)
    assert code(answer) == (403, "forbidden")
    assert code(open_server.client().get("/v1/breadcrumbs", headers={"Origin": origin})) == (403, "forbidden")
    assert open_server.client().get("/v1/breadcrumbs").json()["items"] == []


def test_a_page_of_the_server_itself_may_write(server: Server) -> None:
    assert server.client().post("/v1/breadcrumbs", json=NOTE, headers={"Origin": server.url}).status_code == 201


def test_a_simple_post_of_plain_text_writes_nothing(server: Server) -> None:
    """Also from a client that sends no Origin."""
    answer = server.client().post("/v1/breadcrumbs", content=json.dumps(NOTE), headers={"Content-Type": "text/plain"})
    assert code(answer) == (415, "unsupported_media_type")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.2", "example.org", "0"])
def test_no_address_but_loopback_is_served_without_a_secret(host: str) -> None:
    with pytest.raises(Invalid, match=r"STIGMERGY_SECRET.*stigmergy token create"):
        refuse_open_doors(Settings(host=host))
    refuse_open_doors(Settings(host=host, secret=SECRET))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_is_served_without_a_secret(host: str) -> None:
    refuse_open_doors(Settings(host=host))


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(Invalid, match="at least 16"):
        refuse_open_doors(Settings(secret="short"))


def test_the_command_does_not_start_an_open_server_for_everybody(tmp_path: Path) -> None:
    command = [COMMAND, "serve", "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "STIGMERGY_SECRET" in done.stderr
    assert list(tmp_path.iterdir()) == []


# ---- pages that the settings name ----

PAGE = "https://app.example"


@pytest.fixture
def called_by_pages(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "store.db", secret=SECRET, origins=(PAGE,)) as server:
        yield server


def test_a_browser_may_ask_before_it_calls_without_a_token(called_by_pages: Server) -> None:
    headers = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "PATCH",
        "Access-Control-Request-Headers": "authorization, content-type, if-match, idempotency-key",
    }
    answer = called_by_pages.client().options("/v1/breadcrumbs/x", headers=headers)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, PAGE)
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    refused = called_by_pages.client().options("/v1/breadcrumbs/x", headers=headers | {"Origin": "https://evil.example"})
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers


def test_a_page_can_read_answers_and_errors(called_by_pages: Server) -> None:
    client = called_by_pages.client_of("mia")
    good = client.get("/v1/breadcrumbs", headers={"Origin": PAGE})
    missing = client.get("/v1/breadcrumbs/x", headers={"Origin": PAGE})
    unknown = client.get("/nowhere", headers={"Origin": PAGE})
    stranger = called_by_pages.client().get("/v1/breadcrumbs", headers={"Origin": PAGE})
    assert [each.status_code for each in (good, missing, unknown, stranger)] == [200, 404, 404, 401]
    for answer in (good, missing, unknown, stranger):
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "etag" in answer.headers["access-control-expose-headers"].lower()


def test_a_page_that_was_not_named_cannot_read_anything(called_by_pages: Server) -> None:
    answer = called_by_pages.client_of("mia").get("/v1/breadcrumbs", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_a_named_page_may_call_an_open_server(tmp_path: Path) -> None:
    with Server(tmp_path / "store.db", origins=(PAGE,)) as server:
        assert server.client().post("/v1/breadcrumbs", json=NOTE, headers={"Origin": PAGE}).status_code == 201
        assert code(server.client().get("/v1/breadcrumbs", headers={"Origin": "https://evil.example"})) == (403, "forbidden")


# ---- every route ----

AGENT = {"model": "scripted:nobody", "instructions": "of the first tenant"}
TRIGGER = {"collection": "breadcrumbs", "event": "create", "action": "POST http://127.0.0.1:9/"}
BODIES: dict[str, Any] = {
    "create_breadcrumb": NOTE,
    "create_breadcrumbs": [NOTE],
    "replace_breadcrumb": NOTE,
    "patch_breadcrumb": {"title": "x"},
    "retag_breadcrumb": {"add": ["x"]},
    "put_schema": {"ttl_ms": 1_000},
    "search_breadcrumbs": {"query": "of the first tenant"},
    "preview_assembly": {"subscriptions": [{"schema_name": "note.v1"}], "trigger_id": "{id}"},
    "create_trigger": {"id": "t", **TRIGGER},
    "put_trigger": TRIGGER,
    "check_triggers": {"triggers": [{"id": "t", **TRIGGER}]},
    "put_triggers": {"triggers": [{"id": "t", **TRIGGER}]},
    "test_triggers": {"collection": "breadcrumbs"},
    "create_task": {"name": "agent:a", "instruction": "x", "executor": "external"},
    "patch_task": {"status": "running"},
    "create_sub_agent": {"task_id": "{id}"},
    "patch_sub_agent": {"status": "completed"},
    "create_sub_agent_message": {"role": "user", "content": "x"},
    "create_sub_agent_tool_call": {"id": "c", "tool_name": "x"},
    "patch_sub_agent_tool_call": {"status": "success"},
    "put_agent": AGENT,
}
# These make one of their own in the place of what they cannot see.
PUTTING = {"replace_breadcrumb", "put_trigger", "put_agent"}
# What says otherwise than by `{id}` which thing it is about.
NAMING = {"preview_assembly", "get_schema", "delete_schema", "create_sub_agent", "get_agent", "delete_agent"} | {
    "list_agent_versions",
    "list_agent_tools",
    "start_run",
}
# What asks for a key of its own and not for a token.
KEYED = {"trigger_agent"}
# What reads, though its method is a writer's.
READING = {"create_browser_token", "preview_assembly", "search_breadcrumbs"}


def call(client: httpx.Client, operation: Operation, id: str, name: str) -> httpx.Response:
    path = operation.address(id, name=name, version="1", step="1")
    body = json.loads(json.dumps(BODIES.get(operation.id, operation.example)).replace("{id}", id))
    if operation.path.endswith("/events"):
        with client.stream(operation.method, path, params={"after": "0"}) as feed:
            # all that the journal holds comes at once, before anything else
            text = next(feed.iter_text()) if feed.is_success else feed.read().decode()
            return httpx.Response(feed.status_code, text=text, headers={"content-type": feed.headers["content-type"]})
    return client.request(operation.method, path, json=body)


def test_no_route_shows_or_changes_anything_of_another_tenant(guarded: Server) -> None:
    ours = guarded.client_of("mia", tenant="first")
    id = ours.post("/v1/breadcrumbs", json=NOTE | {"tags": ["of-the-first"]}).json()["id"]
    ours.put("/v1/schemas/of.the.first", json={"ttl_ms": 5_000}).raise_for_status()
    ours.put(f"/v1/triggers/{id}", json=TRIGGER | {"condition": "title == 'of-the-first'"}).raise_for_status()
    ours.post("/v1/spaces", json={"id": id, "name": "of-the-first", "members": [id]}).raise_for_status()
    task = {"id": id, "name": "agent:of-the-first", "instruction": "of-the-first", "executor": "external"}
    ours.post("/v1/tasks", json=task).raise_for_status()
    ours.post("/v1/sub-agents", json={"id": id, "task_id": id}).raise_for_status()
    ours.post(f"/v1/sub-agents/{id}/tool-calls", json={"id": id, "tool_name": "of-the-first"}).raise_for_status()
    ours.post(f"/v1/spaces/{id}/messages", json={"id": id, "content": "of-the-first"}).raise_for_status()
    ours.put(f"/v1/entities/{id}/memories/{id}", json={"value": "of-the-first"}).raise_for_status()
    ours.put("/v1/agents/of.the.first", json=AGENT).raise_for_status()
    wait = guarded.write(client_call, f"waits-{id}", "mia", "of-the-first", tenant="first")
    others = {"/v1/runs/": f"waits-{id}", "/v1/waits/": wait}
    paths = (
        *("/v1/agents/of.the.first", f"/v1/runs/waits-{id}", f"/v1/runs/waits-{id}/tool-calls", f"/v1/waits/{wait}"),
        *(f"/v1/breadcrumbs/{id}/history", "/v1/schemas/of.the.first", f"/v1/triggers/{id}", f"/v1/tasks/{id}"),
        *(f"/v1/sub-agents/{id}", f"/v1/sub-agents/{id}/messages", f"/v1/sub-agents/{id}/tool-calls"),
        *(f"/v1/spaces/{id}", f"/v1/spaces/{id}/messages", f"/v1/spaces/{id}/members", f"/v1/entities/{id}/memories"),
    )

    def there() -> list[Any]:
        return [ours.get(path).raise_for_status().json() for path in paths]

    before = there()
    guarded.run(fill_all(guarded.database, WordLlama()))
    routes = {operation.id: operation for operation in operations(guarded)}
    assert "of-the-first" in call(ours, routes["search_breadcrumbs"], id, "").text
    for operation in routes.values():
        if operation.id in PUTTING:
            continue  # see below
        theirs = guarded.client_of("mia", tenant=f"of-{operation.id}")
        other = next((each for start, each in others.items() if operation.path.startswith(start)), id)
        answer = call(theirs, operation, other, "of.the.first")
        assert "of the first tenant" not in answer.text or operation.id in BODIES, operation
        assert "of-the-first" not in answer.text, operation
        if "{id}" in operation.path or operation.id in NAMING:
            assert code(answer) in ((404, "not_found"), (404, "unknown_agent")), operation
    assert len(routes) >= 65
    second = guarded.client_of("mia", tenant="second")
    second.put(f"/v1/breadcrumbs/{id}", json=NOTE | {"title": "theirs"}).raise_for_status()
    second.put(f"/v1/triggers/{id}", json=TRIGGER).raise_for_status()
    second.put("/v1/agents/of.the.first", json=AGENT | {"instructions": "theirs"}).raise_for_status()
    assert there() == before


def test_with_a_reading_token_no_route_writes(guarded: Server) -> None:
    owner, reading = guarded.client_of("mia"), guarded.client_of("mia", "read")
    id = owner.post("/v1/breadcrumbs", json=NOTE).json()["id"]
    owner.put("/v1/schemas/note.v1", json={}).raise_for_status()
    owner.post("/v1/spaces", json={"id": id}).raise_for_status()
    before = guarded.run(guarded.database.tenants()), owner.get("/v1/breadcrumbs").json(), owner.get("/v1/schemas").json()
    writers = [each for each in operations(guarded) if each.method != "GET" and each.id not in READING | KEYED]
    assert len(writers) >= 30
    for operation in writers:
        assert code(call(reading, operation, id, "note.v1")) == (403, "forbidden"), operation
    assert before == (
        guarded.run(guarded.database.tenants()),
        owner.get("/v1/breadcrumbs").json(),
        owner.get("/v1/schemas").json(),
    )


# ---- the command ----


def token_command(folder: Path, *arguments: str, code: int = 0) -> str:
    return commands.run(folder, "token", *arguments, code=code, environment={"STIGMERGY_SECRET": SECRET})


def test_tokens_are_made_listed_and_revoked_beside_a_running_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, STIGMERGY_SECRET=SECRET) as server, httpx.Client(base_url=server.url) as client:
        made = ("create", "mia", "--grant", "read", "--grant", "write", "--days", "3", "--note", "[b]x")
        token = token_command(tmp_path, *made).strip()
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.post("/v1/breadcrumbs", json=NOTE).json()["owner_id"] == "mia"
        (listed,) = json.loads(token_command(tmp_path, "list", "--json"))
        assert (listed["entity"], listed["grants"], listed["note"]) == ("mia", ["read", "write"], "[b]x")
        assert token not in json.dumps(listed)
        assert re.search(r"mia  read, write  until \d{4}-\d\d-\d\d  \[b\]x", token_command(tmp_path, "list"))
        token_command(tmp_path, "revoke", listed["id"])
        assert client.get("/v1/breadcrumbs").status_code == 401
        assert "revoked" in token_command(tmp_path, "list")


def test_a_token_is_made_for_a_tenant_and_reads_unless_more_is_said(tmp_path: Path) -> None:
    done = json.loads(token_command(tmp_path, "create", "mia", "--tenant", "acme", "--json"))
    assert (done["tenant"], done["grants"]) == ("acme", ["read"])
    assert token_command(tmp_path, "list") == ""
    assert done["id"] in token_command(tmp_path, "list", "--tenant", "acme")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["create", "mia", "--days", "0"], 2, "1 to 36,500 days"),
        (["create", "mia", "--grant", "all"], 2, "all"),
        (["create", ""], 2, "entity"),
        (["create", "mia", "--tenant", "a/b"], 2, "tenant"),
        (["revoke", "none"], 5, "no token none"),
    ],
)
def test_wrong_use_is_one_clear_sentence(tmp_path: Path, arguments: list[str], status: int, says: str) -> None:
    assert says in token_command(tmp_path, *arguments, code=status)


def test_a_token_needs_the_secret_it_is_signed_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STIGMERGY_SECRET", raising=False)
    assert "STIGMERGY_SECRET" in commands.run(tmp_path, "token", "create", "mia", code=2)
