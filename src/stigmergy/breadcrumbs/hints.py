r"""What a model sees of a breadcrumb: `llm_hints` applied to its context. Pure: no I/O.

`include` keeps, `exclude` removes, then `transform` computes values from what is left; so what is excluded is nowhere in a
view. `replace` (the default) gives the transforms' outputs alone, `merge` lays them over what is left.

- A path is dotted: `a.b`. In a list a number names one item (`items.0.name`), any other name goes into every item
  (`items.name`). A backslash makes the next dot or backslash part of a name: `a\.b` is the key "a.b".
- `include` keeps a leaf and its ancestors; an ancestor in which nothing is found, and a list's item in which nothing is found,
  is left out. `include: []` keeps nothing. `exclude` leaves an emptied parent as {} or []; positions are those before removal.
- Templates and formats write JSON: true, 1.5, compact objects; a string as it is; null and what is missing as nothing.
- Rules run within bounds (`templates.py`, `extracts.py`): steps, visited values, size of the output.
- Hints are checked when parsed. A rule that fails later fails closed: its key is absent in either mode, and `View.errors` names
  the rule and the kind of failure, never a value. Filters that fail leave an empty view.

A view shares what is unchanged with the context it was made from; treat both as immutable.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from stigmergy.breadcrumbs.extracts import extract
from stigmergy.breadcrumbs.formats import RuleFailed, Run, format_text
from stigmergy.breadcrumbs.paths import NOTHING, only, path_tree, refuse, without
from stigmergy.breadcrumbs.templates import Template
from stigmergy.errors import Invalid

MAX_TRANSFORMS = 64
MAX_HINTS = 64 * 1024

_encode = msgspec.json.encode


class TemplateRule(Struct, frozen=True, tag="template", forbid_unknown_fields=True):
    template: str


class ExtractRule(Struct, frozen=True, tag="extract", forbid_unknown_fields=True):
    value: str


class LiteralRule(Struct, frozen=True, tag="literal", forbid_unknown_fields=True):
    literal: Any


class FormatRule(Struct, frozen=True, tag="format", forbid_unknown_fields=True):
    format: str


Rule = TemplateRule | ExtractRule | LiteralRule | FormatRule


class Hints(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """As written: a field that was not written is not there when it is encoded again."""

    include: list[str] | UnsetType = UNSET
    exclude: list[str] | UnsetType = UNSET
    transform: dict[str, Rule] | UnsetType = UNSET
    mode: Literal["replace", "merge"] | UnsetType = UNSET

    @cached_property
    def program(self) -> "_Program":
        return _program(_encode(self))


class HintError(Struct, frozen=True):
    """A rule that failed while reading; `key` is empty where the filters failed."""

    key: str
    type: str
    message: str


class View(NamedTuple):
    context: dict[str, Any]
    errors: list[HintError]


def parse_hints(data: Mapping[str, Any] | None) -> Hints | None:
    """Hints as they were written, checked in full. Raises `Invalid` with the place of the fault."""
    if data is None:
        return None
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (it comes from outside)
        refuse("llm_hints is an object", "")
    try:
        raw = _encode(dict(data))
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        raise Invalid("llm_hints must be JSON", code="invalid_hints") from failure
    if len(raw) > MAX_HINTS:
        refuse(f"llm_hints takes {len(raw)} bytes; at most {MAX_HINTS} are allowed", "")
    return _parsed(raw)


@lru_cache(1_000)
def _parsed(raw: bytes) -> Hints:
    """Many breadcrumbs come with the same hints."""
    hints = _hints(msgspec.json.decode(raw))
    _ = hints.program  # compiling is checking
    return hints


def apply_hints(hints: Hints | None, context: dict[str, Any]) -> View:
    return View(context, []) if hints is None else hints.program.view(context)


def effective(instance: Hints | None, schema: Hints | None) -> Hints | None:
    """The record's own hints, whole, or else its schema's."""
    return schema if instance is None else instance


def move_inline_hints(context: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """A context that carries its `llm_hints` inside, without them, and what is to be parsed; None where there are none."""
    rest = dict(context)
    return rest, rest.pop("llm_hints", None)


# ---- reading hints ----


def _hints(data: dict[str, Any]) -> Hints:
    for name in data:
        if name not in Hints.__struct_fields__:
            refuse(f"there is no such hint; there are {', '.join(Hints.__struct_fields__)}", name)
    rules = data.get("transform")
    if "transform" in data:
        if not isinstance(rules, dict):
            refuse("an object of rules is expected", "transform")
        rules = cast(dict[str, Any], rules)
        if len(rules) > MAX_TRANSFORMS:
            refuse(f"{len(rules)} transforms; at most {MAX_TRANSFORMS} are allowed", "transform")
        data = data | {"transform": {key: _converted(rule, Rule, f"transform.{key}") for key, rule in rules.items()}}
    return _converted(data, Hints, "")


def _converted(value: Any, type: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as failure:
        message, _, place = str(failure).partition(" - at `$")
        place = place.rstrip("`")
        refuse(message, (where + place).lstrip("."))


class _Program:
    """Hints compiled: what runs on every read."""

    def __init__(self, hints: Hints) -> None:
        self.include = None if hints.include is UNSET else path_tree(hints.include, "include")
        self.exclude = path_tree(hints.exclude, "exclude") if hints.exclude else None
        rules = {} if hints.transform is UNSET else hints.transform
        self.rules = [(key, rule.__struct_config__.tag, _compiled(rule, f"transform.{key}")) for key, rule in rules.items()]
        self.merges = hints.mode == "merge"

    def view(self, context: dict[str, Any]) -> View:
        try:
            kept: Any = context if self.include is None else only(context, self.include)
            kept = {} if kept is NOTHING else kept
            if self.exclude is not None:
                kept = without(kept, self.exclude)
        except RecursionError:
            return View({}, [HintError("", "filter", "the context is nested too deeply")])
        return self._transformed(kept) if self.rules else View(kept, [])

    def _transformed(self, kept: dict[str, Any]) -> View:
        result = dict(kept) if self.merges else {}
        errors: list[HintError] = []
        for key, kind, run in self.rules:
            try:
                result[key] = run(kept)
            except RuleFailed as failure:
                message = str(failure)
            except Exception as failure:  # a rule fails closed, whatever it was
                message = f"it failed with {type(failure).__name__}"
            else:
                continue
            result.pop(key, None)
            errors.append(HintError(key, str(kind), message))
        return View(result, errors)


@lru_cache(512)
def _program(raw: bytes) -> _Program:
    return _Program(msgspec.json.decode(raw, type=Hints))


def _compiled(rule: Rule, where: str) -> Run:
    match rule:
        case TemplateRule(template):
            return Template(template, f"{where}.template")
        case ExtractRule(value):
            return extract(value, f"{where}.value")
        case FormatRule(format):
            return format_text(format, f"{where}.format")
        case LiteralRule(literal):
            raw = _encode(literal)
            return lambda context: msgspec.json.decode(raw)  # a new one each time: the program is shared
