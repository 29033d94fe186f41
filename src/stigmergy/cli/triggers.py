"""`stigmergy triggers …`: on the store itself, beside a running server too."""

import asyncio
import base64
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from rich.markup import escape

from stigmergy.cli.store import AsJson, Store, opened, out, print_json
from stigmergy.errors import Invalid
from stigmergy.kernel.ids import check_tenant
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import Settings, load
from stigmergy.spaces import model as spaces_model  # declares what triggers may be about
from stigmergy.triggers.definitions import Reading
from stigmergy.triggers.lint import lint
from stigmergy.triggers.loading import load_triggers
from stigmergy.triggers.model import shown_action
from stigmergy.triggers.namespace import Triggers
from stigmergy.triggers.queries import Supposed
from stigmergy.triggers.running import reach_of

DECLARED = (spaces_model,)

app = App(name="triggers", help="Reactions to writes: check, list, add, rm, test, secret.")

Tenant = Annotated[str, Parameter(help="Whose.")]
As = Annotated[str, Parameter(name="--as", help="The entity that acts.")]


@app.command
def check(*files: Path, json: AsJson = False) -> int:
    """Look at files of triggers without storing them. Exit code 2 for a fault, 1 when something looks wrong.

    Parameters
    ----------
    files
        `triggers.json` or `.toml`.
    """
    if not files:
        raise Invalid("name at least one file", "files")
    settings = load()
    found = {str(file): load_triggers(file, _reading(settings, "check")) for file in files}
    findings = [(file, *finding) for file, rules in found.items() for finding in lint(rules)]
    if json:
        print_json([dict(zip(("file", "trigger", "code", "message"), each, strict=True)) for each in findings])
        return 1 if findings else 0
    for file, rules in found.items():
        out.print(f"{file}: {len(rules)} triggers can be put.", markup=False)
    for file, trigger, code, message in findings:
        out.print(f"[yellow]{code}[/] {escape(file)}: {escape(trigger)}: {escape(message)}")
    return 1 if findings else 0


@app.command(name="list")
def all(*, tenant: Tenant = "main", store: Store = None, json: AsJson = False) -> None:
    """Show the triggers that hold."""

    async def run() -> None:
        async with _open(store, tenant, "cli") as triggers:
            rules = await triggers.all()
        if json:
            return print_json([_fields(rule) for rule in rules])
        for rule in rules:
            state = "" if rule.enabled else "  [red]disabled[/]"
            events = escape(" | ".join(rule.events))
            when = f"  when {escape(rule.condition)}" if rule.condition else ""
            what = escape(_what(rule.action))
            out.print(f"[bold]{escape(rule.id)}[/]  {escape(rule.collection)}  {events}{when}  → {what}{state}")
        return None

    asyncio.run(run())


@app.command
def add(*files: Path, tenant: Tenant = "main", store: Store = None, entity: As = "cli") -> None:
    """Add the triggers of files, or replace those with their ids: all of them, or none.

    Parameters
    ----------
    files
        `triggers.json` or `.toml`.
    """
    if not files:
        raise Invalid("name at least one file", "files")
    reading = _reading(load({"store": store}), entity)
    loaded = [rule for file in files for rule in load_triggers(file, reading)]

    async def run() -> None:
        async with _open(store, tenant, entity) as triggers:
            await triggers.put(loaded)
        for rule in loaded:
            out.print(rule.id, markup=False)

    asyncio.run(run())


@app.command
def rm(*ids: str, tenant: Tenant = "main", store: Store = None, entity: As = "cli") -> None:
    """Take triggers away.

    Parameters
    ----------
    ids
        Their ids, as `stigmergy triggers list` shows them.
    """

    if not ids:
        raise Invalid("name at least one trigger", "ids")

    async def run() -> None:
        async with _open(store, tenant, entity) as triggers:
            for id in ids:  # one that is not there leaves the others as they are
                await triggers.get(id)
            for id in ids:
                await triggers.delete(id)

    asyncio.run(run())


@app.command(name="test")
def ask(
    change: Annotated[str, Parameter(help="The position of a change in the journal, or a JSON object: collection, event, data.")],
    *,
    file: Annotated[Path | None, Parameter(help="Ask a file of triggers instead of those in the store.")] = None,
    tenant: Tenant = "main",
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Say which triggers a change would fire, and why not the others."""

    async def run() -> None:
        async with _open(store, tenant, "cli") as triggers:
            rules = None if file is None else load_triggers(file, _reading(load({"store": store}), "cli"))
            told = await triggers.test(_change(change), rules)
        if json:
            return print_json([each._asdict() for each in told])
        for each in told:
            verdict = "[green]fires[/]" if each.fires else "[dim]does not[/]"
            why = "" if each.why_not is None else f": {escape(each.why_not)}"
            out.print(f"{verdict}  {escape(each.id)}{why}")
        return None

    asyncio.run(run())


@app.command
def secret() -> None:
    """Make a secret that signs deliveries, for an action's `secret` or the setting `webhook_secret`."""
    out.print("whsec_" + base64.b64encode(os.urandom(32)).decode(), markup=False)


@asynccontextmanager
async def _open(store: str | None, tenant: str, entity: str) -> AsyncGenerator[Triggers]:
    settings = load({"store": store})
    async with opened(settings) as database:
        yield Triggers(database, Scope(check_tenant(tenant), entity), _reading(settings, entity))


def _reading(settings: Settings, entity: str) -> Reading:
    return Reading(entity, settings.webhook_base, reach_of(settings))


def _change(text: str) -> Supposed | int:
    if text.isdecimal():
        return int(text)
    try:
        return msgspec.json.decode(text, type=Supposed)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Invalid(f"a change is a number or an object ({error})", "change") from None


def _what(action: dict[str, Any]) -> str:
    return f"{action['type']} {action.get('url') or action.get('name') or action.get('agent') or ''}".rstrip()


def _fields(rule: Rule) -> dict[str, Any]:
    names = ("id", "collection", "events", "condition", "enabled", "owner", "version")
    return {name: getattr(rule, name) for name in names} | {"action": shown_action(rule), "order": rule.position}
