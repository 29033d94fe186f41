"""A thousand kills. What they showed is kept in `docs/soak/kernel.md`."""

import os
import time
from pathlib import Path

import apsw
import pytest

from support.crash import Mortal, Mother
from support.postgres import PostgresServer
from support.repository import ROOT

KILLS = int(os.environ.get("STIGMERGY_KILLS") or 1000)
# A store that is killed more often grows so large that looking at it takes most of the time.
KILLS_PER_STORE = 50
REPORT = ROOT / "docs" / "soak" / "kernel.md"

PAGE = """# The kernel, killed {kills:,} times

Written by `make soak` (`tests/crash/test_soak.py`): processes of 8 callers in 3 tenants, killed with SIGKILL at random
moments and at labelled points, {per_store} times each store. After each kill the store was opened again: every acknowledged
write was there once, with its version and position; no refused one was; journal, rows, versions and tombstones agreed.

| engine | kills | acknowledged writes, each checked after every later kill of its store | refused writes |
| --- | --- | --- | --- |
{rows}

Seed {seed}, {minutes:.1f} minutes. `STIGMERGY_SEED={seed} STIGMERGY_KILLS={kills} make soak` runs it again.
"""


@pytest.mark.soak
@pytest.mark.serial
async def test_a_thousand_kills_lose_and_double_nothing(
    tmp_path: Path, mother: Mother, seed: int, postgres_server: PostgresServer, postgres_template: str
) -> None:
    started = time.monotonic()
    found = {"sqlite": [0, 0, 0], "postgres": [0, 0, 0]}
    for number in range(KILLS // KILLS_PER_STORE):
        engine = "postgres" if number % 2 else "sqlite"
        folder = tmp_path / str(number)
        folder.mkdir()
        name = postgres_server.create_database(postgres_template)
        store = [str(folder / "store.db")] if engine == "sqlite" else list(postgres_server.urls(name))
        with Mortal(mother, store, folder, seed=seed + number) as mortal:
            for _ in range(KILLS_PER_STORE):
                mortal.live_and_die_somehow()
                await mortal.check()
        postgres_server.drop_database(name)
        refused = sum(answer.outcome == "refused" for answer in mortal.answers)
        for place, count in enumerate((mortal.kills, len(mortal.answers) - refused, refused)):
            found[engine][place] += count
    versions = {
        "sqlite": f"SQLite {apsw.sqlite_lib_version()}",
        "postgres": f"PostgreSQL {postgres_server.execute('SHOW server_version')}",
    }
    rows = "\n".join(
        f"| {versions[engine]} | {kills:,} | {written:,} | {refused:,} |" for engine, (kills, written, refused) in found.items()
    )
    minutes = (time.monotonic() - started) / 60
    kills = sum(counts[0] for counts in found.values())
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(PAGE.format(kills=kills, per_store=KILLS_PER_STORE, rows=rows, seed=seed, minutes=minutes))
