"""A worker: claims runs that are ready, drives each in a task of its own, and shows that it lives.

It has one lease, a counter that it beats. It watches the other workers on its own monotonic clock, and declares dead whose
counter stood still for a lease; what these held is ready again. What it does not hold any more it drops.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from stigmergy.agents import store as agents
from stigmergy.agents.model import ANYWHERE, Definition
from stigmergy.engine.runtime import Runtime
from stigmergy.engine.step import Driver
from stigmergy.errors import LeaseLost, StigmergyError, StoreClosed
from stigmergy.kernel.faults import point
from stigmergy.kernel.leases import (
    Claim,
    Watch,
    beat,
    bury,
    claim,
    describe,
    enlist,
    held,
    living,
    longest_ready,
    ready_topic,
    retire,
)
from stigmergy.kernel.transaction import Scope, Snapshot
from stigmergy.runs import steps
from stigmergy.runs.endings import STOPPED
from stigmergy.runs.model import Run

log = logging.getLogger(__name__)

LEASE_SECONDS = 10.0
# How often a worker looks for what became due without anybody saying so.
POLL_SECONDS = 1.0
# After an error of the store.
PAUSE_SECONDS = 1.0


class Worker:
    """`async with Worker(runtime):` works in the background; `drain` ends it after the steps that are under way."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        concurrency: int = 64,
        lease_seconds: float = LEASE_SECONDS,
        describes: str = "",
    ) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._concurrency = concurrency
        self._lease = lease_seconds
        self._describes = describes
        self._drivers: dict[Claim, tuple[Driver, asyncio.Task[None]]] = {}
        self._giving_back: dict[Claim, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._served: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._renaming = asyncio.Lock()
        self._draining = False
        self._watch = Watch(runtime.clock, lease_seconds)
        self.id = ""

    async def __aenter__(self) -> "Worker":
        self.id = await self._database.write(enlist, self._describes)
        await self._serve_queues()
        self._loops = [
            self._forever(self._beat, self._lease / 3),
            self._forever(self._watch_others, min(self._lease / 4, 0.5)),
            self._forever(self._serve_queues, self._lease),
            self._forever(self._serve_what_waits, POLL_SECONDS),
            asyncio.create_task(self._forever_told_of_stops(), name="worker: stops"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end([*self._loops, *self._served.values(), *self._giving_back.values()])
        await self._end([task for _, task in self._drivers.values()])
        try:
            await self._database.write(retire, self.id)
        except StigmergyError as error:
            log.info("the worker %s could not say good-bye: %s", self.id, error)

    async def drain(self) -> None:
        """Claim nothing more, end after the steps that are under way, and give back what was not done."""
        self._draining = True
        await self._end(self._served.values())
        for driver, _ in self._drivers.values():
            driver.draining = True
        await asyncio.gather(*(task for _, task in self._drivers.values()), return_exceptions=True)

    @staticmethod
    async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
        ending = list(tasks)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _forever(self, turn: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> asyncio.Task[None]:
        async def loop() -> None:
            with suppress(StoreClosed):
                while True:
                    await self._database.clock.sleep(seconds)
                    await self._try(turn)

        return asyncio.create_task(loop(), name=f"worker: {turn.__name__}")

    @staticmethod
    async def _try(turn: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What fails is tried again in the next turn."""
        try:
            await turn()
        except StoreClosed:
            raise
        except StigmergyError as error:
            log.warning("%s: %s", turn.__name__, error)

    # ---- claiming ----

    async def _serve_queues(self) -> None:
        """Serve the queues whose runs this process can run, also those of definitions that came since."""
        definitions = await self._database.read(_definitions)
        await self._serve_also(self._runtime.code.queues(definitions))

    async def _serve_what_waits(self) -> None:
        """Serve the queues in which runs wait of definitions that are not in force any more, or of another tenant, where this
        process can run them: its code may have changed since they began, and still have all that they need."""
        waiting = await self._database.read(longest_ready)
        unknown = [each for each in waiting if each.queue.startswith(ANYWHERE) and each.queue not in self._served]
        found: list[str] = []
        for each in unknown:
            definition = await self._database.read(_pinned, each.id, scope=Scope(each.tenant))
            if definition is not None and self._runtime.code.can_run(definition):
                found.append(each.queue)
        await self._serve_also(found)

    async def _serve_also(self, queues: Iterable[str]) -> None:
        fresh = [queue for queue in queues if queue not in self._served and not self._draining]
        for queue in fresh:
            self._served[queue] = asyncio.create_task(self._serve(queue), name=f"worker: {queue}")
        if fresh:
            self._describes = " ".join(sorted(self._served))
            await self._database.write(describe, self.id, self._describes)

    async def _serve(self, queue: str) -> None:
        with self._database.bus.listen(ready_topic(queue)) as listener:
            while True:
                try:
                    more = await self._take(queue)
                except StoreClosed:
                    return
                except StigmergyError as error:
                    log.warning("nothing can be claimed from %s: %s", queue, error)
                    await self._database.clock.sleep(PAUSE_SECONDS)
                    continue
                if not more:
                    await listener.wait(POLL_SECONDS)

    async def _take(self, queue: str) -> bool:
        """Claim what there is room for, and begin with it. One queue at a time, so that there is room for all of it. Whether
        there may be more: a look that finds nothing would only stand in the way of what was claimed."""
        async with self._claiming:
            while (free := self._concurrency - len(self._drivers)) <= 0:
                self._room.clear()
                await self._room.wait()
            while True:
                worker = self.id
                try:
                    claims = await self._database.write(claim, queue, worker, free)
                    break
                except LeaseLost:
                    await self._begin_anew(worker)
            if claims:
                point("run.claimed")
            for each in claims:
                self._start(worker, each)
            return len(claims) == free

    def _start(self, worker: str, claimed: Claim) -> None:
        driver = Driver(self._runtime, worker, claimed)
        task = asyncio.create_task(driver.drive(), name=f"run {claimed.id}")
        self._drivers[claimed] = driver, task
        task.add_done_callback(lambda done: self._done(claimed, done))

    def _done(self, claimed: Claim, task: asyncio.Task[None]) -> None:
        if (found := self._drivers.get(claimed)) is not None and found[1] is task:  # else it was let go of, and claimed again
            del self._drivers[claimed]
        self._room.set()
        # one that was cancelled though nobody here did that is as lost as one that failed
        error = None if task.cancelled() else task.exception()
        lost = error is not None or (task.cancelled() and not task.cancelling())
        if lost and not isinstance(error, StoreClosed):
            log.error("run %s was dropped, and is given back", claimed.id, exc_info=error)
            self._giving_back[claimed] = asyncio.create_task(self._give_back(claimed))

    async def _give_back(self, claimed: Claim) -> None:
        """Nobody works on it, and this worker lives: so it must be given back, or it would wait for ever."""
        try:
            while True:
                await self._database.clock.sleep(PAUSE_SECONDS)
                try:
                    await self._database.write(steps.give_back, self.id, claimed, scope=Scope(claimed.tenant))
                    return
                except (LeaseLost, StoreClosed):
                    return
                except StigmergyError as error:
                    log.warning("run %s cannot be given back yet: %s", claimed.id, error)
        finally:
            self._giving_back.pop(claimed, None)

    # ---- living ----

    async def _beat(self) -> None:
        before, worker = list(self._drivers), self.id
        try:
            mine = await self._database.write(beat, worker)
        except LeaseLost:
            await self._begin_anew(worker)
            return
        self._drop(before, mine)

    async def _forever_told_of_stops(self) -> None:
        with suppress(StoreClosed), self._database.bus.listen(STOPPED) as listener:
            while True:
                await listener.wait(None)
                await self._try(self._drop_what_was_stopped)

    async def _drop_what_was_stopped(self) -> None:
        before = list(self._drivers)
        self._drop(before, await self._database.read(held, self.id))

    def _drop(self, before: list[Claim], mine: list[Claim]) -> None:
        """End the work on what was ours and is not any longer."""
        for claimed in set(before) - set(mine):
            if (found := self._drivers.get(claimed)) is not None:
                found[1].cancel()

    async def _begin_anew(self, dead: str) -> None:
        """Others took this worker for dead. What it held is theirs; it goes on under another name. Whoever sees it second has
        nothing to do."""
        async with self._renaming:
            if self.id != dead:
                return
            log.warning("worker %s was declared dead, and begins anew", dead)
            for _, task in list(self._drivers.values()):
                task.cancel()
            self.id = await self._database.write(enlist, self._describes)

    async def _watch_others(self) -> None:
        others = [each for each in await self._database.read(living) if each[0] != self.id]
        for worker, counter in self._watch.expired(others):
            if await self._database.write(bury, worker, counter):
                log.warning("worker %s is dead; what it held is ready again", worker)


async def _pinned(tx: Snapshot, run_id: str) -> Definition | None:
    """What a run is of. None when it is gone, or what it is of."""
    run = await tx.get(Run, run_id)
    try:
        return None if run is None else await agents.pinned(tx, run.agent, run.agent_version, shared=run.agent_shared)
    except agents.UnknownAgent:
        return None


async def _definitions(tx: Snapshot) -> list[Definition]:
    return [record.definition for record in await tx.find(agents.ALL, limit=10_000)]
