"""The server's description of itself, and whether it is true."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stigmergy.kernel.ids import new_id
from stigmergy.kernel.transaction import Transaction
from support.routes import Operation, operations
from support.server import SECRET, Server
from support.talk import add_agents, client_call, say, space_of

# Requests are made up from the description, good ones and bad ones; what is not checked, and why:
EXCLUDED_CHECKS = {
    "positive_data_acceptance": "a selector, a hint or a cursor is a text or an object with rules that no JSON Schema can say",
    "ensure_resource_availability": "what is written with an `expires_at` that has passed is expired, and not there to be read",
    "use_after_free": "what was deleted keeps its history and its versions, which are read under its id",
}
EXCLUDED_OPERATIONS = {
    "follow_events": "its answer does not end; test_events.py reads it",
    "follow_space": "its answer does not end; test_space_events.py reads it",
    "watch_run": "its answer ends with the run; test_run_events.py reads it",
}
SECONDS = 15


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[Server]:
    """A server that asks for tokens, and waits for no run longer than a made-up request has time."""
    with Server(tmp_path / "store.db", secret=SECRET, request_seconds=2.5) as server:
        yield server


@pytest.mark.serial
def test_made_up_requests_meet_no_5xx_and_nothing_undocumented(hurried: Server, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{hurried.url}/openapi.json",
        *("--header", f"Authorization: Bearer {hurried.token('mia')}"),
        *("--checks", "all"),
        *("--exclude-checks", ",".join(EXCLUDED_CHECKS)),
        *(part for operation in EXCLUDED_OPERATIONS for part in ("--exclude-operation-id", operation)),
        *("--max-examples", "20", "--max-time", str(SECONDS), "--generation-deterministic"),
        "--no-color",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=SECONDS + 30,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    made_up = re.search(r"(\d+) generated", done.stdout)
    assert made_up is not None
    assert int(made_up[1]) > 500


def described(server: Server) -> dict[str, Any]:
    answer = server.client().get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def test_every_route_documents_its_problems_and_who_may_come(open_server: Server) -> None:
    api = described(open_server)
    assert api["openapi"].startswith("3.1")
    ids: list[str] = []
    for path, methods in api["paths"].items():
        for operation in methods.values():
            ids.append(operation["operationId"])
            assert operation["summary"]
            problems = {status for status in operation["responses"] if status >= "400"}
            assert problems >= ({"401", "403", "422", "500", "503"} if path.startswith("/v1/") else {"500", "503"})
            assert operation.get("security") or not path.startswith("/v1/")
            body = operation.get("requestBody")
            if body is not None:
                assert body["content"]["application/json"]["examples"]
                assert {"413", "415"} <= problems
    assert len(ids) == len(set(ids)) >= 18
    for answer in api["components"]["responses"].values():
        assert answer["content"] == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


EXAMPLE_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


async def a_conversation(tx: Transaction, id: str) -> None:
    await space_of(tx, "local", "agent:researcher", id=id)
    await say(tx, "local", id, "hello", id=id)


def prepared(server: Server, client: httpx.Client) -> str:
    """An id under which there is one of everything that the examples are about."""
    id = new_id()
    server.write(a_conversation, id, entity="local")
    for method, path, body in (
        ("PUT", f"/v1/breadcrumbs/{id}", {"schema_name": "user.message.v1", "context": {"text": "x"}}),
        ("POST", "/v1/tasks", {"id": id, "name": "agent:researcher", "instruction": "Look.", "executor": "external"}),
        ("POST", "/v1/sub-agents", {"id": id, "task_id": id}),
        ("POST", f"/v1/sub-agents/{id}/tool-calls", {"id": id, "tool_name": "search"}),
    ):
        answer = client.request(method, path, json=body)
        assert answer.is_success, answer.text
    return id


def places(server: Server, client: httpx.Client, operation: Operation) -> dict[str, str]:
    """What stands in a route's address where that is not the id that things have here."""
    if operation.id == "patch_goal":
        return {"id": "local", "goal_id": client.post("/v1/entities/local/goals", json={"text": "x"}).json()["id"]}
    if operation.id == "patch_plan":
        made = client.post("/v1/entities/agent:researcher/plans", json={"what": "x", "after_ms": 60_000}).json()
        return {"id": made["entity_id"], "plan_id": made["id"]}
    if operation.id == "answer_client_call":
        return {"id": client.post("/v1/clients", json={}).json()["id"]}
    if operation.path.startswith("/v1/runs/{id}") or operation.id == "answer_wait":
        id = new_id()
        wait_id = server.write(client_call, id, "local", call_id="call_1_1")
        return {"id": wait_id if operation.id == "answer_wait" else id}
    if operation.path.startswith("/v1/entities/"):
        return {"id": "agent:researcher" if "plans" in operation.path else "local"}
    return {"name": "researcher" if "agents" in operation.path else "user.message.v1"}


def test_every_example_is_taken(server: Server) -> None:
    client = server.client()
    server.write(add_agents, "researcher", "lead")
    server.write(client_call, EXAMPLE_ID, "local")
    key = client.post("/v1/agents/researcher/keys", json={}).json()["text"]
    for operation in sorted(operations(server), key=lambda each: each.method == "PATCH"):
        if operation.example is None:
            continue
        id = EXAMPLE_ID if operation.id == "answer_client_call" else prepared(server, client)
        body = json.loads(json.dumps(operation.example).replace(EXAMPLE_ID, id))
        headers = {"Authorization": f"Bearer {key}"} if operation.id == "trigger_agent" else {}
        address = operation.address(**{"id": id} | places(server, client, operation))
        answer = client.request(operation.method, address, json=body, headers=headers)
        assert answer.is_success, (operation, answer.text)


def test_every_reference_leads_somewhere(open_server: Server) -> None:
    api = described(open_server)
    text = open_server.client().get("/openapi.json").text
    for reference in set(re.findall(r'"\$ref":"#/([^"]+)"', text)):
        place: Any = api
        for part in reference.split("/"):
            place = place[part]


def test_the_page_for_people_needs_no_other_host(open_server: Server) -> None:
    answer: httpx.Response = open_server.client().get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "connect-src 'self'" in answer.headers["content-security-policy"]
    assert "/openapi.json" in answer.text
    assert not re.search(r"(https?:)?//[a-z]|\bsrc=|@import|url\(", answer.text)
