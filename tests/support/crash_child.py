"""A process that writes until it is killed, and keeps a file of the answers it got.

As a program it is a mother: it forks one such process for every `Life` on its standard input, says its number, and how it
ended. The programs are imported once, so that a life starts in milliseconds.
"""

import asyncio
import os
import random
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import msgspec

from stigmergy.errors import Conflict
from stigmergy.kernel.database import Database, mergeable
from stigmergy.kernel.faults import watch_points
from stigmergy.kernel.transaction import Scope, Transaction
from support.notes import Entry, Note
from support.postgres import DatabaseUrls
from support.stores import OpenStore, postgres_opener, sqlite_opener

TENANTS = ("acme", "main", "zed")
CALLERS = 8
# Writes that a caller asks for one after the other before it pauses.
BURST = 8
LONGEST_PAUSE_SECONDS = 0.06
# A life that nobody ends.
LONGEST_LIFE_SECONDS = 90


class Life(msgspec.Struct):
    """What a process is told: where to write (a file, or the two URLs of a database), where to put the answers, and whether
    to kill itself, or to stop, when it passes a point for the n-th time. `name` is like no other's on this store."""

    name: str
    store: list[str]
    answers: str
    seed: int
    die_at: str = ""
    nth: int = 1
    by: int = signal.SIGKILL


class Answer(msgspec.Struct):
    """What a caller was told about one write. `marker` is the text that this write, and no other, put into a note."""

    tenant: str
    marker: str
    outcome: Literal["written", "deleted", "refused"]
    id: str = ""
    version: int = 0
    seq: int = 0


async def put(tx: Transaction, id: str, marker: str, *, lock: bool = False) -> Note:
    """A note with this text, and the entry that says so: both, or neither."""
    note = await (tx.lock if lock else tx.get)(Note, id)
    note = await (tx.insert(Note(id=id, text=marker)) if note is None else tx.update(note, text=marker))
    await tx.insert(Entry(note_id=id, pos=note.version, text=marker))
    return note


async def put_locked(tx: Transaction, id: str, marker: str) -> Note:
    return await put(tx, id, marker, lock=True)


@mergeable
async def put_new(tx: Transaction, id: str, marker: str) -> Note:
    note = await tx.insert(Note(id=tx.new_id(), text=marker))
    await tx.insert(Entry(note_id=note.id, pos=note.version, text=marker))
    return note


async def put_and_raise(tx: Transaction, id: str, marker: str) -> Note:
    await put(tx, id, marker)
    raise LookupError


async def put_over_another(tx: Transaction, id: str, marker: str) -> Note:
    note = await put(tx, id, marker)
    return await tx.update(msgspec.structs.replace(note, version=note.version + 1), text=marker)


async def remove(tx: Transaction, id: str, marker: str) -> Note:
    note = await tx.lock(Note, id)
    if note is None:
        raise LookupError
    await tx.delete(note)
    return note


ACTS: dict[Callable[[Transaction, str, str], Awaitable[Note]], int] = {
    put: 8,
    put_locked: 8,
    put_new: 4,
    put_and_raise: 2,
    put_over_another: 2,
    remove: 3,
}


class Caller:
    """One of those who write at the same time. Some notes are its own, some everybody's."""

    def __init__(self, store: Database, life: Life, number: int, answers: int) -> None:
        self._store = store
        self._name = f"{life.name}.{number}"
        self._random = random.Random(f"{life.seed} {self._name}")
        self._ids = ("everybody's", *(f"{number}'s {letter}" for letter in "abc"))
        self._answers = answers
        self._asked = 0

    async def live(self) -> None:
        while True:
            for _ in range(self._random.randrange(1, BURST)):
                answer = await self._ask()
                os.write(self._answers, msgspec.json.encode(answer) + b"\n")
            await asyncio.sleep(self._random.uniform(0, LONGEST_PAUSE_SECONDS))

    async def _ask(self) -> Answer:
        self._asked += 1
        marker = f"{self._name}.{self._asked}"
        tenant = self._random.choice(TENANTS)
        (act,) = self._random.choices(list(ACTS), list(ACTS.values()))
        try:
            note = await self._store.write(act, self._random.choice(self._ids), marker, scope=Scope(tenant, self._name))
        except (Conflict, LookupError):
            return Answer(tenant, marker, "refused")
        if act is remove:
            return Answer(tenant, marker, "deleted", note.id, note.version + 1)
        return Answer(tenant, marker, "written", note.id, note.version, note.seq)


def opener(store: list[str]) -> OpenStore:
    return sqlite_opener(Path(store[0])) if len(store) == 1 else postgres_opener(DatabaseUrls(*store))


async def work(life: Life) -> None:
    store = await opener(life.store)()
    answers = os.open(life.answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with asyncio.TaskGroup() as callers:
        for number in range(CALLERS):
            callers.create_task(Caller(store, life, number, answers).live())


Work = Callable[[Life], Coroutine[Any, Any, None]]
"""What a process does with its life."""


def live(life: Life, work: Work) -> None:
    passed = 0

    def reached(point: str) -> None:
        nonlocal passed
        passed += point == life.die_at
        if point == life.die_at and passed == life.nth:
            os.kill(os.getpid(), life.by)

    signal.alarm(LONGEST_LIFE_SECONDS)
    watch_points(reached if life.die_at else None)
    asyncio.run(work(life))


def bear_children(work: Work) -> None:
    for line in sys.stdin.buffer:
        life = msgspec.json.decode(line, type=Life)
        child = os.fork()
        if child == 0:
            try:
                live(life, work)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    bear_children(work)
