"""What failing units, callers who leave and closing do to writes: each gets its true outcome, and nothing half written stays."""

import asyncio
import threading

import pytest

from stigmergy.errors import (
    StoreClosed,
)
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import READ_CHANGES
from stigmergy.kernel.transaction import Scope, Transaction
from support.crash_units import SOON, Gate, add, add_merged, outcomes, texts
from support.notes import Note
from support.stores import OpenStore


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, MemoryError])
async def test_whatever_a_unit_raises_reaches_its_caller_and_nobody_else(store: Database, kind: type[BaseException]) -> None:
    async def breaks(tx: Transaction) -> None:
        await add(tx, "broken")
        raise kind

    async def caller() -> None:
        with pytest.raises(kind):
            await store.write(breaks)

    for _ in range(12):  # more than there are writers
        await outcomes(caller(), store.write(add, "beside"))
    assert await texts(store) == ["beside"] * 12


async def test_a_unit_that_read_the_journal_and_raised_takes_nothing_from_those_before_it(store: Database) -> None:
    async def reads_and_raises(tx: Transaction) -> None:
        await add(tx, "raised")
        await tx.rows(READ_CHANGES, after=0, limit=10)
        raise LookupError

    async def reads(tx: Transaction) -> int:
        await add(tx, "read")
        return len(await tx.rows(READ_CHANGES, after=0, limit=10))

    writes = [store.write(unit) for unit in (add, reads_and_raises, reads, reads_and_raises, add)]
    await outcomes(*writes, *(store.write(add, scope=Scope(tenant)) for tenant in ("acme", "zed")))
    assert sorted(await texts(store)) == ["", "", "read"]
    assert await store.tenants() == ["acme", "main", "zed"]


async def test_a_write_whose_caller_left_before_it_began_is_not_run(engine: str, store: Database) -> None:
    gate = Gate()
    held = [await gate.hold(store)] if engine == "sqlite" else []
    leaving = [asyncio.create_task(store.write(unit, "left")) for unit in (add, add_merged)]
    await asyncio.sleep(0)  # they have asked, and nothing has begun
    for task in leaving:
        task.cancel()
    gate.open()
    await outcomes(*held, *leaving)
    await store.write(add, "stayed")
    assert await texts(store) == ["stayed"]


async def test_a_write_whose_caller_left_after_it_began_is_finished(engine: str, store: Database, open_store: OpenStore) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    go_on = threading.Event()

    async def unit(tx: Transaction) -> None:
        loop.call_soon_threadsafe(began.set)
        if engine == "sqlite":
            assert go_on.wait(SOON)
        await add(tx, "finished")

    task = asyncio.create_task(store.write(unit))
    await began.wait()
    task.cancel()
    go_on.set()
    await outcomes(task)
    assert task.cancelled()
    await store.close()  # after what has begun
    again = await open_store()
    assert await texts(again) == ["finished"]
    await again.close()


async def test_closing_finishes_what_was_asked_for_and_refuses_the_rest(store: Database, open_store: OpenStore) -> None:
    pending = [asyncio.create_task(store.write(unit, "pending")) for unit in (add, add_merged) for _ in range(40)]
    await asyncio.sleep(0)
    first, second, *results = await outcomes(store.close(), store.close(), *pending)
    assert (first, second) == (None, None)
    written = [result for result in results if isinstance(result, Note)]
    assert all(isinstance(result, StoreClosed) for result in results if result not in written)
    with pytest.raises(StoreClosed):
        await store.write(add)
    with pytest.raises(StoreClosed):
        await store.get(Note, "n")
    again = await open_store()
    assert await texts(again) == ["pending"] * len(written)
    await again.close()
