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
  There, the element of a macro is the library's own: its missing fields are errors, and `has` is true of its nulls.
- What could hold the interpreter is refused: when written by its text, when matched by the size of the values it names.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
    boolean,
    equals,
    every,
    holds_text,
    kind_of,
    negated,
    one_of,
    ordered,
    reader,
    show,
    some,
)


def compile_condition(text: str) -> Matcher:
    """The condition as a predicate, which raises `ConditionFailed`. An empty text is always true."""
    if len(text.encode(errors="replace")) > MAX_TEXT:
        refuse(f"a condition may have {MAX_TEXT} bytes", text)
    return _compile(text)


@lru_cache(maxsize=4096)
def _compile(text: str) -> Matcher:
    conjuncts = _conjuncts(scan(text))
    alone: FailureKind = "condition_not_boolean" if len(conjuncts) == 1 else "condition_error"
    terms: list[_Term] = []
    others: list[Token] = []  # for the library, as one term, so that its bounds hold for the whole condition
    for tokens in conjuncts:
        try:
            terms.append(_Parser(text, tokens).whole(alone))
        except _NotNative:
            others += [*([Token("sign", "&&", 0)] if others else []), *tokens]
    tests = [term.test for term in terms] + ([cel_predicate(text, others, alone)] if others else [])
    test = every(tests)
    return Matcher(test, tuple(anchor for term in terms for anchor in term.anchors), ((text, test),) if tests else ())


# ---- the text of a condition ----

MAX_TEXT = 4096
_MAX_NESTING = 16
_MAX_STRING = 1024
_MAX_ITEMS = 256
_MAX_STEPS = 16
_NESTING = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
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


def scan(text: str) -> list[Token]:
    """The tokens, within the bounds that keep the library's parser from exhausting the stack."""
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
        nesting = _NESTING.get(token.text, 0)
        if nesting > 0:
            items.append(1)
        elif nesting < 0:
            items = items[:-1]
        elif token.text == "," and items:
            items[-1] += 1
        if len(items) > _MAX_NESTING:
            refuse(f"brackets may be nested {_MAX_NESTING} deep", text, token.start)
        if items and items[-1] > _MAX_ITEMS:
            refuse(f"a list may have {_MAX_ITEMS} items", text, token.start)
        if len(token.text) > _MAX_STRING:
            refuse(f"a word or a string may have {_MAX_STRING} characters", text, token.start)
        try:
            if token.kind in ("string", "bytes"):
                _literal(token)
        except ValueError:
            refuse("the string has an escape that CEL does not know", text, token.start)
    return tokens


def _conjuncts(tokens: list[Token]) -> list[list[Token]]:
    """The terms of the outermost `&&`; the whole where it is not one, or is one that only the library can explain."""
    terms: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += _NESTING.get(token.text, 0)
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
        return (
            index < len(tokens)
            and tokens[index].kind == "name"
            and text(index) not in _KEYWORDS
            and text(index + 1) not in ("(", "{")
        )

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
    if token.text.isdecimal():
        return int(token.text)
    return cast(Scalar, cel.evaluate(token.text))


# ---- the native subset ----


class _NotNative(Exception):
    """Outside the subset; the library decides."""


class _Term(NamedTuple):
    test: Predicate
    anchors: tuple[Anchor, ...] = ()
    bare: Path | None = None  # the path, where the term is nothing else


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_EXACT = 2**53  # below it an int and a double that are equal are equal everywhere


class _Parser:
    """Recursive descent over the subset; each method takes what it understands or raises `_NotNative`."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0

    def whole(self, not_boolean: FailureKind) -> _Term:
        term = self.any_of()
        if self.at < len(self.tokens):
            raise _NotNative
        return _Term(boolean(term.bare, not_boolean)) if term.bare else term

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
        return _Term(some([term.test for term in terms]), _shared([term.anchors for term in terms]))

    def all_of(self) -> _Term:
        terms = [self.relation()]
        while self.take("&&"):
            terms.append(self.relation())
        if len(terms) == 1:
            return terms[0]
        return _Term(every([term.test for term in terms]), tuple(anchor for term in terms for anchor in term.anchors))

    def relation(self) -> _Term:
        if self.take("!"):
            return _Term(negated(self.unit().test))
        begin = self.at
        left = self.operand()
        sign = self.take("==", "!=", "<", "<=", ">", ">=", "in")
        if left is None or sign is None:
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
            return _Term(negated(equals(reader(path), None)))
        value = self.operand()
        if isinstance(value, tuple):
            return _Term(boolean(value, "condition_error"), bare=value)  # no anchor: what is not true may be a failure
        if value is not None and isinstance(value[0], bool):
            return _Term(always if value[0] else negated(always))
        raise _NotNative

    def comparison(self, path: Path, sign: str, value: Scalar) -> _Term:
        read = reader(path)
        if sign == "==":
            return _Term(equals(read, value), (Anchor(path, read, (value,)),))
        if sign == "!=":
            return _Term(negated(equals(read, value)))
        if value is None:
            raise _NotNative
        return _Term(ordered(path, sign, value))

    def membership(self, left: Path | list[Scalar]) -> _Term:
        if isinstance(left, list):
            path = self.operand()
            if not isinstance(path, tuple) or not isinstance(left[0], str):
                raise _NotNative
            anchors = (Anchor(path, reader(path), (left[0],), many=True),) if path == ("tags",) else ()
            return _Term(holds_text(path, left[0]), anchors)
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
        return _Term(one_of(read, values), (Anchor(left, read, tuple(values)),))

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
            try:
                value = cast(int | float, _literal(self.tokens[self.at]))
            except ValueError:
                raise _NotNative from None
            if abs(value) >= _EXACT:
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

_BUDGET = 40_000  # units of work, each about 60 ns
_MAX_OPERATORS = 100
_MAX_CONCATENATIONS = 16
_MAX_VALUES = 1000
_MAX_CHARACTERS = 65_536
_MAX_DEPTH = 32
_MAX_PATTERN = 256
_MAX_STATES = 1500  # each about 1 µs to compile: the library matches in linear time, but compiles a pattern each time
_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
_FUNCTIONS = frozenset({"size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "bytes"}) | {
    *("timestamp", "duration", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
}
_CALLS = _FUNCTIONS | _MACROS | {"has", "in"}


class _Macro(NamedTuple):
    name: str
    variable: str
    start: int  # its tokens, between the brackets
    end: int


class _Work(NamedTuple):
    """What a term costs, counted once; the sizes of the values it names decide when it runs."""

    tokens: int
    inside: int  # tokens in the bodies of macros
    elements: int  # mentions of an element in them
    builds: int  # lists built item by item, copied each time
    concatenations: int
    longest: int  # list literal
    states: int  # of regular expressions
    mentions: dict[str, tuple[int, int]]  # of each variable: outside macros, inside


def cel_predicate(text: str, tokens: Sequence[Token], failure: FailureKind) -> Predicate:
    """A term as the library answers it. Each path is a variable of its own there, so that a missing one can be null."""
    source, variables = _with_variables(text, tokens)
    rewritten = scan(source)
    macros = _macros(rewritten)
    work = _count_work(text, rewritten, macros, variables)  # first: a text beyond the bounds could crash the parser
    try:
        program = cel.compile(source)
    except ValueError as error:
        _explain_syntax(text, error)
    if unknown := {*program.variables()} - {*variables} - {macro.variable for macro in macros}:
        refuse(f"{min(unknown)!r} cannot be used as a name", text)
    if unknown := {name for name in program.functions() if name[0].isalpha()} - _FUNCTIONS:
        refuse(f"{min(unknown)} is not called like this", text)

    def test(subject: Subject) -> bool:
        activation = {name: read(subject) for name, read in variables.items()}
        _check_sizes(activation, work)
        try:
            result = program.execute(activation)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library is not an Exception
            raise ConditionFailed("condition_error", f"{type(error).__name__}: {str(error)[:200]}") from None
        if result.__class__ is bool:
            return result
        raise ConditionFailed(failure, f"the result is {kind_of(result)}, not a boolean")

    return test


def _explain_syntax(text: str, error: ValueError) -> NoReturn:
    """The fault at its place in the whole condition; the term alone may begin in its middle."""
    try:
        cel.compile(text)
    except ValueError as whole:
        error = whole
    found = re.search(r"<input>:(\d+):(\d+): (.*)", str(error))
    if found is None:
        refuse(str(error).splitlines()[0], text)
    raise Invalid(found[3], where=f"condition, line {found[1]}, column {found[2]}", code="invalid_condition")


def _macros(tokens: Sequence[Token]) -> list[_Macro]:
    found: list[_Macro] = []
    for at in range(1, len(tokens) - 2):
        if tokens[at].text in _MACROS and tokens[at - 1].text == "." and tokens[at + 1].text == "(":
            depth, end = 1, at + 2
            while end < len(tokens) and depth:
                depth += _NESTING.get(tokens[end].text, 0)
                end += 1
            found.append(_Macro(tokens[at].text, tokens[at + 2].text, at + 2, end - 1))
    return found


def _with_variables(text: str, tokens: Sequence[Token]) -> tuple[str, dict[str, Read]]:
    macros = _macros(tokens)
    prefix = "v"
    while prefix in text:
        prefix += "_"
    names: dict[tuple[Path, bool], str] = {}
    pieces: list[str] = []
    at = 0
    while at < len(tokens):
        found = _path_at(tokens, at + 2) if tokens[at].text == "has" else None
        asked = found is not None and tokens[at + 1].text == "(" and [token.text for token in tokens[found[1] :][:1]] == [")"]
        found = found if asked else _path_at(tokens, at)
        if found is None or any(m.start <= at < m.end and found[0][0] == m.variable for m in macros):
            pieces.append(tokens[at].text)
            at += 1
            continue
        path = resolve(found[0], text, tokens[at].start)
        pieces.append(names.setdefault((path, asked), f"{prefix}{len(names)}"))
        at = found[1] + asked
    reads = {name: (reader(path), asked) for (path, asked), name in names.items()}
    return " ".join(pieces), {name: negated(equals(read, None)) if asked else read for name, (read, asked) in reads.items()}


def _count_work(text: str, tokens: Sequence[Token], macros: Sequence[_Macro], variables: Mapping[str, Read]) -> _Work:
    signs = Counter(token.text for token in tokens if token.kind == "sign")
    if signs.total() - sum(signs[free] for free in (",", "&&", "||", ")", "]", "}")) > _MAX_OPERATORS:
        refuse(f"a term may have {_MAX_OPERATORS} operators", text)
    if signs["+"] > _MAX_CONCATENATIONS:
        refuse(f"a term may have {_MAX_CONCATENATIONS} additions", text)
    inside = [any(macro.start <= at < macro.end for macro in macros) for at in range(len(tokens))]
    bound = {macro.variable for macro in macros}
    mentions: dict[str, tuple[int, int]] = dict.fromkeys(variables, (0, 0))
    states = 0
    for at, token in enumerate(tokens):
        if token.text in variables:
            outer, inner = mentions[token.text]
            mentions[token.text] = (outer + (not inside[at]), inner + inside[at])
        elif token.text == "matches" and token.kind == "name":
            states += _checked_pattern(text, tokens, at, inside[at])
        elif token.text in ("(", "{") and at and tokens[at - 1].kind == "name" and tokens[at - 1].text not in _CALLS:
            refuse(f"there is no function {tokens[at - 1].text!r}", text)
    if states > _MAX_STATES:
        refuse("the patterns are too large: use fewer classes such as \\w and smaller counts", text)
    for macro in macros:
        if inside[macro.start - 2]:
            refuse(f"{macro.name} may not stand inside another macro", text)
        if macro.name == "map" and not _is_field_of_element(tokens[macro.start : macro.end], macro.variable):
            refuse("map may only take a field of its element, as in items.map(i, i.name); use exists, all or filter", text)
    return _Work(
        tokens=len(tokens),
        inside=sum(inside),
        elements=sum(token.text in bound for token, within in zip(tokens, inside, strict=True) if within),
        builds=sum(macro.name in ("map", "filter") for macro in macros),
        concatenations=signs["+"],
        longest=min(signs[","] + 1, _MAX_ITEMS) if "[" in signs else 1,
        states=states,
        mentions=mentions,
    )


def _is_field_of_element(tokens: Sequence[Token], variable: str) -> bool:
    """Whether the last argument of a macro only picks from the element, so that what it gives is no larger."""
    last = " ".join(token.text for token in tokens).rpartition(" , ")[2].split()
    return last[:1] == [variable] and all(text == "." or text.isidentifier() for text in last)


_ATOM = re.compile(r"\\[pP]\{[^}]*\}|\\[pP].|\\x\{[^}]*\}|\\.|\{(?P<least>\d*),?(?P<most>\d*)\}|.", re.DOTALL)


def _checked_pattern(text: str, tokens: Sequence[Token], at: int, inside: bool) -> int:
    """The states of the pattern that `matches`, the token there, is called with."""
    argument = [token.kind for token in tokens[at - 1 : at + 4]]
    if inside or argument != ["sign", "name", "sign", "string", "sign"] or tokens[at + 3].text != ")":
        refuse("matches takes one string literal, and not inside a macro", text)
    pattern = str(_literal(tokens[at + 2]))
    if len(pattern) > _MAX_PATTERN or re.search(r"\[\^?\]|\(\?[a-zA-Z-]*x", pattern):
        refuse(f"a pattern may have {_MAX_PATTERN} characters, no x flag, and no ] at the start of a class", text)
    states = _states(pattern)
    if states > _MAX_STATES:
        refuse("the pattern is too large: use fewer classes such as \\w, and smaller counts", text)
    try:
        cel.evaluate(f"''.matches({tokens[at + 2].text})")
    except Exception as error:
        refuse(f"the pattern is refused: {str(error)[:200]}", text)
    return states


def _states(pattern: str) -> int:
    """An upper bound of what it takes to compile: classes weigh by how much of Unicode they name, counts multiply."""
    plain = 6 if re.search(r"\(\?[a-zA-Z]*i", pattern) else 1
    total, last, factor = 0, 0, 1
    opened, depth = 0, 0  # the total before the class that is being read, and how many classes are open
    previous = ""
    for atom in _ATOM.finditer(pattern):
        kind = atom.group()
        if kind[0] == "{" and len(kind) > 1:
            count = max(int(atom["most"] or 0), int(atom["least"] or 0), 1)
            if previous in (")", "}"):
                factor *= count
            else:
                total += last * (count - 1)
            previous = "}"
            continue
        weight = plain
        if kind[0] == "\\" and len(kind) > 1:
            weight = 200 if kind[1] in "wWpP" else 30 if kind[1] in "dDsS" else plain
        elif kind in (".", "^"):
            weight = 4
        if kind == "[":
            opened = opened if depth else total
            depth += 1
        total += weight
        last = weight
        if kind == "]" and depth:
            depth -= 1
            last = total - opened
        previous = kind
    return total * factor


def _check_sizes(activation: Mapping[str, Any], work: _Work) -> None:
    """Refuse values that would make the term run long. The library converts them first: about 1 µs for each."""
    everything = outer = inner = count = characters = 0
    longest = work.longest
    for name, value in activation.items():
        held, length, most = _size(value)
        count += held
        characters += length
        longest = max(longest, most)
        units = 1 + held + length // 8
        outside, inside = work.mentions[name]
        everything += units
        outer += units * outside
        inner += units * inside
    cost = work.tokens + longest * work.inside + work.states * characters // 8
    cost += (1 + work.concatenations) * (outer + work.elements * everything + longest * inner)
    cost += work.builds * longest * (everything + work.tokens) * 2
    if cost > _BUDGET or count > _MAX_VALUES or characters > _MAX_CHARACTERS:
        raise ConditionFailed("condition_over_bound", "the values that the condition names are too large for it")


def _size(value: Any) -> tuple[int, int, int]:
    """How many values it holds, how many characters, and how long its longest list is; no further than the bounds."""
    if not isinstance(value, dict | list | tuple):
        return 0, len(value) if isinstance(value, str) else 0, 0
    count = characters = longest = depth = 0
    level: list[Any] = [value]
    while level:
        below: list[Any] = []
        for each in level:
            if isinstance(each, str):
                characters += len(each)
            elif isinstance(each, dict | list | tuple):
                items = cast(Sequence[Any], each)
                count += len(items)
                longest = max(longest, len(items))
                if count > _MAX_VALUES or depth > _MAX_DEPTH:
                    raise ConditionFailed("condition_over_bound", "a value that the condition names is too large or too deep")
                below += [*items, *cast(dict[str, Any], each).values()] if isinstance(each, dict) else items
        level = below
        depth += 1
    return count, characters, longest
