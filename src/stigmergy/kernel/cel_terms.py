"""The terms of a condition that go to the CEL library, and what keeps them from holding the interpreter.

A term is rewritten so that each path it names is a variable of its own, which the subject's value is bound to; the library
is given these values and nothing else. Two bounds hold:

- When it is written: what its text may contain, before the library's parser sees it. Beyond that it is `Invalid`.
- When it is matched: what it costs for the sizes of the values it names. Beyond that it fails, `condition_over_bound`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, cast

from stigmergy.errors import Invalid
from stigmergy.kernel.cel_library import compile_cel, evaluate_cel
from stigmergy.kernel.condition_text import MAX_ITEMS, NESTING, Token, literal, path_at, refuse, resolve, scan
from stigmergy.kernel.predicates import ConditionFailed, FailureKind, Predicate, equals, negated
from stigmergy.kernel.subjects import Path, Read, Subject, kind_of, reader

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
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds", "dyn"),
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
        program = compile_cel(source)
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
        compile_cel(text)
    except ValueError as whole:
        error = whole
    found = re.search(r"<input>:(\d+):(\d+): (.*)", str(error))
    if found is None:
        refuse(str(error).splitlines()[0], text)
    raise Invalid(found[3], where=f"condition, line {found[1]}, column {found[2]}", code="invalid_condition")


# ---- the term as the library is given it ----


def _macros(tokens: Sequence[Token]) -> list[_Macro]:
    found: list[_Macro] = []
    for at in range(1, len(tokens) - 2):
        if tokens[at].text in _MACROS and tokens[at - 1].text == "." and tokens[at + 1].text == "(":
            depth, end = 1, at + 2
            while end < len(tokens) and depth:
                depth += NESTING.get(tokens[end].text, 0)
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
        found = path_at(tokens, at + 2) if tokens[at].text == "has" else None
        asked = found is not None and tokens[at + 1].text == "(" and [token.text for token in tokens[found[1] :][:1]] == [")"]
        found = found if asked else path_at(tokens, at)
        if found is None or any(m.start <= at < m.end and found[0][0] == m.variable for m in macros):
            pieces.append(tokens[at].text)
            at += 1
            continue
        path = resolve(found[0], text, tokens[at].start)
        pieces.append(names.setdefault((path, asked), f"{prefix}{len(names)}"))
        at = found[1] + asked
    reads = {name: (reader(path), asked) for (path, asked), name in names.items()}
    return " ".join(pieces), {name: negated(equals(read, None)) if asked else read for name, (read, asked) in reads.items()}


# ---- the bounds when it is written ----


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
        longest=min(signs[","] + 1, MAX_ITEMS) if "[" in signs else 1,
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
    pattern = str(literal(tokens[at + 2]))
    if len(pattern) > _MAX_PATTERN or re.search(r"\[\^?\]|\(\?[a-zA-Z-]*x", pattern):
        refuse(f"a pattern may have {_MAX_PATTERN} characters, no x flag, and no ] at the start of a class", text)
    states = _states(pattern)
    if states > _MAX_STATES:
        refuse("the pattern is too large: use fewer classes such as \\w, and smaller counts", text)
    try:
        evaluate_cel(f"''.matches({tokens[at + 2].text})")
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


# ---- the bounds when it is matched ----


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
