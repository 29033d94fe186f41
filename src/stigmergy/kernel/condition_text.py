"""The text of a condition: its tokens, the paths that it names, and where in it a fault is.

`scan` comes before any other reading: it refuses what could exhaust the stack of the library's parser.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn, cast

from stigmergy.errors import Invalid
from stigmergy.kernel.cel_library import evaluate_cel
from stigmergy.kernel.subjects import Path, Scalar, show

MAX_TEXT = 4096
_MAX_NESTING = 16
_MAX_STRING = 1024
MAX_ITEMS = 256
_MAX_STEPS = 16
NESTING = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
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
        nesting = NESTING.get(token.text, 0)
        if nesting > 0:
            items.append(1)
        elif nesting < 0:
            items = items[:-1]
        elif token.text == "," and items:
            items[-1] += 1
        if len(items) > _MAX_NESTING:
            refuse(f"brackets may be nested {_MAX_NESTING} deep", text, token.start)
        if items and items[-1] > MAX_ITEMS:
            refuse(f"a list may have {MAX_ITEMS} items", text, token.start)
        if len(token.text) > _MAX_STRING:
            refuse(f"a word or a string may have {_MAX_STRING} characters", text, token.start)
        try:
            if token.kind in ("string", "bytes"):
                literal(token)
        except ValueError:
            refuse("the string has an escape that CEL does not know", text, token.start)
    return tokens


def conjuncts(tokens: list[Token]) -> list[list[Token]]:
    """The terms of the outermost `&&`; the whole where it is not one, or is one that only the library can explain."""
    terms: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += NESTING.get(token.text, 0)
        if depth == 0 and token.text in ("||", "?"):
            return [tokens]
        if depth == 0 and token.text == "&&":
            terms.append([])
        else:
            terms[-1].append(token)
    if not tokens:
        return []
    return terms if all(terms) else [tokens]


def path_at(tokens: Sequence[Token], at: int) -> tuple[Path, int] | None:
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
            steps.append(str(literal(inner)) if inner.kind == "string" else inner.text)
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


def literal(token: Token) -> Scalar:
    """The library's own reading of a literal, for what is not plain."""
    if token.kind == "string" and "\\" not in token.text and token.text[0] in "'\"":
        return token.text[1:-1]
    if token.text.isdecimal():
        return int(token.text)
    return cast(Scalar, evaluate_cel(token.text))
