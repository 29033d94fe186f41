"""Agents over HTTP: looked at by readers, put and taken away by operators."""

from typing import Any

import httpx
import pytest

from support.run_service import Connect, code, done, ended, started

DEFINITION: dict[str, Any] = {"model": "scripted:nobody", "instructions": "Answer.", "description": "Answers."}
# The first form of a config, of before there was `visibility`.
OLD_CONFIG: dict[str, Any] = {
    "displayName": "The Old One",
    "model": "scripted:nobody",
    "systemPrompt": "Answer.",
    "maxSteps": 3,
    "tools": [
        {
            "name": "lookup",
            "executionType": "gateway",
            "displayTool": False,
            "execution": {"method": "GET", "url": "https://api.example/{{input.q}}", "headers": {"X-Key": "{{secret.KEY}}"}},
            "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}},
        }
    ],
}


@pytest.fixture
async def olga(connect: Connect) -> httpx.AsyncClient:
    return await connect("olga", "read", "write", "operate")


async def test_the_agents_of_a_program_are_listed_and_stay_its_own(mia: httpx.AsyncClient, olga: httpx.AsyncClient) -> None:
    items = (await mia.get("/v1/agents")).json()["items"]
    assert [each["name"] for each in items] == ["helper", "lead", "slow"]
    assert {(each["owner"], each["of_program"], each["definition"]) for each in items} == {("app", True, None)}
    page = (await mia.get("/v1/agents", params={"limit": 2})).json()
    rest = (await mia.get("/v1/agents", params={"limit": 2, "cursor": page["cursor"]})).json()
    assert (page["items"] + rest["items"], rest["cursor"]) == (items, None)
    lead = (await olga.get("/v1/agents/lead")).json()
    assert (lead["tools"], lead["delegates"]) == (["price", "drop", "fail", "here"], ["helper"])
    assert lead["definition"]["instructions"] == "You lead."
    assert code(await olga.delete("/v1/agents/lead")) == (409, "of_program")
    assert code(await olga.get("/v1/agents/nobody")) == (404, "unknown_agent")


async def test_a_definition_is_put_changed_shown_by_version_and_taken_away(
    mia: httpx.AsyncClient, olga: httpx.AsyncClient
) -> None:
    made = await olga.put("/v1/agents/clerk", json=DEFINITION)
    assert (made.status_code, made.headers["etag"], made.json()["notices"]) == (200, '"1"', [])
    agent = made.json()["agent"]
    assert (agent["name"], agent["owner"], agent["of_program"], agent["version"]) == ("clerk", "olga", False, 1)
    assert (await olga.put("/v1/agents/clerk", json=DEFINITION)).json()["agent"] == agent
    changed = await olga.put("/v1/agents/clerk", json=DEFINITION | {"instructions": "Answer well."}, headers={"If-Match": '"1"'})
    assert changed.headers["etag"] == '"2"'
    late = await olga.put("/v1/agents/clerk", json=DEFINITION, headers={"If-Match": '"1"'})
    assert code(late) == (412, "version_conflict")
    versions = (await olga.get("/v1/agents/clerk/versions")).json()
    assert [each["definition"]["instructions"] for each in versions["items"]] == ["Answer well.", "Answer."]
    first = (await olga.get("/v1/agents/clerk/versions", params={"limit": 1})).json()
    second = (await olga.get("/v1/agents/clerk/versions", params={"limit": 5, "cursor": first["cursor"]})).json()
    assert first["items"] + second["items"] == versions["items"]
    assert code(await olga.delete("/v1/agents/clerk", headers={"If-Match": '"1"'})) == (412, "version_conflict")
    assert (await olga.delete("/v1/agents/clerk")).status_code == 204
    assert code(await mia.get("/v1/agents/clerk")) == (404, "unknown_agent")
    assert code(await olga.delete("/v1/agents/clerk")) == (404, "unknown_agent")
    assert code(await mia.post("/v1/runs", json={"agent": "clerk"})) == (404, "unknown_agent")
    assert (await olga.put("/v1/agents/clerk", json=DEFINITION)).headers["etag"] == '"4"'


async def test_a_run_goes_on_with_the_definition_it_began_with(olga: httpx.AsyncClient) -> None:
    script = DEFINITION | {"tools": [{"name": "here", "executionType": "client"}]}
    await olga.put("/v1/agents/clerk", json=script)
    run = await started(olga, "hello", agent="clerk")
    await olga.put("/v1/agents/clerk", json=script | {"instructions": "Another."})
    assert (await ended(olga, run["id"]))["agent_version"] == 1
    await olga.delete("/v1/agents/clerk")
    said = (await olga.get(f"/v1/runs/{run['id']}/messages")).json()["items"]
    assert said[0]["content"] == "Answer."


async def test_an_older_config_is_taken_with_notices_of_what_was_changed(mia: httpx.AsyncClient, olga: httpx.AsyncClient) -> None:
    put = (await olga.put("/v1/agents/old", json=OLD_CONFIG)).json()
    assert put["notices"] == ["tools[0]: displayTool False was migrated to visibility 'hidden'"]
    assert put["agent"]["display_name"] == "The Old One"
    assert put["agent"]["definition"]["limits"] == {"max_steps": 3}
    catalog = (await mia.get("/v1/agents/old/tools")).json()
    tool = next(each for each in catalog["tools"] if each["name"] == "lookup")
    assert "final_answer" in [each["name"] for each in catalog["tools"]]
    assert (tool["name"], tool["execution_type"], tool["visibility"]) == ("lookup", "gateway", "hidden")
    assert "execution" not in tool
    assert "secret.KEY" not in (await mia.get("/v1/agents/old")).text


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "config"),
        ({"model": ""}, "model"),
        (DEFINITION | {"name": "another"}, "name"),
        (DEFINITION | {"tools": [{"name": "no name!"}]}, "tools[0].name"),
        (DEFINITION | {"tools": [{"name": "x", "inputSchema": {"type": 7}}]}, "tools[0].inputSchema"),
        (DEFINITION | {"subscriptions": [{"role": "nothing"}]}, "subscriptions[0]"),
        (DEFINITION | {"code": ["model:code:lead"]}, "code"),
        (DEFINITION | {"unknown": 1}, "config"),
        ([], "body"),
    ],
)
async def test_a_definition_that_no_run_could_use_is_refused_with_its_place(
    olga: httpx.AsyncClient, body: Any, where: str
) -> None:
    answer = await olga.put("/v1/agents/clerk", json=body)
    assert answer.status_code == 422, answer.text
    assert str(answer.json()["where"]).startswith(where)
    assert code(await olga.get("/v1/agents/clerk")) == (404, "unknown_agent")


async def test_only_operators_define_agents(mia: httpx.AsyncClient, olga: httpx.AsyncClient) -> None:
    await olga.put("/v1/agents/clerk", json=DEFINITION)
    assert code(await mia.put("/v1/agents/clerk", json=DEFINITION | {"instructions": "Mine."})) == (403, "forbidden")
    assert code(await mia.delete("/v1/agents/clerk")) == (403, "forbidden")
    assert (await olga.get("/v1/agents/clerk")).json()["version"] == 1


async def test_a_tenants_own_agent_comes_before_the_programs(mia: httpx.AsyncClient, olga: httpx.AsyncClient) -> None:
    assert (await done(mia, "hello", agent="helper"))["result"] == "helped with hello"
    await olga.put("/v1/agents/helper", json=DEFINITION)
    names = [(each["name"], each["of_program"]) for each in (await mia.get("/v1/agents")).json()["items"]]
    assert names == [("helper", False), ("lead", True), ("slow", True)]
    await olga.delete("/v1/agents/helper")
    assert (await done(mia, "again", agent="helper"))["result"] == "helped with again"
