"""What the tests of failures write, and how they look at what came of it."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

from stigmergy.kernel.database import Database, mergeable
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Transaction
from support.crash_check import check_journal
from support.notes import Note

# Nothing here may hang; this is far more than any of it takes.
SOON = 30


async def add(tx: Transaction, text: str = "", id: str | None = None) -> Note:
    return await tx.insert(Note(id=id or tx.new_id(), text=text))


@mergeable
async def add_merged(tx: Transaction, text: str = "") -> Note:
    return await tx.insert(Note(id=tx.new_id(), text=text))


async def refuse(tx: Transaction, text: str = "") -> None:
    await add(tx, text)
    raise LookupError(text)


async def ask(tx: Transaction, statement: Statement) -> None:
    await tx.rows(statement)


async def texts(store: Database) -> list[str]:
    """What is there, in the order of the journal, after a check that the journal and the rows agree."""
    await check_journal(store)
    changes = await store.read(read_page, 0, 10_000)
    return [change.record.text for change in changes if isinstance(change.record, Note)]


async def outcomes(*writes: Awaitable[Any]) -> list[Any]:
    async with asyncio.timeout(SOON):
        return await asyncio.gather(*writes, return_exceptions=True)


class Gate:
    """A unit that holds up the writer of a SQLite store until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    async def unit(self, tx: Transaction) -> None:
        self.entered.set()
        assert self._open.wait(SOON)

    async def hold(self, store: Database) -> "asyncio.Task[None]":
        task = asyncio.create_task(store.write(self.unit))
        assert await asyncio.to_thread(self.entered.wait, SOON)
        return task

    def open(self) -> None:
        self._open.set()
