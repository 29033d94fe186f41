"""Commands that look after a store: migrate, backup, doctor, settings."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from stigmergy import settings as settings_module
from stigmergy.app import EXAMINERS, rule_book
from stigmergy.kernel.database import Database, Finding
from stigmergy.kernel.doctor import examine
from stigmergy.kernel.opening import open_database
from stigmergy.settings import Settings, described, load

Store = Annotated[str | None, Parameter(help="The store; the setting `store` when it is not given.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Machine-readable output, one JSON document.")]

out = Console(soft_wrap=True, highlight=False)


@asynccontextmanager
async def opened(settings: Settings, *, may_migrate: bool = False) -> AsyncGenerator[Database]:
    """The store of these settings, as every command opens it."""
    database = await open_database(
        settings.store,
        owner_place=settings.owner_store,
        may_migrate=may_migrate,
        synchronous=settings.synchronous,
        busy_seconds=settings.busy_seconds,
        rules=rule_book(),
    )
    try:
        yield database
    finally:
        await database.close()


@contextmanager
def progress(what: str) -> Generator[Callable[[int, int | None], None]]:
    """A bar on a terminal, nothing elsewhere: called with how much is done and how much there is."""
    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def migrate(*, store: Store = None) -> None:
    """Bring a store up to date with this program, or make it."""
    settings = load({"store": store})

    async def run() -> None:
        async with opened(settings, may_migrate=True):
            out.print(f"{settings.store} is up to date.")

    asyncio.run(run())


def backup(file: Path, *, store: Store = None) -> None:
    """Copy the store into a new file, while others read and write it.

    Parameters
    ----------
    file
        The file to make. One that is there already is left alone.
    """
    settings = load({"store": store})

    async def run() -> None:
        async with opened(settings) as database:
            with progress(f"Copying {settings.store}") as show:
                await database.backup(file, progress=show)
        out.print(f"{file} holds a copy of {settings.store}.")

    asyncio.run(run())


def doctor(*, store: Store = None, json: AsJson = False) -> int:
    """Look for what is wrong with a store: integrity, gaps, orphans, settings. Exit code 1 when something is."""
    settings = load({"store": store})

    async def run() -> list[Finding]:
        findings: list[Finding] = []
        async with opened(settings) as database:
            async for finding in examine(database, EXAMINERS):
                findings.append(finding)
                if not json:
                    _show(finding)
        return findings

    findings = asyncio.run(run())
    unwell = [finding for finding in findings if not finding.well]
    if json:
        print_json([finding._asdict() for finding in findings])
    else:
        out.print(f"{len(findings)} checks, {len(unwell)} not well.")
    return 1 if unwell else 0


def _show(finding: Finding) -> None:
    mark = "[green]well[/]" if finding.well else "[bold red]NOT WELL[/]"
    out.print(f"{mark}  {finding.check}: {finding.detail}" + ("" if finding.well else f"\n      {finding.advice}"))


def settings(*, json: AsJson = False) -> None:
    """Show every setting: its value in force, its variable and what it is for."""
    values = msgspec.to_builtins(load())
    if json:
        return print_json(values)
    for each in described():
        out.print(f"[bold]{each.name}[/] = {values[each.name]}   [dim]{each.variable}[/]\n    {each.about}")
    out.print(f"A file {settings_module.FILE} in the working folder sets them by name; the variable wins over the file.")


def print_json(value: object) -> None:
    out.print(msgspec.json.format(msgspec.json.encode(value)).decode(), markup=False)
