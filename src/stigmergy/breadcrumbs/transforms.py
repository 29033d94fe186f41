r"""The rules that compute a value of a view, compiled. What they run is written by users and is not trusted.

Templates are minijinja, with one name: `context`. There is no loader, macro, method or HTML escaping. Missing and null values
render as nothing, at any depth; objects and lists as compact JSON. What a template may cost is bounded: its instructions by
minijinja's fuel, its output as it is written, and the size of its values by what `_check` reads off the template beforehand,
for minijinja bounds none of these and ends the process where memory ends. Hence `*` is refused (the filter `times` multiplies
numbers), and text is joined side by side, with `join`, or with a few `~` and `+`.

Extracts are JSONPath (RFC 9535), bounded in the values they visit and return; their patterns run in linear time.

A rule raises `RuleFailed` or any other exception; no message of `RuleFailed` holds a value of the context.
"""

import re
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs
import msgspec
from iregexp_check import check as is_iregexp
from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathNode
from jsonpath_rfc9535.function_extensions import ExpressionType, FilterFunction
from jsonpath_rfc9535.parse import Parser
from jsonpath_rfc9535.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath_rfc9535.tokens import TokenStream
from minijinja import Environment, TemplateError

from stigmergy.breadcrumbs.paths import NOTHING, path_steps, read, refuse

MAX_TEXT = 16 * 1024  # bytes of a template, a format
MAX_QUERY = 2048
MAX_OUTPUT = 256 * 1024  # characters that one template or format gives
MAX_EXTRACT = 1024 * 1024  # bytes of JSON that one extract gives
MAX_VISITS = 100_000  # values that an extract looks at
MAX_GROWTH = 128 * 1024 * 1024  # what a template's values may grow to, in the worst case
FUEL = 100_000  # instructions of a template

Run = Callable[[dict[str, Any]], Any]

_encode = msgspec.json.encode
_metered = threading.Lock()  # one rule at a time: the counters are shared


class RuleFailed(Exception):
    """Why a rule failed, in words that hold no value of the context."""


# ---- text ----


def text(value: Any) -> str:
    if value.__class__ is str:
        return value
    if value is None or value is NOTHING or isinstance(value, _Pairs):
        return ""
    if isinstance(value, str):  # marked as safe: there is nothing to be safe from
        return str(value)
    return str(value) if value.__class__ is int else _encode(value).decode()


def _within(size: int) -> None:
    if size > MAX_OUTPUT:
        raise RuleFailed(f"the output is longer than {MAX_OUTPUT} characters")


def format_text(format: str, where: str) -> Run:
    if len(format.encode()) > MAX_TEXT:
        refuse(f"a format has at most {MAX_TEXT} bytes", where)
    parts: list[str | list[str]] = []
    for plain, double, path, lone in re.findall(r"([^{}]+)|(\{\{|\}\})|\{([^{}]+)\}|([{}])", format):
        if lone:
            refuse("a single brace; write {path}, or {{ and }} for braces", where)
        parts.append(path_steps(path, where) if path else plain or double[0])

    def run(context: dict[str, Any]) -> str:
        written: list[str] = []
        size = 0
        for part in parts:
            written.append(part if isinstance(part, str) else text(read(context, part)))
            size += len(written[-1])
            _within(size)
        return "".join(written)

    return run


# ---- templates ----


class _Pairs:
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
        _within(size)
    return between.join(parts)


def _replace(value: Any, old: Any, new: Any) -> str:
    whole, before, after = text(value), text(old), text(new)
    _within(len(whole) + whole.count(before) * (len(after) - len(before)))
    return whole.replace(before, after)


def _indent(value: Any, width: int = 4, first: bool = False, blank: bool = False) -> str:
    lines, space = text(value).split("\n"), " " * min(max(width, 0), 64)
    _within(sum(map(len, lines)) + len(lines) * (len(space) + 1))
    return "\n".join(space + line if (line or blank) and (first or number) else line for number, line in enumerate(lines))


def _to_json(value: Any, indent: int = 0) -> str:
    raw = _encode(None if isinstance(value, _Pairs) else value)
    _within(len(raw))
    return (msgspec.json.format(raw, indent=min(indent, 8)) if indent > 0 else raw).decode()


def _times(value: Any, factor: Any) -> int | float:
    if {value.__class__, factor.__class__} <= {int, float} and max(abs(value), abs(factor)) < 1 << 63:
        return value * factor
    raise RuleFailed("`times` multiplies two numbers")


def _string(value: Any) -> str:
    result = text(value)
    _within(len(result))
    return result


_OURS = {"indent": _indent, "join": _join, "replace": _replace, "string": _string, "times": _times, "tojson": _to_json}
_THEIRS = frozenset(
    [
        "abs",
        "bool",
        "capitalize",
        "count",
        "d",
        "default",
        "dictsort",
        "first",
        "float",
        "groupby",
        "int",
        "items",
        "last",
        "length",
        "lines",
        "list",
        "lower",
        "map",
        "max",
        "min",
        "reject",
        "rejectattr",
        "reverse",
        "round",
        "select",
        "selectattr",
        "sort",
        "split",
        "sum",
        "title",
        "trim",
        "unique",
        "upper",
    ]
)
_REMOVED = ("batch", "slice", "chain", "zip", "format", "pprint", "escape", "e", "safe", "urlencode")
_TAGS = frozenset(["for", "endfor", "if", "elif", "else", "endif", "set", "endset", "with", "endwith"])
_CODE = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<filter>\|\s*[A-Za-z_]\w*)|(?P<word>[A-Za-z_]\w*)"""
    r"""|(?P<close>[-+]?[%}]\})|(?P<sign>.)""",
    re.DOTALL,
)
_RAW_END = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")


def _check(template: str, where: str) -> tuple[int, int]:
    """Refuses what cannot be bounded. Says by what factor values may grow, and how long the longest literal text is.

    A statement keeps what it computes, so that the next can double it: their factors multiply. `~`, `+` and `,` each add an
    operand, and an operand that is not text may take six times its size once it is."""
    kept, shown, longest, position = 1, 1, 0, 0
    while (start := _opening(template, position)) >= 0:
        longest = max(longest, start - position)
        kind = template[start + 1]
        if kind == "#":
            position = template.find("#}", start + 2) + 2
            if position == 1:
                refuse("a comment does not end", where)
            continue
        words, joins, position = _code(template, start + 2, "%}" if kind == "%" else "}}", where)
        if kind == "{":
            shown = max(shown, 1 + 6 * joins)
        elif words[:1] == ["raw"]:
            end = _RAW_END.search(template, position)
            if end is None:
                refuse("`raw` does not end", where)
            longest, position = max(longest, end.start() - position), end.end()
        elif not words or words[0] not in _TAGS or "recursive" in words:
            refuse(f"the tag `{' '.join(words[:1])}` is not allowed; there are {', '.join(sorted(_TAGS))} and raw", where)
        else:
            kept *= 1 + 6 * joins
    return kept * shown, max(longest, len(template) - position)


def _opening(template: str, position: int) -> int:
    found = re.compile(r"\{[{%#]").search(template, position)
    return found.start() if found else -1


def _code(template: str, position: int, end: str, where: str) -> tuple[list[str], int, int]:
    """The words and the number of joins of one tag, and where it ends."""
    words, joins, depth = list[str](), 0, 0
    while (token := _CODE.match(template, position)) is not None:
        found = token[0]
        if token["close"] and found.endswith(end) and not (depth and end == "}}"):
            return words, joins, token.end()
        position = token.end() if not token["close"] else position + 1
        if token["word"]:
            words.append(found)
        elif token["filter"] and (name := found[1:].strip()) not in _OURS and name not in _THEIRS:
            refuse(f"there is no filter {name!r}; there are {', '.join(sorted(_THEIRS | _OURS.keys()))}", where)
        elif found == "*":
            refuse("`*` is not allowed: write `a|times(b)` to multiply numbers", where)
        joins += found in ("~", "+", ",")
        depth += (template[token.start()] in "([{") - (template[token.start()] in ")]}") if not token["string"] else 0
    refuse("a tag does not end", where)


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
        try:
            self._engine.add_template("template", template)
        except TemplateError as failure:
            refuse(f"line {failure.line}: {failure.detail or failure.kind}", where)
        self._growth, longest = _check(template, where)
        self._length = len(template)
        self._written = 0
        self._engine.fuel = min(FUEL, 64 * MAX_OUTPUT // max(longest, 1))
        for name in _REMOVED:
            self._engine.remove_filter(name)
        for name in ("debug", "namespace", "dict"):
            self._engine.remove_global(name)

    def __call__(self, context: dict[str, Any]) -> str:
        if self._growth > 1 and self._growth * max(len(_encode(context)), self._length) > MAX_GROWTH:
            raise RuleFailed("the template joins too much for a context of this size")
        with _metered:
            self._written = 0
            result = self._rendered(_boxed(context))
        _within(len(result))
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
        _within(self._written)
        return result


# ---- extracts ----


class _Queries(JSONPathEnvironment):
    """JSONPath whose segments count what they visit."""

    visits = 0

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions |= {"match": _Pattern(r"^(?:%s)$"), "search": _Pattern("(?:%s)")}

    def visit(self) -> None:
        self.visits += 1
        if self.visits > MAX_VISITS:
            raise RuleFailed(f"the query visits more than {MAX_VISITS} values")


class _Pattern(FilterFunction):
    """`match` and `search` by an engine without backtracking."""

    @property
    def arg_types(self) -> list[ExpressionType]:
        return [ExpressionType.VALUE, ExpressionType.VALUE]

    @property
    def return_type(self) -> ExpressionType:
        return ExpressionType.LOGICAL

    def __init__(self, frame: str) -> None:
        self._frame = frame

    def __call__(self, value: object, pattern: object) -> bool:
        if not isinstance(value, str) or not isinstance(pattern, str):
            return False
        matcher = _pattern(self._frame, pattern)
        return matcher is not None and matcher.is_valid(value)


@lru_cache(128)
def _pattern(frame: str, pattern: str) -> Any:
    if not is_iregexp(pattern):
        return None
    dots = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", lambda found: r"[^\n\r]" if found[0] == "." else found[0], pattern)
    try:
        return jsonschema_rs.validator_for({"pattern": frame % dots}, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ValidationError):
        return None


class _Child(JSONPathChildSegment):
    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        visit = _queries.visit
        for node in nodes:
            visit()
            for selector in self.selectors:
                for found in selector.resolve(node):
                    visit()
                    yield found


class _Descent(JSONPathRecursiveDescentSegment):
    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        for node in nodes:
            for each in _descendants(node):
                for selector in self.selectors:
                    for found in selector.resolve(each):
                        _queries.visit()
                        yield found


def _descendants(node: JSONPathNode) -> Iterable[JSONPathNode]:
    waiting = [node]
    while waiting:
        _queries.visit()
        node = waiting.pop()
        yield node
        value = node.value
        below: list[tuple[Any, Any]] = []
        if isinstance(value, dict):
            below = list(cast(dict[str, Any], value).items())
        elif isinstance(value, list):
            below = list(enumerate(cast(list[Any], value)))
        below.reverse()
        waiting += [node.new_child(each, key, node) for key, each in below if each.__class__ in (dict, list)]


class _Parser(Parser):
    def parse_query(self, stream: TokenStream, *, in_filter: bool = False) -> Iterable[JSONPathSegment]:
        for segment in super().parse_query(stream, in_filter=in_filter):
            counting = _Descent if isinstance(segment, JSONPathRecursiveDescentSegment) else _Child
            yield counting(env=segment.env, token=segment.token, selectors=segment.selectors)


_Queries.parser_class = _Parser
_queries = _Queries()


def extract(query: str, where: str) -> Run:
    if len(query) > MAX_QUERY:
        refuse(f"a query has at most {MAX_QUERY} characters", where)
    try:
        compiled = _queries.compile(query)
    except (JSONPathError, RecursionError, ValueError) as failure:
        refuse(f"{query!r} is not JSONPath: {failure}", where)

    def run(context: dict[str, Any]) -> Any:
        with _metered:
            _queries.visits = 0
            found = [node.value for node in compiled.finditer(context)]
        if len(found) < 2:
            return found[0] if found else None
        size = 0
        for value in found:
            size += len(_encode(value))
            if size > MAX_EXTRACT:
                raise RuleFailed(f"the result is larger than {MAX_EXTRACT} bytes")
        return found

    return run
