"""Another process on the same store: `python -m support.second_process ACTION [PLACE] [OWNER]`.

It says `ready` on its standard output, does one thing for each line that it reads, and answers with a line.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

from stigmergy.errors import StigmergyError
from stigmergy.kernel.database import Database
from stigmergy.kernel.opening import open_database
from support.notes import Note
from support.stores import SOURCES
from support.units import add, increment

NEWER = (*SOURCES, "support.newer")
PATIENCE = 60


async def opened(place: str, owner: str = "", sources: tuple[str, ...] = SOURCES, *, may_migrate: bool = True) -> Database:
    return await open_database(place, owner_place=owner or None, sources=sources, may_migrate=may_migrate)


async def lines() -> AsyncIterator[str]:
    """What is told, while everything else in the process goes on."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


async def stamp(store: Database) -> None:
    """For each line one note that says when it was written, by the clock that all processes of a machine share."""
    async for line in lines():
        written = await store.write(add, line.strip(), text=str(time.monotonic_ns()))
        print(written.seq, flush=True)


async def increments(store: Database) -> None:
    """For each line so many increments of the note `shared`, each in a unit of its own, four at a time."""

    async def some(count: int) -> None:
        for _ in range(count):
            await store.write(increment, "shared")

    async for line in lines():
        await asyncio.gather(*(some(int(line) // 4) for _ in range(4)))
        print("done", flush=True)


async def first(moments: AsyncIterator[str]) -> None:
    """For each line, a moment and a place: open the place in that moment and write one note there."""
    async for line in moments:
        moment, place, owner = line.rstrip("\n").split(" ")
        while time.monotonic_ns() < int(moment):
            pass
        try:
            store = await opened(place, owner)
            written = await store.write(add)
            assert await store.get(Note, written.id) == written
            await store.close()
            print("done", flush=True)
        except StigmergyError as error:
            print(repr(error), flush=True)


async def main(action: str, place: str = "", owner: str = "") -> None:
    if action == "first":
        print("ready", flush=True)
        return await first(lines())
    if action == "migrate":
        await (await opened(place, owner, NEWER)).close()
        print("ready", flush=True)
        return None
    store = await opened(place, owner)
    print("ready", flush=True)
    await {"stamp": stamp, "increments": increments}[action](store)
    await store.close()
    return None


class SecondProcess:
    """`with SecondProcess("stamp", path) as other: other.tell("n1"); other.answer()`."""

    def __init__(self, action: str, place: str | Path = "", owner: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.second_process", action, str(place), owner],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """The next line, or nothing when the process has ended. Blocks; the test's own time limit bounds it."""
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        assert self.answer() == "ready"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            code = self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.stdout.close()
        if kind is None:
            assert code == 0


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
