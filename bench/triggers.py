"""What triggers cost a write, how many deliveries are recorded and handed over in a second, and how soon the first arrives.

    PYTHONPATH=tests python bench/triggers.py            about a minute
    PYTHONPATH=tests python bench/triggers.py --quick    rough figures

The receiver is a process of its own on the same machine. Each figure stands beside a limit of the same run: a write without
triggers, one-row commits by apsw alone, the same requests posted with no store behind them.
"""

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import uvloop
from kernel import raw_rate
from report import line, title

from stigmergy.kernel.database import Database
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.sqlite import SqliteDatabase
from stigmergy.kernel.transaction import Transaction
from stigmergy.net import Reach
from stigmergy.triggers import commands, queries
from stigmergy.triggers.commands import start_delivery
from stigmergy.triggers.definitions import Reading, parse_definition
from stigmergy.triggers.deliverer import Deliverer
from stigmergy.triggers.posting import Poster, target_of
from stigmergy.triggers.webhooks import Caller
from support.notes import Note
from support.stores import SOURCES

CALLERS = 64
TRIGGERS = 10_000
CANDIDATES = 10
READING = Reading("bench", reach=Reach(loopback=True))
SECRET = "whsec_" + "QUJD" * 10


# ---- the receiver ----


class Answers(asyncio.Protocol):
    """The least that a receiver can do: find where each request ends, and say 204."""

    count = 0
    arrived: float = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            at = self._rest.index(b"content-length: ") + 16
            whole = end + 4 + int(self._rest[at : self._rest.index(b"\r", at)])
            if len(self._rest) < whole:
                return
            self._rest = self._rest[whole:]
            Answers.count += 1
            Answers.arrived = time.monotonic()
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def receive(pipe: Connection) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Answers, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        asked = asyncio.Event()
        loop.add_reader(pipe.fileno(), asked.set)
        while True:
            await asked.wait()
            asked.clear()
            while pipe.poll():
                if pipe.recv() == "end":
                    return
                pipe.send((Answers.count, Answers.arrived))

    uvloop.run(serve())


class Receiver:
    def __init__(self) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=receive, args=(theirs,), daemon=True)
        self._process.start()
        self.url = f"http://127.0.0.1:{self._pipe.recv()}/hook"

    def heard(self) -> tuple[int, float]:
        """How many requests, and when the last one came."""
        self._pipe.send("count")
        return self._pipe.recv()

    def end(self) -> None:
        self._pipe.send("end")
        self._process.join()


# ---- the store ----


async def add(tx: Transaction, owner: str) -> Note:
    return await tx.insert(Note(id=tx.new_id(), owner_id=owner, text="x" * 100))


async def log_it(tx: Transaction, rule: Rule, change: Any) -> None:
    """A firing that costs nothing, where only the matching is measured."""


async def rate(store: Database, each: int, owner: str = "someone", callers: int = CALLERS) -> float:
    async def caller(number: int) -> None:
        for _ in range(each):
            await store.write(add, f"{owner}{number}")

    start = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(callers)))
    return callers * each / (time.perf_counter() - start)


def webhook(id: str, url: str, **fields: Any) -> Rule:
    action = {"type": "webhook", "url": url, "secret": SECRET}
    return parse_definition({"id": id, "collection": "notes", "event": "create", "action": action, **fields}, READING)


async def settled(store: Database, receiver: Receiver, heard: int) -> None:
    """Until the receiver has heard so many requests, and all of them are written down. Asking costs, so it is not done often."""
    while receiver.heard()[0] < heard:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    while (await store.read(queries.counts)).get("pending", 0):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


# ---- the measurements ----


async def writes(folder: Path, rounds: int) -> bool:
    """A write among ten thousand triggers, ten of which are candidates: they share a value with it, and look at it."""
    title("A write", triggers=f"{TRIGGERS:,}", candidates=CANDIDATES)
    plain = await SqliteDatabase.open(folder / "plain.db", sources=SOURCES)
    watched = await SqliteDatabase.open(folder / "watched.db", sources=SOURCES)
    watched.rules.start_with("webhook", log_it)
    rules = [
        webhook(f"t{n}", "http://127.0.0.1/", condition=f"owner_id == 'owner{n // CANDIDATES}' && text == 'never'")
        for n in range(TRIGGERS)
    ]
    await watched.write(commands.put_triggers, rules)
    await watched.write(add, "owner0")  # compiles them
    ratios: dict[int, list[float]] = {1: [], CALLERS: []}
    rates: dict[int, list[float]] = {1: [], CALLERS: []}
    for _ in range(rounds):
        for callers, each in ((1, 400), (CALLERS, 60)):
            without = await rate(plain, each, "owner", callers)
            among = await rate(watched, each, "owner", callers)
            ratios[callers].append(without / among)
            rates[callers].append(among)
    kept = True
    for callers, found in ratios.items():
        line(f"{callers} callers, {TRIGGERS:,} triggers", median(rates[callers]))
        print(
            f"    costs {median(found):.2f} x a write with none  (at most 2.00 x: {'kept' if median(found) <= 2 else 'MISSED'})"
        )
        kept = kept and median(found) <= 2
    await plain.close()
    await watched.close()
    return kept


async def deliveries(folder: Path, receiver: Receiver, count: int) -> bool:
    path = folder / "deliveries.db"
    store = await SqliteDatabase.open(path, sources=SOURCES)
    store.rules.start_with("webhook", start_delivery)
    for number in range(CALLERS):
        await store.write(commands.put_trigger, webhook(f"t{number}", receiver.url, condition=f"owner_id == 'caller{number}'"))
    title("Deliveries", callers=CALLERS, triggers=CALLERS)
    raw = raw_rate(path)
    line("raw apsw one-row commits", raw)
    kept = line("deliveries recorded", await rate(store, count // CALLERS, "caller"), wanted=5_000)
    posted = await posting(receiver, min(count, 4_000))
    line("the same requests posted, with no store behind", posted)
    poster = Poster(Reach(loopback=True))
    deliverer = asyncio.create_task(Deliverer(store, webhooks=Caller(poster, store.clock).hand_over).run())
    before, _ = receiver.heard()
    whole, half = count // CALLERS * CALLERS, count // CALLERS // 2 * CALLERS
    process, start = psutil.Process(), time.perf_counter()
    used = process.cpu_times()
    await settled(store, receiver, before + whole)
    spent, after = time.perf_counter() - start, process.cpu_times()
    cpu = (after.user + after.system - used.user - used.system) / whole
    kept &= line("delivered to a local receiver, from a backlog", whole / spent, wanted=1_500)
    print(f"    {cpu * 1e6:,.0f} µs of this process's CPU for each")
    start = time.perf_counter()
    written = asyncio.create_task(rate(store, half // CALLERS, "caller"))
    await settled(store, receiver, before + whole + half)
    line("written, recorded and delivered at once", half / (time.perf_counter() - start), wanted=None)
    await written
    kept &= await idle(store, receiver)
    deliverer.cancel()
    await asyncio.gather(deliverer, return_exceptions=True)
    await poster.close()
    await store.close()
    return kept


async def posting(receiver: Receiver, count: int) -> float:
    """64 at a time, with bodies and headers of the usual size."""
    poster, target = Poster(Reach(loopback=True)), target_of(receiver.url)

    async def caller() -> None:
        for _ in range(count // CALLERS):
            await poster.post(target, "content-type: application/json\r\n", b"x" * 600, 5)

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    spent = time.perf_counter() - start
    await poster.close()
    return count // CALLERS * CALLERS / spent


async def idle(store: Database, receiver: Receiver) -> bool:
    """From a commit to its arrival, when nothing else happens; and how long the request alone takes then."""
    poster, target, alone = Poster(Reach(loopback=True)), target_of(receiver.url), list[float]()
    for _ in range(100):
        start = time.monotonic()
        await poster.post(target, "content-type: application/json\r\n", b"x" * 600, 5)
        alone.append((time.monotonic() - start) * 1000)
    await poster.close()
    print(f"{'the request alone, there and back, when idle':<58} p50 {median(alone):.2f} ms")
    took: list[float] = []
    for _ in range(200):
        before, _ = receiver.heard()
        note = await store.write(add, "caller1")
        committed = time.monotonic()
        del note
        await asyncio.sleep(0.01)
        while (heard := receiver.heard())[0] == before:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        took.append((heard[1] - committed) * 1000)
    took.sort()
    kept = took[100] <= 5
    verdict = "kept" if kept else "MISSED"
    print(f"{'from commit to arrival when idle':<58} p50 {took[100]:.2f} ms, p95 {took[190]:.2f} ms  (at most 5 ms: {verdict})")
    return kept


async def main(quick: bool) -> bool:
    receiver = Receiver()
    try:
        with tempfile.TemporaryDirectory() as folder:
            kept = await writes(Path(folder), 2 if quick else 7)
            kept &= await deliveries(Path(folder), receiver, 2_560 if quick else 12_800)
    finally:
        receiver.end()
    return kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    sys.setswitchinterval(0.00005)  # as `serve` does
    sys.exit(0 if uvloop.run(main(parser.parse_args().quick)) else 1)
