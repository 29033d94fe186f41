"""Conditions: the expressions that say which changes a rule is about.

A condition is CEL over the change being written. It may name

    event.type, event.actor, event.cause, event.depth
    event.document.{id, collection, path, version, data, before}
    before.x       short for event.document.before.x         tags, schema_name
    context.x      what a selector's context_match sees
    x              short for event.document.data.x, for every other name

What is guaranteed:

- Missing equals null: a path that leads nowhere reads null, and `has(path)` means "is not null".
- A bool is not a number; int and double compare by value; `==` across types is false, `<` across types is an error.
- Where one side decides `&&` or `||`, an error on the other side does not matter, whichever comes first.
- An error, a result that is not a boolean and a value over a bound raise `ConditionFailed`, whose `kind` is stable.
- Comparisons of a path with literals, `in`, `has`, `!`, `&&` and `||` run as Python closures. Any other term goes to the CEL
  library, which is given the values that the term names and nothing else. Both give the same answer.
- What could hold the interpreter is refused: when written by its text, when matched by the size of the values it names.

Inside a macro the element is the library's own: its missing fields are errors, and `has` is true of its nulls.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, cast

import cel

from stigmergy.errors import Invalid
from stigmergy.kernel.matching import (
    Anchor,
    ConditionFailed,
    FailureKind,
    Matcher,
    Path,
    Predicate,
    Read,
    Scalar,
    Subject,
    always,
    equals,
    every,
    reader,
)


def compile_condition(text: str) -> Matcher:
    """The condition as a predicate, which raises `ConditionFailed`. An empty text is always true."""
    return _compile(text)


@lru_cache(maxsize=4096)
def _compile(text: str) -> Matcher:
    parts = _conjuncts(tokenize(text))
    terms = [_compile_term(text, part, alone=len(parts) == 1) for part in parts]
    terms.sort(key=lambda term: not term.native)
    test = every([term.test for term in terms])
    return Matcher(test, tuple(anchor for term in terms for anchor in term.anchors), ((text, test),) if terms else ())


def _some(tests: Sequence[Predicate]) -> Predicate:
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


def _one_of(read: Read, values: Sequence[Scalar]) -> Predicate:
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


def _ordered(path: Path, sign: str, value: Scalar) -> Predicate:
    read, compare, types = reader(path), _ORDERS[sign], comparable_with(value)

    def test(subject: Subject) -> bool:
        found = read(subject)
        if found.__class__ in types:
            return compare(found, value)
        raise ConditionFailed("condition_error", f"{show(path)} is {_kind(found)} and cannot be compared with {value!r}")

    return test


def _holds_text(path: Path, text: str) -> Predicate:
    read = reader(path)

    def test(subject: Subject) -> bool:
        found = read(subject)
        if isinstance(found, list | tuple | dict):
            return text in found
        raise ConditionFailed("condition_error", f"{show(path)} is {_kind(found)}; `in` needs a list or a map")

    return test


def _boolean(path: Path, failure: FailureKind) -> Predicate:
    read = reader(path)

    def test(subject: Subject) -> bool:
        found = read(subject)
        if found.__class__ is bool:
            return found
        raise ConditionFailed(failure, f"{show(path)} is {_kind(found)}, not a boolean")

    return test


def show(path: Path) -> str:
    return ".".join(path)


def _kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


# ---- the text of a condition ----

MAX_TEXT = 4096
_MAX_NESTING = 16
_MAX_STRING = 1024
_MAX_ITEMS = 256
_MAX_STEPS = 16
_KEYWORDS = frozenset({"true", "false", "null", "in"})
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<triple>[bBrR]{0,2}(?:'''|\"\"\"))
      | (?P<bytes>[rR]?[bB][rR]?(?:'(?:[^'\\\r\n]|\\.)*'|"(?:[^"\\\r\n]|\\.)*"))
      | (?P<string>[rR](?:'[^'\r\n]*'|"[^"\r\n]*")|'(?:[^'\\\r\n]|\\.)*'|"(?:[^"\\\r\n]|\\.)*")
      | (?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: str
    text: str
    start: int


def refuse(message: str, text: str, offset: int | None = None) -> NoReturn:
    """`Invalid`, with the place of the fault as line and column."""
    where = "condition"
    if offset is not None:
        before = text[:offset]
        where = f"condition, line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"
    raise Invalid(message, where=where, code="invalid_condition")


def tokenize(text: str) -> list[Token]:
    """The tokens, within the bounds that keep the library's parser from exhausting the stack."""
    if len(text.encode(errors="surrogatepass")) > MAX_TEXT:
        refuse(f"a condition may have {MAX_TEXT} bytes", text)
    tokens: list[Token] = []
    items: list[int] = []  # of each open bracket, how many so far
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup == "triple":
            refuse(f"{text[at : at + 10]!r} is not understood here", text, at)
        token = Token(str(found.lastgroup), found.group(), at)
        at = found.end()
        if token.kind == "space":
            continue
        tokens.append(token)
        if token.text in ("(", "[", "{"):
            items.append(1)
        elif token.text in (")", "]", "}") and items:
            items.pop()
        elif token.text == "," and items:
            items[-1] += 1
        if len(items) > _MAX_NESTING:
            refuse(f"brackets may be nested {_MAX_NESTING} deep", text, token.start)
        if items and items[-1] > _MAX_ITEMS:
            refuse(f"a list may have {_MAX_ITEMS} items", text, token.start)
        if len(token.text) > _MAX_STRING:
            refuse(f"a word or a string may have {_MAX_STRING} characters", text, token.start)
    return tokens


def _conjuncts(tokens: list[Token]) -> list[list[Token]]:
    """The terms of the outermost `&&`; the whole where it is not one, or is one that only the library can explain."""
    terms: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth == 0 and token.text in ("||", "?"):
            return [tokens]
        if depth == 0 and token.text == "&&":
            terms.append([])
        else:
            terms[-1].append(token)
    if not tokens:
        return []
    return terms if all(terms) else [tokens]


def _path_at(tokens: Sequence[Token], at: int) -> tuple[Path, int] | None:
    """The path that begins at a token, as written, and where it ends; None where none begins. A call is not a step."""

    def text(index: int) -> str:
        return tokens[index].text if index < len(tokens) else ""

    def is_name(index: int) -> bool:
        return index < len(tokens) and tokens[index].kind == "name" and text(index) not in _KEYWORDS and text(index + 1) != "("

    if not is_name(at) or (at > 0 and text(at - 1) == "."):
        return None
    steps, end = [text(at)], at + 1
    while len(steps) < _MAX_STEPS:
        if text(end) == "." and is_name(end + 1):
            steps.append(text(end + 1))
            end += 2
        elif text(end) == "[" and text(end + 2) == "]" and (tokens[end + 1].kind == "string" or text(end + 1).isdecimal()):
            inner = tokens[end + 1]
            steps.append(str(_literal(inner)) if inner.kind == "string" else inner.text)
            end += 3
        else:
            break
    return tuple(steps), end


_OF_EVENT: dict[Path, str] = {
    ("type",): "event",
    ("actor",): "actor",
    ("cause",): "cause",
    ("depth",): "depth",
    **{("document", name): name for name in ("id", "collection", "path", "version", "data", "before")},
}


def resolve(names: Path, text: str, offset: int) -> Path:
    """The path of a name as written: what the subject calls its root, then the steps."""
    if names[0] in ("before", "context", "tags", "schema_name"):
        return names
    if names[0] != "event":
        return ("data", *names)
    for length in (1, 2):
        if (root := _OF_EVENT.get(names[1 : 1 + length])) is not None:
            return (root, *names[1 + length :])
    known = ", ".join(show(("event", *path)) for path in _OF_EVENT)
    refuse(f"{show(names)} is not known; there are {known}", text, offset)


def _literal(token: Token) -> Scalar:
    """The library's own reading of a literal, for what is not plain."""
    if token.kind == "string" and "\\" not in token.text and token.text[0] in "'\"":
        return token.text[1:-1]
    try:
        return cast(Scalar, cel.evaluate(token.text))
    except ValueError:
        raise _NotNative from None  # the library says why when it is given the whole


# ---- the native subset ----


class _NotNative(Exception):
    """Outside the subset: the library decides what it means."""


class _Term(NamedTuple):
    test: Predicate
    anchors: tuple[Anchor, ...] = ()
    native: bool = True
    bare: Path | None = None  # the path, where the term is nothing else


def _compile_term(text: str, tokens: list[Token], alone: bool) -> _Term:
    failure: FailureKind = "condition_not_boolean" if alone else "condition_error"
    try:
        term = _Parser(text, tokens).whole()
    except _NotNative:
        return _Term(cel_predicate(text, tokens, failure), native=False)
    return _Term(_boolean(term.bare, failure), term.anchors) if term.bare else term


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_EXACT = 2**53  # below it an int and a double that are equal are equal everywhere


class _Parser:
    """Recursive descent over the subset; each method takes what it understands or raises `_NotNative`."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0

    def whole(self) -> _Term:
        term = self.any_of()
        if self.at < len(self.tokens):
            raise _NotNative
        return term

    def take(self, *texts: str) -> str | None:
        if self.at < len(self.tokens) and (text := self.tokens[self.at].text) in texts:
            self.at += 1
            return text
        return None

    def need(self, text: str) -> None:
        if self.take(text) is None:
            raise _NotNative

    def any_of(self) -> _Term:
        terms = [self.all_of()]
        while self.take("||"):
            terms.append(self.all_of())
        if len(terms) == 1:
            return terms[0]
        return _Term(_some([term.test for term in terms]), _shared([term.anchors for term in terms]))

    def all_of(self) -> _Term:
        terms = [self.relation()]
        while self.take("&&"):
            terms.append(self.relation())
        if len(terms) == 1:
            return terms[0]
        return _Term(every([term.test for term in terms]), tuple(anchor for term in terms for anchor in term.anchors))

    def relation(self) -> _Term:
        if self.take("!"):
            test = self.unit().test
            return _Term(lambda subject: not test(subject))
        begin = self.at
        left = self.operand()
        sign = self.take("==", "!=", "<", "<=", ">", ">=", "in") if left is not None else None
        if sign is None:
            self.at = begin
            return self.unit()
        if sign == "in":
            return self.membership(left)
        right = self.operand()
        if isinstance(left, tuple) and isinstance(right, list):
            return self.comparison(left, sign, right[0])
        if isinstance(left, list) and isinstance(right, tuple):
            return self.comparison(right, _MIRRORED[sign], left[0])
        raise _NotNative

    def unit(self) -> _Term:
        """What may stand after `!`."""
        if self.take("("):
            term = self.any_of()
            self.need(")")
            return term
        if self.take("has"):
            self.need("(")
            path = self.operand()
            self.need(")")
            if not isinstance(path, tuple):
                raise _NotNative
            read = reader(path)
            return _Term(lambda subject: read(subject) is not None)
        value = self.operand()
        if isinstance(value, tuple):
            return _Term(_boolean(value, "condition_error"), (Anchor(value, reader(value), (True,)),), bare=value)
        if value is not None and isinstance(value[0], bool):
            return _Term(always if value[0] else _never)
        raise _NotNative

    def comparison(self, path: Path, sign: str, value: Scalar) -> _Term:
        read = reader(path)
        if sign == "==":
            return _Term(equals(read, value), (Anchor(path, read, (value,)),))
        if sign == "!=":
            test = equals(read, value)
            return _Term(lambda subject: not test(subject))
        if value is None:
            raise _NotNative
        return _Term(_ordered(path, sign, value))

    def membership(self, left: Path | list[Scalar]) -> _Term:
        if isinstance(left, list):
            path = self.operand()
            if not isinstance(path, tuple) or not isinstance(left[0], str):
                raise _NotNative
            anchors = (Anchor(path, reader(path), (left[0],), many=True),) if path == ("tags",) else ()
            return _Term(_holds_text(path, left[0]), anchors)
        values: list[Scalar] = []
        self.need("[")
        while not self.take("]"):
            item = self.operand()
            if not isinstance(item, list):
                raise _NotNative
            values += item
            if not self.take(","):
                self.need("]")
                break
        read = reader(left)
        return _Term(_one_of(read, values), (Anchor(left, read, tuple(values)),))

    def operand(self) -> Path | list[Scalar] | None:
        """A path, a literal (in a list of one), or None where neither begins."""
        if self.at >= len(self.tokens):
            raise _NotNative
        token = self.tokens[self.at]
        if (found := _path_at(self.tokens, self.at)) is not None:
            names, self.at = found
            return resolve(names, self.text, token.start)
        negative = self.take("-") is not None
        if self.at < len(self.tokens) and self.tokens[self.at].kind == "number":
            value = _literal(self.tokens[self.at])
            if not isinstance(value, int | float) or abs(value) >= _EXACT:
                raise _NotNative
            self.at += 1
            return [-value if negative else value]
        if negative:
            raise _NotNative
        if token.kind == "string":
            self.at += 1
            return [_literal(token)]
        word = self.take("true", "false", "null")
        return [{"true": True, "false": False, "null": None}[word]] if word else None


def _shared(alternatives: Sequence[Sequence[Anchor]]) -> tuple[Anchor, ...]:
    """What must hold whichever alternative does: the sources that all of them anchor, with the values of all."""
    first, *others = ({anchor.source: anchor for anchor in anchors} for anchors in alternatives)
    shared: list[Anchor] = []
    for source, anchor in first.items():
        if all(source in other for other in others):
            values = (*anchor.values, *(value for other in others for value in other[source].values))
            shared.append(anchor._replace(values=tuple(dict.fromkeys(values))))
    return tuple(shared)


# ---- the escape hatch ----

_BUDGET = 40_000  # units of about 60 ns
_MAX_OPERATORS = 100
_MAX_PLUS = 16
_MAX_VALUES = 1000
_MAX_CHARACTERS = 65_536
_MAX_DEPTH = 32
_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
_FUNCTIONS = frozenset(
    "size contains startsWith endsWith matches int uint double string bytes timestamp duration getFullYear getMonth getDate "
    "getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes getSeconds getMilliseconds".split()
)


class _Macro(NamedTuple):
    name: str
    variable: str
    start: int  # its tokens, between the brackets
    end: int


class _Source(NamedTuple):
    """A term with each path replaced by a variable of its own, so that a missing one can be null."""

    text: str
    variables: dict[str, Read]


class _Work(NamedTuple):
    """What bounds the time a term takes: counted once, and multiplied at match time with the sizes of the values."""

    tokens: int
    inside: int  # tokens in the bodies of macros
    elements: int  # mentions of an element in them
    builds: int  # lists that are built item by item, each time copied
    concatenations: int
    listed: int  # the longest list that can be looped over without being a value
    states: int  # of regular expressions
    mentions: dict[str, tuple[int, int]]  # of each variable: outside macros, inside


def cel_predicate(text: str, tokens: Sequence[Token], failure: FailureKind) -> Predicate:
    """A term, or a whole condition, as the library answers it."""
    source = _with_variables(text, tokens)
    try:
        program = cel.compile(source.text)
    except ValueError as error:
        _explain_syntax(text, error)
    known = {*source.variables, *(macro.variable for macro in _macros(tokenize(source.text)))}
    for name in program.variables():
        if name not in known:
            refuse(f"{name!r} cannot be used as a name here", text)
    for name in program.functions():
        if name.isidentifier() and not name.startswith("_") and name not in _FUNCTIONS:
            refuse(f"there is no function {name!r}", text)
    work = _work(text, source)
    fixed, per_item = work.tokens, work.inside

    def test(subject: Subject) -> bool:
        activation = {name: read(subject) for name, read in source.variables.items()}
        _check_sizes(activation, work)
        try:
            result = program.execute(activation)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library is not an Exception
            raise ConditionFailed("condition_error", f"{type(error).__name__}: {str(error)[:200]}") from None
        if result.__class__ is bool:
            return result
        raise ConditionFailed(failure, f"the result is {_kind(result)}, not a boolean")

    return test
