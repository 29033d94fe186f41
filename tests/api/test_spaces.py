"""Spaces over HTTP: who may do what there, and how it is answered."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from stigmergy.kernel.feed import edges
from stigmergy.runs.model import ToolCall
from stigmergy.spaces.model import LONGEST_MESSAGE
from support.server import Server
from support.talk import add_agents, client_call, runs_of

Person = Callable[[str], httpx.Client]


@pytest.fixture
def people(guarded: Server) -> Person:
    """Somebody who reads and writes, and is no operator."""
    known: dict[str, httpx.Client] = {}
    return lambda name: known.setdefault(name, guarded.client_of(name, "read", "write"))


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def space_with(client: httpx.Client, *members: str, **more: Any) -> str:
    answer = client.post("/v1/spaces", json={"name": "talk", "members": list(members)} | more)
    return answer.raise_for_status().json()["id"]


def say(client: httpx.Client, space: str, content: str, **more: Any) -> dict[str, Any]:
    return client.post(f"/v1/spaces/{space}/messages", json={"content": content} | more).raise_for_status().json()


# ---- spaces and members ----


def test_a_space_is_its_members_and_nobody_elses(people: Person) -> None:
    mia, tom, eve = people("mia"), people("tom"), people("eve")
    space = space_with(mia, "tom", about="what to build")
    message = say(mia, space, "hello")
    assert [each["id"] for each in tom.get("/v1/spaces").json()["items"]] == [space]
    assert eve.get("/v1/spaces").json() == {"items": [], "cursor": None}
    address = f"/v1/spaces/{space}"
    for method, path, body in (
        ("GET", address, None),
        ("PATCH", address, {"name": "mine"}),
        ("DELETE", address, None),
        ("GET", f"{address}/members", None),
        ("PUT", f"{address}/members/eve", None),
        ("DELETE", f"{address}/members/tom", None),
        ("GET", f"{address}/messages", None),
        ("POST", f"{address}/messages", {"content": "let me in"}),
        ("GET", f"{address}/messages/{message['id']}", None),
        ("GET", f"{address}/messages/{message['id']}/history", None),
        ("GET", f"{address}/messages/{message['id']}/seen", None),
        ("PATCH", f"{address}/messages/{message['id']}", {"content": "x"}),
        ("DELETE", f"{address}/messages/{message['id']}", None),
        ("POST", f"{address}/read", {"message_id": message["id"]}),
        ("POST", f"{address}/typing", {}),
        ("GET", f"{address}/events", None),
    ):
        assert refused(eve.request(method, path, json=body)) == (404, "not_found"), (method, path)
    assert tom.get(address).json()["about"] == "what to build"


def test_who_comes_and_goes_is_seen(people: Person) -> None:
    mia, tom = people("mia"), people("tom")
    space = space_with(mia)
    assert mia.put(f"/v1/spaces/{space}/members/tom").json()["entity_id"] == "tom"
    assert mia.put(f"/v1/spaces/{space}/members/tom").status_code == 200
    assert [each["entity_id"] for each in tom.get(f"/v1/spaces/{space}/members").json()["items"]] == ["mia", "tom"]
    assert refused(mia.put(f"/v1/spaces/{space}/members/agent:nobody")) == (404, "unknown_agent")
    assert tom.delete(f"/v1/spaces/{space}/members/tom").status_code == 204
    assert tom.get(f"/v1/spaces/{space}").status_code == 404


def test_a_space_is_changed_under_its_version_and_closed_by_its_owner(people: Person) -> None:
    mia, tom = people("mia"), people("tom")
    space = space_with(mia, "tom")
    etag = mia.get(f"/v1/spaces/{space}").headers["etag"]
    changed = tom.patch(f"/v1/spaces/{space}", json={"name": "new", "metadata": {"a": 1}}, headers={"If-Match": etag})
    assert (changed.json()["name"], changed.json()["version"], changed.headers["etag"]) == ("new", 2, '"2"')
    stale = mia.patch(f"/v1/spaces/{space}", json={"name": "newer"}, headers={"If-Match": etag})
    assert refused(stale) == (412, "version_conflict")
    assert refused(tom.delete(f"/v1/spaces/{space}")) == (409, "conflict")
    assert mia.delete(f"/v1/spaces/{space}").status_code == 204
    assert mia.get(f"/v1/spaces/{space}").status_code == 404


def test_spaces_are_listed_in_pages(people: Person) -> None:
    made = [space_with(people("mia")) for _ in range(5)]
    found: list[str] = []
    cursor = None
    while True:
        page = people("mia").get("/v1/spaces", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        found += [each["id"] for each in page["items"]]
        if (cursor := page["cursor"]) is None:
            break
    assert found == made


def test_a_space_made_twice_under_one_key_is_one_space(people: Person) -> None:
    first, again = (people("mia").post("/v1/spaces", json={"name": "x"}, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json() == again.json()
    assert len(people("mia").get("/v1/spaces").json()["items"]) == 1


# ---- messages ----


def test_a_message_posted_twice_under_one_key_is_one_message(people: Person) -> None:
    mia = people("mia")
    space = space_with(mia, "tom")
    path, headers = f"/v1/spaces/{space}/messages", {"Idempotency-Key": "once"}
    first, again = (mia.post(path, json={"content": "hello @tom"}, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code, first.json()) == (201, 201, again.json())
    assert refused(mia.post(path, json={"content": "other"}, headers=headers)) == (409, "idempotency_key_reused")
    assert (first.json()["seq"], first.json()["mentions"]) == (1, ["tom"])
    assert say(mia, space, "next")["seq"] == 2


def test_messages_are_read_from_either_end(people: Person) -> None:
    mia = people("mia")
    space = space_with(mia, "tom")
    said = [say(mia, space, f"message {number}")["seq"] for number in range(1, 6)]
    path = f"/v1/spaces/{space}/messages"
    first = mia.get(path, params={"limit": 2}).json()
    rest = mia.get(path, params={"limit": 5, "cursor": first["cursor"]}).json()
    assert [each["seq"] for each in first["items"] + rest["items"]] == said[::-1]
    assert rest["cursor"] is None
    assert [each["seq"] for each in mia.get(path, params={"after": 3}).json()["items"]] == [4, 5]
    assert refused(mia.get(path, params={"after": 3, "cursor": "4"})) == (422, "invalid")


def test_an_edit_and_a_deletion_are_changes_under_a_version(people: Person) -> None:
    mia, tom = people("mia"), people("tom")
    space = space_with(mia, "tom")
    message = say(mia, space, "helo")
    path = f"/v1/spaces/{space}/messages/{message['id']}"
    edited = mia.patch(path, json={"content": "hello"}, headers={"If-Match": '"1"'})
    assert (edited.json()["version"], edited.json()["seq"], edited.headers["etag"]) == (2, 1, '"2"')
    assert refused(mia.patch(path, json={"content": "hi"}, headers={"If-Match": '"1"'})) == (412, "version_conflict")
    assert refused(tom.patch(path, json={"content": "mine"})) == (409, "conflict")
    assert refused(tom.delete(path)) == (409, "conflict")
    gone = mia.delete(path, headers={"If-Match": '"2"'}).json()
    assert (gone["deleted"], gone["content"], gone["seq"]) == (True, "", 1)
    assert [each["content"] for each in tom.get(f"{path}/history").json()["items"]] == ["", "hello", "helo"]
    assert refused(mia.patch(path, json={"content": "again"})) == (404, "not_found")


def test_a_message_is_found_in_its_own_space_alone(people: Person) -> None:
    mia = people("mia")
    here, there = space_with(mia), space_with(mia)
    message = say(mia, here, "here")
    for method, body in (("GET", None), ("PATCH", {"content": "x"}), ("DELETE", None)):
        answer = mia.request(method, f"/v1/spaces/{there}/messages/{message['id']}", json=body)
        assert refused(answer) == (404, "not_found")


def test_bad_messages_are_refused_and_nothing_is_written(people: Person, guarded: Server) -> None:
    mia = people("mia")
    space = space_with(mia, "tom", "tim")
    people("tim").patch("/v1/entities/tim", json={"name": "Tom"}).raise_for_status()
    before = guarded.run(guarded.database.read(edges))
    for body, code in (
        ({"content": "hello @nobody"}, "unknown_name"),
        ({"content": "hello @Tom"}, "ambiguous_name"),
        ({"content": "x" * (LONGEST_MESSAGE + 1)}, "too_large"),
        ({"content": " "}, "invalid"),
        ({}, "invalid"),
        ({"content": "x", "mentions": ["eve"]}, "unknown_name"),
        ({"content": "x", "reply_to": "nothing"}, "not_found"),
        ({"content": "x", "author": "tom"}, "invalid"),
        ({"content": "x", "role": "system"}, "invalid"),
        ({"content": "x", "id": "a/b"}, "invalid"),
    ):
        answer = mia.post(f"/v1/spaces/{space}/messages", json=body)
        assert refused(answer) == (422, code), body
    assert "@tim (Tom)" in mia.post(f"/v1/spaces/{space}/messages", json={"content": "hello @Tom"}).json()["detail"]
    assert guarded.run(guarded.database.read(edges)) == before


def test_a_mention_starts_a_run(guarded: Server, people: Person) -> None:
    guarded.write(add_agents, "ada", "bob")
    mia = people("mia")
    space = space_with(mia, "agent:ada", "agent:bob")
    say(mia, space, "no one in particular")
    message = say(mia, space, "@ada, what is it?")
    runs = guarded.run(guarded.database.read(runs_of, "ada"))
    assert [(run.cause.kind, run.cause.message_id) for run in runs] == [("mention", message["id"])]
    assert guarded.run(guarded.database.read(runs_of, "bob")) == []


def test_who_has_read_a_message_is_seen(people: Person) -> None:
    mia, tom = people("mia"), people("tom")
    space = space_with(mia, "tom", "tim")
    one, two = say(mia, space, "one"), say(mia, space, "two")

    def seen(message: dict[str, Any]) -> list[str]:
        items = mia.get(f"/v1/spaces/{space}/messages/{message['id']}/seen").json()["items"]
        return [each["entity_id"] for each in items]

    read = tom.post(f"/v1/spaces/{space}/read", json={"message_id": one["id"]}).json()
    assert (read["last_processed_seq"], read["last_processed_message_id"]) == (1, one["id"])
    assert (seen(one), seen(two)) == (["mia", "tom"], ["mia"])
    assert refused(tom.post(f"/v1/spaces/{space}/read", json={"message_id": "nothing"})) == (404, "not_found")


# ---- entities and what they keep ----


def test_what_an_entity_keeps_is_its_own_and_an_operators(people: Person, guarded: Server) -> None:
    mia, eve, operator = people("mia"), people("eve"), guarded.client_of("olga")
    space_with(mia)
    put = mia.put("/v1/entities/mia/memories/colour", json={"value": {"is": "green"}, "importance": 0.9})
    assert (put.json()["value"], put.json()["version"]) == ({"is": "green"}, 1)
    goal = mia.post("/v1/entities/mia/goals", json={"text": "be done", "priority": 3}).json()
    changed = mia.patch(f"/v1/entities/mia/goals/{goal['id']}", json={"status": "done"}).json()
    assert (changed["status"], changed["text"]) == ("done", "be done")
    for client in (mia, operator):
        assert [each["key"] for each in client.get("/v1/entities/mia/memories").json()["items"]] == ["colour"]
        assert len(client.get("/v1/entities/mia/goals", params={"status": "done"}).json()["items"]) == 1
    for method, path, body in (
        ("GET", "memories", None),
        ("PUT", "memories/colour", {"value": 1}),
        ("DELETE", "memories/colour", None),
        ("GET", "goals", None),
        ("POST", "goals", {"text": "x"}),
        ("PATCH", f"goals/{goal['id']}", {"text": "x"}),
        ("DELETE", f"goals/{goal['id']}", None),
    ):
        assert refused(eve.request(method, f"/v1/entities/mia/{path}", json=body)) == (403, "forbidden")
    assert refused(eve.patch("/v1/entities/mia", json={"name": "Eve"})) == (403, "forbidden")
    assert mia.delete("/v1/entities/mia/memories/colour").status_code == 204
    assert mia.delete(f"/v1/entities/mia/goals/{goal['id']}").status_code == 204
    assert refused(mia.delete(f"/v1/entities/mia/goals/{goal['id']}")) == (404, "not_found")


def test_entities_are_listed_and_called_as_they_say(people: Person) -> None:
    space = space_with(people("mia"), "tom")
    assert people("tom").patch("/v1/entities/tom", json={"name": "Tom Riddle"}).json()["name"] == "Tom Riddle"
    found = people("mia").get("/v1/entities").json()["items"]
    assert [(each["id"], each["type"], each["name"]) for each in found] == [
        ("mia", "human", "mia"),
        ("tom", "human", "Tom Riddle"),
    ]
    assert say(people("mia"), space, "hello @Tom Riddle")["mentions"] == ["tom"]


def test_plans_are_made_for_agents_and_belong_to_who_made_them(people: Person, guarded: Server) -> None:
    guarded.write(add_agents, "ada")
    mia, eve = people("mia"), people("eve")
    plan = mia.post(
        "/v1/entities/agent:ada/plans", json={"what": "look", "cron": "0 9 * * *", "time_zone": "Europe/Berlin"}
    ).json()
    assert (plan["kind"], plan["owner_id"], plan["enabled"]) == ("cron", "mia", True)
    path = f"/v1/entities/agent:ada/plans/{plan['id']}"
    stopped = mia.patch(path, json={"enabled": False}).json()
    assert (stopped["enabled"], stopped["next_at"]) == (False, None)
    assert eve.get("/v1/entities/agent:ada/plans").json()["items"] == []
    assert refused(eve.patch(path, json={"enabled": True})) == (404, "not_found")
    assert refused(eve.delete(path)) == (404, "not_found")
    assert mia.delete(path).status_code == 204


def test_plans_that_make_no_sense_are_refused(people: Person, guarded: Server) -> None:
    guarded.write(add_agents, "ada")
    mia = people("mia")
    space_with(mia, "tom")
    before = guarded.run(guarded.database.read(edges))
    for body, code in (
        ({"what": "x", "cron": "every day"}, "invalid_cron"),
        ({"what": "x", "cron": "61 * * * *"}, "invalid_cron"),
        ({"what": "x", "cron": "0 0 30 2 *"}, "invalid_cron"),
        ({"what": "x", "cron": "0 9 * * *", "time_zone": "Mars/Olympus"}, "unknown_time_zone"),
        ({"what": "x", "at": "2001-01-01T00:00"}, "in_the_past"),
        ({"what": "x", "at": "tomorrow"}, "invalid"),
        ({"what": "x", "after_ms": 0}, "invalid"),
        ({"what": "x"}, "invalid"),
        ({"what": "x", "after_ms": 5, "cron": "* * * * *"}, "invalid"),
        ({"what": " ", "after_ms": 5}, "invalid"),
    ):
        assert refused(mia.post("/v1/entities/agent:ada/plans", json=body)) == (422, code), body
    assert refused(mia.post("/v1/entities/tom/plans", json={"what": "x", "after_ms": 5})) == (422, "invalid")
    assert refused(mia.post("/v1/entities/agent:eve/plans", json={"what": "x", "after_ms": 5})) == (404, "unknown_agent")
    assert guarded.run(guarded.database.read(edges)) == before


# ---- clients ----


def test_a_client_answers_the_calls_of_its_own_entity(people: Person, guarded: Server) -> None:
    guarded.write(add_agents, "ada")
    guarded.write(client_call, "r1", "mia")
    mia, eve = people("mia"), people("eve")
    client = mia.post("/v1/clients", json={"name": "browser", "tools": ["pick"]}).json()["id"]
    other = mia.post("/v1/clients", json={"tools": ["draw"]}).json()["id"]
    foreign = eve.post("/v1/clients", json={}).json()["id"]
    (call,) = mia.get(f"/v1/clients/{client}/calls").json()["items"]
    shown = tuple(call[name] for name in ("run_id", "call_id", "custom_ui", "args"))
    assert shown == (
        "r1",
        "c1",
        "ColourPicker",
        {"from": ["green", "blue"]},
    )
    assert mia.get(f"/v1/clients/{other}/calls").json()["items"] == []
    answer = {"run_id": "r1", "call_id": "c1", "result": "green"}
    assert refused(eve.post(f"/v1/clients/{foreign}/results", json=answer)) == (404, "not_found")
    assert refused(eve.post(f"/v1/clients/{client}/results", json=answer)) == (404, "not_found")
    assert refused(mia.post(f"/v1/clients/{other}/results", json=answer)) == (404, "not_found")
    assert mia.post(f"/v1/clients/{client}/results", json=answer).json() == {"run_id": "r1", "agent": "ada", "status": "running"}
    assert refused(mia.post(f"/v1/clients/{client}/results", json=answer)) == (409, "not_waiting")
    settled = guarded.run(guarded.database.get(ToolCall, "r1", "c1"))
    assert settled is not None
    assert (settled.status, settled.result) == ("success", "green")


def test_a_client_says_that_it_is_there_and_goes(people: Person) -> None:
    mia, eve = people("mia"), people("eve")
    client = mia.post("/v1/clients", json={"name": "browser"}).json()
    assert mia.post(f"/v1/clients/{client['id']}/heartbeat").json()["expires_at"] >= client["expires_at"]
    assert [each["name"] for each in mia.get("/v1/clients").json()["items"]] == ["browser"]
    assert refused(eve.post(f"/v1/clients/{client['id']}/heartbeat")) == (404, "not_found")
    assert refused(eve.delete(f"/v1/clients/{client['id']}")) == (404, "not_found")
    assert mia.delete(f"/v1/clients/{client['id']}").status_code == 204
    assert refused(mia.get(f"/v1/clients/{client['id']}/calls")) == (404, "not_found")


# ---- programs outside ----


def test_a_key_starts_its_agent_once_per_idempotency_key(people: Person, guarded: Server) -> None:
    guarded.write(add_agents, "ada", "bob")
    operator = guarded.client_of("olga")
    made = operator.post("/v1/agents/ada/keys", json={"note": "the job"}).json()
    outside = guarded.client(made["text"])
    body, headers = {"instruction": "look", "metadata": {"job": 1}}, {"Idempotency-Key": "k"}
    first, again = (outside.post("/v1/agents/ada/trigger", json=body, headers=headers) for _ in range(2))
    assert (first.status_code, first.json()["agent"], first.json()) == (202, "ada", again.json())
    (run,) = guarded.run(guarded.database.read(runs_of, "ada"))
    assert (run.cause.kind, run.owner_id, run.metadata["job"]) == ("service", "olga", 1)
    assert refused(outside.post("/v1/agents/bob/trigger", json=body)) == (401, "unauthorized")
    assert refused(outside.get("/v1/spaces")) == (401, "unauthorized")
    assert refused(guarded.client().post("/v1/agents/ada/trigger", json=body)) == (401, "unauthorized")
    assert refused(guarded.client_of("mia").post("/v1/agents/ada/trigger", json=body)) == (401, "unauthorized")
    (listed,) = operator.get("/v1/agents/ada/keys").json()["items"]
    assert listed == made["key"]
    assert operator.delete(f"/v1/agents/ada/keys/{made['key']['id']}").json()["revoked_at"] is not None
    assert refused(outside.post("/v1/agents/ada/trigger", json=body)) == (401, "unauthorized")


def test_keys_are_an_operators(people: Person, guarded: Server) -> None:
    guarded.write(add_agents, "ada")
    for method, path in (("GET", "keys"), ("POST", "keys"), ("DELETE", "keys/x")):
        assert refused(people("mia").request(method, f"/v1/agents/ada/{path}", json={})) == (403, "forbidden")


@pytest.mark.parametrize("text", ["", "x", "stk", "stk.main", "stk.main.x.y", "stk.a/b.x.y", "stk..x.y", "stk.main.x."])
def test_a_key_that_is_none_opens_nothing(guarded: Server, text: str) -> None:
    guarded.write(add_agents, "ada")
    answer = guarded.client(text or None).post("/v1/agents/ada/trigger", json={"instruction": "look"})
    assert refused(answer) == (401, "unauthorized")
