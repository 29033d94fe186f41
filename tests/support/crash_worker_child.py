"""A process that works on runs until it is killed, and does nothing else. As a program it is a mother, like `crash_child`."""

import asyncio
from pathlib import Path

from support.crash_child import Life, bear_children
from support.mortal_agents import program

# So that no worker takes all there is.
RUNS_AT_ONCE = 2
# Long enough that a busy machine does not look like a dead one.
LEASE_SECONDS = 0.5


async def work(life: Life) -> None:
    async with program(life.store, Path(life.answers), lease_seconds=LEASE_SECONDS, concurrent_runs=RUNS_AT_ONCE):
        await asyncio.Event().wait()


if __name__ == "__main__":
    bear_children(work)
