"""A process that writes and hands over what its writes set off, until it is killed. As a program it is a mother."""

import asyncio
import os
import random

import msgspec

from stigmergy.kernel.database import Database
from stigmergy.net import Reach
from stigmergy.triggers.commands import start_delivery
from stigmergy.triggers.deliverer import Deliverer
from stigmergy.triggers.posting import Poster
from stigmergy.triggers.webhooks import Caller
from support.crash_child import Life, bear_children, opener
from support.units import add, rewrite

# Who write at the same time, each to notes of its own.
WRITERS = 3
# After so many writes a note is left alone.
LONGEST = 5
LEASE_SECONDS = 0.3


class Wrote(msgspec.Struct):
    """A write that was acknowledged."""

    id: str
    version: int


def deliverer(store: Database) -> tuple[Deliverer, Poster]:
    """What hands over in these processes, and in the one that finishes what they began."""
    store.rules.start_with("webhook", start_delivery)
    poster = Poster(Reach(loopback=True))
    caller = Caller(poster, store.clock)
    return Deliverer(store, webhooks=caller.hand_over, lease_seconds=LEASE_SECONDS, poll_seconds=0.05), poster


async def _write(store: Database, life: Life, number: int, answers: int) -> None:
    chance = random.Random(f"{life.seed} {life.name} {number}")
    count = 0
    while True:
        count += 1
        note = await store.write(add, f"{life.name}.{number}.{count}", text="1")
        os.write(answers, msgspec.json.encode(Wrote(note.id, note.version)) + b"\n")
        for _ in range(chance.randrange(LONGEST)):
            note = await store.write(rewrite, note, text=str(note.version + 1))
            os.write(answers, msgspec.json.encode(Wrote(note.id, note.version)) + b"\n")
        await asyncio.sleep(chance.uniform(0, 0.05))


async def work(life: Life) -> None:
    store = await opener(life.store)()
    answers = os.open(life.answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with asyncio.TaskGroup() as all_at_once:
        all_at_once.create_task(deliverer(store)[0].run())
        for number in range(WRITERS):
            all_at_once.create_task(_write(store, life, number, answers))


if __name__ == "__main__":
    bear_children(work)
