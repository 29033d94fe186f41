"""`kill -9` at any point of a run's life: every run ends, nothing of it is lost or doubled, and nothing is left behind."""

import os

import pytest

from stigmergy.runs.points import POINTS
from support.crash_runs import MortalRuns

KILLS = int(os.environ.get("STIGMERGY_KILLS") or 50)


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_a_labelled_point_leaves_runs_that_end_whole(mortal_runs: MortalRuns, point: str) -> None:
    mortal_runs.live_up_to(point, 1)
    mortal_runs.live_up_to(point, 2)
    await mortal_runs.check()


@pytest.mark.serial
async def test_kills_at_random_moments_leave_runs_that_end_whole(mortal_runs: MortalRuns) -> None:
    """Each second one is killed while it goes on with what the one before it began."""
    for _ in range(-(-KILLS // 4)):
        mortal_runs.live_a_while()
        mortal_runs.live_a_while()
        await mortal_runs.check()
    assert mortal_runs.answers
