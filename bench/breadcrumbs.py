"""Breadcrumbs in process: creates with subscriptions registered, from a commit to a reader, context assembly.

    python bench/breadcrumbs.py              everything, about a minute
    python bench/breadcrumbs.py --rows N     assembly over N breadcrumbs, and nothing else

Creates stand beside the raw one-row commits of the same file, measured directly before them: what limits one caller is the disk,
what limits many is the CPU, which is shown too.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import uvloop
from kernel import raw_rate
from report import line, percentiles, spent, title

from stigmergy.breadcrumbs import commands
from stigmergy.breadcrumbs.assembly import assemble
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb, Draft
from stigmergy.breadcrumbs.subscriptions import Subscription, parse_subscriptions
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Follower
from stigmergy.kernel.rules import Rule, put_rule
from stigmergy.kernel.sqlite import SqliteDatabase
from stigmergy.kernel.transaction import SHARED, Scope, Transaction

CALLERS = 64
SUBSCRIPTIONS = 1_000
ROUNDS = 3


def draft(number: int, schema_name: str = "note.v1") -> Draft:
    return Draft(
        schema_name=schema_name,
        title="a note",
        tags=["bench", f"session:{number % 50}", f"n:{number % 1000}"],
        context={"n": number, "text": "some words about nothing in particular", "nested": {"a": 1, "b": [1, 2, 3]}},
    )


def rules(candidates: int, condition: str) -> list[Rule]:
    """A thousand subscriptions, of which so many must be asked about a note, and none fires."""
    asked = [
        Rule(
            id=f"asked{n}", owner="bench", kind="none", collection="breadcrumbs", events=["create"],
            selector={"schema_name": "note.v1"}, condition=condition.format(n=n),
        )
        for n in range(candidates)
    ]  # fmt: skip
    others = [
        Rule(
            id=f"other{n}", owner="bench", kind="none", collection="breadcrumbs", events=["create"],
            selector={"schema_name": f"other{n}.v1", "any_tags": ["bench"]},
        )
        for n in range(SUBSCRIPTIONS - candidates)
    ]  # fmt: skip
    return asked + others


async def put_all(tx: Transaction, wanted: list[Rule]) -> None:
    for rule in wanted:
        await put_rule(tx, rule)


async def creates(database: Database, each: int, tenants: int = 1) -> tuple[float, float]:
    """So many in a second, and in a second of CPU."""

    async def caller(number: int) -> None:
        scope = Scope(f"t{number % tenants}", "mia")
        for step in range(each):
            await database.write(commands.create, draft(number * each + step), scope=scope)

    with spent() as taken:
        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    return CALLERS * each / taken.clock, CALLERS * each / taken.cpu


async def with_subscriptions(folder: Path) -> bool:
    title("Creates by 64 callers: durable, 3 tags, 1,000 subscriptions")
    plans = {
        "no candidate": (0, "", 1, 15_000),
        "10 native candidates": (10, "context.n > 1{n:06}", 1, 10_000),
        "10 candidates in CEL": (10, "size(title) == {n} + 1000", 1, 5_000),
        "10 candidates in CEL, 64 tenants": (10, "size(title) == {n} + 1000", 64, 5_000),
    }
    kept = True
    for name, (candidates, condition, tenants, wanted) in plans.items():
        path = folder / f"{name}.db"
        database = await SqliteDatabase.open(path)
        await database.write(put_all, rules(candidates, condition), scope=Scope(SHARED))
        await creates(database, 10, tenants)
        raws, rates, by_cpu = [], [], []
        for _ in range(ROUNDS):
            raws.append(raw_rate(path, 500))
            by_clock, of_cpu = await creates(database, 100, tenants)
            rates.append(by_clock)
            by_cpu.append(of_cpu)
        line(f"{name}: raw one-row commits", max(raws))
        kept = line(name, max(rates), wanted=wanted, cpu=max(by_cpu)) and kept
        ratios = [rate / raw for rate, raw in zip(rates, raws, strict=True)]
        print(f"    {median(ratios):.2f} x raw, the median of {ROUNDS} pairs", flush=True)
        await database.close()
    return kept


async def to_a_reader(folder: Path) -> bool:
    """From the call of a write, its commit included, to the moment a follower in the same process has the change."""
    database = await SqliteDatabase.open(folder / "reader.db")
    arrivals: asyncio.Queue[float] = asyncio.Queue()

    async def read() -> None:
        async for _ in Follower(database, after=0):
            arrivals.put_nowait(time.perf_counter())

    reading = asyncio.create_task(read())
    waits: list[float] = []
    for number in range(1_000):
        began = time.perf_counter()
        await database.write(commands.create, draft(number))
        waits.append(1_000 * (await arrivals.get() - began))
    reading.cancel()
    await database.close()
    return percentiles("From a write, its commit included, to a handler", waits, p50=2.0, p99=10.0)


# Breadcrumbs of one session, whatever the size of the store.
OF_SESSION = 200


def packet(number: int, schema_name: str) -> Draft:
    """One of a session of constant size, and of one of 50 channels that grow with the store."""
    tags = [f"session:{number // OF_SESSION}", f"channel:{number % 50}", "bench"]
    return msgspec.structs.replace(draft(number, schema_name), tags=tags)


def sources(scope: str) -> list[Subscription]:
    """A trigger and ten sources, of which every other one is held to the trigger's session or channel."""
    given: list[Any] = [{"schema_name": "ask.v1", "role": "trigger"}]
    given += [
        {"schema_name": f"source{n}.v1", "fetch": {"method": "recent", "limit": 5}, "same_tags": [f"{scope}:*"][: n % 2]}
        for n in range(10)
    ]
    return parse_subscriptions(given)


async def assembly(folder: Path, sizes: list[int]) -> bool:
    """In sessions, and in channels, which have nothing of most schemas: to find that out is to read all that a channel has."""
    title("Context assembly of 10 sources", session=OF_SESSION, channels=50)
    database = await SqliteDatabase.open(folder / "assembly.db")
    scope = Scope("main", "mia")
    size = 0
    kept = True
    costs: dict[str, list[float]] = {}
    for wanted in sizes:
        while size < wanted:
            drafts = [packet(size + n, f"source{n % 10}.v1") for n in range(500)]
            await database.write(commands.create_many, drafts, scope=scope)
            size += 500
        trigger: Breadcrumb = await database.write(commands.create, packet(size - 43, "ask.v1"), scope=scope)
        for within in ("session", "channel"):
            subscriptions = sources(within)
            waits: list[float] = []
            cpu: list[float] = []
            for _ in range(200):
                with spent() as taken:
                    await database.read(assemble, Reader("mia"), subscriptions, trigger, budget=4_000, scope=scope)
                waits.append(1_000 * taken.clock)
                cpu.append(1_000 * taken.cpu)
            costs.setdefault(within, []).append(median(cpu))
            bound = 3.0 if within == "session" else None
            kept = percentiles(f"over {size:,} breadcrumbs, within a {within}", waits, p50=bound, cpu=median(cpu)) and kept
    await database.close()
    for within, of in costs.items():
        flat = of[-1] <= 1.5 * of[0]
        verdict = f"  (at most 1.50 x: {'kept' if flat else 'MISSED'})" if within == "session" else ""
        print(f"{f'within a {within}, over {sizes[-1]:,}':<58} {of[-1] / of[0]:.2f} x the CPU of that over {sizes[0]:,}{verdict}")
        kept = kept and (flat or within != "session")
    return kept


async def run(folder: Path, rows: int | None) -> bool:
    if rows is not None:
        return await assembly(folder, [10_000, rows])
    kept = await with_subscriptions(folder)
    kept = await to_a_reader(folder) and kept
    return await assembly(folder, [10_000, 100_000]) and kept


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, help="only this: assembly over so many breadcrumbs")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if uvloop.run(run(Path(folder), given.rows)) else 1)


if __name__ == "__main__":
    main()
