"""What rules and selectors look at: the `Subject`, which is a change, and what a path reads of it.

- A path that leads nowhere reads None: missing equals null.
- In data and before, a camelCase field that is absent reads its snake_case sister.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast


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


Path = tuple[str, ...]
Read = Callable[[Subject], Any]
Scalar = str | int | float | bool | None

EVENTS = ("create", "update", "delete")


def reader(path: Path) -> Read:
    """What a path reads: an attribute of the subject, then fields and list items."""
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


def show(path: Path) -> str:
    return ".".join(path)


_KINDS: dict[Any, str] = {str: "a string", int: "a number", float: "a number", bool: "a boolean", dict: "a map", list: "a list"}


def kind_of(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)
