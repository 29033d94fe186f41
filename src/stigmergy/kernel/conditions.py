"""Conditions: the expressions that say which changes a rule is about.

A condition is CEL over the change being written, the `Subject`. It may name

    event.type, event.actor, event.cause, event.depth
    event.document.{id, collection, path, version, data, before}
    before.x       short for event.document.before.x         tags, schema_name
    context.x      what a selector's context_match sees
    x              short for event.document.data.x, for every other name

In data and before, a camelCase field that is absent reads its snake_case sister: `subAgentId` reads `sub_agent_id`.

What is guaranteed:

- Missing equals null: a path that leads nowhere reads null, and `has(path)` means "is not null".
- A bool is not a number; int and double compare by value; `==` across types is false, `<` across types is an error.
- Where one side decides `&&` or `||`, an error on the other side does not matter, whichever comes first.
- An error, a result that is not a boolean and a value over a bound raise `ConditionFailed`, whose `kind` is stable.
- Comparisons of a path with literals, `in`, `has`, `!`, `&&` and `||` run as Python closures. Any other term goes to the CEL
  library, which is given the values that the term names and nothing else. Both give the same answer.
- What could hold the interpreter is refused: when written by its text, when matched by the size of the values it names.

Pure: no I/O, no clock.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import cel

from stigmergy.errors import Invalid


class Subject(Protocol):
    """What is matched: a change as it is being written. The properties may be computed when they are first read."""

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


class ConditionFailed(Exception):
    """A condition that could not answer: nothing fires, and whoever asked writes one diagnostic per kind."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message


class Anchor(NamedTuple):
    """What must hold for a predicate to be true: the value read is one of `values`, or, for `many`, contains one of them.
    `name` says what is read, so that an index reads it once for all rules."""

    name: str
    read: Read
    values: tuple[Scalar, ...]
    many: bool = False


class Condition(NamedTuple):
    text: str
    predicate: Predicate
    anchors: tuple[Anchor, ...]


def compile_condition(text: str) -> Condition:
    """The condition as a predicate, which raises `ConditionFailed`. An empty text is always true."""
    return _compiled(text)


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Condition:
    tokens = tokenize(text)
    if not tokens:
        return Condition(text, _always, ())
    terms = [_term(text, part, alone=len(parts) == 1) for parts in (_conjuncts(tokens),) for part in parts]
    return Condition(text, every([term.test for term in terms]), tuple(anchor for term in terms for anchor in term.anchors))
