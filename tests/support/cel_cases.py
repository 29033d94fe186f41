"""CEL's own conformance cases, asked of the library that evaluates conditions and of conditions themselves."""

import base64
import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

import cel
import msgspec

from stigmergy.errors import Invalid
from stigmergy.kernel.conditions import compile_condition
from stigmergy.kernel.predicates import ConditionFailed
from support.repository import ROOT
from support.subjects import Write

FILE = ROOT / "tests" / "unit" / "data" / "cel_spec" / "cases.json"
# What a case can come to besides a value.
ERROR, REFUSED = "an error", "refused"


class Case(NamedTuple):
    file: str
    section: str
    name: str
    text: str
    bindings: dict[str, Any]
    expected: Any

    @property
    def title(self) -> str:
        return f"{self.file}/{self.section}/{self.name}"


class Difference(NamedTuple):
    """A case that does not come to what CEL says."""

    case: Case
    got: Any

    @property
    def line(self) -> str:
        return f"| `{self.case.title}` | {_shown(self.case.expected)} | {_shown(self.got)} |"


def cases() -> list[Case]:
    rows: list[list[Any]] = msgspec.json.decode(FILE.read_bytes())
    found: list[Case] = []
    for file, section, name, text, bindings, expected in rows:
        values = {key: _value(value) for key, value in bindings.items()}
        found.append(Case(file, section, name, text, values, ERROR if "error" in expected else _value(expected["value"])))
    return found


def _value(given: Any) -> Any:
    if isinstance(given, list):
        return [_value(each) for each in cast(list[Any], given)]
    if not isinstance(given, dict):
        return given
    ((kind, held),) = cast(dict[str, Any], given).items()
    match kind:
        case "uint":
            return held
        case "double":
            return float(str(held).replace("Infinity", "inf"))
        case "bytes":
            return base64.b64decode(held)
        case "map":
            return {_value(key): _value(value) for key, value in held}
        case "timestamp":
            return datetime.fromisoformat(held)
        case _:
            return timedelta(seconds=float(held.removesuffix("s")))


def of_the_library() -> Iterator[Difference]:
    """What the library answers otherwise than CEL says."""
    for case in cases():
        try:
            got = cel.evaluate(case.text, case.bindings)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a panic of the library is not an Exception
            got = ERROR
        if not _same(got, case.expected):
            yield Difference(case, got)


def of_conditions() -> Iterator[Difference]:
    """What conditions answer otherwise, of the cases that can be asked as a yes or no."""
    for case, text in questions():
        try:
            got: Any = compile_condition(text).predicate(Write(data=case.bindings))
        except Invalid:
            got = REFUSED
        except ConditionFailed:
            got = ERROR
        if got != (ERROR if case.expected == ERROR else True if text != case.text else case.expected):
            yield Difference(case, got)


def questions() -> Iterator[tuple[Case, str]]:
    """Cases as conditions: a boolean as it is, a number and a text compared with what they should be."""
    for case in cases():
        if isinstance(case.expected, bool) or case.expected == ERROR:
            yield case, case.text
        elif isinstance(case.expected, int | str):
            yield case, f"({case.text}\n) == {_literal(case.expected)}"


def _literal(value: int | str) -> str:
    if isinstance(value, int):
        return str(value)
    return "'" + "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or c in "'\\" else c for c in value) + "'"


def _same(got: Any, wanted: Any) -> bool:
    if got.__class__ is not wanted.__class__:
        return False
    if isinstance(got, list):
        pairs = zip(cast(list[Any], got), cast(list[Any], wanted), strict=False)
        return len(cast(list[Any], got)) == len(cast(list[Any], wanted)) and all(_same(*pair) for pair in pairs)
    return got == wanted or (isinstance(got, float) and math.isnan(got) and math.isnan(wanted))


def _shown(value: Any) -> str:
    return value if value in (ERROR, REFUSED) else f"`{ascii(value)[:60]}`"


def answers(differences: Iterable[Difference]) -> str:
    """What is answered otherwise, as a table."""
    return "\n".join(["| case | CEL says | here |", "| --- | --- | --- |", *(each.line for each in differences)])


def refusals(differences: Iterable[Difference]) -> str:
    """What is refused, as a list: a line for each section."""
    sections: dict[str, list[str]] = {}
    for each in differences:
        sections.setdefault(f"{each.case.file}/{each.case.section}", []).append(each.case.name)
    return "\n".join(f"- `{section}`: {', '.join(names)}" for section, names in sections.items())
