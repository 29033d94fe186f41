"""What telemetry costs: nothing when it is off, and how much when it is on.

    python bench/telemetry.py        under half a minute

The same calls, in turn, on a bare database, on that of an `App` whose telemetry is off, and on one that measures. Each figure is
the least CPU of many short rounds, which is what the code takes when nothing else disturbs it.
"""

import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from report import spent, title

from stigmergy import App
from stigmergy.breadcrumbs import commands
from stigmergy.breadcrumbs.model import Breadcrumb, Draft
from stigmergy.kernel.database import Database
from stigmergy.kernel.sqlite import SqliteDatabase
from stigmergy.settings import Settings

ROUNDS = 80
DRAFT = Draft(schema_name="note.v1", id="one", context={"n": 1})
QUIET = {"work": False, "deliver": False, "embedder": "off", "sweep_seconds": 3_600.0}


async def reads(database: Database) -> None:
    for _ in range(500):
        await database.get(Breadcrumb, "one")


async def writes(database: Database) -> None:
    for _ in range(20):
        await database.write(commands.create, Draft(schema_name="note.v1"))


async def least(databases: dict[str, Database], work: Callable[[Database], Awaitable[Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU for a round on each of them."""
    found = dict.fromkeys(databases, float("inf"))
    for _ in range(rounds):
        for name, database in databases.items():
            with spent() as taken:
                await work(database)
            found[name] = min(found[name], 1_000 * taken.cpu)
    return found


async def run(folder: Path) -> bool:
    bare = await SqliteDatabase.open(folder / "bare.db")
    async with (
        App(settings=Settings(store=str(folder / "off.db"), **QUIET)) as off,
        App(settings=Settings(store=str(folder / "on.db"), telemetry="metrics", **QUIET)) as on,
    ):
        databases: dict[str, Database] = {"no telemetry at all": bare, "off": off.database, "metrics": on.database}
        for database in databases.values():
            await database.write(commands.create, DRAFT)
        kept = True
        for what, work, rounds in (("500 point reads", reads, ROUNDS), ("20 creates, one after the other", writes, ROUNDS // 2)):
            title(what)
            found = await least(databases, work, rounds)
            for name, cost in found.items():
                print(f"{name:<58} {cost:>8.3f} ms of CPU  {cost / found['no telemetry at all']:>6.3f} x none", flush=True)
            kept = found["off"] <= 1.01 * found["no telemetry at all"] and kept
        print(f"{'off':<58} (at most 1.010 x: {'kept' if kept else 'MISSED'})")
    await bare.close()
    return kept


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if uvloop.run(run(Path(folder))) else 1)
