"""Definitions of triggers, as a file, the API or a program gives them: checked as a whole, and made into rules.

A fault is `Invalid` with its place: `triggers[2].condition, line 1, column 8`. One fault refuses everything it came with.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from msgspec import Meta

from stigmergy.breadcrumbs.templates import Template
from stigmergy.errors import Invalid
from stigmergy.kernel.matching import CompiledRule, collections_for
from stigmergy.kernel.record import templates
from stigmergy.kernel.rules import MAX_DEPTH, Rule, compiled
from stigmergy.net import AddressRefused, Reach
from stigmergy.triggers.fields import check_fields
from stigmergy.triggers.model import Action, Handler, PostSpaceMessage, Webhook, Write, check_id, signing_key
from stigmergy.triggers.posting import target_of
from stigmergy.triggers.vocabulary import in_our_words
from stigmergy.triggers.webhooks import check_headers

MOST = 10_000
_SHORT = re.compile(r"\s*POST\s+(\S+)\s*")


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A trigger as it is written. `action` is an object, or the short form `POST /path`."""

    id: str
    collection: str
    event: str | list[str]
    condition: str | None = None
    action: str | dict[str, Any]
    enabled: bool = True
    order: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    max_depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = MAX_DEPTH


class Reading(NamedTuple):
    """How definitions are read: whose they are, what short actions are put behind, and where webhooks may go."""

    owner: str
    webhook_base: str | None = None
    reach: Reach = Reach()


def parse_definitions(data: Any, reading: Reading, where: str = "triggers") -> list[Rule]:
    """The rules of a list of definitions, or of an object with it under `triggers`."""
    if isinstance(data, Mapping):
        given = cast(Mapping[str, Any], data)
        if unknown := set(given) - {"triggers"}:
            raise Invalid("a file of triggers has nothing but `triggers`, a list", min(unknown))
        data = given.get("triggers", [])
    if not isinstance(data, Sequence) or isinstance(data, str | bytes):
        raise Invalid("triggers are a list", where)
    items = cast(Sequence[Any], data)
    if len(items) > MOST:
        raise Invalid(f"at most {MOST:,} triggers at once", where)
    rules = [parse_definition(item, reading, f"{where}[{place}]") for place, item in enumerate(items)]
    seen: dict[str, int] = {}
    for place, rule in enumerate(rules):
        if seen.setdefault(rule.id, place) != place:
            raise Invalid(f"{where}[{seen[rule.id]}] is called {rule.id!r} too", f"{where}[{place}].id")
    return rules


def parse_definition(data: Any, reading: Reading, where: str = "") -> Rule:
    """One definition as a rule that can be put."""
    definition = _converted(data, Definition, where)
    try:
        check_id(definition.id)
        action = read_action(definition.action, reading)
        given = [definition.event] if isinstance(definition.event, str) else definition.event
        collections = collections_for(definition.collection, templates())
        events, condition = in_our_words(collections, given, definition.condition or None)
        rule = Rule(
            id=definition.id,
            owner=reading.owner,
            kind=cast(str, action["type"]),
            collection=definition.collection,
            events=events,
            condition=condition,
            action=action,
            position=definition.order,
            max_depth=definition.max_depth,
            enabled=definition.enabled,
        )
        check_rule(rule)
    except Invalid as error:
        raise Invalid(error.message, _joined(where, error.where), error.code) from None
    return rule


def check_rule(rule: Rule) -> CompiledRule:
    """Refuse what could never be matched: unknown collections, events and fields, and conditions that are no good."""
    ready = compiled(rule)
    check_fields(rule)
    return ready


def read_action(given: str | Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """An action as it is stored."""
    if isinstance(given, str):
        given = {"type": "webhook", "url": _short(given, reading.webhook_base)}
    elif given.get("type") == "webhook" and str(given.get("url", "")).startswith("/"):
        given = {**given, "url": _behind(reading.webhook_base, str(given["url"]))}
    action: Action = _converted(given, Action, "action")
    if isinstance(action, Webhook):
        _check_webhook(action, reading.reach)
    if isinstance(action, PostSpaceMessage):
        Template(action.text, "action.text")
    if isinstance(action, Webhook | Handler):
        for place, write in enumerate(action.writes):
            check_write(write, f"action.writes[{place}]")
    return msgspec.to_builtins(action)


def _check_webhook(webhook: Webhook, reach: Reach) -> None:
    target = target_of(webhook.url, "action.url")
    try:
        reach.check_literal(target.host)
    except AddressRefused as error:
        raise Invalid(str(error), "action.url", error.code) from None
    check_headers(webhook.headers, "action.headers")
    if webhook.secret is not None:
        signing_key(webhook.secret, "action.secret")


def check_write(write: Write, where: str = "writes") -> CompiledRule:
    """What a receiver writes, as something that can be matched against."""
    rule = Rule(id="write", owner="", kind="write", collection=write.collection, events=[write.event])
    try:
        return check_rule(rule)
    except Invalid as error:
        raise Invalid(error.message, _joined(where, error.where), error.code) from None


def _short(text: str, base: str | None) -> str:
    found = _SHORT.fullmatch(text)
    if found is None:
        raise Invalid(f"{text[:100]!r} is not understood; write POST and a path or a URL, or an object with a type", "action")
    return _behind(base, found[1]) if found[1].startswith("/") else found[1]


def _behind(base: str | None, path: str) -> str:
    if base is None:
        raise Invalid(f"{path!r} is a path; say in the setting `webhook_base` behind which address it is", "action")
    return base.rstrip("/") + path


def _converted(data: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise Invalid(message, _joined(where, place.strip("`."))) from None


def _joined(where: str, place: str | None) -> str:
    if not place:
        return where
    return f"{where}.{place}" if where and not place.startswith("[") else f"{where}{place}"
