r"""Templates that users write and nobody trusts, compiled and run within bounds.

They are minijinja, with one name: `context`. There is no loader, macro, method or HTML escaping. Missing and null values
render as nothing, at any depth; objects and lists as compact JSON. What a template may cost is bounded: its instructions by
minijinja's fuel, its output as it is written, and the size of its values by what `_check` reads off the template beforehand,
for minijinja bounds none of these and ends the process where memory ends. Hence `*` takes a plain number on its right (the
filter `times` multiplies any), filters are a list of our own, and values joined again and again by `~` or `+` are refused.
"""

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from minijinja import Environment, TemplateError

from stigmergy.breadcrumbs.formats import MAX_OUTPUT, MAX_TEXT, Absent, RuleFailed, text, within
from stigmergy.breadcrumbs.paths import NOTHING, read, refuse

MAX_GROWTH = 128 * 1024 * 1024  # what a template's values may grow to, in the worst case
MAX_RANGE = 10_000
FUEL = 100_000  # instructions of a template, fewer for a context beyond FUEL_BYTES
FUEL_BYTES = 20 * 1024  # an instruction such as `sort` takes as long as what it works on

_encode = msgspec.json.encode


class _Pairs(Absent):
    """What stands in for a dict's `items`, the one method minijinja needs to see that it is a map: like a missing value."""

    __slots__ = ("_box",)

    def __init__(self, box: "_Box") -> None:
        self._box = box

    def __call__(self) -> Any:
        return dict[str, Any].items(self._box)

    def __len__(self) -> int:
        return 0

    def __str__(self) -> str:
        return ""


class _Box(dict[str, Any]):
    """A dict without methods: a template reaches the public attributes of what it is given, `clear` among them."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name == "items":
            return _Pairs(self)
        return _private(self, name)


class _Tray(list[Any]):
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        return _private(self, name)


def _private(value: Any, name: str) -> Any:
    if not name.startswith("__"):
        raise AttributeError(name)
    return object.__getattribute__(value, name)


def _boxed(value: Any) -> Any:
    if value.__class__ is dict:
        return _Box({key: _boxed(each) for key, each in value.items()})
    return _Tray([_boxed(each) for each in value]) if value.__class__ is list else value


def _join(value: Iterable[Any], separator: Any = "") -> str:
    parts, between, size = list[str](), text(separator), 0
    for each in value:
        parts.append(text(each))
        size += len(parts[-1]) + len(between)
        within(size)
    return between.join(parts)


def _replace(value: Any, old: Any, new: Any) -> str:
    whole, before, after = text(value), text(old), text(new)
    within(len(whole) + whole.count(before) * (len(after) - len(before)))
    return whole.replace(before, after)


def _indent(value: Any, width: int = 4, first: bool = False, blank: bool = False) -> str:
    lines, space = text(value).split("\n"), " " * min(max(width, 0), 64)
    within(sum(map(len, lines)) + len(lines) * (len(space) + 1))
    return "\n".join(space + line if (line or blank) and (first or number) else line for number, line in enumerate(lines))


def _to_json(value: Any, indent: int = 0) -> str:
    raw = _encode(None if isinstance(value, _Pairs) else value)
    within(len(raw))
    return (msgspec.json.format(raw, indent=min(indent, 8)) if indent > 0 else raw).decode()


def _times(value: Any, factor: Any) -> int | float:
    if {value.__class__, factor.__class__} <= {int, float} and max(abs(value), abs(factor)) < 1 << 63:
        return value * factor
    raise RuleFailed("`times` multiplies two numbers")


def _string(value: Any) -> str:
    result = text(value)
    within(len(result))
    return result


def _map(value: Iterable[Any], name: str = "", *, attribute: str = "") -> list[Any]:
    if attribute:
        found = [read(each, attribute.split(".")) for each in value]
        return _Tray([None if each is NOTHING else each for each in found])
    if (change := _CHANGES.get(name)) is None:
        raise RuleFailed(f"`map` takes an attribute or one of {', '.join(_CHANGES)}")
    return _Tray([change(each) for each in value])


def _range(start: int, stop: int | None = None, step: int = 1) -> list[int]:
    numbers = range(start) if stop is None else range(start, stop, step)
    if len(numbers) > MAX_RANGE:
        raise RuleFailed(f"a range has at most {MAX_RANGE} numbers")
    return _Tray(numbers)


def _unique(value: Iterable[Any]) -> list[Any]:
    return _Tray({_encode(each): each for each in value}.values())


_CHANGES: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "length": len,
    "lower": lambda value: text(value).lower(),
    "string": text,
    "title": lambda value: text(value).title(),
    "trim": lambda value: text(value).strip(),
    "upper": lambda value: text(value).upper(),
}
_OURS = {
    "indent": _indent,
    "join": _join,
    "map": _map,
    "replace": _replace,
    "string": _string,
    "times": _times,
    "tojson": _to_json,
    "unique": _unique,
}
_THEIRS = frozenset(
    re.findall(
        r"\w+",
        "abs bool capitalize count d default dictsort first float groupby int items last length lines list lower max min "
        "reject rejectattr reverse round select selectattr sort split sum title trim upper",
    )
)
_REMOVED = ("batch", "slice", "chain", "zip", "format", "pprint", "escape", "e", "safe", "urlencode")
_TAGS = frozenset(re.findall(r"\w+", "for endfor if elif else endif set endset with endwith"))
_CODE = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<filter>\|\s*[A-Za-z_]\w*)|(?P<word>[A-Za-z_]\w*)"""
    r"""|(?P<close>[-+]?[%}]\})|(?P<sign>.)""",
    re.DOTALL,
)
_RAW_END = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")


def _check(template: str, where: str) -> tuple[int, int]:
    """Refuses what cannot be bounded. Says by what factor values may grow, and how long the longest literal text is.

    A statement keeps what it computes, so that the next can multiply it: so do their factors here."""
    kept, shown, longest, position = 1, 1, 0, 0
    while (start := _opening(template, position)) >= 0:
        longest = max(longest, start - position)
        kind = template[start + 1]
        if kind == "#":
            position = template.find("#}", start + 2) + 2
            if position == 1:
                refuse("a comment does not end", where)
            continue
        words, factor, position = _code(template, start + 2, "%}" if kind == "%" else "}}", where)
        if kind == "{":
            shown = max(shown, factor)
        elif words[:1] == ["raw"]:
            end = _RAW_END.search(template, position)
            if end is None:
                refuse("`raw` does not end", where)
            longest, position = max(longest, end.start() - position), end.end()
        elif not words or words[0] not in _TAGS or "recursive" in words:
            refuse(f"the tag `{' '.join(words[:1])}` is not allowed; there are {', '.join(sorted(_TAGS))} and raw", where)
        else:
            kept *= factor
    return kept * shown, max(longest, len(template) - position)


def _opening(template: str, position: int) -> int:
    found = re.compile(r"\{[{%#]").search(template, position)
    return found.start() if found else -1


def _code(template: str, position: int, end: str, where: str) -> tuple[list[str], int, int]:
    """The words of one tag, by what factor it can make a value grow, and where it ends.

    `~`, `+` and the items of a list or object each add an operand, which may take six times its size once it is text."""
    words, operands, times, before, open = list[str](), 1, 1, "", list[str]()
    while (token := _CODE.match(template, position)) is not None:
        found = token[0]
        if token["close"] and found.endswith(end) and not (open and end == "}}"):
            return words, (1 + 6 * (operands - 1)) * times, token.end()
        if token["close"]:
            found = template[position]
        position += len(found)
        if token["word"]:
            words.append(found)
        elif token["filter"] and (name := found[1:].strip()) not in _OURS and name not in _THEIRS:
            refuse(f"there is no filter {name!r}; there are {', '.join(sorted(_THEIRS | _OURS.keys()))}", where)
        elif found == "*":
            times *= _multiplier(template, position, where)
        elif found in ("(", "[", "{"):
            open.append("call" if found == "(" and re.search(r"[\w)\]]$", before) else found)
        elif found in (")", "]", "}") and open:
            open.pop()
        operands += found in ("~", "+") or (found == "," and _is_list(open, words))
        before = found if found.strip() else before
    refuse("a tag does not end", where)


def _is_list(open: list[str], words: list[str]) -> bool:
    """Whether a comma there separates items, and not arguments or the names of a loop."""
    return open[-1] != "call" if open else words[:1] != ["with"] and (words[:1] != ["for"] or "in" in words)


def _multiplier(template: str, position: int, where: str) -> int:
    """What comes after `*`. Only a plain number will do: text can be multiplied too, and then nothing else has a bound."""
    number = re.compile(r"\s*([0-9]{1,4})(?:\.[0-9]+)?(?![\w.])(?!\s*[.|(\[*])").match(template, position)
    if number is None:
        refuse("after `*` a plain number is expected, such as `a * 1.2`; write `a|times(b)` to multiply others", where)
    return max(int(number[1]), 1) + 1


class Template:
    """A compiled template with an engine of its own: fuel and the count of its output are the engine's."""

    def __init__(self, template: str, where: str) -> None:
        if len(template.encode()) > MAX_TEXT:
            refuse(f"a template has at most {MAX_TEXT} bytes", where)
        self._engine = Environment(
            debug=False,
            pycompat=False,
            undefined_behavior="chainable",
            auto_escape_callback=lambda name: False,
            finalizer=self._write,
            filters=_OURS,
        )
        self._growth, longest = _check(template, where)
        self._length = len(template)
        if self._growth * self._length > MAX_GROWTH:  # constants are computed already when it is compiled
            refuse("the template joins or multiplies too much", where)
        try:
            self._engine.add_template("template", template)
        except TemplateError as failure:
            refuse(f"line {failure.line}: {failure.detail or failure.kind}", where)
        self._fuel = min(FUEL, 64 * MAX_OUTPUT // max(longest, 1))
        self._written, self._alone = 0, threading.Lock()
        for name in _REMOVED:
            self._engine.remove_filter(name)
        for name in ("debug", "namespace", "dict"):
            self._engine.remove_global(name)
        self._engine.add_global("range", _range)

    def __call__(self, context: dict[str, Any]) -> str:
        size = max(len(_encode(context)), 1)
        if self._growth * max(size, self._length) > MAX_GROWTH:
            raise RuleFailed("the template joins too much for a context of this size")
        with self._alone:
            self._written = 0
            self._engine.fuel = min(self._fuel, FUEL * FUEL_BYTES // size)
            result = self._rendered(_boxed(context))
        within(len(result))
        return result

    def _rendered(self, context: Any) -> str:
        try:
            return self._engine.render_template("template", context=context)
        except TemplateError as failure:
            raise RuleFailed(f"line {failure.line}: {failure.kind}") from None
        except BaseException as failure:
            if type(failure).__name__ == "PanicException":  # a fault of the engine, which is not an Exception
                raise RuleFailed("the template engine failed") from None
            raise

    def _write(self, value: Any) -> str:
        result = text(value)
        self._written += len(result)
        within(self._written)
        return result
