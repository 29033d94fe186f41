"""Selectors: what they match, and what is refused; the shorthand of events."""

from typing import Any

import msgspec
import pytest

from stigmergy.errors import Invalid
from stigmergy.kernel.predicates import ConditionFailed, Matcher
from stigmergy.kernel.selectors import Selector, compile_selector, parse_event, parse_selector
from support.subjects import Write


def matches(selector: dict[str, Any], context: dict[str, Any]) -> bool:
    note = Write(context=context, tags=("a", "b"), schema_name="user.note.v1")
    return compile_selector(parse_selector(selector)).predicate(note)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"schema_name": "user.note.v1"}, True),
        ({"schema_name": "user.note"}, False),
        ({"schema_name": "user.*"}, True),
        ({"schema_name": "*"}, True),
        ({"schema_name": "user.note.v1*"}, True),
        ({"schema_name": "task.*"}, False),
        ({"any_tags": []}, False),
        ({"any_tags": ["z", "b"]}, True),
        ({"any_tags": ["z"]}, False),
        ({"all_tags": []}, True),
        ({"all_tags": ["b", "a"]}, True),
        ({"all_tags": ["a", "z"]}, False),
        ({"none_tags": []}, True),
        ({"none_tags": ["z"]}, True),
        ({"none_tags": ["z", "a"]}, False),
        ({"any_tags": ["a"], "none_tags": ["b"]}, False),
        ({"where": "context.n > 1 && 'a' in tags"}, True),
        ({"schema_name": "user.*", "where": "context.n > 5"}, False),
    ],
)
def test_all_parts_must_hold(selector: dict[str, Any], expected: bool) -> None:
    assert matches(selector, {"n": 2}) is expected


CONTEXT = {
    "text": "hello world",
    "n": 1,
    "ratio": 2.5,
    "on": True,
    "off": False,
    "zero": 0,
    "nothing": None,
    "list": ["x", 1, True, None, ["deep"]],
    "numbers": [0, 2.0],
    "deep": {"items": [{"name": "first"}, {"name": "second"}], "0": "zeroth"},
}


@pytest.mark.parametrize(
    ("path", "op", "value", "expected"),
    [
        ("text", "eq", "hello world", True),
        ("n", "eq", 1.0, True),
        ("n", "eq", True, False),
        ("on", "eq", 1, False),
        ("on", "eq", True, True),
        ("off", "eq", 0, False),
        ("zero", "eq", False, False),
        ("absent", "eq", "x", False),
        ("nothing", "eq", "x", False),
        ("deep.items.1.name", "eq", "second", True),
        ("deep.items.2.name", "eq", "second", False),
        ("deep.items.-1.name", "eq", "second", False),
        ("deep.0", "eq", "zeroth", True),
        ("text.0", "eq", "h", False),
        ("n", "ne", 2, True),
        ("n", "ne", 1.0, False),
        ("n", "ne", "1", False),
        ("n", "ne", False, False),
        ("on", "ne", 0, False),
        ("absent", "ne", 2, False),
        ("nothing", "ne", 2, False),
        ("list", "ne", "x", False),
        ("n", "gt", 0.5, True),
        ("n", "gt", 1, False),
        ("n", "gte", 1, True),
        ("ratio", "lt", 3, True),
        ("ratio", "lte", 2.5, True),
        ("on", "gt", 0, False),
        ("text", "gt", "hello", True),
        ("text", "lt", 5, False),
        ("absent", "lt", 5, False),
        ("text", "contains", "wor", True),
        ("text", "contains", 1, False),
        ("list", "contains", "x", True),
        ("list", "contains", 1, True),
        ("list", "contains", "de", False),
        ("numbers", "contains", False, False),
        ("numbers", "contains", 2, True),
        ("n", "contains", 1, False),
        ("absent", "contains", "x", False),
        ("list", "contains_any", ["z", True], True),
        ("list", "contains_any", ["z"], False),
        ("list", "contains_any", [], False),
        ("text", "contains_any", ["zzz", "hell"], True),
        ("n", "exists", True, True),
        ("off", "exists", None, True),
        ("absent", "exists", True, False),
        ("nothing", "exists", True, False),
        ("absent", "exists", False, True),
        ("nothing", "exists", False, True),
        ("n", "exists", False, False),
    ],
)
def test_context_match(path: str, op: str, value: Any, expected: bool) -> None:
    assert matches({"context_match": [{"path": path, "op": op, "value": value}]}, CONTEXT) is expected


@pytest.mark.parametrize(
    ("selector", "where", "says"),
    [
        ({"tags": ["a"]}, "selector", "`tags`"),
        ({"schema_name": 3}, "schema_name", "Expected `str"),
        ({"schema_name": "a*b"}, "schema_name", "`*` at the end"),
        ({"schema_name": ""}, "schema_name", "a name"),
        ({"any_tags": "a"}, "any_tags", "Expected `array"),
        ({"all_tags": ["a", 1]}, "all_tags[1]", "Expected `str`"),
        ({"context_match": [{"op": "exists"}]}, "context_match[0]", "`path`"),
        ({"context_match": [{"path": "a", "op": "exists", "as": 1}]}, "context_match[0]", "`as`"),
        ({"context_match": [{"path": "a", "op": "exists"}, {"path": "a", "op": "like"}]}, "context_match[1].op", "contains_any"),
        ({"context_match": [{"path": "a..b", "op": "exists"}]}, "context_match[0].path", "dots"),
        ({"context_match": [{"path": "", "op": "exists"}]}, "context_match[0].path", "dots"),
        ({"context_match": [{"path": "a", "op": "eq"}]}, "context_match[0].value", "exists"),
        ({"context_match": [{"path": "a", "op": "eq", "value": {}}]}, "context_match[0].value", "a string"),
        ({"context_match": [{"path": "a", "op": "gt", "value": {}}]}, "context_match[0].value", "a string or a number"),
        ({"context_match": [{"path": "a", "op": "gt", "value": True}]}, "context_match[0].value", "a string or a number"),
        ({"context_match": [{"path": "a", "op": "contains_any", "value": "x"}]}, "context_match[0].value", "a list"),
        ({"context_match": [{"path": "a", "op": "contains_any", "value": ["x", []]}]}, "context_match[0].value[1]", "a string"),
        ({"context_match": [{"path": "a", "op": "exists", "value": 1}]}, "context_match[0].value", "true or false"),
        ({"where": "n = 1"}, "where, line 1, column 3", "not understood"),
        ({"where": 1}, "where", "Expected `str"),
    ],
)
def test_what_is_refused_says_where(selector: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_selector(selector)
    assert (caught.value.where, caught.value.code) == (where, "invalid_selector")
    assert says in str(caught.value)


def test_a_selector_is_stored_as_it_was_written() -> None:
    data = {"schema_name": "user.*", "any_tags": ["a"], "context_match": [{"path": "n", "op": "exists"}]}
    assert msgspec.json.decode(msgspec.json.encode(parse_selector(data))) == data
    assert msgspec.json.encode(Selector()) == b"{}"


def test_a_failing_where_counts_only_where_nothing_else_says_no() -> None:
    context = {"n": "text"}
    assert not matches({"schema_name": "task.v1", "where": "context.n > 1"}, context)
    with pytest.raises(ConditionFailed):
        matches({"schema_name": "user.*", "where": "context.n > 1"}, context)


def fires(event: str | list[str], data: dict[str, Any], before: dict[str, Any] | None, of: str = "update") -> bool:
    matcher = parse_event(event)[of]
    return matcher is None or matcher.predicate(Write(data, before, event=of))


def test_events_are_named_one_by_one_or_together() -> None:
    assert parse_event("create") == {"create": None}
    assert list(parse_event("create|update, delete")) == ["create", "update", "delete"]
    assert list(parse_event(["create", "update"])) == ["create", "update"]
    mixed = parse_event(["create (role='user')", "delete"])
    assert isinstance(mixed["create"], Matcher)
    assert mixed["delete"] is None


def test_the_shorthand_of_a_create_is_equality() -> None:
    assert fires("create (role='user')", {"role": "user"}, None, "create")
    assert not fires("create (role='user')", {"role": "tool"}, None, "create")
    assert fires('create (role="user" and n = 1, done=false)', {"role": "user", "n": 1.0, "done": False}, None, "create")
    assert not fires("create (n=1)", {"n": True}, None, "create")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"status": "running"}, {"status": "success"}, True),
        ({}, {"status": "success"}, True),
        (None, {"status": "success"}, True),
        ({"status": "success"}, {"status": "success", "note": "edited"}, False),
        ({"status": "success"}, {"status": "running"}, False),
    ],
)
def test_the_shorthand_of_an_update_is_an_edge(before: dict[str, Any] | None, after: dict[str, Any], expected: bool) -> None:
    assert fires("update (status='success')", after, before) is expected


def test_an_edge_to_null_needs_a_value_before() -> None:
    assert fires("update (result=null)", {}, {"result": 1})
    assert not fires("update (result=null)", {"result": None}, {})


def test_an_edge_of_several_fields_is_when_the_last_of_them_becomes_so() -> None:
    event = "update (type='agent', status='pending')"
    assert fires(event, {"type": "agent", "status": "pending"}, {"type": "agent", "status": "new"})
    assert not fires(event, {"type": "agent", "status": "pending"}, {"type": "agent", "status": "pending"})
    assert not fires(event, {"type": "tool", "status": "pending"}, {"type": "agent", "status": "new"})


def test_the_shorthand_reads_the_seeds_names() -> None:
    assert fires("create (subAgentId='r1')", {"sub_agent_id": "r1"}, None, "create")


@pytest.mark.parametrize(
    "event",
    ["", "insert", "create create", "create|create", "update (status)", "update (status=success)", "update (a='x' b='y')", []],
)
def test_an_event_that_is_not_understood_is_refused(event: Any) -> None:
    with pytest.raises(Invalid) as caught:
        parse_event(event)
    assert (caught.value.where, caught.value.code) == ("event", "invalid_event")
