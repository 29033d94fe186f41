"""What the kernel does in a second, beside the raw limit of the same file with the same pragmas in the same run.

    python bench/kernel.py                  everything, about a minute and a half
    python bench/kernel.py --grow 10000000  writes as the journal grows to this many rows, and nothing else
    python bench/kernel.py --without-postgres

Timings of a busy machine are noisy: each figure stands beside a raw rate that was measured directly before it, the ratio is the
median of a few such pairs, and the ratios are what counts. The event loop is uvloop, as in `stigmergy serve` and
`stigmergy worker`.
"""

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import uvloop
from report import line, percentiles, spent, title

from stigmergy.kernel.database import Database, mergeable
from stigmergy.kernel.postgres import PostgresDatabase
from stigmergy.kernel.sqlite import SqliteDatabase
from stigmergy.kernel.sqlite_file import open_connection
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from support.notes import Entry, Note
from support.postgres import PostgresServer
from support.stores import SOURCES, migrate_postgres

TEXT = "x" * 100
CALLERS = 64
ROUNDS = 5


async def add_entry(tx: Transaction) -> None:
    await tx.insert(Entry(note_id=tx.new_id(), pos=1, text=TEXT))


@mergeable
async def add_entry_merged(tx: Transaction) -> None:
    await tx.insert(Entry(note_id=tx.new_id(), pos=1, text=TEXT))


async def add_note(tx: Transaction) -> Note:
    return await tx.insert(Note(id=tx.new_id(), text=TEXT))


async def change_note(tx: Transaction, id: str, text: str) -> None:
    note = await tx.get(Note, id)
    assert note is not None
    await tx.update(note, text=text)


async def get_note(tx: Snapshot, id: str) -> Note | None:
    return await tx.get(Note, id)


async def rate(database: Database, callers: int, each: int, unit: Callable[..., Awaitable[Any]], tenants: int = 1) -> float:
    return (await rates(database, callers, each, unit, tenants))[0]


async def rates(
    database: Database, callers: int, each: int, unit: Callable[..., Awaitable[Any]], tenants: int = 1
) -> tuple[float, float]:
    """So many in a second, and in a second of CPU."""

    async def caller(number: int) -> None:
        scope = Scope(tenant=f"t{number % tenants}")
        for _ in range(each):
            await database.write(unit, scope=scope)

    with spent() as taken:
        await asyncio.gather(*(caller(number) for number in range(callers)))
    return callers * each / taken.clock, callers * each / taken.cpu


def raw_rate(path: Path, count: int = 2_000) -> float:
    """One-row commits by apsw alone, in a table of its own in the same file."""
    connection = open_connection(path, writes=True)
    connection.execute("CREATE TABLE IF NOT EXISTS raw (id INTEGER PRIMARY KEY, text TEXT)")
    cursor = connection.cursor()
    start = time.perf_counter()
    for _ in range(count):
        cursor.execute("INSERT INTO raw (text) VALUES (?)", (TEXT,))
    spent = time.perf_counter() - start
    connection.close()
    return count / spent


async def sqlite(folder: Path) -> bool:
    path = folder / "kernel.db"
    database = await SqliteDatabase.open(path, sources=SOURCES)
    title("SQLite, journalled and durable", sqlite=apsw.sqlite_lib_version(), synchronous="FULL")
    raws: list[float] = []
    ratios: dict[str, list[float]] = {}
    by_cpu: dict[str, list[float]] = {}
    plans: dict[str, tuple[int, int, Any, int]] = {
        "one caller, written once": (1, 1_000, add_entry, 1),
        "one caller, versioned": (1, 1_000, add_note, 1),
        "64 callers, written once": (CALLERS, 300, add_entry, 1),
        "64 callers, versioned": (CALLERS, 300, add_note, 1),
        "64 callers over 64 tenants": (CALLERS, 150, add_entry, 64),
    }
    for _ in range(ROUNDS):
        for name, (callers, each, unit, tenants) in plans.items():
            raws.append(raw_rate(path))
            by_clock, of_cpu = await rates(database, callers, each, unit, tenants)
            ratios.setdefault(name, []).append(by_clock / raws[-1])
            by_cpu.setdefault(name, []).append(of_cpu)
        raws.append(raw_rate(path))
        ratios.setdefault("64 callers, guarded updates", []).append(await updates(database) / raws[-1])
    raw = median(raws)
    line("raw apsw one-row commits", raw)
    wanted = {"one": 0.45, "64": 5.0}
    kept = [
        line(
            name,
            median(found) * raw,
            raw=raw,
            cpu=max(by_cpu[name]) if name in by_cpu else None,
            wanted=None if "tenants" in name or "updates" in name else wanted[name.split()[0]],
        )
        for name, found in ratios.items()
    ]
    kept += await reads(database)
    await second_writer(database, path)
    await database.close()
    return all(kept)


async def updates(database: Database) -> float:
    scope = Scope(tenant="t0")
    notes = [await database.write(add_note, scope=scope) for _ in range(CALLERS)]

    async def caller(note: Note) -> None:
        for number in range(100):
            await database.write(change_note, note.id, str(number), scope=scope)

    start = time.perf_counter()
    await asyncio.gather(*(caller(note) for note in notes))
    return CALLERS * 100 / (time.perf_counter() - start)


async def reads(database: Database) -> list[bool]:
    scope = Scope(tenant="t0")
    ids = [(await database.write(add_note, scope=scope)).id for _ in range(200)]
    count = 60_000
    points = units = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for number in range(count):
            await database.get(Note, ids[number % 200], scope=scope)
        points = max(points, count / (time.perf_counter() - start))
        start = time.perf_counter()
        for number in range(count):
            await database.read(get_note, ids[number % 200], scope=scope)
        units = max(units, count / (time.perf_counter() - start))
    return [line("point reads, decoded", points, wanted=150_000), line("the same as reading units on a snapshot", units)]


def _write_beside(path: str, seconds: float) -> None:
    async def run() -> None:
        database = await SqliteDatabase.open(path, sources=SOURCES)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await database.write(add_entry, scope=Scope(tenant="beside"))
        await database.close()

    uvloop.run(run())


async def second_writer(database: Database, path: Path) -> None:
    """What another process that writes the same file as fast as it can costs the first."""
    alone = max([await rate(database, 1, 500, add_entry) for _ in range(3)])
    process = multiprocessing.get_context("spawn").Process(target=_write_beside, args=(str(path), 4.0))
    process.start()
    await asyncio.sleep(1.5)
    waits: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < 2:
        began = time.perf_counter()
        await database.write(add_entry, scope=Scope(tenant="t0"))
        waits.append(time.perf_counter() - began)
    await asyncio.to_thread(process.join)
    title("A second process that writes the same file without pause")
    line("one caller, alone", alone)
    line("one caller, beside it", len(waits) / sum(waits), raw=alone, of="alone")
    percentiles("a write beside it", [1000 * wait for wait in waits])


async def postgres() -> bool:
    with PostgresServer(fsync=True) as server:
        urls = server.urls(server.create_database())
        await migrate_postgres(urls, watched=False)
        database = await PostgresDatabase.open(urls.app, owner_url=urls.owner, sources=SOURCES)
        title("PostgreSQL, journalled and durable", fsync="on")
        best: dict[str, float] = {}
        plans: dict[str, tuple[int, int, Any, int]] = {
            "one caller": (1, 500, add_entry, 1),
            "64 callers over 64 tenants": (CALLERS, 60, add_entry, 64),
            "64 callers in one tenant, mergeable inserts": (CALLERS, 200, add_entry_merged, 1),
            "64 callers over 64 tenants, mergeable inserts": (CALLERS, 200, add_entry_merged, 64),
            "64 callers in one tenant, not mergeable": (CALLERS, 20, add_entry, 1),
        }
        for _ in range(ROUNDS):
            for name, (callers, each, unit, tenants) in plans.items():
                best[name] = max(best.get(name, 0), await rate(database, callers, each, unit, tenants))
        await database.close()
    one = best.pop("one caller")
    line("one caller", one)
    wanted = {"64 callers over 64 tenants": 3.0, "64 callers in one tenant, mergeable inserts": 4.0}
    kept = [line(name, value, raw=one, of="one caller", wanted=wanted.get(name)) for name, value in best.items()]
    return all(kept)


async def growth(folder: Path, rows: int) -> bool:
    """What a write costs as the journal grows: beside raw commits of the same file, and in CPU."""
    path = folder / "growth.db"
    database = await SqliteDatabase.open(path, sources=SOURCES)
    title("A write as the journal grows", rows=f"{rows:,}")
    size = 0
    ratios: list[float] = []
    cpu: list[float] = []
    for mark in (mark for mark in (10_000, 100_000, 1_000_000, 10_000_000) if mark <= rows):
        while size < mark:
            await rate(database, CALLERS, max(1, min(400, (mark - size) // CALLERS)), add_entry)
            size = (await database.write(_head, scope=Scope(tenant="t0"))) or 0
        pairs = [(raw_rate(path, 500), *await rates(database, CALLERS, 200, add_entry)) for _ in range(ROUNDS)]
        ratios.append(median(by_clock / raw for raw, by_clock, _ in pairs))
        cpu.append(max(of_cpu for *_, of_cpu in pairs))
        raw = median(raw for raw, *_ in pairs)
        line(f"64 callers at {mark:,} rows", ratios[-1] * raw, raw=raw, cpu=cpu[-1])
    await database.close()
    kept = ratios[-1] >= 0.8 * ratios[0] or cpu[-1] >= 0.8 * cpu[0]
    same = f"{ratios[-1] / ratios[0]:.2f} x that at 10,000 by the clock, {cpu[-1] / cpu[0]:.2f} x by the CPU"
    print(f"{'the last beside the first':<58} {same}  (at least 0.80 x: {'kept' if kept else 'MISSED'})", flush=True)
    return kept


async def _head(tx: Transaction) -> int:
    await add_entry(tx)
    return tx._next_seq() - 1  # type: ignore[reportPrivateUsage]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--grow", type=int, help="only this: writes as the journal grows to so many rows")
    arguments.add_argument("--without-postgres", action="store_true")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.grow:
            kept = uvloop.run(growth(Path(folder), given.grow))
        else:
            kept = uvloop.run(sqlite(Path(folder)))
            kept = uvloop.run(growth(Path(folder), 1_000_000)) and kept
            kept = (given.without_postgres or uvloop.run(postgres())) and kept
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
