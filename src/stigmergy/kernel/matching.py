"""Which rules a change fires: asked while the change is written, for every change, so it must cost next to nothing.

A rule names collections and events, and has matchers (a selector, an event's shorthand, a condition): predicates over the
`Subject`, which is the change. `RuleIndex` files each rule by collection, event and the most selective equality it requires,
so that a change meets only the rules that share a value with it. The rule's own predicate then decides.

- `RuleIndex.match` gives exactly the rules whose predicates hold, in the order of (order, id); the index never decides.
- A predicate that cannot answer raises `ConditionFailed`; the rule does not fire and the failure is returned beside it.
- A failure counts only where nothing else says no: a rule whose selector does not match has no failing condition.

What compiles to matchers is above: `conditions.py` (expressions), `selectors.py` (selectors, the shorthand). Pure: no I/O.
"""

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast

from stigmergy.errors import Invalid


class Subject(Protocol):
    """What is matched: a change as it is being written. A property may be computed when it is first read."""

    @property
    def collection(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def actor(self) -> str: ...
    @property
    def cause(self) -> int | None: ...
    @property
    def depth(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def schema_name(self) -> str: ...
    @property
    def tags(self) -> Sequence[str]: ...
    @property
    def context(self) -> Mapping[str, Any]: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def before(self) -> Mapping[str, Any] | None: ...


FailureKind = Literal["condition_error", "condition_not_boolean", "condition_over_bound"]
Predicate = Callable[[Subject], bool]
Read = Callable[[Subject], Any]
Path = tuple[str, ...]
Scalar = str | int | float | bool | None

EVENTS = ("create", "update", "delete")


class ConditionFailed(Exception):
    """A condition that could not answer: nothing fires, and whoever asked writes one diagnostic per kind."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message


class Anchor(NamedTuple):
    """What must hold for a predicate to be true: what is read is one of `values`, or, for `many`, holds one of them.
    Where it does not hold the predicate is false and cannot fail. `source` names what is read: the index reads it once."""

    source: Path
    read: Read
    values: tuple[Scalar, ...]
    many: bool = False


class Matcher(NamedTuple):
    """A compiled selector, shorthand or condition. `parts` are the predicates it consists of, each with what it asks for."""

    predicate: Predicate
    anchors: tuple[Anchor, ...] = ()
    parts: tuple[tuple[str, Predicate], ...] = ()


# ---- reading a subject ----


def reader(path: Path) -> Read:
    """What a path reads: an attribute of the subject, then fields and list items; None where it leads nowhere.
    In data and before, a camelCase field that is absent reads its snake_case sister."""
    root, *steps = path
    start: Read = operator.attrgetter(root)
    if not steps:
        return start
    if root not in ("data", "before", "context"):
        return _follow(start, steps)
    name, *rest = steps
    sister = name if root == "context" else snake_case(name)
    field = _field_or_sister(start, name, sister) if sister != name else _field(start, name, optional=root == "before")
    return _follow(field, rest) if rest else field


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if name[:1].islower() else name


def _field(start: Read, name: str, optional: bool) -> Read:
    if not optional:
        return lambda subject: start(subject).get(name)

    def read(subject: Subject) -> Any:
        fields = start(subject)
        return None if fields is None else fields.get(name)

    return read


def _field_or_sister(start: Read, name: str, sister: str) -> Read:
    def read(subject: Subject) -> Any:
        fields = start(subject)
        return None if fields is None else fields.get(name if name in fields else sister)

    return read


def _follow(start: Read, steps: Sequence[str]) -> Read:
    """Steps into plain values: a field of a dict, an item of a list by its position."""
    indexed = [(step, int(step) if re.fullmatch("0|[1-9][0-9]{0,8}", step) else None) for step in steps]

    def read(subject: Subject) -> Any:
        value = start(subject)
        for name, index in indexed:
            if isinstance(value, dict):
                value = cast(dict[str, Any], value).get(name)
            elif index is not None and isinstance(value, list | tuple):
                items = cast(Sequence[Any], value)
                value = items[index] if index < len(items) else None
            else:
                return None
        return value

    return read


# ---- predicates ----


def always(subject: Subject) -> bool:
    return True


def every(tests: Sequence[Predicate]) -> Predicate:
    """All hold. A failure counts only where no other test says no."""
    if len(tests) < 2:
        return tests[0] if tests else always
    if len(tests) == 2:
        return _both(*tests)
    ordered = tuple(tests)

    def test(subject: Subject) -> bool:
        failure = None
        for each in ordered:
            try:
                if not each(subject):
                    return False
            except ConditionFailed as failed:
                failure = failed
        if failure is not None:
            raise failure
        return True

    return test


def _both(first: Predicate, second: Predicate) -> Predicate:
    def test(subject: Subject) -> bool:
        try:
            if not first(subject):
                return False
        except ConditionFailed:
            if not second(subject):
                return False
            raise
        return second(subject)

    return test


def equals(read: Read, value: Scalar) -> Predicate:
    if value is None or isinstance(value, bool):
        return lambda subject: read(subject) is value
    if value in (0, 1):  # which Python holds equal to False and True
        return lambda subject: (found := read(subject)) == value and found.__class__ is not bool
    return lambda subject: read(subject) == value


def some(tests: Sequence[Predicate]) -> Predicate:
    """At least one holds. A failure counts only where no other test says yes."""
    if len(tests) == 1:
        return tests[0]
    ordered = tuple(tests)

    def test(subject: Subject) -> bool:
        failure = None
        for each in ordered:
            try:
                if each(subject):
                    return True
            except ConditionFailed as failed:
                failure = failed
        if failure is not None:
            raise failure
        return False

    return test


def one_of(read: Read, values: Sequence[Scalar]) -> Predicate:
    bools = frozenset(value for value in values if isinstance(value, bool))
    others = frozenset(value for value in values if not isinstance(value, bool))

    def test(subject: Subject) -> bool:
        found = read(subject)
        if found.__class__ is dict or found.__class__ is list:
            return False
        return found in (bools if found.__class__ is bool else others)

    return test


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def comparable_with(value: Scalar) -> tuple[type, ...]:
    """The types that have an order with the value."""
    return (int, float) if value.__class__ in (int, float) else (value.__class__,)


def ordered(path: Path, sign: str, value: Scalar) -> Predicate:
    read, compare, types = reader(path), _ORDERS[sign], comparable_with(value)

    def test(subject: Subject) -> bool:
        found = read(subject)
        if found.__class__ in types:
            return compare(found, value)
        raise ConditionFailed("condition_error", f"{show(path)} is {kind_of(found)} and cannot be compared with {value!r}")

    return test


def holds_text(path: Path, text: str) -> Predicate:
    read = reader(path)

    def test(subject: Subject) -> bool:
        found = read(subject)
        if isinstance(found, list | tuple | dict):
            return text in found
        raise ConditionFailed("condition_error", f"{show(path)} is {kind_of(found)}; `in` needs a list or a map")

    return test


def boolean(path: Path, failure: FailureKind) -> Predicate:
    read = reader(path)

    def test(subject: Subject) -> bool:
        found = read(subject)
        if found.__class__ is bool:
            return found
        raise ConditionFailed(failure, f"{show(path)} is {kind_of(found)}, not a boolean")

    return test


def show(path: Path) -> str:
    return ".".join(path)


def negated(test: Predicate) -> Predicate:
    return lambda subject: not test(subject)


_KINDS: dict[Any, str] = {str: "a string", int: "a number", float: "a number", bool: "a boolean", dict: "a map", list: "a list"}


def kind_of(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


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
        event: _joined([matcher for matcher in (path, equalities, *matchers) if matcher is not None])
        for event, equalities in shorthand.items()
    }
    return CompiledRule(id, order, collection, frozenset(collections), by_event, payload)


def _joined(matchers: Sequence[Matcher]) -> Matcher:
    return Matcher(
        every([matcher.predicate for matcher in matchers if matcher.predicate is not always]),
        tuple(anchor for matcher in matchers for anchor in matcher.anchors),
        tuple(part for matcher in matchers for part in matcher.parts),
    )


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
