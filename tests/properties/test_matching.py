"""The matchers have one meaning, however they are run: as closures or by the CEL library, through an index or one by one."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stigmergy.kernel.cel_terms import cel_predicate
from stigmergy.kernel.condition_text import scan
from stigmergy.kernel.conditions import compile_condition
from stigmergy.kernel.matching import RuleIndex, compile_rule, explain
from stigmergy.kernel.predicates import ConditionFailed, Predicate
from stigmergy.kernel.selectors import ContextMatch, Selector, compile_selector, parse_event
from stigmergy.kernel.subjects import EVENTS
from support.subjects import Write

TEMPLATES = {
    "tasks": "users/{owner_id}/orch-chats/{space_id}/tasks",
    "messages": "users/{owner_id}/orch-chats/{space_id}/messages",
    "breadcrumbs": "users/{owner_id}/breadcrumbs/{schema_name}",
}
NAMES = ["a", "b", "subAgent", "sub_agent"]
TAGS = ["x", "y", "session:1"]
SCHEMAS = ["user.message.v1", "user.note.v1", "task.v1"]


numbers = st.sampled_from([0, 1, 2, -1, 0.0, 1.0, 2.5, 2**53 - 1, 2**53, 2**53 + 1, float(2**53), 2**63, 2**64, 10**30])
scalars = st.none() | st.booleans() | numbers | st.sampled_from(["", "x", "y", "failed", "é", "1"])
values = (
    scalars
    | st.lists(scalars, max_size=3)
    | st.dictionaries(st.sampled_from(["a", "0", "x"]), scalars | st.lists(scalars), max_size=2)
)
fields = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
writes = st.builds(
    Write,
    data=fields,
    before=st.none() | fields,
    context=fields,
    tags=st.lists(st.sampled_from(TAGS), unique=True).map(tuple),
    schema_name=st.sampled_from(SCHEMAS),
    collection=st.sampled_from(sorted(TEMPLATES)),
    event=st.sampled_from(EVENTS),
    cause=st.none() | st.just(7),
    path=st.sampled_from(["users/u1/orch-chats/s1/tasks", "users/u2/orch-chats/s1/messages", "users/u1/breadcrumbs/task.v1"]),
)

roots = st.sampled_from([*NAMES, "before.a", "before.b", "context.a", "event.document.data.a", "event.document.data.subAgent"])
steps = st.sampled_from(["", "", "", ".a", "[0]", "['x']", ".a[1]"])
whole = st.sampled_from(["event.type", "event.actor", "event.cause", "event.document.version", "schema_name", "tags[0]"])
paths = st.tuples(roots, steps).map("".join) | whole
number_literals = st.sampled_from(
    ["0", "1", "2", "-1", "0.0", "1.0", "2.5", "1e3", "0x2", "1u", "9007199254740991", "9007199254740993"]
)
string_literals = st.sampled_from(["''", "'x'", '"y"', "'failed'", "'\\u00e9'", "r'x'", "'1'"])
literals = number_literals | string_literals | st.sampled_from(["true", "false", "null"])
lists = st.lists(literals, max_size=3).map(lambda items: f"[{', '.join(items)}]")
comparisons = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
leaves = (
    st.tuples(paths, comparisons, literals).map(" ".join)
    | st.tuples(literals, comparisons, paths).map(" ".join)
    | st.tuples(paths, lists).map(" in ".join)
    | st.tuples(string_literals, paths | st.just("tags")).map(" in ".join)
    | paths.map("has({})".format)
    | paths
    | st.sampled_from(["true", "false"])
)
expressions = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(" ".join)
        | inner.map("({})".format)
        | inner.map("!({})".format)
        | paths.map("!{}".format)
    ),
    max_leaves=5,
)


def answer(predicate: Predicate, write: Write) -> bool | str:
    try:
        return predicate(write)
    except ConditionFailed as failure:
        return failure.kind


@settings(max_examples=600, deadline=None)
@given(expressions, st.lists(writes, min_size=1, max_size=4))
@example("a == 0", [Write({"a": False}), Write({"a": 0.0}), Write({})])
@example("a in [1]", [Write({"a": True}), Write({"a": 1.0}), Write({"a": [1]})])
@example("a < 1 || true", [Write({})])
@example("(a)", [Write({"a": 1})])
def test_closures_and_the_library_agree(text: str, some: list[Write]) -> None:
    native = compile_condition(text)
    library = cel_predicate(text, scan(text), "condition_not_boolean")
    for write in some:
        assert answer(native.predicate, write) == answer(library, write), write


@settings(max_examples=600, deadline=None)
@given(expressions, writes)
def test_a_condition_is_false_and_does_not_fail_where_an_anchor_does_not_hold(text: str, write: Write) -> None:
    condition = compile_condition(text)
    for anchor in condition.anchors:
        found = anchor.read(write)
        held = found if anchor.many else [found]
        if not any(value == wanted for value in held for wanted in anchor.values):
            assert answer(condition.predicate, write) is False


ops = st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "contains"])
context_matches = st.builds(
    ContextMatch, path=st.sampled_from(["a", "b", "a.0", "a.a"]), op=ops, value=st.sampled_from([0, 1, 1.0, 2.5, "x", "failed"])
) | st.builds(ContextMatch, path=st.sampled_from(NAMES), op=st.just("exists"), value=st.sampled_from([None, True, False]))
tag_lists = st.none() | st.lists(st.sampled_from(TAGS), max_size=2).map(tuple)
selectors = st.builds(
    Selector,
    schema_name=st.none() | st.sampled_from([*SCHEMAS, "user.*", "*"]),
    any_tags=tag_lists,
    all_tags=tag_lists,
    none_tags=tag_lists,
    context_match=st.lists(context_matches, max_size=2).map(tuple),
    where=st.none() | expressions,
)
events = st.sampled_from(
    ["create", "update", "delete", "create|update", "update (a='x')", "create (b=1)", "update (a=null, b=true)"]
)
patterns = st.sampled_from(
    ["tasks", "*", "users/*/orch-chats/*/tasks", "users/u1/**", "users/*/breadcrumbs/task.v1", "users/{u}/**"]
)
rules = st.builds(
    lambda collection, event, selector, condition, order: (collection, event, selector, condition, order),
    patterns,
    events,
    st.none() | selectors,
    st.none() | expressions,
    st.integers(0, 2),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(rules, max_size=12), st.lists(writes, min_size=1, max_size=3))
def test_an_index_finds_what_asking_every_rule_finds(definitions: list[Any], some: list[Write]) -> None:
    compiled = [
        compile_rule(
            f"r{position}",
            collection,
            parse_event(event),
            None if selector is None else compile_selector(selector),
            None if condition is None else compile_condition(condition),
            templates=TEMPLATES,
            order=order,
        )
        for position, (collection, event, selector, condition, order) in enumerate(definitions)
    ]
    index = RuleIndex(compiled)
    in_order = sorted(compiled, key=lambda rule: (rule.order, rule.id))
    for write in some:
        expected = [(rule.id, found) for rule in in_order if (found := answer(rule.matches, write)) is not False]
        assert [(rule.id, failure.kind if failure else True) for rule, failure in index.match(write)] == expected
        firing = {rule_id for rule_id, found in expected if found is True}
        assert {rule.id for rule in compiled if explain(rule, write) is None} == firing
