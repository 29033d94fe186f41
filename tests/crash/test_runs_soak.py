"""A thousand kills of processes whose agents work. What they showed is kept in `docs/soak/runs.md`."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import apsw
import pytest

from stigmergy.engine.calls import UNKNOWN_OUTCOME
from support.crash import Mother
from support.crash_runs import MortalRuns
from support.postgres import PostgresServer
from support.repository import ROOT
from support.run_check import Lives
from support.stores import app_template

KILLS = int(os.environ.get("STIGMERGY_KILLS") or 1000)
# A store that is killed more often grows so large that looking at it takes most of the time.
KILLS_PER_STORE = 25
# So many die at the most, one while it goes on with what the one before began, until one may finish.
MOST_IN_A_ROW = 3
REPORT = ROOT / "docs" / "soak" / "runs.md"

PAGE = """# Runs, killed {kills:,} times

Written by `make soak` (`tests/crash/test_runs_soak.py`): processes in which agents give each other tasks, ask, wait, fail and
are approved of, and somebody answers, speaks and cancels; killed with SIGKILL at random moments and at the labelled points of
`src/stigmergy/runs/points.py`, up to {in_a_row} in a row, {per_store} times each store. Then another process finished what they
had begun. Before and after that every invariant held: every run ended; each log without gaps, each message, result and
completion there once; each step whole with its checkpoint; only allowed transitions; task and run, parent and child agreed; no
tool that must not be repeated ran twice; what somebody was told was so; no wait, timer, place in a queue or worker was left.

| engine | kills | recoveries | runs | steps | calls that must not be repeated | of these with unknown outcome | told |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

Seed {seed}, {minutes:.1f} minutes. `STIGMERGY_SEED={seed} STIGMERGY_KILLS={kills} make soak` runs it again.
"""


def counted(lives: Lives) -> Counter[str]:
    calls = [call for life in lives.of.values() for call in life.calls if call.tool_name == "once"]
    unknown = sum(call.error == UNKNOWN_OUTCOME for call in calls)
    steps = sum(life.run.step for life in lives.of.values())
    return Counter(runs=len(lives.of), steps=steps, once=len(calls), unknown=unknown)


async def soak(mortal: MortalRuns, chance: random.Random) -> Counter[str]:
    """One store's kills, and what there was of everything in the end."""
    recoveries, lives = 0, Lives({}, {})
    while mortal.kills < KILLS_PER_STORE:
        for _ in range(min(chance.randint(1, MOST_IN_A_ROW), KILLS_PER_STORE - mortal.kills)):
            mortal.live_and_die_somehow()
        lives = (await mortal.check())["main"]
        recoveries += 1
    return counted(lives) + Counter(kills=mortal.kills, recoveries=recoveries, told=len(mortal.answers))


def write_report(found: dict[str, Counter[str]], versions: dict[str, str], seed: int, seconds: float) -> None:
    names = ("kills", "recoveries", "runs", "steps", "once", "unknown", "told")
    rows = "\n".join(f"| {versions[engine]} | {' | '.join(f'{of[name]:,}' for name in names)} |" for engine, of in found.items())
    about = {"kills": sum(of["kills"] for of in found.values()), "per_store": KILLS_PER_STORE, "in_a_row": MOST_IN_A_ROW}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(PAGE.format(rows=rows, seed=seed, minutes=seconds / 60, **about))


@pytest.mark.soak
@pytest.mark.serial
async def test_a_thousand_kills_leave_runs_that_end_whole(
    tmp_path: Path, mother_of_agents: Mother, seed: int, postgres_server: PostgresServer
) -> None:
    started = time.monotonic()
    template = postgres_server.template_ready("app", app_template)
    versions = {
        "sqlite": f"SQLite {apsw.sqlite_lib_version()}",
        "postgres": f"PostgreSQL {postgres_server.execute('SHOW server_version')}",
    }
    found = {engine: Counter[str]() for engine in versions}
    for number in range(KILLS // KILLS_PER_STORE):
        engine = "postgres" if number % 2 else "sqlite"
        folder = tmp_path / str(number)
        folder.mkdir()
        name = postgres_server.create_database(template)
        store = [str(folder / "store.db")] if engine == "sqlite" else list(postgres_server.urls(name))
        with MortalRuns(mother_of_agents, store, folder, seed=seed + number) as mortal:
            found[engine] += await soak(mortal, random.Random(seed + number))
        postgres_server.drop_database(name)
        write_report(found, versions, seed, time.monotonic() - started)
