from typing import Any

import pytest

from stigmergy.breadcrumbs.subscriptions import default_name, in_scope, parse_subscriptions
from stigmergy.errors import Invalid

T = {"schema_name": "t.v1", "role": "trigger"}


def test_the_form_of_the_seed_is_read() -> None:
    trigger, page = parse_subscriptions(
        {
            "selectors": [
                {"schema_name": "user.message.v1", "role": "trigger", "fetch": {"method": "this_event", "view": "context"}},
                {
                    "schema_name": "browser.page.context.v1",
                    "on_event": {"role": "context", "fetch": {"method": "latest", "limit": 1}},
                },
            ]
        }
    )
    assert (trigger.role, trigger.as_, page.role, page.as_) == ("trigger", "user_message", "context", "browser_page_context")
    assert page.selector.schema_name == "browser.page.context.v1"


def test_a_role_that_is_not_said_is_context_beside_a_trigger_and_trigger_alone() -> None:
    assert [each.role for each in parse_subscriptions([{"schema_name": "a.v1"}, {"schema_name": "b.v1"}])] == ["trigger"] * 2
    both = parse_subscriptions([{"schema_name": "a.v1", "role": "trigger"}, {"selector": {"schema_name": "b.v1"}}])
    assert [each.role for each in both] == ["trigger", "context"]


def test_latest_is_one_and_recent_is_a_list() -> None:
    given = [
        {"schema_name": "t.v1", "role": "trigger"},
        {"schema_name": "a.v1"},
        {"schema_name": "b.v1", "fetch": {"method": "recent"}},
    ]
    _, latest, recent = parse_subscriptions(given)
    (_, several) = parse_subscriptions([T, {"schema_name": "a.v1", "fetch": {"method": "latest", "limit": 5}}])
    assert (several.limit, several.is_single) == (1, True)
    assert (latest.limit, latest.is_single, recent.limit, recent.is_single) == (1, True, 10, False)


@pytest.mark.parametrize(
    ("schema_name", "name"),
    [("browser.page.context.v1", "browser_page_context"), ("note", "note"), ("a-b.v12", "a_b"), ("x.*", None), (None, None)],
)
def test_the_default_name_is_the_schema_name_without_its_version(schema_name: str | None, name: str | None) -> None:
    assert default_name(schema_name) == name


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ("text", "subscriptions"),
        ([3], "subscriptions[0]"),
        ({"selector": [T]}, "subscriptions"),
        ([{"schema_name": "a.v1", "on_event": 5}], "subscriptions[0].on_event"),
        ([{"schema_name": "a.v1", "on_event": "trigger"}], "subscriptions[0].on_event"),
        ([T, {"schema_name": "a.v1", "fetch": {"method": "text", "query": "{{ x"}}], "subscriptions[1].fetch.query"),
        ([{"schema_name": "a.v1", "rol": "trigger"}], "subscriptions[0]"),
        ([{"selector": {"schema_name": "a.v1"}, "all_tags": ["x"]}], "subscriptions[0]"),
        ([{"selector": {"context_match": [{"path": "a", "op": "like", "value": 1}]}}], "context_match[0].op"),
        ([T, {"all_tags": ["x"]}], "subscriptions[1].as"),
        ([T, {"schema_name": "a.v1", "as": "trigger"}], "subscriptions[1].as"),
        ([T, {"schema_name": "a.v1"}, {"schema_name": "a.v1", "all_tags": ["x"]}], "subscriptions[2].as"),
        ([T, {"schema_name": "a.v1", "fetch": {"limit": 0}}], "subscriptions[1].fetch.limit"),
        ([T, {"schema_name": "a.v1", "fetch": {"method": "this_event"}}], "subscriptions[1].fetch.method"),
        ([T, {"schema_name": "a.v1", "fetch": {"method": "guess"}}], "subscriptions[1]"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(given: Any, where: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_subscriptions(given)
    assert where in str(refused.value.where)


def test_a_source_is_narrowed_to_the_triggers_own_tags() -> None:
    source = parse_subscriptions([T, {"schema_name": "a.v1", "all_tags": ["x"], "same_tags": ["session:*", "lang"]}])[1]
    narrowed = in_scope(source, ["session:1", "lang", "other"])
    assert narrowed is not None
    assert narrowed.all_tags == ("x", "session:1", "lang")
    assert in_scope(source, ["session:1"]) is None
