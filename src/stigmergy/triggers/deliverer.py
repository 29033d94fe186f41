"""The deliverer: takes lanes, hands their deliveries over, writes down what came of it. Any number may run on one store.

It is a worker of the kernel with one lease. What is due is taken in turns, many lanes in one unit; what came of deliveries is
written many at a time too, since a commit costs more than a delivery. A delivery is settled before the next one of its lane
is begun. What a dead deliverer had in hand is taken over once its lease is over, and handed over again.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Set
from typing import Any

from stigmergy.errors import StigmergyError, StoreClosed
from stigmergy.kernel.bus import Listener
from stigmergy.kernel.database import Database
from stigmergy.kernel.faults import point
from stigmergy.kernel.leases import Claim, Watch, beat, bury, enlist, living, retire
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.transaction import Scope
from stigmergy.triggers.commands import TOPIC, Settled, settle
from stigmergy.triggers.events import Happened
from stigmergy.triggers.lanes import (
    Back,
    Lane,
    Waiting,
    collection_of_lane,
    move,
    open_lanes,
    trigger_of_lane,
    turn,
    unstick,
)
from stigmergy.triggers.model import Answer, Handler, Status, Webhook
from stigmergy.triggers.pauses import is_due, pause_ms
from stigmergy.triggers.webhooks import Outcome

log = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
# The longest sleep, should the bus lose the news of a delivery.
POLL_SECONDS = 5.0
# Lanes of each queue that are in hand at once, at the most.
IN_HAND = 256
# After a failure of the store.
REST_SECONDS = 1.0
# What is on its way when the deliverer is told to end has this long to arrive.
DRAIN_SECONDS = 2.0
# After a lane could not be given back because somebody was adding to it.
BUSY_MS = 5
# What belongs to a collection that this program does not know is another program's.
FOREIGN_MS = 60_000
# A lane that has been in hand for this long waits for a slow receiver. Another may be taken in its place; and once its trigger
# has many such, more of that trigger's wait for a while: so one receiver that hangs does not hold up the others.
SLOW_SECONDS = 0.5
SLOW_MS = 2_000
MOST_IN_HAND = 4  # times `in_hand`, the slow ones among them

# Between every two steps of a delivery, for tests that kill the process there.
POINTS = ("delivery.taken", "delivery.opened", "delivery.called", "delivery.answered", "delivery.settled", "delivery.given_back")

HandOver = Callable[[Any, Happened], Awaitable[Outcome]]


class Deliverer:
    """Hands over what waits in the queue of webhooks and in those of the handlers named, until it is cancelled."""

    def __init__(
        self,
        database: Database,
        *,
        webhooks: HandOver | None,
        handlers: HandOver | None = None,
        names: Sequence[str] = (),
        lease_seconds: float = LEASE_SECONDS,
        in_hand: int = IN_HAND,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._database = database
        self._webhooks = webhooks
        self._handlers = handlers
        self._bases = (["webhooks"] if webhooks is not None else []) + [f"handlers/{name}" for name in names]
        self._lease_seconds = lease_seconds
        self._in_hand = in_hand
        self._poll_seconds = poll_seconds

    async def run(self) -> None:
        """Work as one worker after the other: one that was declared dead gives up what it held and begins anew."""
        while True:
            try:
                await self._work()
            except StoreClosed:
                raise
            except StigmergyError as error:
                log.warning("deliveries rest for a moment: %s", error)
                await self._database.clock.sleep(REST_SECONDS)

    async def _work(self) -> None:
        worker = await self._database.write(enlist, "deliverer")
        life = _Life(self._database, worker, self._bases, self._hand_over, self._in_hand, self._poll_seconds)
        tasks = [asyncio.create_task(each) for each in (life.take_turns(), life.write_down(), self._beat(life))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            tasks[0].cancel()
            if life.lanes:
                await asyncio.wait(life.lanes, timeout=DRAIN_SECONDS)
            raise
        finally:
            life.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, *life.lanes, return_exceptions=True)
            await self._leave(worker)

    async def _leave(self, worker: str) -> None:
        try:
            await self._database.write(retire, worker)
        except StigmergyError as error:
            log.debug("deliverer %s could not leave in good order: %s", worker, error)

    async def _beat(self, life: "_Life") -> None:
        """Keep the lease, look after those of others, and give back what this worker holds without knowing of it."""
        clock = self._database.clock
        watch = Watch(clock, self._lease_seconds)
        while True:
            life.give_back_unknown(await self._database.write(beat, life.worker))
            for worker, counter in watch.expired(await self._database.read(living)):
                if await self._database.write(bury, worker, counter):
                    log.warning("worker %s stood still for its whole lease; what it had in hand is free again", worker)
                    life.look()
            await self._database.write(unstick, self._bases)
            await clock.sleep(self._lease_seconds / 4)

    async def _hand_over(self, action: Webhook | Handler, happened: Happened) -> Outcome:
        call = self._webhooks if isinstance(action, Webhook) else self._handlers
        assert call is not None
        return await call(action, happened)


class _Life:
    """One worker's life: the lanes in its hand, and what is still to be written of them."""

    def __init__(
        self,
        database: Database,
        worker: str,
        bases: Sequence[str],
        hand_over: Callable[[Webhook | Handler, Happened], Coroutine[Any, Any, Outcome]],
        in_hand: int,
        poll_seconds: float,
    ) -> None:
        self.worker = worker
        self.lanes: set[asyncio.Task[None]] = set()
        self._database = database
        self._bases = bases
        self._hand_over = hand_over
        self._in_hand = in_hand
        self._poll_seconds = poll_seconds
        self._open: dict[tuple[str, str, str], Claim] = {}
        self._since: dict[tuple[str, str, str], float] = {}
        self._counts: Counter[str] = Counter()
        self._suspects: frozenset[Claim] = frozenset()
        self._backs: list[Back] = []
        self._outcomes: list[tuple[Settled, asyncio.Future[None]]] = []
        self._to_write = asyncio.Event()
        self._listener: Listener | None = None

    def look(self) -> None:
        """There may be something to take."""
        if self._listener is not None:
            self._listener.hear(b"")

    def end(self) -> None:
        for task in self.lanes:
            task.cancel()

    def give_back_unknown(self, held: Sequence[Claim]) -> None:
        """Lanes that were moved to another queue while they were in hand, or whose claim's answer was lost: held at two beats,
        and unknown at both."""
        known = frozenset(self._open.values())
        suspects = frozenset(each for each in held if each not in known)
        for each in suspects & self._suspects:
            self._take(each)
            self._give_back(Back(each, self._database.clock.now()))
        self._suspects = suspects

    def _take(self, claim: Claim) -> None:
        self._counts[self._base_of(claim.queue)] += 1
        self._open[_place(claim)] = claim
        self._since[_place(claim)] = self._database.clock.monotonic()

    def _drop(self, claim: Claim) -> None:
        if self._open.pop(_place(claim), None) is not None:
            del self._since[_place(claim)]
            self._counts[self._base_of(claim.queue)] -= 1

    # ---- taking ----

    async def take_turns(self) -> None:
        clock = self._database.clock
        with self._database.bus.listen(TOPIC) as listener:
            self._listener = listener
            while True:
                next_at = await self._turn()
                seconds = self._poll_seconds if next_at is None else (next_at - clock.now()) / 1000
                await listener.wait(max(0.0, min(seconds, self._poll_seconds)))

    async def _turn(self) -> int | None:
        """Give back what is done with, take what is due."""
        backs, self._backs = self._backs, []
        leaving = Counter(self._base_of(back.claim.queue) for back in backs)
        slow = self._slow()
        rooms = {base: self._room(base, leaving[base], slow) for base in self._bases}
        try:
            taken = await self._database.write(turn, self.worker, rooms, backs)
        except BaseException:
            self._backs += backs
            raise
        point("delivery.given_back")
        settled = set(taken.settled)
        busy = [back for back in backs if back.claim not in settled and back.claim in taken.held]
        for back in backs:
            if back not in busy:
                self._drop(back.claim)
        self._backs += busy
        by_tenant: defaultdict[str, list[Claim]] = defaultdict(list)
        for claim in taken.claims:
            self._take(claim)
            by_tenant[claim.tenant].append(claim)
        if taken.claims:
            point("delivery.taken")
        many = {trigger for trigger, count in slow.items() if count >= self._in_hand // 4}
        for tenant, claims in by_tenant.items():
            await self._begin(tenant, self._not_of(many, claims) if many else claims)
        return self._look_again_at(taken.next_at, busy=bool(busy))

    def _look_again_at(self, next_at: int | None, *, busy: bool) -> int | None:
        now = self._database.clock.now()
        moments = [next_at] if next_at is not None else []
        moments += [now + BUSY_MS] if busy else []
        if any(self._counts[base] >= self._in_hand for base in self._bases):
            moments.append(now + round(SLOW_SECONDS * 1000))
        return min(moments, default=None)

    # ---- receivers that hang ----

    def _slow(self) -> Counter[tuple[str, str]]:
        """How many lanes of each queue and trigger have been in hand for long. Asked only where it matters."""
        if all(self._counts[base] < self._in_hand // 2 for base in self._bases):
            return Counter()
        long_ago = self._database.clock.monotonic() - SLOW_SECONDS
        return Counter(_trigger(self._open[place]) for place, since in self._since.items() if since < long_ago)

    def _room(self, base: str, leaving: int, slow: Mapping[tuple[str, str], int]) -> int:
        hanging = sum(count for (queue, _), count in slow.items() if self._base_of(queue) == base)
        return self._in_hand - self._counts[base] + leaving + min(hanging, self._in_hand * (MOST_IN_HAND - 1))

    def _not_of(self, triggers: Set[tuple[str, str]], claims: list[Claim]) -> list[Claim]:
        """Give back what is of these triggers, for a while."""
        later = self._database.clock.now() + SLOW_MS
        for claim in claims:
            if _trigger(claim) in triggers:
                self._give_back(Back(claim, later))
        return [claim for claim in claims if _trigger(claim) not in triggers]

    def _base_of(self, queue: str) -> str:
        return queue if queue in self._bases else next((base for base in self._bases if queue.startswith(f"{base}/")), queue)

    async def _begin(self, tenant: str, claims: list[Claim]) -> None:
        for foreign in [each for each in claims if collection_of_lane(each.id) not in COLLECTIONS]:
            claims.remove(foreign)
            self._give_back(Back(foreign, self._database.clock.now() + FOREIGN_MS))
        lanes = await self._database.read(open_lanes, claims, scope=Scope(tenant))
        point("delivery.opened")
        moved: defaultdict[str, list[Claim]] = defaultdict(list)
        for lane in lanes:
            if lane.belongs != lane.claim.queue:
                moved[lane.belongs].append(lane.claim)
            elif not lane.waiting:
                self._give_back(Back(lane.claim))
            else:
                task = asyncio.create_task(self._go_through(tenant, lane))
                self.lanes.add(task)
                task.add_done_callback(self.lanes.discard)
        for queue, misplaced in moved.items():
            await self._database.write(move, self.worker, misplaced, queue, scope=Scope(tenant))
            for claim in misplaced:
                self._drop(claim)

    def _give_back(self, back: Back) -> None:
        self._backs.append(back)
        self.look()

    # ---- handing over ----

    async def _go_through(self, tenant: str, lane: Lane) -> None:
        """Hand a lane's deliveries over, one after the other, until one fails or there are no more."""
        again_at: int | None = None
        try:
            for waiting in lane.waiting:
                if not is_due(waiting.next_at, self._database.clock.now()):
                    again_at = waiting.next_at
                    break
                outcome = await self._try(lane, waiting)
                await self._settle(outcome)
                point("delivery.settled")
                if outcome.status == "pending":
                    again_at = outcome.next_at
                    break
            else:
                again_at = None if lane.is_whole else self._database.clock.now()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("the lane %s of tenant %s failed; it is tried again", lane.claim.id, tenant)
            again_at = self._database.clock.now() + 1000
        self._give_back(Back(lane.claim, again_at))

    async def _try(self, lane: Lane, waiting: Waiting) -> Settled:
        delivery, tries = waiting.delivery, waiting.tries + 1
        now = self._database.clock.now()
        if lane.action is None:
            gone = Answer(error=f"the trigger {delivery.trigger_id} is gone; add it again and retry, or discard", at=now)
            return Settled(delivery, "dead", waiting.tries, gone)
        point("delivery.called")
        outcome = await self._hand_over(lane.action, waiting.happened)
        point("delivery.answered")
        retry = lane.action.retry
        if outcome.verdict == "again" and tries < retry.tries:
            pause = pause_ms(retry, tries, outcome.pause_ms)
            return Settled(delivery, "pending", tries, outcome.answer, self._database.clock.now() + pause)
        status: Status = "delivered" if outcome.verdict == "delivered" else "dead"
        if status == "dead":
            log.warning("delivery %s of %s is dead after %s tries: %s", delivery.id, delivery.trigger_id, tries, outcome.answer)
        return Settled(delivery, status, tries, outcome.answer)

    # ---- writing down ----

    async def _settle(self, outcome: Settled) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outcomes.append((outcome, written))
        self._to_write.set()
        await written

    async def write_down(self) -> None:
        """What came of deliveries, as much of it at once as there is."""
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            outcomes, self._outcomes = self._outcomes, []
            by_tenant: defaultdict[str, list[tuple[Settled, asyncio.Future[None]]]] = defaultdict(list)
            for each in outcomes:
                by_tenant[each[0].delivery.tenant].append(each)
            await asyncio.gather(*(self._write(tenant, batch) for tenant, batch in by_tenant.items()))

    async def _write(self, tenant: str, batch: list[tuple[Settled, asyncio.Future[None]]]) -> None:
        try:
            scope = Scope(tenant, "deliverer")
            await self._database.write(settle, [outcome for outcome, _ in batch], scope=scope)
        except StoreClosed:
            raise
        except StigmergyError as error:
            for _, written in batch:
                if not written.done():
                    written.set_exception(error)
            return
        for _, written in batch:
            if not written.done():
                written.set_result(None)


def _place(claim: Claim) -> tuple[str, str, str]:
    return claim.tenant, claim.queue, claim.id


def _trigger(claim: Claim) -> tuple[str, str]:
    """The queue and the trigger of a lane, with its tenant."""
    return claim.queue, f"{claim.tenant}/{trigger_of_lane(claim.id)}"
