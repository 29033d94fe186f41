"""`stigmergy deliveries …`: what triggers set off, and what came of it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from rich.markup import escape

from stigmergy.cli.store import AsJson, Store, opened, out, print_json
from stigmergy.cli.triggers import As, Tenant
from stigmergy.errors import Invalid
from stigmergy.kernel.ids import check_tenant
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import load
from stigmergy.triggers.events import shown
from stigmergy.triggers.model import Delivery, Status
from stigmergy.triggers.namespace import Deliveries

app = App(name="deliveries", help="What triggers set off: ls, show, retry, discard.")

COLOURS: dict[Status, str] = {"pending": "yellow", "delivered": "green", "dead": "red", "discarded": "dim"}


@app.command
def ls(
    *,
    status: Annotated[Status | None, Parameter(help="Only these.")] = None,
    trigger: Annotated[str | None, Parameter(help="Only of this trigger.")] = None,
    limit: int = 20,
    json: AsJson = False,
    store: Store = None,
    tenant: Tenant = "main",
) -> None:
    """List deliveries, newest first."""

    async def run() -> None:
        async with _open(store, tenant, "cli") as deliveries:
            found = await deliveries.find(status=status, trigger=trigger, limit=limit)
        if json:
            return print_json([shown(each) for each in found])
        for each in found:
            out.print(_line(each))
        return None

    asyncio.run(run())


@app.command
def show(id: str, *, store: Store = None, tenant: Tenant = "main") -> None:
    """Print a delivery as JSON: its state, its last answer, and the request's body."""

    async def run() -> None:
        async with _open(store, tenant, "cli") as deliveries:
            found = await deliveries.get(id)
            event = await deliveries.event(id)
        state: dict[str, Any] = (shown(found.delivery) or {}) | {
            "tries": found.tries,
            "answer": msgspec.to_builtins(found.answer),
            "next_at": None if found.next_at is None else datetime.fromtimestamp(found.next_at / 1000, UTC).isoformat(),
        }
        print_json({"delivery": state, "request": event})

    asyncio.run(run())


@app.command
def retry(
    *ids: str,
    trigger: Annotated[str | None, Parameter(help="All the dead ones of this trigger.")] = None,
    store: Store = None,
    tenant: Tenant = "main",
    entity: As = "cli",
) -> None:
    """Hand dead deliveries over once more; a running server or worker does it.

    Parameters
    ----------
    ids
        Their ids, as `stigmergy deliveries ls` shows them.
    """
    if bool(ids) == (trigger is not None):
        raise Invalid("name deliveries, or the trigger whose dead ones are meant", "ids")

    async def run() -> None:
        async with _open(store, tenant, entity) as deliveries:
            count = len(ids) if trigger is None else await deliveries.retry_all(trigger)
            for id in ids:
                await deliveries.retry(id)
        out.print(f"{count} to be handed over once more.")

    asyncio.run(run())


@app.command
def discard(*ids: str, store: Store = None, tenant: Tenant = "main", entity: As = "cli") -> None:
    """Give deliveries up, so that those behind them can go.

    Parameters
    ----------
    ids
        Their ids, as `stigmergy deliveries ls` shows them.
    """

    if not ids:
        raise Invalid("name at least one delivery", "ids")

    async def run() -> None:
        async with _open(store, tenant, entity) as deliveries:
            for id in ids:
                await deliveries.discard(id)
        out.print(f"{len(ids)} given up.")

    asyncio.run(run())


@asynccontextmanager
async def _open(store: str | None, tenant: str, entity: str) -> AsyncGenerator[Deliveries]:
    async with opened(load({"store": store})) as database:
        yield Deliveries(database, Scope(check_tenant(tenant), entity))


def _line(delivery: Delivery) -> str:
    colour = COLOURS[delivery.status]
    answer = delivery.answer
    came = "" if answer is None else f"  {answer.error or answer.status or ''}"
    what = f"{delivery.event} of {delivery.collection}/{delivery.document_id} v{delivery.document_version}"
    return f"{delivery.id}  [{colour}]{delivery.status}[/]  {escape(delivery.trigger_id)}  {escape(what)}{escape(came)}"
