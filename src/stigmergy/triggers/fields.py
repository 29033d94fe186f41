"""Whether the fields that a trigger names exist: a misspelt one would read null for ever and never fire."""

import msgspec

from stigmergy.errors import Invalid
from stigmergy.kernel.condition_text import path_at, resolve, scan
from stigmergy.kernel.matching import collections_for
from stigmergy.kernel.record import COLLECTIONS, templates
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.selectors import parse_event
from stigmergy.kernel.subjects import Path, snake_case

_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})


def check_fields(rule: Rule) -> None:
    """`Invalid` for a field that no collection of the trigger has."""
    collections = collections_for(rule.collection, templates())
    known = {field.name for name in collections for field in msgspec.structs.fields(COLLECTIONS[name].record)}
    for path, where in [*_in_events(rule), *_in_condition(rule)]:
        if path[0] not in ("data", "before") or len(path) < 2 or path[1] in known or snake_case(path[1]) in known:
            continue
        fields = ", ".join(sorted(known))
        message = f"{path[1]!r} is no field of {' or '.join(sorted(collections))}; there are {fields}"
        raise Invalid(message, where, "unknown_field")


def _in_events(rule: Rule) -> list[tuple[Path, str]]:
    matchers = [matcher for matcher in parse_event(rule.events).values() if matcher is not None]
    return [(anchor.source, "event") for matcher in matchers for anchor in matcher.anchors]


def _in_condition(rule: Rule) -> list[tuple[Path, str]]:
    text = rule.condition or ""
    return [(path, f"condition, {_place(text, offset)}") for path, offset in named_paths(text)]


def named_paths(text: str) -> list[tuple[Path, int]]:
    """What a condition reads of a change, with the place in its text. The elements of macros are their own."""
    tokens = scan(text)
    elements = {
        tokens[at + 2].text
        for at in range(1, len(tokens) - 2)
        if tokens[at].text in _MACROS and tokens[at - 1].text == "." and tokens[at + 1].text == "("
    }
    found: list[tuple[Path, int]] = []
    at = 0
    while at < len(tokens):
        path = path_at(tokens, at)
        if path is None:
            at += 1
            continue
        names, end = path
        if names[0] not in elements:
            found.append((resolve(names, text, tokens[at].start), tokens[at].start))
        at = end
    return found


def _place(text: str, offset: int) -> str:
    before = text[:offset]
    return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"
