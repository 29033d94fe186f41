"""What a message costs that starts two runs, and how soon a prompt has its history, beside a plain breadcrumb of the same run.

    PYTHONPATH=tests python bench/spaces.py             about a minute
    PYTHONPATH=tests python bench/spaces.py --quick     rough figures
    PYTHONPATH=tests python bench/spaces.py --million   the history of a space of 1,000,000 messages too
    PYTHONPATH=tests python bench/spaces.py --profile   where the CPU goes in a post, and nothing else

A post is durable: the message, its two runs with their logs, deadlines and places in the queue are one commit, shared with what
others write at that moment. Rates are medians of a few pairs, measured one after the other; CPU is that of the whole process,
SQLite's included.
"""

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from kernel import raw_rate
from report import Spent, line, percentiles, spent, title

from stigmergy.breadcrumbs import commands as breadcrumbs
from stigmergy.breadcrumbs.model import Draft
from stigmergy.kernel import sqlite_writer
from stigmergy.kernel.database import Database
from stigmergy.kernel.ids import new_id
from stigmergy.kernel.opening import open_database
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.model import Run
from stigmergy.spaces import commands
from stigmergy.spaces.commands import Said
from stigmergy.spaces.history import history
from stigmergy.spaces.model import Space, SpaceMessage
from stigmergy.spaces.prompt import blocks
from support.talk import add_agents, runs_of, space_of

COUNT_RUNS = Statement("bench.runs", "SELECT count(*) FROM runs WHERE tenant = :tenant")
COUNT_MESSAGES = Statement("bench.messages", "SELECT count(*) FROM space_messages WHERE tenant = :tenant")
Work = Callable[[int], Awaitable[None]]
CALLERS = 64
POSTS = 3_000
ROUNDS = 3
# A post is one message and two runs: what it may cost, in plain breadcrumbs.
COUNTED = 3
MOST_CPU = 3.0
LONGEST_READ_MS = 2.0


@asynccontextmanager
async def store(folder: Path) -> AsyncGenerator[Database]:
    database = await open_database(str(folder / f"{new_id()}.db"))
    try:
        yield database
    finally:
        await database.close()


async def by_callers(work: Work, count: int, callers: int = CALLERS) -> Spent:
    """How long so many take, by callers that each do one after the other."""

    async def caller(number: int) -> None:
        for _ in range(count // callers):
            await work(number)

    with spent() as taken:
        await asyncio.gather(*(caller(number) for number in range(callers)))
    return taken


# ---- posts ----


async def a_crumb(tx: Transaction, owner: str) -> None:
    await breadcrumbs.create(tx, Draft(schema_name="note.v1", title="a note", owner_id=owner, context={"text": "x" * 100}))


async def a_post(tx: Transaction, author: str, space_id: str) -> None:
    await commands.post(tx, author, space_id, Said(content=f"@ada and @bob, have a look at this: {'x' * 60}"))


async def conversation(database: Database, spaces: int) -> list[Space]:
    await database.write(add_agents, "ada", "bob")
    return [await database.write(space_of, "mia", "tom", "agent:ada", "agent:bob") for _ in range(spaces)]


async def posts(folder: Path, count: int) -> bool:
    rates: dict[str, list[float]] = {"crumb": [], "post": [], "crumb_cpu": [], "post_cpu": []}
    for _ in range(ROUNDS):
        async with store(folder) as database:
            write_crumb, write_post = await writers(database)
            for work in (write_crumb, write_post):
                await by_callers(work, CALLERS * 4)
            crumb = await by_callers(write_crumb, count)
            post = await by_callers(write_post, count)
            runs, said = [await database.read(counted, table) for table in (COUNT_RUNS, COUNT_MESSAGES)]
            assert runs == 2 * said, (runs, said)
        done = count // CALLERS * CALLERS
        for name, taken in (("crumb", crumb), ("post", post)):
            rates[name].append(done / taken.clock)
            rates[f"{name}_cpu"].append(done / taken.cpu)
    crumb_rate, post_rate = median(rates["crumb"]), median(rates["post"])
    line("breadcrumbs, 64 callers", crumb_rate, cpu=median(rates["crumb_cpu"]))
    kept = line("posts that start two runs each, 64 callers", post_rate, wanted=3_000, cpu=median(rates["post_cpu"]))
    # each of the three counted as one breadcrumb
    ratio = median(one / three for one, three in zip(rates["crumb_cpu"], rates["post_cpu"], strict=True)) / COUNTED
    within = ratio <= MOST_CPU
    print(
        f"CPU of a message and of each of its runs {ratio:>27.2f} x a breadcrumb  "
        f"(at most {MOST_CPU:g} x: {'kept' if within else 'MISSED'})",
        flush=True,
    )
    return kept and within


async def writers(database: Database) -> tuple[Work, Work]:
    """What a caller does: write a breadcrumb, say something in a space of its own."""
    spaces = await conversation(database, CALLERS)

    async def write_crumb(number: int) -> None:
        await database.write(a_crumb, f"user{number}")

    async def write_post(number: int) -> None:
        await database.write(a_post, "mia", spaces[number].id)

    return write_crumb, write_post


async def counted(tx: Snapshot, table: Statement) -> int:
    return (await tx.rows(table))[0][0]


# ---- histories ----


async def fill(database: Database, space: Space, upto: int, size: int) -> None:
    async def many(tx: Transaction, count: int) -> None:
        for _ in range(count):
            await commands.tell(tx, space.id, "what was said here a while ago " + "x" * 60, role="human", author="mia")

    while upto < size:
        count = min(1_000, size - upto)
        await database.write(many, count)
        upto += count


async def histories(database: Database, sizes: list[int], reads: int) -> bool:
    """A prompt's history of a space, with its marks, and all blocks of a prompt, as the space grows."""
    (space,) = await conversation(database, 1)
    kept, before, p50s = True, 0, []
    for size in sizes:
        began = time.perf_counter()
        await fill(database, space, before, size)
        title(f"a space of {size:,} messages", filled=f"in {time.perf_counter() - began:.0f} s")
        before = size + 1
        message = await database.write(commands.post, "tom", space.id, Said(content="@ada, what do you make of it?"))
        run = await database.read(run_of, message)
        for name, unit, args, most in (
            ("history with marks", history, (run, space.id), LONGEST_READ_MS),
            ("all blocks of a prompt", blocks, (run,), None),
        ):
            taken = []
            for _ in range(reads):
                start = time.perf_counter()
                await database.read(unit, *args)
                taken.append((time.perf_counter() - start) * 1_000)
            kept = percentiles(name, taken, p50=most) and kept
            if unit is history:
                p50s.append(median(taken))
    flat = max(p50s) <= 2 * min(p50s) + 0.2
    print(
        f"from {sizes[0]:,} to {sizes[-1]:,} messages: p50 {p50s[0]:.2f} to {p50s[-1]:.2f} ms  ({'flat' if flat else 'NOT FLAT'})"
    )
    return kept and flat


async def run_of(tx: Snapshot, message: SpaceMessage) -> Run:
    return next(run for run in await runs_of(tx, "ada") if run.cause.message_id == message.id)


# ---- where the CPU goes ----


async def profile(folder: Path) -> None:
    """Of units run one after the other on the writer's thread; its own time is in `units`."""
    profiler = cProfile.Profile()
    original = sqlite_writer.run_unit

    def profiled(coroutine: Any, unit: Any) -> Any:
        profiler.enable()
        try:
            return original(coroutine, unit)
        finally:
            profiler.disable()

    async with store(folder) as database:
        _, write_post = await writers(database)
        sqlite_writer.run_unit = profiled
        await by_callers(write_post, POSTS)
    stats = pstats.Stats(profiler)
    stats.sort_stats("tottime").print_stats(35)


async def main() -> int:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--million", "--profile"):
        given.add_argument(flag, action="store_true")
    arguments = given.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if arguments.profile:
            await profile(folder)
            return 0
        title("Posts", raw=f"{raw_rate(folder / 'raw.db'):,.0f}/s commits of one row by apsw")
        kept = await posts(folder, POSTS if arguments.quick else 3 * POSTS)
        sizes = [1_000, 10_000] if arguments.quick else [1_000, 100_000]
        async with store(folder) as database:
            kept = await histories(database, [*sizes, *([1_000_000] if arguments.million else [])], 300) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(uvloop.run(main()))
