"""Tasks, and the runs that a program outside executes, over HTTP."""

from typing import Any

import httpx
import pytest

from support.server import Server

TASK: dict[str, Any] = {"name": "agent:researcher", "instruction": "What is Bitcoin worth?", "executor": "external"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"query":"BTC"}'}}


@pytest.fixture
def service(guarded: Server) -> httpx.Client:
    """The program outside: it comes with an operator's token."""
    return guarded.client_of("orchestrator")


def begun(service: httpx.Client, **fields: Any) -> dict[str, Any]:
    task = service.post("/v1/tasks", json=TASK).json()
    made = service.post("/v1/sub-agents", json={"task_id": task["id"], "instructions": "Look things up."} | fields)
    assert made.status_code == 201, made.text
    return made.json()


def messages(service: httpx.Client, run: dict[str, Any]) -> list[dict[str, Any]]:
    return service.get(f"/v1/sub-agents/{run['id']}/messages").json()["items"]


def test_a_task_is_given_shown_listed_and_moved(service: httpx.Client) -> None:
    made = service.post("/v1/tasks", json=TASK | {"trigger_message_id": "m1"})
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    task = made.json()
    assert (task["status"], task["executor"], task["type"], task["owner_id"]) == ("pending", "external", "agent", "orchestrator")
    assert (task["chat_id"], task["sub_agent_id"]) == (task["space_id"], None)
    path = f"/v1/tasks/{task['id']}"
    moved = service.patch(path, json={"status": "running"}, headers={"If-Match": made.headers["etag"]})
    assert (moved.status_code, moved.headers["etag"]) == (200, '"2"')
    late = service.patch(path, json={"status": "success"}, headers={"If-Match": '"1"'})
    assert (late.status_code, late.json()["code"]) == (412, "version_conflict")
    done = service.patch(path, json={"status": "success", "result": {"price": 97_000}}).json()
    assert (done["status"], done["result"], done["completions"]) == ("success", {"price": 97_000}, 1)
    again = service.patch(path, json={"status": "success"})
    assert (again.status_code, again.json()["code"]) == (409, "invalid_transition")
    assert service.get(path).json() == done
    service.post("/v1/tasks", json=TASK)
    assert [each["id"] for each in service.get("/v1/tasks", params={"status": "success"}).json()["items"]] == [task["id"]]
    assert [each["id"] for each in service.get("/v1/tasks", params={"trigger_message_id": "m1"}).json()["items"]] == [task["id"]]
    page = service.get("/v1/tasks", params={"limit": 1}).json()
    rest = service.get("/v1/tasks", params={"cursor": page["cursor"]}).json()
    assert len({each["id"] for each in (*page["items"], *rest["items"])}) == 2


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"name": "researcher"}, "name"),
        ({"name": "agent:"}, "name"),
        ({"type": "tool"}, "type"),
        ({"instruction": ""}, "instruction"),
        ({"executor": "them"}, "executor"),
        ({"space_id": "a", "chat_id": "b"}, "chat_id"),
        ({"deadline_ms": 0}, "deadline_ms"),
        ({"id": "a/b"}, "id"),
        ({"userId": "mia"}, "body"),
    ],
)
def test_a_task_that_is_no_good_is_refused_with_its_place(service: httpx.Client, fields: dict[str, Any], where: str) -> None:
    refused = service.post("/v1/tasks", json=TASK | fields)
    assert (refused.status_code, refused.json()["where"]) == (422, where)
    assert service.get("/v1/tasks").json()["items"] == []


def test_the_same_request_gives_the_first_answer(service: httpx.Client) -> None:
    key = {"Idempotency-Key": "k1"}
    first, again = (service.post("/v1/tasks", json=TASK, headers=key) for _ in range(2))
    assert first.json() == again.json()
    taken = [service.post("/v1/sub-agents", json={"task_id": first.json()["id"]}, headers=key) for _ in range(2)]
    assert taken[0].json() == taken[1].json()
    assert [each.status_code for each in taken] == [201, 201]
    run = taken[0].json()
    assert service.post("/v1/sub-agents", json={"task_id": first.json()["id"]}).status_code == 200
    said = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
    for _ in range(2):
        answer = service.post(f"/v1/sub-agents/{run['id']}/messages", json=said, headers=key)
        assert (answer.status_code, answer.json()["pos"]) == (201, 2)
    opened = [
        service.post(f"/v1/sub-agents/{run['id']}/tool-calls", json={"id": "c2", "tool_name": "search"}, headers=key)
        for _ in range(2)
    ]
    assert opened[0].json() == opened[1].json()
    other = service.post("/v1/tasks", json=TASK | {"instruction": "other"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")


def test_a_run_outside_thinks_calls_waits_and_ends(service: httpx.Client) -> None:
    run = begun(service)
    path = f"/v1/sub-agents/{run['id']}"
    assert (run["role"], run["status"], run["state"], run["iteration_count"]) == ("researcher", "running", "active", 0)
    said = {"role": "assistant", "content": "I look.", "tool_calls": [CALL], "usage": {"input_tokens": 30, "output_tokens": 5}}
    log = service.get(f"{path}/messages").json()
    assert [each["role"] for each in log["items"]] == ["system", "user"]
    thought = service.post(f"{path}/messages", json=said, headers={"If-Match": f'"{log["version"]}"'})
    assert (thought.status_code, thought.json()["tool_calls"]) == (201, [CALL])
    twice = service.post(f"{path}/messages", json=said, headers={"If-Match": f'"{log["version"]}"'})
    assert (twice.status_code, twice.json()["code"]) == (412, "version_conflict")
    (call,) = service.get(f"{path}/tool-calls").json()["items"]
    assert (call["status"], call["args"], call["tool_name"], call["step"]) == ("pending", {"query": "BTC"}, "search", 1)
    one = f"{path}/tool-calls/call_1"
    begun_call = service.patch(one, json={"status": "running"}, headers={"If-Match": '"1"'})
    assert begun_call.json()["attempts"] == 1
    assert service.patch(one, json={"status": "success"}, headers={"If-Match": '"1"'}).status_code == 412
    settled = service.patch(one, json={"status": "success", "result": "97,000", "duration_ms": 3})
    assert (settled.json()["status"], settled.headers["etag"]) == ("success", '"3"')
    assert service.get(one).json() == settled.json()
    assert service.patch(one, json={"status": "failed", "error": "x"}).json()["code"] == "invalid_transition"
    assert [(each["role"], each["content"], each.get("tool_call_id")) for each in messages(service, run)][2:] == [
        ("assistant", "I look.", None),
        ("tool", "97,000", "call_1"),
    ]
    assert messages(service, run)[2]["tool_calls"] == [CALL]
    waiting = service.patch(path, json={"status": "waiting_for_user"}).json()
    assert (waiting["status"], waiting["state"], waiting["tokens_used"]) == ("waiting_reply", "waiting_for_user", 35)
    assert service.get(f"/v1/tasks/{run['task_id']}").json()["status"] == "waiting"
    service.post(f"{path}/messages", json={"role": "user", "content": "In dollars."})
    ended = service.patch(path, json={"status": "completed", "result": "97,000 dollars"}).json()
    assert (ended["state"], ended["result"]) == ("completed", "97,000 dollars")
    task = service.get(f"/v1/tasks/{run['task_id']}").json()
    assert (task["status"], task["result"], task["sub_agent_id"]) == ("success", "97,000 dollars", run["id"])
    listed = service.get("/v1/sub-agents", params={"task_id": run["task_id"], "status": "completed"}).json()["items"]
    assert listed == [ended]


def test_a_log_comes_in_pages(service: httpx.Client) -> None:
    run = begun(service)
    for n in range(5):
        service.post(f"/v1/sub-agents/{run['id']}/messages", json={"role": "user", "content": str(n)})
    page = service.get(f"/v1/sub-agents/{run['id']}/messages", params={"limit": 3}).json()
    rest = service.get(f"/v1/sub-agents/{run['id']}/messages", params={"cursor": page["cursor"]}).json()
    assert [each["pos"] for each in (*page["items"], *rest["items"])] == [1, 2, 3, 4, 5, 6, 7]
    assert rest["cursor"] is None


def test_arguments_that_are_no_json_are_kept_as_they_came(service: httpx.Client) -> None:
    run = begun(service)
    broken = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"query": '}}
    service.post(f"/v1/sub-agents/{run['id']}/messages", json={"role": "assistant", "content": "", "tool_calls": [broken]})
    (call,) = service.get(f"/v1/sub-agents/{run['id']}/tool-calls").json()["items"]
    assert call["args"] == '{"query": '
    assert messages(service, run)[-1]["tool_calls"] == [broken]


def test_what_is_not_there_or_not_outside_is_not_found(service: httpx.Client) -> None:
    run = begun(service)
    for method, path, body in (
        ("POST", "/v1/sub-agents", {"task_id": "none"}),
        ("PATCH", "/v1/tasks/none", {"status": "running"}),
        ("PATCH", "/v1/sub-agents/none", {"status": "completed"}),
        ("POST", "/v1/sub-agents/none/messages", {"role": "user", "content": "x"}),
        ("GET", "/v1/sub-agents/none/messages", None),
        ("GET", f"/v1/sub-agents/{run['id']}/tool-calls/none", None),
        ("PATCH", f"/v1/sub-agents/{run['id']}/tool-calls/none", {"status": "success"}),
        ("POST", "/v1/tasks", TASK | {"space_id": "none"}),
    ):
        answer = service.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path


def test_others_see_their_own_tasks_and_write_none(guarded: Server, service: httpx.Client) -> None:
    task = service.post("/v1/tasks", json=TASK).json()
    mine = guarded.client_of("mia").post("/v1/tasks", json=TASK).json()
    mia = guarded.client_of("mia", "read", "write")
    assert [each["id"] for each in mia.get("/v1/tasks").json()["items"]] == [mine["id"]]
    assert mia.get(f"/v1/tasks/{mine['id']}").status_code == 200
    assert mia.get(f"/v1/tasks/{task['id']}").status_code == 404
    for method, path in (
        *(("POST", "/v1/tasks"), ("PATCH", f"/v1/tasks/{mine['id']}"), ("POST", "/v1/sub-agents"), ("GET", "/v1/sub-agents")),
        *(("GET", "/v1/sub-agents/x/messages"), ("POST", "/v1/sub-agents/x/messages"), ("PATCH", "/v1/sub-agents/x")),
    ):
        assert mia.request(method, path, json={}).status_code == 403, path


def test_a_task_for_the_engine_is_begun_at_once(service: httpx.Client) -> None:
    unknown = service.post("/v1/tasks", json={"name": "agent:nobody", "instruction": "Look."})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_agent")
    service.put("/v1/agents/helper", json={"model": "scripted:nobody"}).raise_for_status()
    task = service.post("/v1/tasks", json={"name": "agent:helper", "instruction": "Look."}).json()
    assert (task["executor"], task["status"], task["run_id"] is None) == ("engine", "running", False)
    refused = service.patch(f"/v1/tasks/{task['id']}", json={"status": "success"})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_external")
    service.put("/v1/agents/helper", json={"model": "theirs", "executor": "external"}).raise_for_status()
    task = service.post("/v1/tasks", json={"name": "agent:helper", "instruction": "Look."}).json()
    assert task["executor"] == "external"
    run = service.post("/v1/sub-agents", json={"task_id": task["id"]})
    assert (run.status_code, run.json()["status"]) == (200, "running")
