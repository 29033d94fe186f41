"""Processes that are killed while they deliver, a receiver that outlives them, and what must be true of what it was told."""

import asyncio
import threading
from collections import defaultdict
from types import TracebackType
from typing import Self

from stigmergy.kernel.database import Database
from stigmergy.net import Reach
from stigmergy.triggers import commands, queries
from stigmergy.triggers.definitions import Reading, parse_definition
from stigmergy.triggers.deliverer import POINTS
from stigmergy.triggers.model import Delivery
from support.crash import Mortals
from support.crash_check import check_journal
from support.crash_child import opener
from support.crash_deliveries_child import Wrote, deliverer
from support.receiver import Received, Receiver

PATIENCE_SECONDS = 30


class LastingReceiver:
    """A receiver with a thread of its own, so that it goes on while the test waits for a process to die."""

    def __enter__(self) -> Self:
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._receive()), name="receiver")
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE_SECONDS)

    async def _receive(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with Receiver() as receiver:
            self.url = receiver.url
            self.received: list[Received] = receiver.received
            self._ready.set()
            await self._end.wait()


class MortalDeliveries(Mortals[Wrote]):
    """Whoever writes notes and hands them over, process after process."""

    said = Wrote
    points = POINTS
    longest_seconds = 0.4
    latest_passing = 12
    receiver: LastingReceiver

    async def prepare(self) -> None:
        """A store with a trigger on every write of a note."""
        store = await opener(self.store)()
        definition = {"id": "t", "collection": "notes", "event": "create|update", "action": f"POST {self.receiver.url}/hook"}
        rule = parse_definition(definition, Reading("tester", reach=Reach(loopback=True)))
        await store.write(commands.put_trigger, rule)
        await store.close()

    async def check(self) -> None:
        """Fail unless a new process hands over all that the dead left, and the receiver has heard of every write in order."""
        store = await opener(self.store)()
        try:
            deliveries = await self._finish(store)
            await check_journal(store)
        finally:
            await store.close()
        told = {(each.document_id, each.document_version): each for each in deliveries}
        assert len(told) == len(deliveries), "a write has two deliveries"
        assert {each.status for each in deliveries} <= {"delivered"}
        for wrote in self.answers:
            assert (wrote.id, wrote.version) in told, f"lost: {wrote}"
        self._check_received({each.id for each in deliveries})

    async def _finish(self, store: Database) -> list[Delivery]:
        worker, poster = deliverer(store)
        working = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await store.read(queries.counts)).get("pending"):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await poster.close()
        return await store.read(queries.deliveries, limit=100_000)

    def _check_received(self, ids: set[str]) -> None:
        times: defaultdict[str, int] = defaultdict(int)
        versions: defaultdict[str, list[int]] = defaultdict(list)
        for call in self.receiver.received:
            times[call.id] += 1
            versions[call.document["id"]].append(call.document["version"])
        assert times.keys() == ids, "not all was handed over, or more"
        assert max(times.values(), default=0) <= self.kills + 1, "handed over again though nobody was killed meanwhile"
        for id, heard in versions.items():
            assert heard == sorted(heard), f"{id} came out of order: {heard}"
            assert set(heard) == set(range(1, max(heard) + 1)), f"{id} has a gap: {heard}"
