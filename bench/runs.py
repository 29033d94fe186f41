"""What the engine does in a second, durable, with a scripted model, beside the raw limit of the same file in the same run.

    python bench/runs.py                everything, about four minutes
    python bench/runs.py --waiting 0    without the waiting runs, which take the longest to make
    python bench/runs.py --profile      where the CPU goes in a step, and nothing else

A step is: a reply with a thought and one tool call, its result, the checkpoint: two commits. Ratios are the median of a few pairs
of the raw rate and ours, measured one after the other; CPU is that of the whole process, SQLite's included. The event loop is
uvloop, and the garbage collector spares what was loaded, as in `stigmergy serve` and `stigmergy worker`.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import multiprocessing
import os
import pstats
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import uvloop
from kernel import raw_rate
from report import line, percentiles, spent, title

from stigmergy import Agent, Asked, Reply, Request, ScriptedModel, Thinking, tool
from stigmergy.agents.store import declare_agents
from stigmergy.cli.process import spare_what_stays
from stigmergy.engine.code import Code
from stigmergy.engine.runtime import Runtime
from stigmergy.engine.watching import until_ended
from stigmergy.engine.worker import Worker
from stigmergy.kernel.database import Database
from stigmergy.kernel.opening import open_database
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import SHARED, Scope, Snapshot, Transaction
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.model import Run
from stigmergy.runs.tools import Acting, Party, Waiting, builtin
from stigmergy.runs.waits import answer_tool

MAIN = Scope()
WINDOW = 20
LEASE = 2.0
# Before what waiting runs cost is measured so many are made: they fill the caches, which have a bound.
WARMING = 5_000
# How many of them are started in one unit, and how often it is told how far that has come, in seconds.
AT_ONCE = 200
TELLS_EVERY = 20.0
# Objects that a waiting run may leave in memory: none, but for what caches with a bound take in meanwhile.
MOST_OBJECTS = 0.1
# What was measured elsewhere with raw one-row commits at 8,500/s, as ratios to them.
ALONE, TOGETHER = 1_200 / 8_500, 3_000 / 8_500


@tool(repeatable=True)  # so that the run of a killed worker goes on where it was
async def count(n: int, of: int) -> str:
    """How far it has come."""
    return f"{n}/{of}"


def counting(request: Request) -> Reply | str:
    """Call the tool as often as the instruction says."""
    last = request.messages[-1]
    done, _, target = last.content.partition("/") if last.role == "tool" else ("0", "/", last.content)
    if done == target:
        return "done"
    asked = Asked("x", "count", json.dumps({"n": int(done) + 1, "of": int(target)}))
    return Reply("", (asked,), (Thinking("One more."),), input_tokens=200, output_tokens=20)


THOUGHT_AT: deque[float] = deque(maxlen=1)


def waiting_once(request: Request) -> Reply | str:
    THOUGHT_AT.append(time.perf_counter())
    last = request.messages[-1]
    return "done" if last.role == "tool" else Reply("", (Asked("x", "hold", "{}"),), input_tokens=20, output_tokens=5)


COUNTER = Agent("counter", ScriptedModel(counting), tools=[count], window=WINDOW, max_steps=10**6, concurrent_runs=10_000)
WAITER = Agent("waiter", ScriptedModel(waiting_once), builtin_tools=("hold",), concurrent_runs=10_000, waiting_runs=10**6)


async def _hold(tx: Transaction, acting: Acting, args: dict[str, Any]) -> Waiting:
    return Waiting(kind="tool", parties=[Party("client", "client", "client")], timeout_ms=3_600_000)


class NoArguments(msgspec.Struct):
    pass


HOLD = builtin("hold", "Wait for a client.", NoArguments, _hold)


@asynccontextmanager
async def engine(path: Path, *, works: bool = True) -> AsyncGenerator[tuple[Database, Runtime]]:
    database = await open_database(str(path))
    code = Code([COUNTER, WAITER])
    await database.write(declare_agents, "bench", code.definitions(), scope=Scope(SHARED))
    runtime = Runtime(database, code, builtins=[HOLD])
    spare_what_stays()
    try:
        if works:
            async with Worker(runtime, concurrency=1_000, lease_seconds=LEASE):
                yield database, runtime
        else:
            yield database, runtime
    finally:
        await database.close()


def asked(agent: str, instruction: str | None = None) -> Start:
    return Start(agent=agent, owner_id="bench", space_id="bench", instruction=instruction)


async def steps(database: Database, runs: int, each: int) -> float:
    """Steps a second of so many runs at once."""
    began = time.perf_counter()
    started = await asyncio.gather(*(database.write(start_run, asked("counter", str(each))) for _ in range(runs)))
    ended = await asyncio.gather(*(until_ended(database, run.id, MAIN) for run in started))
    assert all(run.status == "completed" for run in ended), ended[0].error
    return sum(run.step for run in ended) / (time.perf_counter() - began)


async def measure_steps(folder: Path) -> bool:
    path = folder / "steps.db"
    kept = True
    async with engine(path) as (database, _):
        await steps(database, 4, 50)
        for what, runs, each, rounds, wanted in (
            ("steps, one run alone", 1, 600, 5, ALONE),
            ("steps, 64 runs at once", 64, 40, 5, TOGETHER),
        ):
            pairs: list[tuple[float, float, float]] = []
            for _ in range(rounds):
                raw = raw_rate(path)
                cpu = time.process_time()
                rate = await steps(database, runs, each)
                pairs.append((rate / raw, rate, (time.process_time() - cpu) / (runs * (each + 1)) * 1e6))
            ratio, rate, cpu = (median(values) for values in zip(*pairs, strict=True))
            line("raw commits of one row, beside it", rate / ratio)
            kept &= line(what, rate, raw=rate / ratio, wanted=wanted, cpu=1e6 / cpu)
            print(f"{'    CPU of the process for each':<58} {cpu:>11,.0f} µs")
    return kept


async def measure_long(folder: Path) -> bool:
    """A step late in a run beside one early in it, with the same window."""
    async with engine(folder / "long.db") as (database, _):
        rates: list[float] = []
        cpus: list[float] = []
        await steps(database, 1, 50)
        run = await database.write(start_run, asked("counter", "5300"))
        at: dict[int, tuple[float, float]] = {}
        while (now := await database.get(Run, run.id)) is not None and now.status != "completed":
            at[now.step] = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.01)
        for first, last in ((50, 550), (4_750, 5_250)):
            begin, end = (min(step for step in at if step >= wanted) for wanted in (first, last))
            clock, cpu = (after - before for before, after in zip(at[begin], at[end], strict=True))
            rates.append((end - begin) / clock)
            cpus.append((end - begin) / cpu)
        line("steps from 50 on", rates[0], cpu=cpus[0])
        return line("steps from 4,750 on", rates[1], raw=rates[0], of="the early ones", wanted=0.9, cpu=cpus[1])


async def measure_wakes(folder: Path, count: int = 300) -> bool:
    """From the answer to a waiting run until it thinks again, and until that step has ended it."""
    thought: list[float] = []
    ended: list[float] = []
    cpu = 0.0
    async with engine(folder / "wakes.db") as (database, _):
        for _ in range(count):
            run = await database.write(start_run, asked("waiter", "go"))
            while (now := await database.get(Run, run.id)) is None or now.status != "waiting_tool":  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            with spent() as taken:
                began = time.perf_counter()
                await database.write(answer_tool, run.id, "call_1_1", result="yes")
                await until_ended(database, run.id, MAIN)
            thought.append((THOUGHT_AT[-1] - began) * 1000)
            ended.append(taken.clock * 1000)
            cpu += taken.cpu * 1000
    kept = percentiles("an answer to a waiting run, to its next thought", thought, p50=2, p99=10)
    percentiles("    to the end of the step", ended, cpu=cpu / count)
    return kept


async def measure_waiting(folder: Path, waiting: int) -> bool:
    """So many runs that wait, and what they cost a step of another."""
    path = folder / "waiting.db"
    async with engine(path) as (database, _):
        await _wait(database, WARMING)  # what the process needs for the first few is not theirs
        before, _ = await steps_and_cpu(database)
        memory = objects()
        began = time.perf_counter()
        await _wait(database, waiting)
        print(f"{f'{waiting:,} runs that wait were made in':<58} {time.perf_counter() - began:>11,.0f} s")
        each = (objects() - memory) / waiting
        few = each <= MOST_OBJECTS
        bound = f"(at most {MOST_OBJECTS}: {'kept' if few else 'MISSED'})"
        print(f"{'    objects in memory for each of them':<58} {each:>11.4f}  {bound}")
        await asyncio.sleep(1)
        after, cpu = await steps_and_cpu(database)
        return few & line("    steps of one run beside them", after, raw=before, of="before", wanted=0.85, cpu=cpu)


async def steps_and_cpu(database: Database) -> tuple[float, float]:
    """Steps of one run, in a second and in a second of CPU."""
    with spent() as taken:
        rate = await steps(database, 1, 500)
    print(f"{'    CPU of a step of one run':<58} {taken.cpu / 501 * 1e6:>11,.0f} µs")
    return rate, 501 / taken.cpu


async def _wait(database: Database, more: int) -> None:
    """So many more runs that wait, started many in a unit, and not much faster than the worker gets them to where they wait."""
    there = (await database.read(_count, WAITING)) + more
    told = time.perf_counter()
    for begun in range(0, more, AT_ONCE):
        await database.write(_start_waiters, min(AT_ONCE, more - begun))
        await _until_ready(database, at_most=AT_ONCE)
        if time.perf_counter() - told > TELLS_EVERY:
            told = time.perf_counter()
            print(f"    {begun:,} of {more:,} …", flush=True)
    await _until_ready(database, at_most=0)
    assert await database.read(_count, WAITING) == there


async def _start_waiters(tx: Transaction, runs: int) -> None:
    for _ in range(runs):
        await start_run(tx, asked("waiter", "go"))


async def _until_ready(database: Database, *, at_most: int) -> None:
    """Until no more runs than that are under way or wait for the worker."""
    while await database.read(_count, READY) > at_most:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def objects() -> int:
    """What Python holds in memory. SQLite's caches have a bound, and what the C library has freed and keeps is nobody's."""
    gc.collect()
    return sys.getallocatedblocks()


WAITING = Statement(
    "bench.waiting", "SELECT count(*) FROM runs WHERE tenant = :tenant AND agent = 'waiter' AND status = 'waiting_tool'"
)
READY = Statement("bench.ready", "SELECT count(*) FROM ready")


async def _count(tx: Snapshot, what: Statement) -> int:
    return (await tx.rows(what))[0][0]


def _work(path: str) -> None:
    async def forever() -> None:
        async with engine(Path(path)):
            await asyncio.sleep(60)

    asyncio.run(forever())


async def measure_takeover(folder: Path) -> bool:
    """A worker is killed in the middle of a run; another goes on with it."""
    path = folder / "takeover.db"
    async with engine(path, works=False) as (database, runtime):
        other = multiprocessing.get_context("spawn").Process(target=_work, args=(str(path),))
        other.start()
        run = await database.write(start_run, asked("counter", "1000000"))
        while (await database.get(Run, run.id)).step < 20:  # type: ignore[union-attr]  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with Worker(runtime, lease_seconds=LEASE):
            await asyncio.sleep(LEASE / 2)
            assert other.pid is not None
            os.kill(other.pid, signal.SIGKILL)
            began = time.perf_counter()
            other.join()
            stood = (await database.get(Run, run.id)).step  # type: ignore[union-attr]
            while (await database.get(Run, run.id)).step == stood:  # type: ignore[union-attr]  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            took = time.perf_counter() - began
    print(f"{'a killed worker’s run goes on after':<58} {took:>11.2f} s  (at most {LEASE + 1:g} s, its lease is {LEASE:g} s)")
    return took <= LEASE + 1


async def profile(folder: Path) -> None:
    async with engine(folder / "profile.db") as (database, _):
        await steps(database, 64, 5)
        profiler = cProfile.Profile()
        profiler.enable()
        await steps(database, 64, 20)
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


async def main(waiting: int) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        title("Steps", window=WINDOW)
        kept = await measure_steps(folder)
        kept &= await measure_long(folder)
        title("Waits")
        kept &= await measure_wakes(folder)
        if waiting:
            kept &= await measure_waiting(folder, waiting)
        title("Take-over")
        kept &= await measure_takeover(folder)
    return kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.profile:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(profile(Path(folder)))
    else:
        raise SystemExit(0 if uvloop.run(main(given.waiting)) else 1)
