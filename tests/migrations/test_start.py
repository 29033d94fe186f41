"""Processes that start at once on a new place: one makes the store, and all work."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.second_process import SecondProcess, opened
from support.units import whole_journal

PROCESSES = 3
ROUNDS = 8


@pytest.fixture(scope="module")
def processes() -> Iterator[list[SecondProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(SecondProcess("first")) for _ in range(PROCESSES)]


async def start_at_once(processes: list[SecondProcess], place: str, owner: str = "") -> None:
    moment = time.monotonic_ns() + 5_000_000
    for process in processes:
        process.tell(f"{moment} {place} {owner}")
    assert [process.answer() for process in processes] == ["done"] * PROCESSES
    store = await opened(place, owner)
    assert [change.seq for change in await whole_journal(store)] == list(range(1, PROCESSES + 1))
    await store.close()


async def test_processes_that_start_at_once_on_no_file_all_work(processes: list[SecondProcess], tmp_path: Path) -> None:
    for n in range(ROUNDS):
        await start_at_once(processes, str(tmp_path / f"{n}.db"))


@pytest.mark.postgres
async def test_processes_that_start_at_once_on_an_empty_database_all_work(
    processes: list[SecondProcess], postgres_server: PostgresServer
) -> None:
    for _ in range(ROUNDS):
        name = postgres_server.create_database()
        urls = postgres_server.urls(name)
        await start_at_once(processes, urls.app, urls.owner)
        postgres_server.drop_database(name)
