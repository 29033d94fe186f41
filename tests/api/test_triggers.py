"""Triggers and deliveries over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stigmergy import App
from stigmergy.agents.model import Definition
from stigmergy.settings import Settings
from support.loopback import LiveServer
from support.receiver import Receiver, answer

TRIGGER: dict[str, Any] = {"collection": "breadcrumbs", "event": "create", "condition": "schema_name == 'ask.v1'"}
SECRET = "whsec_" + "QUJD" * 10


class Service(httpx.AsyncClient):
    """An operator's client, and the receiver that it has its triggers call."""

    receiver: Receiver

    async def put_trigger(self, id: str = "t", **fields: Any) -> httpx.Response:
        retry = {"first_ms": 1, "tries": 2}
        action = {"type": "webhook", "url": f"{self.receiver.url}/hook", "secret": SECRET, "retry": retry}
        return await self.put(f"/v1/triggers/{id}", json=TRIGGER | {"action": action} | fields)

    async def ask(self, **headers: str) -> str:
        made = await self.post("/v1/breadcrumbs", json={"schema_name": "ask.v1"}, headers=headers)
        assert made.status_code == 201, made.text
        return made.json()["id"]

    async def deliveries(self, count: int, **query: str) -> list[dict[str, Any]]:
        async with asyncio.timeout(20):
            while True:
                found = (await self.get("/v1/deliveries", params=query)).json()["items"]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.01)


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[tuple[App, LiveServer]]:
    async with App(settings=Settings(store=str(tmp_path / "store.db"))) as app, LiveServer(app) as server:
        yield app, server


@pytest.fixture
async def service(live: tuple[App, LiveServer]) -> AsyncIterator[Service]:
    _, server = live
    token = await server.token("olga")
    async with Receiver() as receiver, Service(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as service:
        service.receiver = receiver
        yield service


async def test_a_trigger_is_put_shown_listed_changed_and_taken_away(service: Service) -> None:
    made = await service.put_trigger()
    assert (made.status_code, made.headers["etag"]) == (200, '"1"')
    shown = (await service.get("/v1/triggers/t")).json()
    assert (shown["event"], shown["condition"], shown["owner"]) == (["create"], "schema_name == 'ask.v1'", "olga")
    assert shown["action"]["secret"] == "whsec_…"
    again = await service.post("/v1/triggers", json=TRIGGER | {"id": "t", "action": "POST http://127.0.0.1:1/"})
    assert (again.status_code, again.json()["code"]) == (409, "already_exists")
    lost = await service.put("/v1/triggers/t", json=TRIGGER | {"action": "POST http://127.0.0.1:1/"}, headers={"If-Match": '"7"'})
    assert lost.status_code == 412
    await service.post("/v1/triggers", json=TRIGGER | {"id": "u", "action": "POST http://127.0.0.1:1/"})
    page = (await service.get("/v1/triggers", params={"limit": 1})).json()
    rest = (await service.get("/v1/triggers", params={"limit": 5, "cursor": page["cursor"]})).json()
    assert ([each["id"] for each in page["items"]], [each["id"] for each in rest["items"]]) == (["t"], ["u"])
    assert (await service.delete("/v1/triggers/u", headers={"If-Match": '"1"'})).status_code == 204
    assert (await service.get("/v1/triggers/u")).status_code == 404


async def test_a_delivery_is_listed_inspected_retried_and_discarded(service: Service) -> None:
    await service.put_trigger()
    service.receiver.always = answer(500, "no")
    id = await service.ask()
    (dead,) = await service.deliveries(1, status="dead", trigger="t")
    assert (dead["document_id"], dead["tries"], dead["answer"]["status"], dead["answer"]["body"]) == (id, 2, 500, "no")
    event = (await service.get(f"/v1/deliveries/{dead['id']}/event")).json()
    assert event == service.receiver.received[0].body
    service.receiver.always = answer(204)
    retried = await service.post(f"/v1/deliveries/{dead['id']}/retry")
    assert (retried.status_code, retried.json()["status"]) == (200, "pending")
    await service.deliveries(1, status="delivered")
    assert (await service.get(f"/v1/deliveries/{dead['id']}")).json()["status"] == "delivered"
    refused = await service.post(f"/v1/deliveries/{dead['id']}/discard")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    service.receiver.always = answer(404)
    await service.ask()
    await service.ask()
    (first, _) = await service.deliveries(2, status="dead")
    assert (await service.post(f"/v1/deliveries/{first['id']}/discard")).json()["status"] == "discarded"
    service.receiver.always = answer(204)
    assert (await service.post("/v1/triggers/t/retry")).json() == {"retried": 1}
    await service.deliveries(2, status="delivered")


async def test_the_cause_that_a_receiver_hands_back_is_that_of_what_it_writes(service: Service) -> None:
    await service.put_trigger(event="create", max_depth=2)
    await service.ask()
    (first,) = await service.receiver.got(1)
    await service.ask(**{"stigmergy-cause": first.headers["stigmergy-cause"]})
    _, second = await service.receiver.got(2)
    assert (second.body["event"]["cause"], second.body["event"]["depth"]) == (first.body["event"]["seq"], 1)
    await service.ask(**{"stigmergy-cause": second.headers["stigmergy-cause"]})
    async with asyncio.timeout(10):
        while not (found := (await service.get("/v1/triggers/t/diagnostics")).json()["items"]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert [each["kind"] for each in found] == ["depth_limit"]
    assert len(service.receiver.received) == 2
    wrong = await service.post("/v1/breadcrumbs", json={"schema_name": "ask.v1"}, headers={"stigmergy-cause": "soon"})
    assert (wrong.status_code, wrong.json()["where"]) == (422, "stigmergy-cause")


async def test_it_can_be_asked_what_a_change_would_fire_and_what_looks_wrong(service: Service) -> None:
    await service.put_trigger()
    await service.put_trigger("u", event="update (title='done')", condition=None)
    await service.put_trigger("off", enabled=False)
    change = {"collection": "breadcrumbs", "event": "update", "data": {"title": "done"}, "before": {"title": "done"}}
    told = {each["id"]: each for each in (await service.post("/v1/triggers/test", json=change)).json()["triggers"]}
    assert [each["fires"] for each in told.values()] == [False, False, False]
    assert "not so: it becomes so: title = 'done'" in told["u"]["why_not"]
    assert told["t"]["why_not"] == "the event is update, not create"
    assert told["off"]["why_not"] == "it is disabled"
    told = (await service.post("/v1/triggers/test", json=change | {"before": {"title": "x"}})).json()["triggers"]
    assert [each["id"] for each in told if each["fires"]] == ["u"]
    await service.ask()
    (delivery,) = await service.deliveries(1)
    told = (await service.post("/v1/triggers/test", json={"seq": delivery["seq"]})).json()["triggers"]
    assert [each["id"] for each in told if each["fires"]] == ["t"]
    assert (await service.post("/v1/triggers/test", json={"seq": 10_000})).status_code == 404
    assert (await service.post("/v1/triggers/test", json={})).status_code == 422
    checked = await service.post(
        "/v1/triggers/check",
        json={"triggers": [{"id": "x", "collection": "**", "event": "create", "action": "POST http://127.0.0.1:1/"}]},
    )
    assert [finding["code"] for finding in checked.json()["findings"]] == ["self_start"]
    broken = await service.post("/v1/triggers/check", json={"triggers": [{"id": "x"}]})
    assert (broken.status_code, broken.json()["where"]) == (422, "triggers[0]")


@pytest.mark.parametrize("view", ["context", "full"])
async def test_no_secret_is_told_to_who_follows_or_is_called(service: Service, live: tuple[App, LiveServer], view: str) -> None:
    await service.put_trigger("keys", collection="service_keys", condition=None)
    await service.put_trigger("rules", collection="rules", condition=None)
    await live[0].agents.put(Definition(name="ada", model="theirs", executor="external"))
    (await service.post("/v1/agents/ada/keys", json={})).raise_for_status()
    await service.put_trigger("late")
    for call in await service.receiver.got(2):
        assert SECRET not in str(call.body)
        assert call.document["data"].get("digest", "") == ""
    told = ""
    async with asyncio.timeout(20), service.stream("GET", "/v1/events", params={"after": "0", "view": view}) as feed:
        async for piece in feed.aiter_text():
            told += piece
            if '"id":"late"' in told:
                break
    assert "whsec_…" in told
    assert SECRET not in told
    assert '"digest":""' in told


async def test_triggers_and_deliveries_are_for_operators(live: tuple[App, LiveServer], service: Service) -> None:
    _, server = live
    await service.put_trigger()
    await service.ask()
    (delivery,) = await service.deliveries(1)
    token = await server.token("mia", "read", "write")
    async with httpx.AsyncClient(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as other:
        for method, path in (
            *(("GET", "/v1/triggers"), ("GET", "/v1/triggers/t"), ("DELETE", "/v1/triggers/t"), ("POST", "/v1/triggers/t/retry")),
            *(("GET", "/v1/triggers/t/diagnostics"), ("GET", "/v1/deliveries"), ("GET", f"/v1/deliveries/{delivery['id']}")),
            *(("GET", f"/v1/deliveries/{delivery['id']}/event"), ("POST", f"/v1/deliveries/{delivery['id']}/retry")),
            ("POST", f"/v1/deliveries/{delivery['id']}/discard"),
        ):
            assert (await other.request(method, path)).status_code == 403, path
        for path, body in (("/v1/triggers/check", {"triggers": []}), ("/v1/triggers/test", {"seq": 1})):
            assert (await other.post(path, json=body)).status_code == 403, path
        assert (await other.put("/v1/triggers/t", json=TRIGGER | {"action": "POST http://127.0.0.1:1/"})).status_code == 403
