"""Context assembly: everything that was asked for when a trigger fires, from one snapshot, within a budget.

The trigger is the version that fired, whole. A record appears once. What does not fit is dropped by priority, then by age, and
said so. The same input gives the same bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import msgspec

from stigmergy.breadcrumbs import queries
from stigmergy.breadcrumbs.audience import Reader, with_spaces
from stigmergy.breadcrumbs.formats import RuleFailed
from stigmergy.breadcrumbs.model import Breadcrumb, JsonObject, Schema
from stigmergy.breadcrumbs.search import LONGEST_TEXT, MOST_HITS, Query, Searcher, search
from stigmergy.breadcrumbs.search_index import texts_in
from stigmergy.breadcrumbs.subscriptions import Subscription, in_scope
from stigmergy.breadcrumbs.templates import Template
from stigmergy.errors import Invalid
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope, Snapshot

CountTokens = Callable[[str], int]


class Source(msgspec.Struct, frozen=True, rename={"as_": "as"}):
    """Where a part of the assembly is from."""

    as_: str
    id: str
    version: int
    tokens: int


class Dropped(msgspec.Struct, frozen=True, rename={"as_": "as"}):
    as_: str
    id: str
    why: str


class Assembly(msgspec.Struct, frozen=True):
    """`context` has the trigger under `trigger` and each source under its name."""

    context: JsonObject
    provenance: list[Source]
    token_estimate: int
    dropped: list[Dropped]
    missing: list[str]
    required_missing: list[str]


class _Candidate(msgspec.Struct):
    subscription: Subscription
    crumb: Breadcrumb
    shown: JsonObject
    tokens: int


def estimate_tokens(text: str) -> int:
    """A stated estimate where no tokenizer is at hand: four bytes a token."""
    return (len(text.encode()) + 3) // 4


async def gather(
    database: Database,
    searcher: Searcher,
    reader: Reader,
    subscriptions: Sequence[Subscription],
    trigger: Breadcrumb,
    *,
    scope: Scope,
    budget: int | None = None,
    count: CountTokens = estimate_tokens,
) -> Assembly:
    """`assemble` where sources may be searched by meaning: what is asked of the index is put to the model first."""
    texts = await database.read(questions, subscriptions, trigger, scope=scope)
    asked = {text: await searcher.ask(text) for text in texts}
    return await database.read(assemble, reader, subscriptions, trigger, budget=budget, count=count, asked=asked, scope=scope)


async def questions(tx: Snapshot, subscriptions: Sequence[Subscription], trigger: Breadcrumb) -> list[str]:
    """The texts that the sources search with a model: each once."""
    shown = await _shown(tx, {}, trigger)
    by_meaning = [each for each in subscriptions if each.role == "context" and each.fetch.method in ("vector", "hybrid")]
    return list(dict.fromkeys(filter(None, (_question(each, shown) for each in by_meaning))))


async def assemble(
    tx: Snapshot,
    reader: Reader,
    subscriptions: Sequence[Subscription],
    trigger: Breadcrumb,
    *,
    budget: int | None = None,
    count: CountTokens = estimate_tokens,
    asked: Mapping[str, Query] | None = None,
) -> Assembly:
    """Gather for a trigger. `trigger` is the version that fired; it is not read again. `asked` has the model's answers to
    `questions`, where there are any."""
    reader = await with_spaces(tx, reader)
    schemas: dict[str, Schema | None] = {}
    shown = await _shown(tx, schemas, trigger)
    spent = count(_text(shown))
    if budget is not None and spent > budget:
        raise Invalid(f"the trigger alone takes {spent} tokens of the {budget} there are; raise the budget", "budget")
    used = {trigger.id}
    candidates: list[_Candidate] = []
    sources = [each for each in subscriptions if each.role == "context"]
    # what two sources could show is shown by the more important one
    for subscription in sorted(sources, key=lambda each: -each.priority):
        for crumb in await _fetch(tx, reader, subscription, trigger, shown, asked or {}):
            if crumb.id not in used:
                used.add(crumb.id)
                part = await _shown(tx, schemas, crumb, subscription.fetch.view)
                candidates.append(_Candidate(subscription, crumb, part, count(_text(part))))
    kept, dropped = _within(candidates, None if budget is None else budget - spent)
    kept.sort(key=lambda each: (sources.index(each.subscription), -each.crumb.seq))
    missing = [each.as_ for each in sources if not any(found.subscription is each for found in kept)]
    required = [each.as_ for each in sources if each.required and each.as_ in missing]
    provenance = [Source("trigger", trigger.id, trigger.version, spent)]
    provenance += [Source(each.subscription.as_, each.crumb.id, each.crumb.version, each.tokens) for each in kept]
    total = sum(source.tokens for source in provenance)
    return Assembly(_laid_out(shown, sources, kept), provenance, total, dropped, missing, required)


async def _fetch(
    tx: Snapshot,
    reader: Reader,
    subscription: Subscription,
    trigger: Breadcrumb,
    shown: JsonObject,
    asked: Mapping[str, Query],
) -> list[Breadcrumb]:
    selector = in_scope(subscription, trigger.tags)
    method = subscription.fetch.method
    if selector is None:
        return []
    # one more than wanted: the trigger may well be the newest of its kind, or the nearest to itself
    more = subscription.limit + 1
    if method in ("text", "vector", "hybrid"):
        text = _question(subscription, shown)
        if not text:
            return []
        limit = min(more, MOST_HITS)
        found = await search(tx, reader, selector, asked.get(text) or Query(text), method=method, limit=limit)
        return [hit.crumb for hit in found.hits if hit.crumb.id != trigger.id][: subscription.limit]
    if method not in ("latest", "recent"):
        raise Invalid(f"sources cannot be fetched by {method}; use latest or recent", "fetch.method")
    found = await queries.find(tx, reader, selector, limit=more)
    return [crumb for crumb in found.crumbs if crumb.id != trigger.id][: subscription.limit]


def _question(subscription: Subscription, shown: JsonObject) -> str:
    """What a source asks of the index: its template over the trigger's view, or the text of that view. Empty when there is none,
    or when the template fails: then nothing is found."""
    if subscription.fetch.query is None:
        text = "\n".join((shown["title"], *texts_in(shown["context"])))
    else:
        try:
            text = _template(subscription.fetch.query)(shown["context"])
        except RuleFailed:
            return ""
    return text[:LONGEST_TEXT].strip()


@lru_cache(256)
def _template(text: str) -> Template:
    return Template(text, "fetch.query")


async def _shown(
    tx: Snapshot, schemas: dict[str, Schema | None], crumb: Breadcrumb, kind: queries.ViewKind = "context"
) -> JsonObject:
    """What the assembly holds of a breadcrumb: enough to refer to it, and its context as a view."""
    if crumb.schema_name not in schemas:
        schemas[crumb.schema_name] = await tx.get(Schema, crumb.schema_name)
    view = queries.view(crumb, schemas[crumb.schema_name], kind)
    shown: JsonObject = {"id": view.id, "schema_name": view.schema_name, "title": view.title, "context": view.context}
    if view.hint_errors:
        shown["hint_errors"] = view.hint_errors
    return shown


def _within(candidates: list[_Candidate], left: int | None) -> tuple[list[_Candidate], list[Dropped]]:
    """What fits: by priority, then newest first. A large one does not keep out a smaller one behind it."""
    order = sorted(candidates, key=lambda each: (-each.subscription.priority, -each.crumb.seq))
    kept: list[_Candidate] = []
    dropped: list[Dropped] = []
    for each in order:
        if left is not None and each.tokens > left:
            dropped.append(Dropped(each.subscription.as_, each.crumb.id, f"{each.tokens} tokens, {left} were left"))
            continue
        if left is not None:
            left -= each.tokens
        kept.append(each)
    return kept, dropped


def _laid_out(trigger: JsonObject, sources: Sequence[Subscription], kept: Sequence[_Candidate]) -> JsonObject:
    """The trigger, then the sources in the order of their subscriptions; in a list, newest first."""
    context: JsonObject = {"trigger": trigger}
    for subscription in sources:
        parts = [each.shown for each in kept if each.subscription is subscription]
        if subscription.is_single:
            if parts:
                context[subscription.as_] = parts[0]
        else:
            context[subscription.as_] = parts
    return context


def _text(shown: JsonObject) -> str:
    return msgspec.json.encode(shown, order="sorted").decode()


def canonical(assembly: Assembly) -> bytes:
    """The assembly as bytes: equal for equal input, on either engine."""
    return msgspec.json.encode(assembly, order="sorted")
