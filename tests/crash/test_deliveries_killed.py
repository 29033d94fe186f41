"""`kill -9` between any two steps of a delivery loses none, hands none over out of order, and leaves none behind."""

import os

import pytest

from stigmergy.triggers.deliverer import POINTS
from support.crash_deliveries import MortalDeliveries

KILLS = int(os.environ.get("STIGMERGY_KILLS") or 50)


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_between_two_steps_of_a_delivery_loses_none(mortal_deliveries: MortalDeliveries, point: str) -> None:
    await mortal_deliveries.prepare()
    mortal_deliveries.live_up_to(point, 1)
    mortal_deliveries.live_up_to(point, mortal_deliveries.latest_passing)
    await mortal_deliveries.check()


@pytest.mark.serial
async def test_kills_at_random_moments_lose_no_delivery(mortal_deliveries: MortalDeliveries) -> None:
    await mortal_deliveries.prepare()
    for _ in range(KILLS // 10):
        mortal_deliveries.live_and_die_somehow()
        mortal_deliveries.live_a_while()
        await mortal_deliveries.check()
    assert len(mortal_deliveries.answers) > KILLS
