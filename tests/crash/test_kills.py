"""`kill -9` at any point loses nothing that was acknowledged, doubles nothing and leaves nothing stuck."""

import os
from pathlib import Path

import pytest

from stigmergy.kernel.migrate import load
from support.crash import LATEST_PASSING, POINTS_OF_WRITING, Mortal, Mother
from support.postgres import PostgresServer
from support.stores import SOURCES

KILLS = int(os.environ.get("STIGMERGY_KILLS") or 50)
ROUNDS_OF_TWO = 6


@pytest.mark.parametrize("point", POINTS_OF_WRITING)
async def test_a_kill_at_a_labelled_point_loses_and_doubles_nothing(mortal: Mortal, point: str) -> None:
    for nth in (1, 2, LATEST_PASSING):
        mortal.live_up_to(point, nth)
        await mortal.check()


@pytest.mark.serial
async def test_kills_at_random_moments_lose_and_double_nothing(mortal: Mortal) -> None:
    for _ in range(KILLS // 2):
        mortal.live_a_while()
        await mortal.check()
    assert len(mortal.answers) > KILLS


@pytest.mark.serial
async def test_a_process_that_is_killed_does_not_disturb_another_on_the_same_file(two_on_one_file: tuple[Mortal, Mortal]) -> None:
    one, other = two_on_one_file
    await one.check()  # makes the file
    for _ in range(ROUNDS_OF_TWO):
        other.begin()
        one.live_a_while()  # and dies
        one.live_a_while()  # beside the one that lives on
        before = len(other.answers)
        other.kill()
        assert len(other.answers) > before
        await one.check(other)


async def test_a_kill_in_the_middle_of_a_migration_leaves_a_store_that_opens(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest, mother: Mother, seed: int
) -> None:
    if engine == "sqlite":
        store = [str(tmp_path / "store.db")]
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = list(server.urls(server.create_database()))
    with Mortal(mother, store, tmp_path, seed=seed) as mortal:
        for nth in range(1, len(load(SOURCES)) + 1):
            mortal.live_up_to("migration.applied", nth)
        await mortal.check()
        mortal.live_a_while()
        await mortal.check()
