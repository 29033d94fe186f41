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

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

from stigmergy.kernel.cel_terms import cel_predicate
from stigmergy.kernel.condition_text import MAX_TEXT, Token, conjuncts, literal, path_at, refuse, resolve, scan
from stigmergy.kernel.predicates import (
    Anchor,
    FailureKind,
    Matcher,
    Predicate,
    always,
    boolean,
    equals,
    every,
    holds_text,
    negated,
    one_of,
    ordered,
    some,
)
from stigmergy.kernel.subjects import Path, Scalar, reader


def compile_condition(text: str) -> Matcher:
    """The condition as a predicate, which raises `ConditionFailed`. An empty text is always true."""
    if len(text.encode(errors="replace")) > MAX_TEXT:
        refuse(f"a condition may have {MAX_TEXT} bytes", text)
    return _compile(text)


@lru_cache(maxsize=4096)
def _compile(text: str) -> Matcher:
    pieces = conjuncts(scan(text))
    alone: FailureKind = "condition_not_boolean" if len(pieces) == 1 else "condition_error"
    terms: list[_Term] = []
    others: list[Token] = []  # for the library, as one term, so that its bounds hold for the whole condition
    for tokens in pieces:
        try:
            terms.append(_Parser(text, tokens).whole(alone))
        except _NotNative:
            others += [*([Token("sign", "&&", 0)] if others else []), *tokens]
    tests = [term.test for term in terms] + ([cel_predicate(text, others, alone)] if others else [])
    test = every(tests)
    return Matcher(test, tuple(anchor for term in terms for anchor in term.anchors), ((text, test),) if tests else ())


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
        if (found := path_at(self.tokens, self.at)) is not None:
            names, self.at = found
            return resolve(names, self.text, token.start)
        negative = self.take("-") is not None
        if self.at < len(self.tokens) and self.tokens[self.at].kind == "number":
            try:
                value = cast(int | float, literal(self.tokens[self.at]))
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
            return [literal(token)]
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
