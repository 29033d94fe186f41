"""Workers on one store: each run is one worker's at a time. One that dies or stands still loses its runs to another, and nothing
that it writes later is taken."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from stigmergy import App
from stigmergy.runs.model import ENDED, Run
from support.crash import Mother
from support.crash_child import Life
from support.crash_worker_child import LEASE_SECONDS, RUNS_AT_ONCE
from support.mortal_agents import TWO, program
from support.run_check import check_all_ended, check_done_once, left_of, workers

PATIENCE = 30
# What a busy machine adds to the lease and the second that a take-over may last; `bench/runs.py` measures without.
MARGIN_SECONDS = 1.0

pytestmark = pytest.mark.serial


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Mother]:
    with Mother("support.crash_worker_child") as mother:
        try:
            yield mother
        finally:
            mother.kill()


@pytest.fixture
def done_once(tmp_path: Path) -> Path:
    return tmp_path / "done once"


async def until(app: App, holds: Callable[[], Awaitable[bool]]) -> float:
    """Wait until it holds; how long it took."""
    began = time.monotonic()
    while not await holds():
        took = time.monotonic() - began
        assert took < PATIENCE, (await left_of(app.database), await workers(app.database))
        await asyncio.sleep(0.005)
    return time.monotonic() - began


async def run_of(app: App, id: str) -> Run:
    return (await app.runs.get(id)).run


async def goes_on(app: App, id: str) -> float:
    """Wait until a run has made another step, or its last one."""
    before = (await run_of(app, id)).step

    async def further() -> bool:
        run = await run_of(app, id)
        return run.step > before or run.status in ENDED

    return await until(app, further)


async def ends(app: App, id: str) -> None:
    async def over() -> bool:
        return (await run_of(app, id)).status in ENDED

    await until(app, over)


async def check(app: App, done_once: Path) -> None:
    """Whole, at rest, and no call made twice. A worker that was stopped before a tool may still make its call, late."""
    lines = [line.removeprefix(TWO) for line in lines_of(done_once)]
    check_done_once((await check_all_ended(app.database))["main"], lines, ("alone",))


def lines_of(done_once: Path) -> list[str]:
    return done_once.read_text().splitlines()


async def test_a_killed_workers_run_goes_on_elsewhere_after_its_lease(
    program_store: list[str], other: Mother, done_once: Path
) -> None:
    async with program(program_store, done_once, work=False) as asking:
        other.bear(Life("other", program_store, str(done_once), 0))
        run = await asking.runs.start("walker", "300")
        await goes_on(asking, run.id)
        async with program(program_store, done_once, lease_seconds=LEASE_SECONDS) as taking:
            await asyncio.sleep(LEASE_SECONDS / 2)
            other.kill()
            other.bury()
            took = await goes_on(asking, run.id)
            assert took < LEASE_SECONDS + 1 + MARGIN_SECONDS
            await taking.runs.cancel(run.id)
        assert (await run_of(asking, run.id)).attempts == 2
        await check(asking, done_once)


@pytest.mark.parametrize("point", ["model.answered", "step.written", "tool.done"])
async def test_a_worker_that_stood_still_past_its_lease_writes_nothing_more(
    program_store: list[str], other: Mother, done_once: Path, point: str
) -> None:
    async with program(program_store, done_once, work=False) as asking:
        other.bear(Life("other", program_store, str(done_once), 0, point, 1, signal.SIGSTOP))
        run = await asking.runs.start("walker", "60")

        async def still() -> bool:
            return other.stands_still

        await until(asking, still)
        (frozen,) = await workers(asking.database)
        async with program(program_store, done_once, lease_seconds=LEASE_SECONDS):
            await goes_on(asking, run.id)
            other.signal(signal.SIGCONT)  # in the middle of what the other does with its run

            async def anew() -> bool:
                now = await workers(asking.database)
                return len(now) == 2 and frozen not in now

            await until(asking, anew)
            await goes_on(asking, run.id)
        # whoever stood still works again, under a new name: now it is the only one
        await ends(asking, run.id)
        assert (await run_of(asking, run.id)).status == "completed"
        await check(asking, done_once)


async def test_each_run_is_one_workers_at_a_time(program_store: list[str], other: Mother, done_once: Path) -> None:
    async with program(program_store, done_once, lease_seconds=LEASE_SECONDS, concurrent_runs=RUNS_AT_ONCE) as app:
        other.bear(Life("other", program_store, str(done_once), 0))
        runs = [await app.runs.start("walker", "5") for _ in range(24)]
        for run in runs:
            await ends(app, run.id)
        await check(app, done_once)
        assert not [line for line in lines_of(done_once) if line.startswith(TWO)]
        by = {call.result for run in runs for call in await app.runs.calls(run.id)}
        assert len(by) == 2
