"""Filters as a model of leaves, and what no hints may ever do: change the context, or show what they exclude."""

import copy
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stigmergy.breadcrumbs.hints import apply_hints, parse_hints

MARKER = "s3cret-marker"
NAMES = ["a", "b", "c", "0", "1", "x.y"]

names = st.sampled_from(NAMES)
leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "{a}", "{{ context }}", "é<"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=12
)
contexts = st.dictionaries(names, values, max_size=4)
paths = st.lists(names, min_size=1, max_size=3).map(lambda steps: ".".join(step.replace(".", "\\.") for step in steps))
path_lists = st.lists(paths, max_size=3)
TEMPLATES = [
    "{{ context }}",
    "{{ context|tojson }}{{ context.a }}{{ context.b.c }}",
    "{% for k, v in context|items %}{{ k }}: {{ v ~ '' }}{% endfor %}",
    "{{ context.a + 1 }}",
    "{{ context.a.pop('b') }}",
    "{{ context.clear() }}",
    "{{ context.b|list|join }}",
    "{{ context.a|replace('s', context.b) }}",
]
rules = (
    st.sampled_from(TEMPLATES).map(lambda text: {"type": "template", "template": text})
    | st.sampled_from(["$", "$..*", "$.a", "$.a[0]", "$..b", "$[?@.a]"]).map(lambda text: {"type": "extract", "value": text})
    | st.sampled_from(["{a}", "{a.b} {b}", "{b.0.a}{c}"]).map(lambda text: {"type": "format", "format": text})
    | leaves.map(lambda value: {"type": "literal", "literal": value})
)
hints = st.fixed_dictionaries(
    {},
    optional={
        "include": path_lists,
        "exclude": path_lists,
        "transform": st.dictionaries(names, rules, max_size=3),
        "mode": st.sampled_from(["replace", "merge"]),
    },
)


def seen(data: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    return apply_hints(parse_hints(data), context).context


def leaves_of(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place that holds a value that is neither an object nor a list."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    return [path] if below is None else [leaf for key, each in below for leaf in leaves_of(each, (*path, key))]


def names_of(path: tuple[str | int, ...]) -> str:
    """The path that goes into every item of the lists on the way."""
    return ".".join(step.replace(".", "\\.") for step in path if isinstance(step, str))


@given(hints, contexts)
def test_the_context_is_never_changed(data: dict[str, Any], context: dict[str, Any]) -> None:
    before = copy.deepcopy(context)
    apply_hints(parse_hints(data), context)
    assert context == before


@given(hints, contexts)
def test_the_same_hints_give_the_same_bytes(data: dict[str, Any], context: dict[str, Any]) -> None:
    assert msgspec.json.encode(apply_hints(parse_hints(data), context)) == msgspec.json.encode(
        apply_hints(parse_hints(copy.deepcopy(data)), copy.deepcopy(context))
    )


@settings(max_examples=300)
@given(hints, contexts, st.data())
def test_what_is_excluded_is_nowhere_in_the_view(data: dict[str, Any], context: dict[str, Any], draw: st.DataObject) -> None:
    place = draw.draw(st.sampled_from([(name,) for name in NAMES] + [("a", "b"), ("b", "c"), ("a", "x.y")]))
    *above, last = place
    parent = context
    for name in above:
        parent[name] = parent = dict(parent[name]) if isinstance(parent.get(name), dict) else {}
    parent[last] = draw.draw(st.sampled_from([MARKER, [MARKER], {"k": [MARKER]}]))
    view = apply_hints(parse_hints(data | {"exclude": [*data.get("exclude", []), names_of(place)]}), context)
    assert MARKER not in msgspec.json.encode(view).decode()


@settings(max_examples=300)
@given(hints.filter(lambda data: "include" in data), contexts)
def test_what_is_not_included_is_nowhere_in_the_view(data: dict[str, Any], context: dict[str, Any]) -> None:
    assert MARKER not in msgspec.json.encode(apply_hints(parse_hints(data), context | {"hidden": MARKER})).decode()


@given(path_lists, contexts)
def test_excluding_twice_by_name_is_excluding_once(excluded: list[str], context: dict[str, Any]) -> None:
    by_name = [path for path in excluded if not {"0", "1"} & set(path.split("."))]
    once = seen({"exclude": by_name}, context)
    assert seen({"exclude": by_name}, once) == once


@given(path_lists, path_lists, contexts)
def test_excluding_together_is_excluding_in_turn_where_no_position_moves(
    first: list[str], second: list[str], context: dict[str, Any]
) -> None:
    first = [path for path in first if not {"0", "1"} & set(path.split("."))]
    assert seen({"exclude": first + second}, context) == seen({"exclude": second}, seen({"exclude": first}, context))


@given(path_lists, contexts)
def test_filters_make_no_leaf_of_their_own(some: list[str], context: dict[str, Any]) -> None:
    for data in ({"exclude": some}, {"include": some}):
        kept = {names_of(leaf) for leaf in leaves_of(seen(data, context))}
        assert kept <= {names_of(leaf) for leaf in leaves_of(context)}


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3), contexts)
def test_each_leaf_is_either_kept_or_removed_by_the_same_path(steps: list[str], context: dict[str, Any]) -> None:
    path = ".".join(steps)
    kept, left = seen({"include": [path]}, context), seen({"exclude": [path]}, context)

    def places(value: Any) -> list[str]:
        return sorted(map(names_of, leaves_of(value)))

    assert sorted(places(kept) + places(left)) == places(context)


@given(path_lists, contexts)
def test_excluding_what_is_included_leaves_no_leaf(some: list[str], context: dict[str, Any]) -> None:
    by_name = [path for path in some if not {"0", "1"} & set(path.split("."))]
    assert not leaves_of(seen({"include": by_name, "exclude": by_name}, context))


@given(contexts)
def test_including_every_name_keeps_every_leaf(context: dict[str, Any]) -> None:
    assert seen({"include": [names_of((name,)) for name in NAMES]}, context) == context
