"""Definitions of triggers: what is taken, what is refused and where the fault is said to be."""

import json
from pathlib import Path
from typing import Any

import pytest

from stigmergy.errors import Invalid
from stigmergy.net import Reach
from stigmergy.runs import model as runs  # noqa: F401  # declares the collections
from stigmergy.spaces import model as spaces  # noqa: F401
from stigmergy.triggers.definitions import Reading, parse_definition, parse_definitions
from stigmergy.triggers.lint import lint
from stigmergy.triggers.loading import load_triggers

READING = Reading("tester", "http://127.0.0.1:8000/api", Reach(loopback=True))
GOOD: dict[str, Any] = {"id": "t", "collection": "tasks", "event": "create", "action": "POST /hook"}


def fault(change: dict[str, Any], reading: Reading = READING) -> tuple[str | None, str]:
    with pytest.raises(Invalid) as refused:
        parse_definitions([GOOD, GOOD | {"id": "second"} | change], reading)
    return refused.value.where, refused.value.code


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"id": "a b"}, "id"),
        ({"id": "a:b"}, "id"),
        ({"id": "t"}, "id"),
        ({"id": 5}, "id"),
        ({"unheard": 1}, ""),
        ({"collection": "tsks"}, "collection"),
        ({"collection": "users/*/none"}, "collection"),
        ({"collection": "users/**/tasks"}, "collection"),
        ({"event": "created"}, "event"),
        ({"event": "update (status=)"}, "event"),
        ({"event": "update (statuss='x')"}, "event"),
        ({"condition": "status == "}, "condition, line 1, column 11"),
        ({"condition": "true &&\n  statuss == 'x'"}, "condition, line 2, column 3"),
        ({"condition": "event.document.data.nothing == 'x'"}, "condition, line 1, column 1"),
        ({"condition": "x" * 5_000}, "condition"),
        ({"max_depth": 33}, "max_depth"),
        ({"action": "GET /hook"}, "action"),
        ({"action": {"type": "mail"}}, "action.type"),
        ({"action": {"type": "webhook"}}, "action"),
        ({"action": {"type": "webhook", "url": "ftp://x/"}}, "action.url"),
        ({"action": {"type": "webhook", "url": "http://u:p@example.org/"}}, "action.url"),
        ({"action": {"type": "webhook", "url": "http://exa mple.org/"}}, "action.url"),
        ({"action": {"type": "webhook", "url": "http://example.org:99999/"}}, "action.url"),
        ({"action": {"type": "webhook", "url": "http:///hook"}}, "action.url"),
        ({"action": {"type": "webhook", "url": "http://10.0.0.1/"}}, "action.url"),
        ({"action": {"type": "webhook", "url": "http://169.254.169.254/latest"}}, "action.url"),
        ({"action": {"type": "webhook", "url": "http://[::ffff:192.168.1.1]/"}}, "action.url"),
        ({"action": {"type": "webhook", "url": "http://a/", "secret": "short"}}, "action.secret"),
        ({"action": {"type": "webhook", "url": "http://a/", "headers": {"X": "y" * 9_000}}}, "action.headers"),
        ({"action": {"type": "webhook", "url": "http://a/", "headers": {f"X{n}": "" for n in range(51)}}}, "action.headers"),
        ({"action": {"type": "webhook", "url": "http://a/", "headers": {"X": "a\r\nY: b"}}}, "action.headers.X"),
        ({"action": {"type": "webhook", "url": "http://a/", "headers": {"webhook-id": "1"}}}, "action.headers.webhook-id"),
        ({"action": {"type": "webhook", "url": "http://a/", "headers": {"Host": "b"}}}, "action.headers.Host"),
        ({"action": {"type": "webhook", "url": "http://a/", "timeout_ms": 1}}, "action.timeout_ms"),
        ({"action": {"type": "webhook", "url": "http://a/", "retry": {"tries": 0}}}, "action.retry.tries"),
        ({"action": {"type": "webhook", "url": "http://a/", "per_second": 0}}, "action.per_second"),
        (
            {"action": {"type": "handler", "name": "h", "writes": [{"collection": "tsks", "event": "create"}]}},
            "action.writes[0].collection",
        ),
        ({"action": {"type": "agent"}}, "action"),
        ({"action": {"type": "space_message", "text": "{{ context.data"}}, "action.text"),
    ],
)
def test_a_fault_refuses_everything_and_names_its_place(change: dict[str, Any], where: str) -> None:
    found, _ = fault(change)
    assert found == f"triggers[1]{'.' + where if where else ''}"


def test_a_short_action_is_put_behind_the_base_and_refused_without_one() -> None:
    rule = parse_definition(GOOD, READING)
    assert (rule.kind, rule.action["url"]) == ("webhook", "http://127.0.0.1:8000/api/hook")
    assert fault({}, Reading("tester"))[0] == "triggers[0].action"
    whole = parse_definition(GOOD | {"action": "POST https://example.org/x?y=1"}, READING)
    assert whole.action["url"] == "https://example.org/x?y=1"


def test_loopback_is_refused_where_the_server_is_not_bound_to_it() -> None:
    change = {"action": {"type": "webhook", "url": "http://localhost:8000/"}}
    assert fault(change, Reading("tester", "http://example.org")) == ("triggers[1].action.url", "address_refused")
    assert parse_definition(GOOD | change, READING).kind == "webhook"
    private = {"action": {"type": "webhook", "url": "http://10.1.2.3/"}}
    assert parse_definition(GOOD | private, Reading("tester", reach=Reach(["10.1.0.0/16"]))).kind == "webhook"


def test_a_user_of_the_older_format_is_a_human_in_a_space_and_only_there() -> None:
    messages = "users/*/orch-chats/*/messages"
    rule = parse_definition(
        GOOD
        | {
            "collection": messages,
            "event": ["create (role='user')", 'update (role="assistant")'],
            "condition": "event.document.data.role == 'user' || 'assistant' != role || role in ['user', 'tool']"
            " || content == 'user'",
        },
        READING,
    )
    assert rule.events == ["create (role='human')", 'update (role="agent")']
    assert rule.condition == (
        "event.document.data.role == 'human' || 'agent' != role || role in ['human', 'tool'] || content == 'user'"
    )
    inner = parse_definition(
        GOOD | {"collection": "users/*/orch-chats/*/sub-agents/*/messages", "event": "create (role='user')"}, READING
    )
    assert inner.events == ["create (role='user')"]


def test_camel_case_names_of_fields_are_known() -> None:
    rule = parse_definition(GOOD | {"condition": "event.document.data.triggerMessageId != null && has(before.runId)"}, READING)
    assert rule.condition is not None


def test_files_are_read_as_json_and_toml_and_their_faults_have_a_place(tmp_path: Path) -> None:
    as_json, as_toml = tmp_path / "triggers.json", tmp_path / "triggers.toml"
    as_json.write_text(json.dumps([GOOD]))
    as_toml.write_text('[[triggers]]\nid = "t"\ncollection = "tasks"\nevent = "create"\naction = "POST /hook"\n')
    assert load_triggers(as_json, READING) == load_triggers(as_toml, READING)
    as_json.write_text('{\n "triggers": [}')
    as_toml.write_text("[[triggers]\n")
    for path, said in ((as_json, r"triggers.json, line 2, column \d+: this is not JSON"), (as_toml, "not TOML .*line 1")):
        with pytest.raises(Invalid, match=said):
            load_triggers(path, READING)
    as_json.write_text(json.dumps({"triggers": [GOOD | {"event": "x"}]}))
    with pytest.raises(Invalid, match=r"triggers\.json: triggers\[0\]\.event: 'x' is not an event"):
        load_triggers(as_json, READING)
    with pytest.raises(Invalid, match="cannot be read"):
        load_triggers(tmp_path / "none.json", READING)


MONOLOGUE = "users/*/orch-chats/*/sub-agents/*/messages"


@pytest.mark.parametrize(
    ("change", "loops"),
    [
        ({}, False),
        ({"collection": "**"}, True),
        ({"collection": "deliveries", "event": "create"}, True),
        ({"collection": "deliveries", "event": "update (status='dead')"}, True),
        ({"collection": "deliveries", "event": "create (trigger_id='other')"}, False),
        ({"collection": "deliveries", "condition": "trigger_id != 't' && kind != 'x'"}, False),
        ({"collection": MONOLOGUE, "action": {"type": "agent", "agent": "a"}}, True),
        ({"collection": MONOLOGUE, "action": {"type": "webhook", "url": "http://a/"}}, False),
    ],
)
def test_a_trigger_that_may_start_itself_is_found(change: dict[str, Any], loops: bool) -> None:
    found = lint([parse_definition(GOOD | change, READING)])
    assert [finding.code for finding in found] == (["self_start"] if loops else [])


@pytest.mark.parametrize(
    ("event", "condition", "loops"),
    [
        ("create", "role == 'user' || role == 'tool'", False),
        ("create", "role != 'assistant'", False),
        ("create", "role == 'assistant' || role == 'user'", True),
        ("create", None, True),
        ("create (role='user')", None, False),
        ("create", "content == 'x'", True),
        ("update", None, False),
    ],
)
def test_what_a_receiver_is_said_to_write_counts(event: str, condition: str | None, loops: bool) -> None:
    action = {"type": "webhook", "url": "http://a/", "writes": [{"collection": MONOLOGUE, "event": "create (role='assistant')"}]}
    rule = parse_definition(GOOD | {"collection": MONOLOGUE, "event": event, "condition": condition, "action": action}, READING)
    assert bool(lint([rule])) == loops
