"""`stigmergy breadcrumbs …`, `stigmergy feed`, `stigmergy assembly preview`: on the store itself, beside a running server too."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from cyclopts import App, Parameter
from rich.markup import escape

from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.embeddings import open_embedder
from stigmergy.breadcrumbs.model import Audience, JsonObject
from stigmergy.breadcrumbs.namespace import Breadcrumbs
from stigmergy.breadcrumbs.queries import View
from stigmergy.breadcrumbs.search import Method, Searcher
from stigmergy.breadcrumbs.search_index import fill
from stigmergy.cli.store import AsJson, Store, opened, out, print_json, progress
from stigmergy.errors import Invalid
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Follower, edges
from stigmergy.kernel.ids import check_tenant
from stigmergy.kernel.selectors import Selector, compile_selector
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import load

app = App(name="breadcrumbs", help="Context packets: put, get, ls, search, import, export.")
assembly = App(name="assembly", help="What agents see.")

Tenant = Annotated[str, Parameter(help="Whose.")]
As = Annotated[str, Parameter(name="--as", help="The entity that acts.")]
T = TypeVar("T")
COLOURS = {"create": "green", "update": "yellow", "delete": "red"}


@asynccontextmanager
async def open_crumbs(store: str | None, tenant: str, entity: str) -> AsyncGenerator[tuple[Database, Scope, Breadcrumbs]]:
    scope = Scope(check_tenant(tenant), entity)
    settings = load({"store": store})
    async with opened(settings) as database:
        searcher = Searcher(open_embedder(settings))
        yield database, scope, Breadcrumbs(database, scope, Reader(entity, everything=True), searcher)
        searcher.close()


@app.command
def put(
    schema_name: str,
    title: str = "",
    *,
    context: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="A JSON object; @FILE reads a file, - standard input.")
    ] = "{}",
    tag: list[str] | None = None,
    id: str | None = None,
    audience: Audience = "public",
    store: Store = None,
    tenant: Tenant = "main",
    entity: As = "cli",
) -> None:
    """Write a breadcrumb and print its id."""
    body = _json(context, "context", JsonObject)

    async def run() -> None:
        async with open_crumbs(store, tenant, entity) as (_, _, crumbs):
            made = await crumbs.create(schema_name, title, context=body, tags=tag or [], id=id, audience=audience)
            out.print(made.id)

    asyncio.run(run())


@app.command
def get(
    id: str,
    *,
    full: Annotated[bool, Parameter(negative="", help="As it was written, not as a model sees it.")] = False,
    version: int | None = None,
    store: Store = None,
    tenant: Tenant = "main",
    entity: As = "cli",
) -> None:
    """Print a breadcrumb as JSON."""

    async def run() -> None:
        async with open_crumbs(store, tenant, entity) as (_, _, crumbs):
            found = await crumbs.at_version(id, version) if version else await crumbs.get(id, view="full" if full else "context")
            print_json(found)

    asyncio.run(run())


@app.command
def ls(
    *,
    schema_name: str | None = None,
    tag: list[str] | None = None,
    where: Annotated[str | None, Parameter(help="A condition, such as `context.n > 3`.")] = None,
    limit: int = 20,
    json: AsJson = False,
    store: Store = None,
    tenant: Tenant = "main",
    entity: As = "cli",
) -> None:
    """List breadcrumbs, newest first."""
    selector = Selector(schema_name=schema_name, all_tags=tuple(tag) if tag else None, where=where)

    async def run() -> None:
        async with open_crumbs(store, tenant, entity) as (_, _, crumbs):
            page = await crumbs.find(selector, limit=limit)
            if json:
                print_json(page.items)
                return
            for view in page.items:
                _show(view)
            if page.cursor is not None:
                out.print(f"[dim]There are more; this shows {limit}.[/]")

    asyncio.run(run())


@app.command
def search(
    text: str,
    *,
    method: Annotated[Method, Parameter(help="By words, by meaning, or by both.")] = "hybrid",
    schema_name: str | None = None,
    tag: list[str] | None = None,
    limit: int = 10,
    json: AsJson = False,
    store: Store = None,
    tenant: Tenant = "main",
    entity: As = "cli",
) -> None:
    """Find breadcrumbs by a text, the best first. What was not indexed yet is indexed before."""
    selector = Selector(schema_name=schema_name, all_tags=tuple(tag) if tag else None)

    async def run() -> None:
        async with open_crumbs(store, tenant, entity) as (database, _, crumbs):
            with progress("Bringing the index of search up to date"):
                await fill(database, crumbs.searcher.embedder, tenant)
            found = await crumbs.search(text, selector, method=method, limit=limit)
            if json:
                print_json(found)
                return
            for each in found.items:
                out.print(f"[dim]{each.score:.3f}[/] ", end="")
                _show(each.breadcrumb)
            if not found.items:
                out.print("[dim]Nothing was found.[/]")

    asyncio.run(run())


def _show(view: View) -> None:
    tags = f" [cyan]{escape(' '.join(view.tags))}[/]" if view.tags else ""
    out.print(f"[dim]{_clock(view.updated_at)}[/] {view.id} [bold]{escape(view.schema_name)}[/] {escape(view.title)}{tags}")


def feed(
    *,
    schema_name: str | None = None,
    tag: list[str] | None = None,
    after: Annotated[int | None, Parameter(help="Begin after this position; 0 shows all there is.")] = None,
    json: Annotated[bool, Parameter(name="--json", negative="", help="One JSON document a line.")] = False,
    store: Store = None,
    tenant: Tenant = "main",
) -> None:
    """Show changes as they happen, in every collection. Ctrl-C ends it."""
    wanted = Selector(schema_name=schema_name, all_tags=tuple(tag) if tag else None)

    async def run() -> None:
        async with open_crumbs(store, tenant, "cli") as (database, scope, _):
            start = (await database.read(edges, scope=scope)).last if after is None else after
            predicate = compile_selector(wanted).predicate if schema_name or tag else None
            async for change in Follower(database, after=start, scope=scope, wanted=predicate):
                if json:
                    sys.stdout.write(msgspec.json.encode(change).decode() + "\n")
                    sys.stdout.flush()
                    continue
                colour = COLOURS[change.event]
                said = escape(getattr(change.record, "title", None) or getattr(change.record, "schema_name", None) or "")
                out.print(
                    f"[dim]{_clock(change.at)} {change.seq:>6}[/] [{colour}]{change.event}[/] [bold]{change.collection}[/]"
                    f" {escape(change.id)} v{change.version} [dim]by[/] {escape(change.actor)} {said}"
                )

    asyncio.run(run())


@assembly.command
def preview(
    trigger: str,
    subscriptions: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="A JSON list; @FILE reads a file, - standard input.")
    ],
    *,
    budget: int | None = None,
    store: Store = None,
    tenant: Tenant = "main",
    entity: As = "cli",
) -> None:
    """Print what an agent with these subscriptions would see, were it triggered by this breadcrumb."""
    given = _json(subscriptions, "subscriptions", list[JsonObject])

    async def run() -> None:
        async with open_crumbs(store, tenant, entity) as (_, _, crumbs):
            print_json(await crumbs.preview(given, trigger, budget=budget))

    asyncio.run(run())


def _text(given: str) -> str:
    try:
        if given == "-":
            return sys.stdin.read()
        return Path(given[1:]).read_text("utf-8") if given.startswith("@") else given
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"this cannot be read ({error})", given) from error


def _json(given: str, where: str, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(_text(given), type=shape)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        wanted = "an object" if shape is JsonObject else "a list of objects"
        raise Invalid(f"{wanted} in JSON is wanted ({error})", where) from error


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")
