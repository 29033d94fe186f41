r"""Dotted paths into a context: what they keep, what they remove, what they read.

`a.b` steps into objects. In a list a number names one item (`items.0.name`), any other name goes into every item
(`items.name`). A backslash makes the next dot or backslash part of a name: `a\.b` is the key "a.b". Nothing here mutates
its input; what is unchanged is shared with it.
"""

import re
from typing import Any, NoReturn, cast

from stigmergy.errors import Invalid

MAX_PATH, MAX_STEPS = 1024, 64


def refuse(message: str, where: str) -> NoReturn:
    raise Invalid(message, where=where or None, code="invalid_hints")


NOTHING: Any = object()


class Tree:
    """Paths by their steps. None is a leaf. `names` is what goes into every item of a list, `items` into one."""

    __slots__ = ("items", "names", "steps")

    def __init__(self) -> None:
        self.steps: dict[str, Tree | None] = {}
        self.items: dict[int, Tree | None] = {}
        self.names: Tree | None = None

    def finish(self) -> "Tree":
        self.items = {int(step): sub for step, sub in self.steps.items() if _is_index(step)}
        if not self.items:
            self.names = self
        elif len(self.items) < len(self.steps):
            self.names = Tree()
            self.names.steps = {step: sub for step, sub in self.steps.items() if not _is_index(step)}
            self.names.names = self.names
        for sub in self.steps.values():
            if sub is not None:
                sub.finish()
        return self


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) < 10 and (step == "0" or step[0] != "0")


def path_tree(paths: list[str], where: str) -> Tree:
    root = Tree()
    for position, path in enumerate(paths):
        *above, last = path_steps(path, f"{where}[{position}]")
        node: Tree | None = root
        for step in above:
            node = node.steps.setdefault(step, Tree())
            if node is None:  # a shorter path already names all of it
                break
        else:
            node.steps[last] = None
    return root.finish()


def path_steps(path: str, where: str) -> list[str]:
    if len(path) > MAX_PATH:
        refuse(f"a path has at most {MAX_PATH} characters", where)
    if re.fullmatch(r"(?:\\[.\\]|[^\\])*", path, re.DOTALL) is None:
        refuse(f"{path!r}: a backslash stands before a dot or a backslash, and nowhere else", where)
    steps = [re.sub(r"\\(.)", r"\1", step) for step in re.findall(r"(?:^|\.)((?:\\.|[^.\\])*)", path)]
    if "" in steps:
        refuse(f"{path!r} has an empty step", where)
    if len(steps) > MAX_STEPS:
        refuse(f"a path has at most {MAX_STEPS} steps", where)
    return steps


def without(value: Any, tree: Tree) -> Any:
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value).copy()
        for name, sub in tree.steps.items():
            if name in fields:
                if sub is None:
                    del fields[name]
                else:
                    fields[name] = without(fields[name], sub)
        return fields
    if not isinstance(value, list):
        return value
    left: list[Any] = []
    for position, item in enumerate(cast(list[Any], value)):
        if tree.items and position in tree.items:
            sub = tree.items[position]
            if sub is None:
                continue
            item = without(item, sub)
        left.append(item if tree.names is None else without(item, tree.names))
    return left


def only(value: Any, tree: Tree) -> Any:
    if isinstance(value, dict):
        fields: dict[str, Any] = {}
        for name, found in cast(dict[str, Any], value).items():
            if name in tree.steps:
                sub = tree.steps[name]
                kept = found if sub is None else only(found, sub)
                if kept is not NOTHING:
                    fields[name] = kept
        return fields or NOTHING
    if isinstance(value, list):
        items = [_only_item(position, item, tree) for position, item in enumerate(cast(list[Any], value))]
        return [item for item in items if item is not NOTHING] or NOTHING
    return NOTHING


def _only_item(position: int, item: Any, tree: Tree) -> Any:
    if position not in tree.items:
        return NOTHING if tree.names is None else only(item, tree.names)
    sub = tree.items[position]
    if sub is None:
        return item
    if tree.names is None:
        return only(item, sub)
    both = Tree()
    both.steps = _merged(sub.steps, tree.names.steps)
    return only(item, both.finish())


def _merged(one: dict[str, Tree | None], other: dict[str, Tree | None]) -> dict[str, Tree | None]:
    merged = one | other
    for name in one.keys() & other.keys():
        first, second = one[name], other[name]
        merged[name] = None
        if first is not None and second is not None:
            both = Tree()
            both.steps = _merged(first.steps, second.steps)
            merged[name] = both
    return merged


def read(value: Any, steps: list[str]) -> Any:
    """What a path leads to: in a list, what each item has."""
    for depth, step in enumerate(steps):
        if isinstance(value, dict):
            value = dict[str, Any].get(cast(dict[str, Any], value), step, NOTHING)  # a subclass may hide its methods
        elif not isinstance(value, list):
            return NOTHING
        elif _is_index(step):
            items = cast(list[Any], value)
            value = items[int(step)] if int(step) < len(items) else NOTHING
        else:
            found = [read(item, steps[depth:]) for item in cast(list[Any], value)]
            return [item for item in found if item is not NOTHING] or NOTHING
    return value
