"""Predicates over subjects, and how they are put together: what selectors, shorthands and conditions are compiled to.

- A predicate that cannot answer raises `ConditionFailed`.
- A failure counts only where nothing else decides: beside a no in `every`, beside a yes in `some`, it does not matter.
- A bool is not a number; int and float compare by value; `==` across types is false, `<` across types is a failure.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from stigmergy.kernel.subjects import Path, Read, Scalar, Subject, kind_of, reader, show

FailureKind = Literal["condition_error", "condition_not_boolean", "condition_over_bound"]
Predicate = Callable[[Subject], bool]


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


def joined(matchers: Sequence[Matcher]) -> Matcher:
    """All of them hold."""
    return Matcher(
        every([matcher.predicate for matcher in matchers if matcher.predicate is not always]),
        tuple(anchor for matcher in matchers for anchor in matcher.anchors),
        tuple(part for matcher in matchers for part in matcher.parts),
    )


# ---- put together ----


def always(subject: Subject) -> bool:
    return True


def negated(test: Predicate) -> Predicate:
    return lambda subject: not test(subject)


def every(tests: Sequence[Predicate]) -> Predicate:
    """All hold. A failure counts only where no other test says no."""
    if len(tests) < 2:
        return tests[0] if tests else always
    if len(tests) == 2:
        return _both(*tests)
    asked = tuple(tests)

    def test(subject: Subject) -> bool:
        failure = None
        for each in asked:
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


def some(tests: Sequence[Predicate]) -> Predicate:
    """At least one holds. A failure counts only where no other test says yes."""
    if len(tests) == 1:
        return tests[0]
    asked = tuple(tests)

    def test(subject: Subject) -> bool:
        failure = None
        for each in asked:
            try:
                if each(subject):
                    return True
            except ConditionFailed as failed:
                failure = failed
        if failure is not None:
            raise failure
        return False

    return test


# ---- about one value ----


def equals(read: Read, value: Scalar) -> Predicate:
    if value is None or isinstance(value, bool):
        return lambda subject: read(subject) is value
    if value in (0, 1):  # which Python holds equal to False and True
        return lambda subject: (found := read(subject)) == value and found.__class__ is not bool
    return lambda subject: read(subject) == value


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
