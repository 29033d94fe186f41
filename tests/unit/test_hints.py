"""What hints make of a context: filters, each rule, both modes, every fault when written and every failure when read."""

from typing import Any

import msgspec
import pytest

from stigmergy.breadcrumbs.hints import Hints, View, apply_hints, effective, move_inline_hints, parse_hints
from stigmergy.errors import Invalid

CONTEXT: dict[str, Any] = {
    "text": "é <b>",
    "metadata": {"secret": "s3cret", "page": 3},
    "items": [{"name": "x", "cost": 1}, {"name": "y", "cost": 2}],
    "nothing": None,
    "ok": True,
    "ratio": 1.5,
    "a.b": {"c": 1},
}

TOO_LONG = "the output is longer than 262144 characters"


def view(data: dict[str, Any], context: dict[str, Any] = CONTEXT) -> View:
    return apply_hints(parse_hints(data), context)


def rule(kind: str, field: str, value: Any) -> dict[str, Any]:
    return {"transform": {"out": {"type": kind, field: value}}}


def template(text: str, context: dict[str, Any] = CONTEXT) -> Any:
    seen = view(rule("template", "template", text), context)
    return seen.errors[0].message if seen.errors else seen.context["out"]


# ---- filters ----


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        (["a.b"], {"a": {"c": 1}, "l": [{"n": 1}, {"n": 2, "m": 3}, 7]}),
        (["a"], {"l": [{"n": 1}, {"n": 2, "m": 3}, 7]}),
        (["a.b", "a.c"], {"a": {}, "l": [{"n": 1}, {"n": 2, "m": 3}, 7]}),
        (["a", "a.b", "l"], {}),
        (["a.b", "a", "l"], {}),
        (["l.n", "a"], {"l": [{}, {"m": 3}, 7]}),
        (["l.1.n", "a"], {"l": [{"n": 1}, {"m": 3}, 7]}),
        (["l.0", "l.n", "a"], {"l": [{"m": 3}, 7]}),
        (["l.0", "l.2", "a"], {"l": [{"n": 2, "m": 3}]}),
        (["zz", "a.zz", "a.b.zz", "l.9", "l.01"], {"a": {"b": 0, "c": 1}, "l": [{"n": 1}, {"n": 2, "m": 3}, 7]}),
        ([], {"a": {"b": 0, "c": 1}, "l": [{"n": 1}, {"n": 2, "m": 3}, 7]}),
    ],
)
def test_exclude_removes_the_leaf_and_never_its_parent(paths: list[str], left: Any) -> None:
    context = {"a": {"b": 0, "c": 1}, "l": [{"n": 1}, {"n": 2, "m": 3}, 7]}
    assert view({"exclude": paths}, context) == View(left, [])


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        (["a.b"], {"a": {"b": 0}}),
        (["a", "a.b"], {"a": {"b": 0, "c": {}}}),
        (["a.c"], {"a": {"c": {}}}),
        (["l.n"], {"l": [{"n": 1}, {"n": 2}]}),
        (["l.1.m", "l.n"], {"l": [{"n": 1}, {"n": 2, "m": 3}]}),
        (["l.1"], {"l": [{"n": 2, "m": 3}]}),
        (["a.zz", "zz", "l.zz", "a.b.c"], {}),
        ([], {}),
    ],
)
def test_include_keeps_the_leaf_and_its_ancestors(paths: list[str], left: Any) -> None:
    context = {"a": {"b": 0, "c": {}}, "l": [{"n": 1}, {"n": 2, "m": 3}, 7]}
    assert view({"include": paths}, context) == View(left, [])


def test_lists_in_lists_are_entered() -> None:
    context = {"l": [[{"n": 1, "m": 2}], [{"n": 3}]]}
    assert view({"exclude": ["l.n"]}, context).context == {"l": [[{"m": 2}], [{}]]}
    assert view({"include": ["l.n"]}, context).context == {"l": [[{"n": 1}], [{"n": 3}]]}
    assert view({"exclude": ["l.0.0.n"]}, context).context == {"l": [[{"m": 2}], [{"n": 3}]]}


def test_a_number_is_a_key_in_an_object() -> None:
    assert view({"exclude": ["a.0"]}, {"a": {"0": 1, "1": 2}}).context == {"a": {"1": 2}}


def test_a_backslash_makes_a_dot_part_of_a_key() -> None:
    assert view({"exclude": [r"a\.b.c"]}, {"a.b": {"c": 1}, "a": {"b": {"c": 1}}}).context == {"a.b": {}, "a": {"b": {"c": 1}}}
    assert view({"exclude": ["a\\\\.b"]}, {"a\\": {"b": 1}}).context == {"a\\": {}}


def test_include_comes_before_exclude_and_both_before_the_transforms() -> None:
    data = {"include": ["metadata"], "exclude": ["metadata.secret"]} | rule("template", "template", "{{ context }}")
    assert view(data).context == {"out": '{"page":3}'.join(['{"metadata":', "}"])}


def test_no_hints_leave_the_context_as_it_is() -> None:
    assert apply_hints(None, CONTEXT) == View(CONTEXT, [])
    assert view({}) == View(CONTEXT, [])
    assert view({"transform": {}, "mode": "replace"}) == View(CONTEXT, [])


# ---- modes ----


def test_replace_is_the_default_and_shows_the_outputs_alone() -> None:
    assert view(rule("literal", "literal", 1)).context == {"out": 1}
    assert view(rule("literal", "literal", 1) | {"mode": "replace"}).context == {"out": 1}


def test_merge_overlays_what_is_left() -> None:
    data = {"mode": "merge", "exclude": ["metadata"], "transform": {"text": {"type": "literal", "literal": "short"}}}
    left = {key: value for key, value in CONTEXT.items() if key != "metadata"}
    assert view(data).context == left | {"text": "short"}


# ---- rules ----


@pytest.mark.parametrize(
    ("text", "gives"),
    [
        ("Hello {{ context.metadata.page }}", "Hello 3"),
        ("{{ context.text }}", "é <b>"),
        ("[{{ context.zz }}{{ context.zz.y.x }}{{ context.nothing }}{{ context.items.zz }}]", "[]"),
        ("{{ context.ok }} {{ context.ratio }} {{ context.items[0] }}", 'true 1.5 {"name":"x","cost":1}'),
        ("{% for i in context.items %}{{ loop.index }}{{ i.name }}{% if not loop.last %}, {% endif %}{% endfor %}", "1x, 2y"),
        ("{% for k, v in context.metadata|items %}{{ k }}={{ v }};{% endfor %}", "secret=s3cret;page=3;"),
        ("{{ context.items|map(attribute='name')|join(', ') }}", "x, y"),
        ("{{ context.items|selectattr('cost', 'gt', 1)|map(attribute='name')|map('upper')|first }}", "Y"),
        ("{{ context.metadata.items }}{{ 'some' if context.metadata.items else 'none' }}", "none"),
        ("{{ context.metadata|tojson }}", '{"secret":"s3cret","page":3}'),
        ("{{ 'a\nb'|indent(2) }}", "a\n  b"),
        ("{{ context.text|replace('é', 'e')|upper }}", "E <B>"),
        ("{{ context.metadata.page * 2 }} {{ 3|times(context.ratio) }} {{ 1 + 2 }}", "6 4.5 3"),
        ("{{ 'a' ~ 1 ~ true }}", "a1True"),
        ("{% set x %}<{{ context.metadata.page }}>{% endset %}{{ x }}{% with q = 3 %}{{ q }}{% endwith %}", "<3>3"),
        ("{# * #}* {% raw %}{{ * }}{% endraw %}", "* {{ * }}"),
        ("{{ {'a': {'b': 1}} }}{{ [1,2]|length }}{{ range(3)|join }}", '{"a":{"b":1}}2012'),
        ("{{ context.zz|default('-') }}", "-"),
        ("{{ ['b', 'a', 'b', 1]|unique|join(' ') }}", "b a 1"),
    ],
)
def test_a_template_renders(text: str, gives: str) -> None:
    assert template(text) == gives


@pytest.mark.parametrize(
    ("query", "gives"),
    [
        ("$.metadata.page", 3),
        ("$.zz", None),
        ("$.nothing", None),
        ("$..name", ["x", "y"]),
        ("$.items[?@.cost > 1].name", "y"),
        ("$.items[*]", CONTEXT["items"]),
        ("$.items[?match(@.name, '[xy]')].cost", [1, 2]),
        ("$.items[?search(@.name, '(')].cost", None),
        ("$[?match(@, '. <b>')]", "é <b>"),
        ("$[?search(@, '<')]", "é <b>"),
        ("$['a.b'].c", 1),
    ],
)
def test_an_extract_gives_null_the_one_or_a_list(query: str, gives: Any) -> None:
    assert view(rule("extract", "value", query)) == View({"out": gives}, [])


def test_a_literal_is_itself_and_is_not_shared() -> None:
    hints = parse_hints(rule("literal", "literal", {"a": [1]}))
    apply_hints(hints, CONTEXT).context["out"]["a"].append(2)
    assert apply_hints(hints, CONTEXT).context == {"out": {"a": [1]}}


@pytest.mark.parametrize(
    ("format", "gives"),
    [
        ("{metadata.page} of {text}", "3 of é <b>"),
        ("[{zz}{metadata.zz}{nothing}{text.zz}]", "[]"),
        ("{metadata} {items.name} {items.1.name}", '{"secret":"s3cret","page":3} ["x","y"] y'),
        ("{ok} {ratio}", "true 1.5"),
        ("{{metadata.page}} {{{metadata.page}}}", "{metadata.page} {3}"),
        (r"{a\.b.c}", "1"),
        ("", ""),
    ],
)
def test_a_format_inserts_what_its_paths_lead_to(format: str, gives: str) -> None:
    assert view(rule("format", "format", format)) == View({"out": gives}, [])


def test_inserted_text_is_not_scanned_again() -> None:
    context = {"a": "{b} {{ context.b }}", "b": "no"}
    assert view(rule("format", "format", "{a}"), context).context == {"out": "{b} {{ context.b }}"}
    assert template("{{ context.a }}", context) == "{b} {{ context.b }}"


# ---- failures while reading ----


@pytest.mark.parametrize("mode", ["replace", "merge"])
def test_a_rule_that_fails_leaves_its_key_out(mode: str) -> None:
    rules = {
        "metadata": {"type": "template", "template": "{{ context.metadata.secret + 1 }}"},
        "text": {"type": "literal", "literal": "kept"},
    }
    seen = view({"mode": mode, "transform": rules})
    assert "metadata" not in seen.context
    assert seen.context["text"] == "kept"
    assert [(error.key, error.type) for error in seen.errors] == [("metadata", "template")]
    assert "s3cret" not in msgspec.json.encode([seen.context, seen.errors]).decode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ 1 / 0 }}", "line 1: InvalidOperation"),
        ("\n{{ nope() }}", "line 2: UnknownFunction"),
        ("{{ context.clear() }}", "it failed with AttributeError"),
        ("{{ context.items.append(1) }}", "it failed with AttributeError"),
        ("{{ context['__len__']() }}", "line 1: InvalidOperation"),
        ("{{ debug() }}", "line 1: UnknownFunction"),
        ("{{ range(100000) }}", "a range has at most 10000 numbers"),
        ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "line 1: OutOfFuel"),
        ("{% for i in range(9999) %}{{ context }}{% endfor %}", TOO_LONG),
        (
            "{% set x %}{% for i in range(9999) %}{{ context }}{% endfor %}{% endset %}",
            TOO_LONG,
        ),
        ("{% for i in range(999) %}" + "x" * 1000 + "{% endfor %}", TOO_LONG),
        ("{{ range(9999)|join('x' * 999) }}", TOO_LONG),
        ("{{ ('a' * 999)|replace('a', '" + "b" * 999 + "') }}", TOO_LONG),
        ("{{ 'a'|times(1000000000) }}", "`times` multiplies two numbers"),
        (
            "{{ context|map('batch') }}",
            "`map` takes an attribute or one of float, int, length, lower, string, title, trim, upper",
        ),
    ],
)
def test_a_template_runs_within_bounds(text: str, says: str) -> None:
    assert template(text) == says


def test_a_template_does_less_with_a_larger_context() -> None:
    many = {"l": [{"n": n, "text": "x" * 50} for n in range(2000)]}
    joined = "{% set x = 'a' ~ context %}" + "{% set x = x ~ x %}" * 4 + "{{ x|length }}"
    assert template(joined, {}) == "48"
    assert template(joined, many) == "the template joins too much for a context of this size"
    upper_often = "{% for i in range(9999) %}{% set x = context.s|upper %}{% endfor %}"
    assert template(upper_often, {"s": "x"}) == ""
    assert template(upper_often, {"s": "x" * 999_999}) == "line 1: OutOfFuel"


def test_a_template_cannot_change_what_it_is_given() -> None:
    context = {"a": {"b": [1]}}
    for text in (
        "{{ context.a.clear() }}",
        "{{ context.a.b.pop() }}",
        "{{ context.update({'x': 1}) }}",
        "{% set context.a = 1 %}",
    ):
        assert view(rule("template", "template", text), context).errors
    assert context == {"a": {"b": [1]}}


def test_an_extract_runs_within_bounds() -> None:
    wide: dict[str, Any] = {"a": [[[[["x"] * 10] * 10] * 10] * 10]}
    for query in ("$..*..*..*", "$..[?count(@..*) > 0 && count($..*) > 1]"):
        (error,) = view(rule("extract", "value", query), wide).errors
        assert error.message == "the query visits more than 100000 values"
    (error,) = view(rule("extract", "value", "$..[0]"), {"a": [["x" * 600_000]], "b": ["y" * 600_000]}).errors
    assert error.message == "the result is larger than 1048576 bytes"


def test_a_pattern_cannot_backtrack_without_end() -> None:
    assert view(rule("extract", "value", "$[?match(@, '(a+)+b')]"), {"t": "a" * 5000}) == View({"out": None}, [])


def test_a_format_runs_within_bounds() -> None:
    (error,) = view(rule("format", "format", "{a}" * 100), {"a": "x" * 9000}).errors
    assert error.message == TOO_LONG


def test_filters_that_fail_leave_an_empty_view() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    seen = view({"mode": "merge", "exclude": ["a.b"]} | rule("literal", "literal", 1), {"a": deep, "secret": 1})
    assert seen.context == {}
    assert [(error.key, error.type) for error in seen.errors] == [("", "filter")]


# ---- faults when written ----


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"includes": []}, "includes"),
        ({"include": "a"}, "include"),
        ({"include": None}, "include"),
        ({"include": ["a", 1]}, "include[1]"),
        ({"include": ["a", ""]}, "include[1]"),
        ({"exclude": ["a..b"]}, "exclude[0]"),
        ({"exclude": [".a"]}, "exclude[0]"),
        ({"exclude": ["a."]}, "exclude[0]"),
        ({"exclude": ["a\\"]}, "exclude[0]"),
        ({"exclude": ["a\\n"]}, "exclude[0]"),
        ({"exclude": ["a" * 1025]}, "exclude[0]"),
        ({"exclude": [".".join("a" * 65)]}, "exclude[0]"),
        ({"mode": "overlay"}, "mode"),
        ({"transform": []}, "transform"),
        ({"transform": None}, "transform"),
        ({"transform": {"k": "x"}}, "transform.k"),
        ({"transform": {"k": {}}}, "transform.k"),
        ({"transform": {"k": {"type": "script"}}}, "transform.k.type"),
        ({"transform": {"k": {"type": "template"}}}, "transform.k"),
        ({"transform": {"k": {"type": "literal"}}}, "transform.k"),
        ({"transform": {"k": {"type": "literal", "literal": 1, "more": 2}}}, "transform.k"),
        (rule("template", "template", 1), "transform.out.template"),
        (rule("template", "template", "x" * (16 * 1024 + 1)), "transform.out.template"),
        (rule("format", "format", "x" * (16 * 1024 + 1)), "transform.out.format"),
        (rule("format", "format", "{a"), "transform.out.format"),
        (rule("format", "format", "a}"), "transform.out.format"),
        (rule("format", "format", "{}"), "transform.out.format"),
        (rule("format", "format", "{a..b}"), "transform.out.format"),
        (rule("extract", "value", "a.b"), "transform.out.value"),
        (rule("extract", "value", "$["), "transform.out.value"),
        (rule("extract", "value", "$[?nope(@)]"), "transform.out.value"),
        (rule("extract", "value", "$" + ".a" * 2000), "transform.out.value"),
        ({"transform": {str(n): {"type": "literal", "literal": n} for n in range(65)}}, "transform"),
        ({"transform": {str(n): {"type": "literal", "literal": "x" * 10_000} for n in range(7)}}, None),
        ({"include": [object()]}, None),
        ([], None),
    ],
)
def test_a_fault_is_refused_when_it_is_written(data: Any, where: str | None) -> None:
    with pytest.raises(Invalid) as refused:
        parse_hints(data)
    assert (refused.value.code, refused.value.where) == ("invalid_hints", where)


@pytest.mark.parametrize(
    "text",
    [
        "{{ x",
        "{% if %}",
        "{% for a in b %}",
        "{{ a|nope }}",
        "{{ a|batch(1000000000) }}",
        "{{ a|map('x', default=1)|format }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{% macro m() %}{{ m() }}{% endmacro %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% for a in b recursive %}{{ loop(a) }}{% endfor %}",
        "{{ 'a' * context.n }}",
        "{{ 'a' * 10000 }}",
        "{{ 'a' * 10|times(10) }}",
        "{{ 2 ** 3 }}",
        "{{ 'x' * 9999 * 9999 * 9999 }}",
        "{% set x = 'a' %}" + "{% set x = x ~ x %}" * 9,
    ],
)
def test_a_template_that_is_wrong_or_has_no_bound_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_hints(rule("template", "template", text))
    assert (refused.value.code, refused.value.where) == ("invalid_hints", "transform.out.template")


# ---- hints as data ----


def test_no_hints_are_none() -> None:
    assert parse_hints(None) is None


def test_hints_come_back_as_they_were_written() -> None:
    written = {
        "include": [],
        "exclude": ["a.b"],
        "mode": "replace",
        "transform": {
            "t": {"type": "template", "template": "{{ context.a }}"},
            "e": {"type": "extract", "value": "$.a"},
            "l": {"type": "literal", "literal": None},
            "f": {"type": "format", "format": "{a}"},
        },
    }
    for part in ({}, written, *({key: value} for key, value in written.items())):
        hints = parse_hints(part)
        assert msgspec.to_builtins(hints) == part
        assert msgspec.convert(part, Hints) == hints
        assert msgspec.json.decode(msgspec.json.encode(hints), type=Hints) == hints


def test_hints_that_were_stored_apply_without_being_parsed_again() -> None:
    assert apply_hints(msgspec.convert({"include": ["text"]}, Hints), CONTEXT).context == {"text": "é <b>"}


def test_what_is_done_to_the_data_later_does_not_reach_the_hints() -> None:
    data: dict[str, Any] = {"include": ["text"]}
    hints = parse_hints(data)
    data["include"].append("metadata")
    assert msgspec.to_builtins(hints) == {"include": ["text"]}


def test_the_hints_of_the_record_win_whole_over_those_of_its_schema() -> None:
    own, schema = parse_hints({"exclude": ["a"]}), parse_hints({"include": ["b"]})
    assert effective(own, schema) is own
    assert effective(None, schema) is schema
    assert effective(parse_hints({}), schema) == parse_hints({})
    assert effective(None, None) is None


def test_hints_inside_a_context_are_moved_out() -> None:
    context = {"a": 1, "llm_hints": {"include": ["a"]}}
    assert move_inline_hints(context) == ({"a": 1}, {"include": ["a"]})
    assert "llm_hints" in context
    assert move_inline_hints({"a": 1}) == ({"a": 1}, None)
