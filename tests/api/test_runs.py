"""Runs over HTTP: started, looked at, spoken to, answered for, stopped; and by whom."""

import asyncio
from datetime import datetime
from typing import Any

import httpx
import pytest

from stigmergy import App
from support.loopback import LiveServer
from support.run_service import PATIENCE, Connect, code, done, ended, started, waiting
from support.team import Slow

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"


# ---- starting ----


async def test_a_run_is_started_and_its_result_is_there_when_it_is_waited_for(mia: httpx.AsyncClient) -> None:
    body = {"agent": "lead", "instruction": "price BTC", "metadata": {"ticket": 7}}
    answer = await mia.post("/v1/runs", json=body, params={"wait": PATIENCE})
    run = answer.json()
    assert (answer.status_code, run["status"], run["result"]) == (201, "completed", "It is: 97000.0")
    assert (run["owner_id"], run["agent"], run["entity_id"], run["metadata"]) == ("mia", "lead", "agent:lead", {"ticket": 7})
    assert (run["step"], run["cause"], run["parent_run_id"], run["error"]) == (2, {"kind": "api"}, None, None)
    assert run["created_at"].endswith("Z")
    assert (run["variables"], run["wait_state"]) == ({}, None)
    again = (await mia.get(f"/v1/runs/{run['id']}")).json()
    assert again == run


async def test_who_does_not_wait_long_enough_is_told_how_far_it_is(mia: httpx.AsyncClient, slow: Slow) -> None:
    answer = await mia.post("/v1/runs", json={"agent": "slow"}, params={"wait": 0.05})
    assert answer.json()["status"] in ("queued", "running")
    slow.go(3)
    assert (await ended(mia, answer.json()["id"]))["result"] == "one two three"


async def test_a_server_that_closes_keeps_nobody_waiting(mia: httpx.AsyncClient, live_server: LiveServer, slow: Slow) -> None:
    body = {"agent": "slow", "instruction": "go"}
    asked = asyncio.create_task(mia.post("/v1/runs", json=body, params={"wait": 20}))
    slow.go()
    await slow.began.wait()
    async with asyncio.timeout(5):
        live_server.end_feeds()
        assert (await asked).json()["status"] == "running"


async def test_the_same_key_starts_one_run(mia: httpx.AsyncClient, connect: Connect) -> None:
    body, headers = {"agent": "lead", "instruction": "hello"}, {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(mia.post("/v1/runs", json=body, headers=headers) for _ in range(5)))
    assert len({each.json()["id"] for each in answers}) == 1
    assert [each.status_code for each in answers] == [201] * 5
    other = await mia.post("/v1/runs", json=body | {"instruction": "bye"}, headers=headers)
    assert code(other) == (409, "idempotency_key_reused")
    tom = await connect("tom", "write")
    assert (await tom.post("/v1/runs", json=body, headers=headers)).json()["id"] != answers[0].json()["id"]
    assert len((await mia.get("/v1/runs")).json()["items"]) == 1


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        ({"agent": "nobody"}, 404, "unknown_agent"),
        ({"agent": ""}, 422, "invalid"),
        ({"agent": "lead", "instruction": ""}, 422, "invalid"),
        ({"agent": "lead", "owner_id": "tom"}, 422, "invalid"),
        ({"agent": "lead", "space_id": "not-mine"}, 404, "not_found"),
        ({"agent": "lead", "metadata": {"answers": ["a", "b"]}}, 422, "invalid"),
        ({"agent": "lead", "metadata": {"much": "x" * 20_000}}, 422, "too_large"),
    ],
)
async def test_what_cannot_be_started_says_why_and_starts_nothing(
    mia: httpx.AsyncClient, body: Any, status: int, name: str
) -> None:
    assert code(await mia.post("/v1/runs", json=body)) == (status, name)
    assert (await mia.get("/v1/runs")).json()["items"] == []


# ---- looking ----


async def test_runs_are_listed_by_agent_status_parent_and_space_in_pages(mia: httpx.AsyncClient) -> None:
    first = await done(mia, "hello")
    second = await done(mia, "delegate this")
    child = (await mia.get("/v1/runs", params={"agent": "helper"})).json()["items"][0]

    async def ids(**chosen: Any) -> list[str]:
        return [run["id"] for run in (await mia.get("/v1/runs", params=chosen)).json()["items"]]

    assert await ids() == [second["id"], child["id"], first["id"]]
    assert await ids(agent="lead") == [second["id"], first["id"]]
    assert await ids(parent=second["id"]) == [child["id"]]
    assert await ids(space=first["space_id"]) == [first["id"]]
    assert await ids(status="completed", agent="helper") == [child["id"]]
    assert await ids(status="failed") == await ids(parent=first["id"]) == []
    page = (await mia.get("/v1/runs", params={"limit": 2})).json()
    rest = (await mia.get("/v1/runs", params={"limit": 2, "cursor": page["cursor"]})).json()
    assert [run["id"] for run in rest["items"]] == [first["id"]]
    assert rest["cursor"] is None
    assert (await mia.get("/v1/runs", params={"status": "asleep"})).status_code == 422
    assert (await mia.get("/v1/runs", params={"cursor": "x"})).status_code == 422


async def test_the_whole_tree_is_read_from_any_of_its_runs(mia: httpx.AsyncClient) -> None:
    run = await done(mia, "delegate this")
    tree = (await mia.get(f"/v1/runs/{run['id']}/tree")).json()
    (child,) = tree["children"]
    assert (tree["run"]["id"], child["run"]["agent"], child["run"]["result"]) == (run["id"], "helper", "helped with this")
    assert (await mia.get(f"/v1/runs/{child['run']['id']}/tree")).json() == tree


async def test_the_log_of_a_run_is_read(mia: httpx.AsyncClient) -> None:
    id = (await done(mia, "price BTC"))["id"]
    said = (await mia.get(f"/v1/runs/{id}/messages")).json()["items"]
    assert [(each["role"], each["content"]) for each in said] == [
        ("system", "You lead."),
        ("user", "price BTC"),
        ("assistant", ""),
        ("tool", "97000.0"),
        ("assistant", "It is: 97000.0"),
    ]
    page = (await mia.get(f"/v1/runs/{id}/messages", params={"limit": 2})).json()
    rest = (await mia.get(f"/v1/runs/{id}/messages", params={"limit": 4, "cursor": page["cursor"]})).json()
    assert page["items"] + rest["items"] == said
    (call,) = (await mia.get(f"/v1/runs/{id}/tool-calls")).json()["items"]
    assert (call["tool_name"], call["args"], call["status"], call["result"]) == ("price", {"symbol": "BTC"}, "success", 97000.0)
    (thought,) = (await mia.get(f"/v1/runs/{id}/thoughts")).json()["items"]
    assert (thought["content"], thought["confidence"]) == ("I call price.", 0.9)
    points = (await mia.get(f"/v1/runs/{id}/checkpoints")).json()["items"]
    assert [(each["step"], each["reason"]) for each in points] == [(1, "step_complete"), (2, "step_complete")]
    positions = [*(each["pos"] for each in said), thought["pos"], call["opened_pos"], call["settled_pos"]]
    assert sorted(positions) == list(range(1, len(positions) + 1))


async def test_messages_are_told_in_the_shape_of_openai_too(mia: httpx.AsyncClient) -> None:
    id = (await done(mia, "price BTC"))["id"]
    answer = (await mia.get(f"/v1/runs/{id}/messages", params={"format": "openai"})).json()
    assert answer["messages"] == [
        {"role": "system", "content": "You lead."},
        {"role": "user", "content": "price BTC"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1_1", "type": "function", "function": {"name": "price", "arguments": '{"symbol":"BTC"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1_1", "content": "97000.0"},
        {"role": "assistant", "content": "It is: 97000.0"},
    ]
    paged: list[Any] = []
    cursor = None
    while True:
        params = {"format": "openai", "limit": 1} | ({} if cursor is None else {"cursor": cursor})
        page = (await mia.get(f"/v1/runs/{id}/messages", params=params)).json()
        paged += page["messages"]
        if (cursor := page["cursor"]) is None:
            break
    assert paged == answer["messages"]


async def test_the_prompt_of_any_step_is_shown(mia: httpx.AsyncClient) -> None:
    id = (await done(mia, "price BTC"))["id"]
    prompt = (await mia.get(f"/v1/runs/{id}/steps/2/prompt")).json()
    assert prompt["messages"][0] == {"role": "system", "content": "You lead."}
    asked, called, came = [each for each in prompt["messages"] if each["role"] != "system"]
    assert (asked["content"], called["tool_calls"][0]["name"], came["content"]) == ("price BTC", "price", "97000.0")
    assert (prompt["step"], prompt["made_of"]["upto"]) == (2, 7)
    assert "price" in [tool["name"] for tool in prompt["tools"]]
    assert code(await mia.get(f"/v1/runs/{id}/steps/3/prompt")) == (404, "not_found")


# ---- having a say ----


async def test_a_completed_run_goes_on_with_what_is_said_to_it(mia: httpx.AsyncClient) -> None:
    id = (await done(mia, "hello"))["id"]
    headers = {"Idempotency-Key": "once"}
    answers = [await mia.post(f"/v1/runs/{id}/messages", json={"text": "and this"}, headers=headers) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    run = await ended(mia, id)
    assert (run["result"], run["step"]) == ("You said: and this", 2)
    await mia.post(f"/v1/runs/{id}/messages", json={"text": "fail"})
    await ended(mia, id)


async def test_a_canceled_run_stays_so(mia: httpx.AsyncClient) -> None:
    id = (await started(mia, "", agent="slow") if False else (await mia.post("/v1/runs", json={"agent": "slow"})).json())["id"]
    answer = await mia.post(f"/v1/runs/{id}/cancel", json={"reason": "no longer needed"})
    assert (answer.status_code, answer.json()["status"], answer.json()["error"]) == (200, "canceled", "no longer needed")
    assert (await mia.post(f"/v1/runs/{id}/cancel", json={})).json()["error"] == "no longer needed"
    assert code(await mia.post(f"/v1/runs/{id}/messages", json={"text": "wake up"})) == (409, "invalid_transition")


async def test_a_client_gives_the_result_of_its_tool_once(mia: httpx.AsyncClient) -> None:
    id = (await started(mia, "here"))["id"]
    wait = await waiting(mia, id)
    assert (wait["kind"], wait["for_entity"], wait["details"]["tool"]) == ("tool", "mia", "here")
    results = f"/v1/runs/{id}/tool-results"
    assert code(await mia.post(results, json={"tool_call_id": "call_9_9", "result": 1})) == (404, "not_found")
    assert code(await mia.post(results, json={"tool_call_id": wait["call_id"]})) == (422, "invalid")
    assert code(await mia.post(results, json={"tool_call_id": wait["call_id"], "result": 1, "error": "x"})) == (422, "invalid")
    both = await asyncio.gather(*(mia.post(results, json={"tool_call_id": wait["call_id"], "result": n}) for n in (1, 2)))
    assert sorted(each.status_code for each in both) == [200, 409]
    assert (await ended(mia, id))["result"] in ("It is: 1", "It is: 2")
    assert code(await mia.post(results, json={"tool_call_id": wait["call_id"], "result": 3})) == (409, "not_waiting")


async def test_null_is_a_result_and_an_error_is_told_to_the_agent(mia: httpx.AsyncClient) -> None:
    for given, result in (({"result": None}, "It is: null"), ({"error": "no GPS"}, "It is: error: no GPS")):
        id = (await started(mia, "here"))["id"]
        wait = await waiting(mia, id)
        answer = await mia.post(f"/v1/runs/{id}/tool-results", json={"tool_call_id": wait["call_id"]} | given)
        assert answer.status_code == 200
        assert (await ended(mia, id))["result"] == result


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"decision": "approve"}, "It is: dropped users for mia"),
        ({"decision": "modify", "args": {"table": "logs"}}, "It is: dropped logs for mia"),
    ],
)
async def test_an_approval_is_answered_in_the_inbox(mia: httpx.AsyncClient, answer: Any, result: str) -> None:
    id = (await started(mia, "drop users"))["id"]
    wait = await waiting(mia, id)
    assert (wait["kind"], wait["question"], wait["status"]) == ("approval", "May lead call drop?", "open")
    state = (await mia.get(f"/v1/runs/{id}")).json()["wait_state"]
    assert (state["kind"], state["waitingFor"][0]["entityId"], state["timeout"]) == ("approval", "mia", 600_000)
    assert datetime.fromisoformat(state["startedAt"]) == datetime.fromisoformat(wait["created_at"])
    assert code(await mia.post(f"/v1/waits/{wait['id']}/answer", json={"decision": "retry"})) == (422, "invalid")
    assert code(await mia.post(f"/v1/waits/{wait['id']}/answer", json={"text": "yes"})) == (422, "invalid")
    assert code(await mia.post(f"/v1/waits/{wait['id']}/answer", json={})) == (422, "invalid")
    assert (await mia.post(f"/v1/waits/{wait['id']}/answer", json=answer)).status_code == 200
    assert (await ended(mia, id))["result"] == result
    assert code(await mia.post(f"/v1/waits/{wait['id']}/answer", json=answer)) == (409, "not_waiting")
    told = (await mia.get(f"/v1/waits/{wait['id']}")).json()
    assert (told["status"], told["answered_by"], told["answer"]) == ("answered", "mia", answer)


async def test_a_question_is_answered_in_the_inbox(mia: httpx.AsyncClient) -> None:
    id = (await started(mia, "ask Which one?"))["id"]
    wait = await waiting(mia, id)
    assert (wait["kind"], wait["question"]) == ("reply", "Which one?")
    assert code(await mia.post(f"/v1/waits/{wait['id']}/answer", json={"decision": "approve"})) == (422, "invalid")
    assert (await mia.post(f"/v1/waits/{wait['id']}/answer", json={"text": "the red one"})).status_code == 200
    assert "the red one" in (await ended(mia, id))["result"]
    assert (await mia.get("/v1/waits")).json()["items"] == []


# ---- who may ----


async def in_a_space(app: App, *members: str) -> str:
    space = await app.spaces_of("mia").create("talk", members=members)
    return space.id


async def test_a_run_is_its_owners_members_see_how_it_stands_and_strangers_nothing(app: App, connect: Connect) -> None:
    mia, tom, eve = [await connect(entity, "read", "write") for entity in ("mia", "tom", "eve")]
    space = await in_a_space(app, "tom")
    run = await done(mia, "price BTC", space_id=space)
    id = run["id"]
    seen = (await tom.get(f"/v1/runs/{id}")).json()
    assert (seen["result"], "variables" in seen, "wait_state" in seen) == ("It is: 97000.0", False, False)
    assert [each["id"] for each in (await tom.get("/v1/runs")).json()["items"]] == [id]
    assert (await tom.get(f"/v1/runs/{id}/tree")).status_code == 200
    looks = ["messages", "tool-calls", "thoughts", "checkpoints", "steps/1/prompt"]
    says = {"messages": {"text": "x"}, "cancel": {}, "tool-results": {"tool_call_id": "call_1_1", "result": 1}}
    assert (await eve.get("/v1/runs")).json()["items"] == []
    assert (await eve.get("/v1/runs", params={"space": space})).json()["items"] == []
    for path in looks:
        assert code(await tom.get(f"/v1/runs/{id}/{path}")) == (403, "forbidden"), path
        assert code(await eve.get(f"/v1/runs/{id}/{path}")) == (404, "not_found"), path
    for path, body in says.items():
        assert code(await tom.post(f"/v1/runs/{id}/{path}", json=body)) == (403, "forbidden"), path
        assert code(await eve.post(f"/v1/runs/{id}/{path}", json=body)) == (404, "not_found"), path
    for path in ("", "/tree", "/events"):
        assert code(await eve.get(f"/v1/runs/{id}{path}")) == (404, "not_found"), path
    assert code(await eve.post("/v1/runs", json={"agent": "lead", "space_id": space})) == (404, "not_found")
    assert (await mia.get(f"/v1/runs/{id}")).json() == run


async def test_an_operator_may_do_all_that_an_owner_may(mia: httpx.AsyncClient, connect: Connect) -> None:
    olga = await connect("olga", "read", "write", "operate")
    run = await done(mia, "price BTC")
    assert (await olga.get(f"/v1/runs/{run['id']}")).json() == run
    assert len((await olga.get(f"/v1/runs/{run['id']}/messages")).json()["items"]) == 5
    assert (await olga.post(f"/v1/runs/{run['id']}/messages", json={"text": "and?"})).status_code == 201
    id = (await started(mia, "here"))["id"]
    await waiting(olga, id)
    assert (await olga.post(f"/v1/runs/{id}/cancel", json={})).json()["status"] == "canceled"


async def test_what_waits_is_answered_by_whom_it_is_for_or_an_operator(mia: httpx.AsyncClient, connect: Connect) -> None:
    tom, olga = await connect("tom", "read", "write"), await connect("olga", "read", "write", "operate")
    id = (await started(mia, "drop users"))["id"]
    wait = await waiting(mia, id)
    for path in (f"/v1/waits/{wait['id']}", f"/v1/waits/{NOBODY}"):
        assert code(await tom.get(path)) == (404, "not_found")
        assert code(await tom.post(f"{path}/answer", json={"decision": "approve"})) == (404, "not_found")
    assert [(await each.get("/v1/waits")).json()["items"] for each in (mia, tom, olga)] == [[wait], [], [wait]]
    mine = {"for": "me"}
    assert [(await each.get("/v1/waits", params=mine)).json()["items"] for each in (mia, tom, olga)] == [[wait], [], []]
    assert (await olga.post(f"/v1/waits/{wait['id']}/answer", json={"decision": "reject", "reason": "no"})).status_code == 200
    assert "no" in (await ended(mia, id))["result"]
