"""A deliverer at work beside a test, and what the test asks of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.transaction import Scope
from stigmergy.net import Reach
from stigmergy.triggers import commands, queries
from stigmergy.triggers.commands import start_delivery
from stigmergy.triggers.definitions import Reading, parse_definition
from stigmergy.triggers.deliverer import Deliverer
from stigmergy.triggers.model import Delivery, Status
from stigmergy.triggers.posting import Poster
from stigmergy.triggers.queries import Shown
from stigmergy.triggers.webhooks import Caller
from support.notes import Note
from support.receiver import Receiver
from support.units import add, rewrite

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
READING = Reading("tester", reach=Reach(loopback=True))
QUICK = {"first_ms": 1, "most_ms": 5}


class Delivering:
    """A deliverer at work. `async with Delivering(store):`, or `begin` and `end`."""

    def __init__(self, store: Database, *, lease_seconds: float = 15.0, secret: str | None = None, **settings: Any) -> None:
        self._poster = Poster(Reach(loopback=True))
        caller = Caller(self._poster, store.clock, secret)
        self.deliverer = Deliverer(store, webhooks=caller.hand_over, lease_seconds=lease_seconds, **settings)

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self.deliverer.run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._poster.close()


async def put(store: Database, receiver: Receiver, id: str = "t", event: str = "create", **fields: Any) -> Rule:
    action: dict[str, Any] = {"type": "webhook", "url": f"{receiver.url}/hook", "retry": QUICK}
    for name in ("secret", "headers", "timeout_ms", "retry", "concurrency", "per_second"):
        if name in fields:
            action[name] = fields.pop(name)
    store.rules.start_with("webhook", start_delivery)
    rule = parse_definition({"id": id, "collection": "notes", "event": event, "action": action, **fields}, READING)
    return await store.write(commands.put_trigger, rule)


async def every(store: Database, status: Status | None = None, tenant: str = "main") -> list[Delivery]:
    """The deliveries, oldest first."""
    return (await store.read(queries.deliveries, status=status, limit=100_000, scope=Scope(tenant)))[::-1]


async def settled(store: Database, count: int, status: Status = "delivered") -> list[Delivery]:
    async with asyncio.timeout(30):
        while len(found := await every(store, status)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return found


async def notes(store: Database, id: str, count: int) -> Note:
    """A note and so many changes of it."""
    note = await store.write(add, id, text="0")
    for n in range(1, count):
        note = await store.write(rewrite, note, text=str(n))
    return note


async def pending_try(store: Database) -> Shown:
    async with asyncio.timeout(30):
        while True:
            (delivery,) = await every(store)
            shown = await store.read(queries.delivery, delivery.id)
            if shown.next_at is not None:
                return shown
            await asyncio.sleep(0.005)


@asynccontextmanager
async def passing(clock: ManualClock) -> AsyncIterator[None]:
    """Time goes on: what a deliverer finds at a beat, it finds at one of those that come, whatever it did at the moment."""

    async def pass_by() -> None:
        while True:
            clock.advance(1)
            await asyncio.sleep(0.01)

    passes = asyncio.create_task(pass_by())
    try:
        yield
    finally:
        passes.cancel()
