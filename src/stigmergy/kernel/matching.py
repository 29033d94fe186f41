"""Which rules a change fires: asked while the change is written, for every change, so it must cost next to nothing.

A rule names collections and events, and has matchers (a selector, an event's shorthand, a condition): predicates over the
`Subject`, which is the change. `RuleIndex` files each rule by collection, event and the most selective equality it requires,
so that a change meets only the rules that share a value with it. The rule's own predicate then decides.

- `RuleIndex.match` gives exactly the rules whose predicates hold, in the order of (order, id); the index never decides.
- A predicate that cannot answer raises `ConditionFailed`; the rule does not fire and the failure is returned beside it.
- A failure counts only where nothing else says no: a rule whose selector does not match has no failing condition.

What matchers are compiled from is beside this: `conditions.py` (expressions), `selectors.py` (selectors, the shorthand).
They and this stand on `predicates.py` and `subjects.py`. Pure: no I/O.
"""

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stigmergy.errors import Invalid
from stigmergy.kernel.predicates import Anchor, ConditionFailed, Matcher, Predicate, joined
from stigmergy.kernel.subjects import EVENTS, Path, Read, Scalar, Subject

# ---- collections ----


def collections_for(pattern: str, templates: Mapping[str, str]) -> tuple[str, ...]:
    """The collections a pattern can match: a short name, `*` for all of them, or a path in which `*` (or `{name}`) is one
    segment and a last `**` the rest. `templates` are the canonical paths: `users/{owner_id}/orch-chats/{space_id}/tasks`."""
    if pattern == "*":
        return tuple(templates)
    if "/" not in pattern and pattern != "**":
        found = (pattern,) if pattern in templates else ()
    else:
        wanted = _segments(pattern)
        found = tuple(name for name, template in templates.items() if _agree(wanted, template.split("/")))
    if not found:
        known = ", ".join(sorted(templates))
        raise Invalid(f"{pattern!r} matches no collection; there are {known}", where="collection", code="unknown_collection")
    return found


def _segments(pattern: str) -> list[str]:
    segments = pattern.strip("/").split("/")
    for position, segment in enumerate(segments):
        if "*" in segment and segment != "*" and (segment != "**" or position + 1 < len(segments)):
            message = f"{segment!r} is not a segment: `*` stands for a whole one, `**` for the rest and comes last"
            raise Invalid(message, where="collection", code="invalid_pattern")
    return segments


def _is_open(segment: str) -> bool:
    return segment == "*" or (segment.startswith("{") and segment.endswith("}"))


def _agree(wanted: Sequence[str], template: Sequence[str]) -> bool:
    fixed = wanted[:-1] if wanted[-1] == "**" else wanted
    if len(template) < len(fixed) or (fixed is wanted and len(template) != len(wanted)):
        return False
    return all(_is_open(mine) or _is_open(theirs) or mine == theirs for mine, theirs in zip(fixed, template, strict=False))


def _path_matcher(pattern: str, collections: Iterable[str], templates: Mapping[str, str]) -> Matcher | None:
    """What is left to check of a path once its collection agrees: the segments that are open in the template only."""
    if "/" not in pattern:
        return None
    paths = [templates[name].split("/") for name in collections]
    checks = [
        (position, segment)
        for position, segment in enumerate(_segments(pattern))
        if segment != "**" and not _is_open(segment) and any(_is_open(path[position]) for path in paths)
    ]
    if not checks:
        return None

    def test(subject: Subject) -> bool:
        segments = subject.path.split("/")
        return all(position < len(segments) and segments[position] == segment for position, segment in checks)

    return Matcher(test, (), ((f"the path matches {pattern}", test),))


# ---- rules ----


class CompiledRule(NamedTuple):
    """A rule ready to be matched; `payload` is the caller's own."""

    id: str
    order: int
    pattern: str
    collections: frozenset[str]
    matchers: Mapping[str, Matcher]  # by event
    payload: Any = None

    def matches(self, subject: Subject) -> bool:
        """Whether the rule fires, without an index. Raises `ConditionFailed`."""
        matcher = self.matchers.get(subject.event)
        return matcher is not None and subject.collection in self.collections and matcher.predicate(subject)


def compile_rule(
    id: str,
    collection: str,
    events: Sequence[str] | Mapping[str, Matcher | None],
    *matchers: Matcher | None,
    templates: Mapping[str, str],
    order: int = 0,
    payload: Any = None,
) -> CompiledRule:
    """A rule for a short name or a path pattern, and for events (as `parse_event` gives them, where there is a shorthand).
    All matchers must hold; those that are None are left out."""
    collections = collections_for(collection, templates)
    shorthand = events if isinstance(events, Mapping) else dict.fromkeys(events)
    if unknown := [event for event in shorthand if event not in EVENTS]:
        raise Invalid(f"{unknown[0]!r} is not an event; there are {', '.join(EVENTS)}", where="event", code="unknown_event")
    path = _path_matcher(collection, collections, templates)
    by_event = {
        event: joined([matcher for matcher in (path, equalities, *matchers) if matcher is not None])
        for event, equalities in shorthand.items()
    }
    return CompiledRule(id, order, collection, frozenset(collections), by_event, payload)


def explain(rule: CompiledRule, subject: Subject) -> str | None:
    """Why a rule does not fire for a change; None where it does."""
    if subject.collection not in rule.collections:
        return f"the collection is {subject.collection}, not {rule.pattern}"
    matcher = rule.matchers.get(subject.event)
    if matcher is None:
        return f"the event is {subject.event}, not {' or '.join(rule.matchers)}"
    failures: list[str] = []
    for asked, test in matcher.parts:
        try:
            if not test(subject):
                return f"not so: {asked}"
        except ConditionFailed as failure:
            failures.append(f"{failure.kind}: {failure.message} ({asked})")
    return failures[0] if failures else None


# ---- the index ----


class Match(NamedTuple):
    """A rule that fires, or, with a failure, one whose condition could not answer."""

    rule: CompiledRule
    failure: ConditionFailed | None = None


_Entry = tuple[tuple[int, str], Predicate, CompiledRule]  # sorts by (order, id)
_Buckets = dict[Scalar, tuple[_Entry, ...]]


class _Lookup(NamedTuple):
    read: Read
    many: bool
    buckets: _Buckets


class _Table(NamedTuple):
    """The rules for one collection and event: filed under values, and the rest, which every change must meet."""

    lookups: tuple[_Lookup, ...]
    rest: tuple[_Entry, ...]


class RuleIndex:
    """Rules, filed once; immutable. A rule compiled for `*` covers the collections of its templates."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        filed: dict[tuple[str, str], list[tuple[_Entry, Matcher]]] = {}
        for rule in rules:
            for event, matcher in rule.matchers.items():
                entry = ((rule.order, rule.id), matcher.predicate, rule)
                for collection in rule.collections:
                    filed.setdefault((collection, event), []).append((entry, matcher))
        self._tables = {key: _table(entries) for key, entries in filed.items()}

    def match(self, subject: Subject) -> Sequence[Match]:
        """The rules that fire, and those that failed, in the order of (order, id)."""
        table = self._tables.get((subject.collection, subject.event))
        if table is None:
            return ()
        found = table.rest
        for read, many, buckets in table.lookups:
            value = read(subject)
            if many:
                hits = [entry for each in value for entry in buckets.get(each, ())]
                found = (*found, *{id(entry): entry for entry in hits}.values()) if hits else found
                continue
            try:
                hit = buckets.get(value)
            except TypeError:  # a list or a map equals no value a rule can require
                continue
            if hit is not None:
                found = (*found, *hit) if found else hit
        return _decide(found, subject) if found else ()


def _decide(candidates: tuple[_Entry, ...], subject: Subject) -> Sequence[Match]:
    matches: list[Match] = []
    for _, predicate, rule in sorted(candidates, key=_entry_key) if len(candidates) > 1 else candidates:
        try:
            if predicate(subject):
                matches.append(Match(rule))
        except ConditionFailed as failure:
            matches.append(Match(rule, failure))
    return matches


_entry_key = operator.itemgetter(0)


def _table(rules: Sequence[tuple[_Entry, Matcher]]) -> _Table:
    """Each rule under the anchor whose values the fewest other rules require; of equal ones, under the source that most
    rules share, so that a change is asked for few values."""
    crowd = Counter((anchor.source, value) for _, matcher in rules for anchor in matcher.anchors for value in anchor.values)
    shared = Counter(source for _, matcher in rules for source in {anchor.source for anchor in matcher.anchors})

    def rank(anchor: Anchor) -> tuple[int, int, Path]:
        return max((crowd[anchor.source, value] for value in anchor.values), default=0), -shared[anchor.source], anchor.source

    rest: list[_Entry] = []
    chosen: dict[tuple[Path, bool], tuple[Anchor, dict[Scalar, list[_Entry]]]] = {}
    for entry, matcher in rules:
        if not matcher.anchors:
            rest.append(entry)
            continue
        anchor = min(matcher.anchors, key=rank)
        _, buckets = chosen.setdefault((anchor.source, anchor.many), (anchor, {}))
        for value in set(anchor.values):
            buckets.setdefault(value, []).append(entry)
    lookups = (
        _Lookup(anchor.read, anchor.many, {value: tuple(entries) for value, entries in buckets.items()})
        for anchor, buckets in chosen.values()
    )
    return _Table(tuple(lookups), tuple(sorted(rest, key=_entry_key)))
