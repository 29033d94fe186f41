"""Small units of work that many tests are made of."""

import asyncio
from collections.abc import AsyncIterable, Callable
from typing import Any, TypeVar

from stigmergy.kernel.database import MAIN, Database
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.journal import Change
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from support.notes import Note

T = TypeVar("T")

# What a test waits for at the most before it fails instead of hanging.
PATIENCE = 30


async def add(tx: Transaction, id: str | None = None, **fields: Any) -> Note:
    return await tx.insert(Note(id=id or tx.new_id(), **fields))


async def rewrite(tx: Transaction, note: Note, **fields: Any) -> Note:
    return await tx.update(note, **fields)


async def remove(tx: Transaction, id: str) -> None:
    await tx.delete(await there(tx, id))


async def there(tx: Snapshot, id: str) -> Note:
    note = await tx.get(Note, id)
    assert note is not None
    return note


async def increment(tx: Transaction, id: str) -> Note:
    """Read, change, write: right only because nobody else can come between."""
    note = await tx.lock(Note, id)
    assert note is not None
    return await tx.update(note, data={"n": note.data.get("n", 0) + 1})


async def whole_journal(store: Database, scope: Scope = MAIN, page: int = 500) -> list[Change]:
    changes: list[Change] = []
    while more := await store.read(read_page, changes[-1].seq if changes else 0, page, scope=scope):
        changes += more
    return changes


async def take(source: AsyncIterable[T], count: int) -> list[T]:
    """The first so many of what a follower gives."""
    taken: list[T] = []
    async with asyncio.timeout(PATIENCE):
        async for each in source:
            taken.append(each)
            if len(taken) == count:
                break
    return taken


async def until(condition: Callable[[], bool]) -> None:
    """For what has no event of its own to wait for."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
