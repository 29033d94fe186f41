"""Selectors: which records someone asks for, the same for the feed, subscriptions, triggers and lists.

    {schema_name?, any_tags?, all_tags?, none_tags?, context_match?: [{path, op, value}], where?: CEL}

All of it must hold. What is guaranteed:

- `{}` matches everything. `any_tags: []` matches nothing; `all_tags: []` and `none_tags: []` ask for nothing.
- `schema_name` is exact, or a prefix where it ends in `*`.
- In context_match a missing field matches nothing but `exists: false`, and missing equals null: `exists` asks for a value
  that is not null, and no op compares with null. A field of another type than the value matches nothing, `ne` included;
  a bool is not a number, int and float compare. `gt` and its sisters take strings and numbers.
- `contains` looks for a string in a string and for an item in a list; `contains_any` is `contains` for one value of several.
- A path is dotted (`metadata.items.0.name`): field names, and positions in a list.
- Unknown keys, ops, bad paths and values an op cannot use are `Invalid` with the place of the fault.

Also here: the shorthand of a rule's events, `update (status='success')`.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, cast

import msgspec

from stigmergy.errors import Invalid
from stigmergy.kernel.conditions import compile_condition
from stigmergy.kernel.predicates import Anchor, Matcher, Predicate, comparable_with, equals, every, joined
from stigmergy.kernel.subjects import EVENTS, Path, Read, Scalar, Subject, reader

OPS: Final = ("eq", "ne", "gt", "gte", "lt", "lte", "contains", "contains_any", "exists")
MAX_MATCHES = 32
MAX_NAMES = 256  # tags in a list, values in contains_any
MAX_STEPS = 16


class ContextMatch(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    path: str
    op: str
    value: Any = None


class Selector(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    schema_name: str | None = None
    any_tags: tuple[str, ...] | None = None
    all_tags: tuple[str, ...] | None = None
    none_tags: tuple[str, ...] | None = None
    context_match: tuple[ContextMatch, ...] = ()
    where: str | None = None


def parse_selector(data: Mapping[str, Any]) -> Selector:
    """The selector a mapping describes. Raises `Invalid`, code `invalid_selector`, `where` like `context_match[1].op`."""
    try:
        selector = msgspec.convert(data, Selector)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise Invalid(message, where=place.strip("`.") or "selector", code="invalid_selector") from None
    compile_selector(selector)
    return selector


def compile_selector(selector: Selector) -> Matcher:
    """The selector as a predicate over subjects. Raises `Invalid` as `parse_selector` does."""
    matchers = [*_schema(selector.schema_name), *_tags(selector)]
    if len(selector.context_match) > MAX_MATCHES:
        _refuse(f"a selector may have {MAX_MATCHES} of them", "context_match")
    matchers += [_context(match, f"context_match[{i}]") for i, match in enumerate(selector.context_match)]
    if selector.where is not None:
        matchers.append(_where(selector.where))
    return joined(matchers)


def _refuse(message: str, where: str) -> NoReturn:
    raise Invalid(message, where=where, code="invalid_selector")


def _where(text: str) -> Matcher:
    try:
        condition = compile_condition(text)
    except Invalid as error:
        place = "where" + str(error.where or "").removeprefix("condition")
        message = str(error).removeprefix(f"{error.where}: ")
        _refuse(message, place)
    return condition._replace(parts=tuple((f"where {asked}", test) for asked, test in condition.parts))


def _matcher(asked: str, test: Predicate, *anchors: Anchor) -> Matcher:
    return Matcher(test, anchors, ((asked, test),))


# ---- schema name and tags ----


def _schema(wanted: str | None) -> list[Matcher]:
    if wanted is None:
        return []
    prefix = wanted.removesuffix("*")
    if not wanted or "*" in prefix:
        _refuse("it is a name, or the beginning of one with `*` at the end", "schema_name")
    asked = f"schema_name is {wanted}"
    if prefix == wanted:
        return [_matcher(asked, equals(_schema_name, wanted), Anchor(("schema_name",), _schema_name, (wanted,)))]
    size = len(prefix)
    anchor = Anchor((f"schema_name[:{size}]",), _beginning(size), (prefix,))
    return [_matcher(asked, lambda subject: subject.schema_name.startswith(prefix), anchor)]


def _beginning(size: int) -> Read:
    return lambda subject: subject.schema_name[:size]


_schema_name = reader(("schema_name",))
_read_tags = reader(("tags",))


def _tags(selector: Selector) -> list[Matcher]:
    for name, tags in (("any_tags", selector.any_tags), ("all_tags", selector.all_tags), ("none_tags", selector.none_tags)):
        if tags is not None and len(tags) > MAX_NAMES:
            _refuse(f"a list may have {MAX_NAMES} tags", name)
    matchers: list[Matcher] = []
    if selector.any_tags is not None:
        any_of = frozenset(selector.any_tags)
        anchor = Anchor(("tags",), _read_tags, tuple(any_of), many=True)
        matchers.append(_matcher(f"any_tags {_list(any_of)}", lambda subject: not any_of.isdisjoint(subject.tags), anchor))
    matchers += [_has_tag(tag) for tag in dict.fromkeys(selector.all_tags or ())]
    if selector.none_tags:
        none_of = frozenset(selector.none_tags)
        matchers.append(_matcher(f"none_tags {_list(none_of)}", lambda subject: none_of.isdisjoint(subject.tags)))
    return matchers


def _has_tag(tag: str) -> Matcher:
    return _matcher(f"all_tags {tag}", lambda subject: tag in subject.tags, Anchor(("tags",), _read_tags, (tag,), many=True))


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "(none)"


# ---- context_match ----


def _context(match: ContextMatch, where: str) -> Matcher:
    read = reader(("context", *_steps(match.path, f"{where}.path")))
    asked = f"{where}: {match.path} {match.op} {match.value!r}"
    build = _TESTS.get(match.op)
    if build is None:
        _refuse(f"{match.op!r} is not an op; there are {', '.join(OPS)}", f"{where}.op")
    test = build(read, match.value, f"{where}.value")
    if match.op == "eq":
        return _matcher(asked, test, Anchor(("context", *match.path.split(".")), read, (match.value,)))
    return _matcher(asked, test)


def _steps(path: str, where: str) -> Path:
    steps = tuple(path.split("."))
    if not all(steps) or len(steps) > MAX_STEPS:
        _refuse(f"a path is up to {MAX_STEPS} names joined by dots", where)
    return steps


def _scalar(value: Any, where: str) -> str | int | float | bool:
    if isinstance(value, str | int | float):
        return value
    hint = "; use `exists` to ask for a value or for none" if value is None else ""
    _refuse(f"it must be a string, a number or a boolean{hint}", where)


def _eq(read: Read, value: Any, where: str) -> Predicate:
    return equals(read, _scalar(value, where))


def _ne(read: Read, value: Any, where: str) -> Predicate:
    types = comparable_with(_scalar(value, where))
    return lambda subject: (found := read(subject)) != value and found.__class__ in types


def _order(compare: Callable[[Any, Any], bool]) -> Callable[[Read, Any, str], Predicate]:
    def build(read: Read, value: Any, where: str) -> Predicate:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            _refuse("it must be a string or a number", where)
        types = comparable_with(value)
        return lambda subject: (found := read(subject)).__class__ in types and compare(found, value)

    return build


def _contains(read: Read, value: Any, where: str) -> Predicate:
    return _contains_one_of(read, (_scalar(value, where),))


def _contains_any(read: Read, value: Any, where: str) -> Predicate:
    if not isinstance(value, list | tuple):
        _refuse("it must be a list", where)
    values = cast(Sequence[Any], value)
    if len(values) > MAX_NAMES:
        _refuse(f"a list may have {MAX_NAMES} values", where)
    return _contains_one_of(read, [_scalar(each, f"{where}[{i}]") for i, each in enumerate(values)])


def _contains_one_of(read: Read, values: Sequence[str | int | float | bool]) -> Predicate:
    texts = tuple(value for value in values if isinstance(value, str))
    wanted = frozenset((isinstance(value, bool), value) for value in values)

    def test(subject: Subject) -> bool:
        found = read(subject)
        if isinstance(found, str):
            return any(text in found for text in texts)
        if not isinstance(found, list | tuple):
            return False
        items = cast(Sequence[Any], found)
        return any((item.__class__ is bool, item) in wanted for item in items if isinstance(item, str | int | float))

    return test


def _exists(read: Read, value: Any, where: str) -> Predicate:
    if value is not None and not isinstance(value, bool):
        _refuse("it must be true or false; left out it is true", where)
    if value is False:
        return lambda subject: read(subject) is None
    return lambda subject: read(subject) is not None


_TESTS: dict[str, Callable[[Read, Any, str], Predicate]] = {
    "eq": _eq,
    "ne": _ne,
    "gt": _order(operator.gt),
    "gte": _order(operator.ge),
    "lt": _order(operator.lt),
    "lte": _order(operator.le),
    "contains": _contains,
    "contains_any": _contains_any,
    "exists": _exists,
}


# ---- the shorthand of events ----

_EVENT = re.compile(r"\s*(?P<events>[a-z]+(?:\s*[|,]\s*[a-z]+)*)\s*(?:\((?P<fields>.*)\))?\s*", re.DOTALL)
SHORTHAND_FIELD = re.compile(
    r"\s*(?P<path>[A-Za-z_]\w*(?:\.\w+)*)\s*==?\s*"
    r"(?:'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<bare>true|false|null|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?))\s*"
)
_AND = re.compile(r",|&&|and\b")


def parse_event(events: str | Sequence[str]) -> dict[str, Matcher | None]:
    """The events of a rule, each with the matcher of its shorthand: `create`, `create|update`, `create (role='user')`,
    `update (status='success', kind='tool')`, or a list of these.

    An update's shorthand is an edge: it holds when the fields become these values, all of them now and not all of them
    before. Missing equals null. Of a create or a delete it is plain equality.
    """
    found: dict[str, Matcher | None] = {}
    for text in [events] if isinstance(events, str) else events:
        match = _EVENT.fullmatch(text)
        if match is None:
            _refuse_event(f"{text!r} is not understood; write for example update (status='success')")
        fields = None if match["fields"] is None else _fields(match["fields"])
        for event in re.split(r"\s*[|,]\s*", match["events"]):
            if event not in EVENTS:
                _refuse_event(f"{event!r} is not an event; there are {', '.join(EVENTS)}")
            if event in found:
                _refuse_event(f"{event} is named twice")
            found[event] = None if fields is None else _shorthand(fields, edge=event == "update")
    if not found:
        _refuse_event(f"name at least one of {', '.join(EVENTS)}")
    return found


def _refuse_event(message: str) -> NoReturn:
    raise Invalid(message, where="event", code="invalid_event")


def _fields(text: str) -> list[tuple[Path, Scalar]]:
    fields: list[tuple[Path, Scalar]] = []
    at = 0
    while True:
        match = SHORTHAND_FIELD.match(text, at)
        if match is None:
            _refuse_event(
                f"{text[at:].strip()!r} is not field='value'; a value is a quoted string, a number, true, false or null"
            )
        text_value = match["single"] if match["single"] is not None else match["double"]
        value: Scalar = msgspec.json.decode(match["bare"]) if text_value is None else text_value
        fields.append((tuple(match["path"].split(".")), value))
        at = match.end()
        if at == len(text):
            return fields
        separator = _AND.match(text, at)
        if separator is None:
            _refuse_event(f"{text[at:]!r} is not understood; join fields with a comma or `and`")
        at = separator.end()


def _shorthand(fields: Sequence[tuple[Path, Scalar]], edge: bool) -> Matcher:
    now = [equals(reader(("data", *path)), value) for path, value in fields]
    anchors = tuple(Anchor(("data", *path), reader(("data", *path)), (value,)) for path, value in fields)
    asked = " and ".join(f"{'.'.join(path)} = {value!r}" for path, value in fields)
    holds = every(now)
    if not edge:
        return _matcher(asked, holds, *anchors)
    held = every([equals(reader(("before", *path)), value) for path, value in fields])
    return _matcher(f"it becomes so: {asked}", lambda subject: holds(subject) and not held(subject), *anchors)
