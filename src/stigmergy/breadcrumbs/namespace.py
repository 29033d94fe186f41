"""`app.breadcrumbs`: what a program may do and ask, in its own words, for the tenant and entity that it acts for."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stigmergy.breadcrumbs import commands, queries
from stigmergy.breadcrumbs.assembly import Assembly, gather
from stigmergy.breadcrumbs.audience import Reader, is_for_a_team, with_spaces
from stigmergy.breadcrumbs.events import Event, event_of, told
from stigmergy.breadcrumbs.model import Audience, Breadcrumb, Draft, JsonObject, Patch, Schema
from stigmergy.breadcrumbs.queries import View, ViewKind
from stigmergy.breadcrumbs.schemas import Schemas
from stigmergy.breadcrumbs.search import Method, Searcher, search
from stigmergy.breadcrumbs.subscriptions import parse_subscriptions
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Follower, edges
from stigmergy.kernel.history import EVERYTHING
from stigmergy.kernel.namespace import Namespace
from stigmergy.kernel.selectors import Selector, compile_selector, parse_selector
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction

Selecting = Selector | Mapping[str, Any] | None


class Listed(NamedTuple):
    """A page of views, newest first; `cursor` asks for what follows, None at the end."""

    items: list[View]
    cursor: int | None


class Found(msgspec.Struct, frozen=True):
    """A hit of a search. Scores order the hits of one search; they mean nothing beside those of another."""

    score: float
    breadcrumb: View


class Searched(msgspec.Struct, frozen=True):
    """Best first. `stale` breadcrumbs could not be searched yet; `cut` when so much was looked at in vain that search gave up."""

    items: list[Found]
    stale: int
    cut: bool


class Breadcrumbs(Namespace):
    def __init__(self, database: Database, scope: Scope, reader: Reader, searcher: Searcher) -> None:
        super().__init__(database, scope)
        self._reader = reader
        self.searcher = searcher

    async def create(
        self,
        schema_name: str,
        title: str = "",
        *,
        context: JsonObject | None = None,
        tags: Sequence[str] = (),
        id: str | None = None,
        owner_id: str | None = None,
        description: str | None = None,
        llm_hints: JsonObject | None = None,
        audience: Audience = "public",
        space_id: str | None = None,
        expires_at: int | None = None,
    ) -> View:
        """Write a breadcrumb. Gives it as a model sees it."""
        draft = Draft(
            schema_name=schema_name,
            title=title,
            context=context or {},
            tags=list(tags),
            id=id,
            owner_id=owner_id,
            description=description,
            llm_hints=llm_hints,
            audience=audience,
            space_id=space_id,
            expires_at=expires_at,
        )
        return await self._write(_create, self._reader, draft)

    async def create_many(self, drafts: Iterable[Draft]) -> list[View]:
        """All of them, in one transaction, or none."""
        return await self._write(_create_many, self._reader, list(drafts))

    async def get(self, id: str, *, view: ViewKind = "context") -> View:
        return await self._read(_get, self._reader, id, view)

    async def find(self, selector: Selecting = None, *, limit: int = 50, cursor: int | None = None) -> Listed:
        """What a selector matches, newest first."""
        return await self._read(_list, self._reader, _selector(selector), limit, EVERYTHING if cursor is None else cursor)

    async def search(self, query: str, selector: Selecting = None, *, method: Method = "hybrid", limit: int = 10) -> Searched:
        """What a text finds among what the selector matches: by its words, by its meaning, or by both."""
        wanted = _selector(selector)
        asked = query if method == "text" else await self.searcher.ask(query)
        hits = await self._read(search, self._reader, wanted, asked, method=method, limit=limit)
        views = await self._read(queries.shown, [hit.crumb for hit in hits.hits])
        items = [Found(hit.score, view) for hit, view in zip(hits.hits, views, strict=True)]
        return Searched(items, hits.stale, hits.cut)

    async def history(self, id: str, *, limit: int = 50) -> list[View]:
        """Every version, newest first."""
        return await self._read(_history, self._reader, id, limit)

    async def at_version(self, id: str, version: int) -> View:
        return await self._read(_at_version, self._reader, id, version)

    async def patch(self, id: str, *, if_match: int | None = None, **fields: Any) -> View:
        """Change these fields; `context` is a JSON Merge Patch."""
        return await self._write(_patch, self._reader, id, Patch(**fields), if_match)

    async def replace(self, id: str, draft: Draft, *, if_match: int | None = None) -> View:
        """Put a whole breadcrumb there; a deleted one comes back."""
        return await self._write(_replace, self._reader, id, draft, if_match)

    async def retag(self, id: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> View:
        return await self._write(_retag, self._reader, id, list(add), list(remove))

    async def delete(self, id: str, *, if_match: int | None = None) -> None:
        await self._write(commands.delete, self._reader, id, if_match=if_match)

    async def put_schema(self, schema: Schema) -> Schema:
        return await self._write(commands.put_schema, schema)

    async def schema(self, name: str) -> Schema:
        """What is said of a schema name."""
        return await self._read(queries.schema, name)

    async def schemas(self, *, after: str = "", limit: int = 100) -> list[Schema]:
        """What is said of schema names, in their order, behind one of them."""
        return await self._read(queries.schemas, after=after, limit=limit)

    async def delete_schema(self, name: str) -> None:
        await self._write(commands.delete_schema, name)

    async def preview(self, subscriptions: Any, trigger_id: str, *, budget: int | None = None) -> Assembly:
        """Exactly what an agent with these subscriptions would see, were it triggered by this breadcrumb."""
        wanted = parse_subscriptions(subscriptions)
        trigger = await self._read(queries.get, self._reader, trigger_id)
        return await gather(self._database, self.searcher, self._reader, wanted, trigger, scope=self._scope, budget=budget)

    async def follow(self, selector: Selecting = None, *, after: int | None = None) -> AsyncIterator[Event]:
        """Every change that the selector matches, once, in order; from now on, or after a position."""
        wanted = compile_selector(_selector(selector)).predicate
        start = (await self._read(edges)).last if after is None else after
        async for change in Follower(self._database, after=start, scope=self._scope, collections=("breadcrumbs",)):
            reader = self._reader
            if is_for_a_team(change.record, change.before):
                reader = await self._read(with_spaces, reader)
            as_what = told(reader, wanted, change)
            if as_what is not None:
                yield await self._read(event_of, self._reader, change, as_what)


def _selector(given: Selecting) -> Selector:
    if given is None:
        return Selector()
    return given if isinstance(given, Selector) else parse_selector(given)


# ---- units of work: a command or query, and what it shows ----


async def _shown(tx: Snapshot, crumb: Breadcrumb) -> View:
    return (await queries.shown(tx, [crumb]))[0]


async def _create(tx: Transaction, reader: Reader, draft: Draft) -> View:
    schemas = Schemas(tx)
    return (await queries.shown(tx, [await commands.create(tx, draft, schemas, reader=reader)], schemas=schemas))[0]


async def _create_many(tx: Transaction, reader: Reader, drafts: list[Draft]) -> list[View]:
    schemas = Schemas(tx)
    return await queries.shown(tx, await commands.create_many(tx, drafts, schemas, reader=reader), schemas=schemas)


async def _get(tx: Snapshot, reader: Reader, id: str, kind: ViewKind) -> View:
    return (await queries.shown(tx, [await queries.get(tx, reader, id)], kind))[0]


async def _list(tx: Snapshot, reader: Reader, selector: Selector, limit: int, below: int) -> Listed:
    page = await queries.find(tx, reader, selector, limit=limit, below=below)
    return Listed(await queries.shown(tx, page.crumbs), page.next)


async def _history(tx: Snapshot, reader: Reader, id: str, limit: int) -> list[View]:
    return await queries.shown(tx, await queries.history(tx, reader, id, limit=limit))


async def _at_version(tx: Snapshot, reader: Reader, id: str, version: int) -> View:
    return await _shown(tx, await queries.at_version(tx, reader, id, version))


async def _patch(tx: Transaction, reader: Reader, id: str, change: Patch, if_match: int | None) -> View:
    return await _shown(tx, await commands.patch(tx, reader, id, change, if_match=if_match))


async def _replace(tx: Transaction, reader: Reader, id: str, draft: Draft, if_match: int | None) -> View:
    return await _shown(tx, await commands.replace(tx, reader, id, draft, if_match=if_match))


async def _retag(tx: Transaction, reader: Reader, id: str, add: list[str], remove: list[str]) -> View:
    return await _shown(tx, await commands.retag(tx, reader, id, add=add, remove=remove))
