"""Rules and their index: which collections a pattern means, which rules a change meets, and in what order."""

from typing import Any

import pytest

from stigmergy.errors import Invalid
from stigmergy.kernel.conditions import compile_condition
from stigmergy.kernel.matching import CompiledRule, RuleIndex, collections_for, compile_rule, explain
from stigmergy.kernel.selectors import ContextMatch, Selector, compile_selector, parse_event
from support.subjects import Write

TEMPLATES = {
    "tasks": "users/{owner_id}/orch-chats/{space_id}/tasks",
    "space_messages": "users/{owner_id}/orch-chats/{space_id}/messages",
    "run_messages": "users/{owner_id}/orch-chats/{space_id}/sub-agents/{run_id}/messages",
    "breadcrumbs": "users/{owner_id}/breadcrumbs/{schema_name}",
}


class Untouched(Write):
    """A change whose costly properties nobody may ask for."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("data", "before", "context", "path", "tags"):
            raise AssertionError(f"{name} was computed for nothing")
        return super().__getattribute__(name)


def rule(
    id: str, collection: str = "tasks", event: str = "update", condition: str = "", order: int = 0, **selector: Any
) -> CompiledRule:
    return compile_rule(
        id,
        collection,
        parse_event(event),
        compile_selector(Selector(**selector)) if selector else None,
        compile_condition(condition),
        templates=TEMPLATES,
        order=order,
    )


def fired(rules: list[CompiledRule], subject: Write) -> list[str]:
    return [match.rule.id for match in RuleIndex(rules).match(subject) if match.failure is None]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("tasks", ["tasks"]),
        ("*", ["tasks", "space_messages", "run_messages", "breadcrumbs"]),
        ("**", ["tasks", "space_messages", "run_messages", "breadcrumbs"]),
        ("users/*/orch-chats/*/tasks", ["tasks"]),
        ("/users/{userId}/orch-chats/{chatId}/tasks", ["tasks"]),
        ("users/*/orch-chats/*/messages", ["space_messages"]),
        ("users/u1/orch-chats/**", ["tasks", "space_messages", "run_messages"]),
        ("users/*/*/*/tasks", ["tasks"]),
        ("users/*/breadcrumbs/user.message.v1", ["breadcrumbs"]),
        ("users/**", ["tasks", "space_messages", "run_messages", "breadcrumbs"]),
    ],
)
def test_the_collections_a_pattern_means(pattern: str, expected: list[str]) -> None:
    assert list(collections_for(pattern, TEMPLATES)) == expected


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ("task", "unknown_collection"),
        ("", "unknown_collection"),
        ("users/*/tasks", "unknown_collection"),
        ("users/*/orch-chats/*/tasks/more", "unknown_collection"),
        ("users/*/breadcrumbs/user.*", "invalid_pattern"),
        ("users/**/tasks", "invalid_pattern"),
    ],
)
def test_a_pattern_that_can_match_nothing_is_refused(pattern: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        compile_rule("r", pattern, ["create"], templates=TEMPLATES)
    assert (caught.value.code, caught.value.where) == (code, "collection")


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(Invalid) as caught:
        compile_rule("r", "tasks", ["insert"], templates=TEMPLATES)
    assert caught.value.code == "unknown_event"


def test_a_name_in_place_of_an_open_segment_is_compared_with_the_path() -> None:
    rules = [rule("mine", "users/u1/orch-chats/*/tasks"), rule("yours", "users/u2/**"), rule("any", "users/*/orch-chats/*/tasks")]
    assert fired(rules, Write()) == ["any", "mine"]
    assert fired(rules, Write(path="users/u2/orch-chats/s1/tasks")) == ["any", "yours"]


def test_only_the_event_and_collection_of_a_rule_fire_it() -> None:
    rules = [rule("both", event="create|update"), rule("messages", "space_messages"), rule("delete", event="delete")]
    assert fired(rules, Write()) == ["both"]
    assert fired(rules, Write(event="delete")) == ["delete"]
    assert fired(rules, Write(collection="unheard_of")) == []


def test_what_no_rule_asks_for_is_not_computed() -> None:
    index = RuleIndex([rule("by name", schema_name="task.v2"), rule("other", "breadcrumbs", any_tags=("a",))])
    assert not index.match(Untouched())
    assert fired([rule("open", "users/*/orch-chats/*/tasks")], Untouched()) == ["open"]


def test_rules_come_in_their_order_however_they_are_filed() -> None:
    rules = [
        rule("z", order=1, any_tags=("a", "b")),
        rule("y", order=1, condition="status == 'failed'"),
        rule("x", order=2),
        rule("w", order=1, schema_name="task.*"),
        rule("v", order=0, context_match=(ContextMatch("n", "eq", 1),)),
    ]
    write = Write({"status": "failed"}, context={"n": 1.0}, tags=("a", "b"))
    assert fired(rules, write) == ["v", "w", "y", "z", "x"]
    assert fired(rules[::-1], write) == ["v", "w", "y", "z", "x"]


def test_rules_of_one_name_are_all_met() -> None:
    twins = [rule("same", any_tags=("a", "b")), rule("same", any_tags=("b", "c"))]
    assert fired(twins, Write(tags=("a", "b"))) == ["same", "same"]


def test_a_value_that_cannot_be_looked_up_equals_nothing() -> None:
    rules = [rule("x", condition="status == 'x'"), rule("whole", condition="event.document.data == 'x'")]
    assert fired(rules, Write({"status": ["x"]})) == []
    assert fired(rules, Write({"status": {"x": 1}})) == []


def test_a_bool_does_not_find_the_rules_of_a_number() -> None:
    rules = [rule("one", condition="n == 1"), rule("true", condition="n == true"), rule("float", condition="n in [1.0]")]
    assert fired(rules, Write({"n": 1})) == ["float", "one"]
    assert fired(rules, Write({"n": True})) == ["true"]


def test_tags_as_a_list_and_as_one_value_are_filed_apart() -> None:
    rules = [rule("odd", condition="tags == 'a'"), rule("even", condition="'a' in tags")]
    assert fired(rules, Write(tags=("a",))) == ["even"]
    assert fired(rules[::-1], Write(tags=("a",))) == ["even"]


def test_any_tags_of_nothing_is_met_by_nothing() -> None:
    assert fired([rule("never", any_tags=())], Write(tags=("a",))) == []


def test_a_failure_is_returned_beside_the_rules_that_fire() -> None:
    rules = [rule("good"), rule("bad", condition="status > 3"), rule("not mine", condition="status > 3", schema_name="other.v1")]
    matches = RuleIndex(rules).match(Write({"status": "failed"}))
    assert [(match.rule.id, match.failure and match.failure.kind) for match in matches] == [
        ("bad", "condition_error"),
        ("good", None),
    ]


def test_an_edge_fires_once() -> None:
    rules = [rule("done", event="update (status='success')")]
    assert fired(rules, Write({"status": "success"}, before={"status": "running"})) == ["done"]
    assert fired(rules, Write({"status": "success", "note": "edited"}, before={"status": "success"})) == []
    assert fired(rules, Write({"status": "success"}, event="create")) == []


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (rule("r", "breadcrumbs"), "the collection is tasks, not breadcrumbs"),
        (rule("r", event="create|delete"), "the event is update, not create or delete"),
        (rule("r", "users/u9/orch-chats/*/tasks"), "not so: the path matches users/u9/orch-chats/*/tasks"),
        (rule("r", schema_name="user.*"), "not so: schema_name is user.*"),
        (rule("r", all_tags=("a", "z")), "not so: all_tags z"),
        (rule("r", any_tags=("z", "y")), "not so: any_tags y, z"),
        (rule("r", none_tags=("a",)), "not so: none_tags a"),
        (rule("r", context_match=(ContextMatch("n", "gt", 5),)), "not so: context_match[0]: n gt 5"),
        (rule("r", where="context.n > 5"), "not so: where context.n > 5"),
        (rule("r", condition="status == 'x'"), "not so: status == 'x'"),
        (rule("r", event="update (status='x')"), "not so: it becomes so: status = 'x'"),
        (rule("r", condition="n > 5"), "condition_error: data.n is null and cannot be compared with 5 (n > 5)"),
        (rule("r", condition="status == 'failed'", all_tags=("a",), schema_name="task.*"), None),
    ],
)
def test_explain_says_why_a_rule_does_not_fire(made: CompiledRule, says: str | None) -> None:
    assert explain(made, Write({"status": "failed"}, before={}, context={"n": 1}, tags=("a",))) == says


def test_ten_thousand_rules_are_not_asked_one_by_one() -> None:
    asked = 0

    def counting(subject: Any) -> bool:
        nonlocal asked
        asked += 1
        return True

    rules = [rule(f"r{n:05}", schema_name="user.message.v1", condition=f"session == 's{n % 1000}'") for n in range(10_000)]
    counted = [one._replace(matchers={"update": one.matchers["update"]._replace(predicate=counting)}) for one in rules]
    assert len(RuleIndex(counted).match(Write({"session": "s7"}, schema_name="user.message.v1"))) == 10
    assert asked == 10
