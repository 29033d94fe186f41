"""Subscriptions: what wakes an agent, and what it wants to see when it wakes. Pure.

A `trigger` subscription starts work when something matches; a `context` subscription does nothing at all then: it is a source,
fetched when a trigger fires. The older forms are read too: `{"selectors": […]}` around the list, `on_event` around role and
fetch, the selector's fields beside them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from stigmergy.breadcrumbs.templates import Template
from stigmergy.errors import Invalid
from stigmergy.kernel.selectors import Selector, parse_selector

Role = Literal["trigger", "context"]
Method = Literal["this_event", "latest", "recent", "vector", "text", "hybrid"]
OnMissing = Literal["ignore", "wait", "fail"]

MOST_SOURCES = 64
MOST_RECORDS = 200
_VERSION = re.compile(r"\.v\d+$")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# The keys of the assembly that are ours.
RESERVED = frozenset({"trigger"})


class Fetch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a source is fetched. `query` is a template over the trigger; its text when not given."""

    method: Method = "latest"
    limit: int | None = None
    query: str | None = None
    view: Literal["context", "full"] = "context"


class Subscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"as_": "as"}):
    selector: Selector
    role: Role
    as_: str
    fetch: Fetch
    priority: int = 0
    required: bool = False
    same_tags: tuple[str, ...] = ()

    @property
    def limit(self) -> int:
        if self.fetch.method in ("latest", "this_event"):
            return 1
        return 10 if self.fetch.limit is None else self.fetch.limit

    @property
    def is_single(self) -> bool:
        """Whether the assembly has one object under this name, or a list, newest first."""
        return self.fetch.method == "latest" or self.limit == 1


class _Given(msgspec.Struct, kw_only=True, rename={"as_": "as"}, forbid_unknown_fields=True):
    """One subscription as it is written: its selector inside, or its selector's fields beside."""

    selector: dict[str, Any] | None = None
    role: Role | None = None
    as_: str | None = None
    fetch: Fetch | None = None
    priority: int = 0
    required: bool = False
    same_tags: tuple[str, ...] = ()


_SELECTOR_FIELDS = frozenset(Selector.__struct_fields__)


def parse_subscriptions(data: Any) -> list[Subscription]:
    """An agent's subscriptions, from its list or from the older form around it. `Invalid` with the place of the fault."""
    if isinstance(data, Mapping):
        fields = cast(Mapping[str, Any], data)
        if fields and "selectors" not in fields:
            raise Invalid("subscriptions are a list, or an object with the list under `selectors`", "subscriptions")
        data = fields.get("selectors", [])
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise Invalid("subscriptions are a list", "subscriptions")
    items = cast(Sequence[Any], data)
    if len(items) > MOST_SOURCES:
        raise Invalid(f"there may be at most {MOST_SOURCES}", "subscriptions")
    given = [_given(item, f"subscriptions[{place}]") for place, item in enumerate(items)]
    has_trigger = any(each.role == "trigger" for each, _ in given)
    found = [
        _subscription(each, selector, has_trigger, f"subscriptions[{place}]") for place, (each, selector) in enumerate(given)
    ]
    _check_names(found)
    return found


def _given(item: Any, where: str) -> tuple[_Given, Selector]:
    if not isinstance(item, Mapping):
        raise Invalid("a subscription is an object", where)
    fields = dict(cast(Mapping[str, Any], item))
    on_event = fields.pop("on_event", None)
    if on_event is not None and not isinstance(on_event, Mapping):
        raise Invalid("an object is expected", f"{where}.on_event")
    fields |= cast(Mapping[str, Any], on_event or {})
    beside = {name: fields.pop(name) for name in list(fields) if name in _SELECTOR_FIELDS}
    try:
        each = msgspec.convert(fields, _Given)
    except msgspec.ValidationError as error:
        raise Invalid(str(error), where) from error
    if each.selector is not None and beside:
        raise Invalid(f"{', '.join(beside)} stand beside a selector; put them into it", where)
    try:
        return each, parse_selector(each.selector if each.selector is not None else beside)
    except Invalid as error:
        raise error.inside(where) from error


def _subscription(each: _Given, selector: Selector, has_trigger: bool, where: str) -> Subscription:
    role: Role = each.role or ("context" if has_trigger else "trigger")
    fetch = each.fetch or Fetch(method="this_event" if role == "trigger" else "latest")
    if fetch.limit is not None and not 1 <= fetch.limit <= MOST_RECORDS:
        raise Invalid(f"a source fetches 1 to {MOST_RECORDS} records", f"{where}.fetch.limit")
    if role == "context" and fetch.method == "this_event":
        raise Invalid("a source that is fetched later is no event; use latest or recent", f"{where}.fetch.method")
    if fetch.query is not None:
        Template(fetch.query, f"{where}.fetch.query")  # compiling is checking
    name = each.as_ or default_name(selector.schema_name)
    if name is None:
        raise Invalid("a subscription without one schema name needs a name of its own, `as`", f"{where}.as")
    if _NAME.fullmatch(name) is None or name in RESERVED:
        raise Invalid(f"{name!r} cannot name a source; use letters, digits and _, and not `trigger`", f"{where}.as")
    return Subscription(
        selector=selector,
        role=role,
        as_=name,
        fetch=fetch,
        priority=each.priority,
        required=each.required,
        same_tags=each.same_tags,
    )


def default_name(schema_name: str | None) -> str | None:
    """`browser.page.context.v1` is `browser_page_context`."""
    if schema_name is None or schema_name.endswith("*"):
        return None
    return re.sub(r"[^A-Za-z0-9_]", "_", _VERSION.sub("", schema_name))


def _check_names(subscriptions: Sequence[Subscription]) -> None:
    seen: set[str] = set()
    for place, each in enumerate(subscriptions):
        if each.role == "context" and each.as_ in seen:
            raise Invalid(f"two sources are called {each.as_!r}; give one a name of its own, `as`", f"subscriptions[{place}].as")
        if each.role == "context":
            seen.add(each.as_)


def tags_shared(pattern: str, tags: Sequence[str]) -> list[str]:
    """The tags that a pattern names, which may end in `*`."""
    return [tag for tag in tags if tag == pattern or (pattern.endswith("*") and tag.startswith(pattern[:-1]))]


def in_scope(subscription: Subscription, trigger_tags: Sequence[str]) -> Selector | None:
    """The selector, narrowed to the trigger's own tags of these patterns. None when the trigger has none of one: then nothing
    is in scope."""
    tags: list[str] = list(subscription.selector.all_tags or ())
    for pattern in subscription.same_tags:
        same = tags_shared(pattern, trigger_tags)
        if not same:
            return None
        tags += same
    return msgspec.structs.replace(subscription.selector, all_tags=tuple(dict.fromkeys(tags))) if tags else subscription.selector
