import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.crash import Mortal, Mother

SEED = int(os.environ.get("STIGMERGY_SEED") or random.SystemRandom().randrange(1 << 32))


@pytest.fixture
def seed() -> int:
    print(f"again with STIGMERGY_SEED={SEED}")  # pytest shows it when the test fails
    return SEED


@pytest.fixture(scope="session")
def mother() -> Iterator[Mother]:
    with Mother() as mother:
        yield mother


@pytest.fixture
def mortal(engine: str, tmp_path: Path, request: pytest.FixtureRequest, mother: Mother, seed: int) -> Iterator[Mortal]:
    store = [str(tmp_path / "store.db")] if engine == "sqlite" else list(request.getfixturevalue("postgres_database"))
    with Mortal(mother, store, tmp_path, seed=seed) as mortal:
        yield mortal


@pytest.fixture
def two_on_one_file(tmp_path: Path, mother: Mother, seed: int) -> Iterator[tuple[Mortal, Mortal]]:
    store = [str(tmp_path / "store.db")]
    with (
        Mother() as another,
        Mortal(mother, store, tmp_path, seed=seed, name="one ") as one,
        Mortal(another, store, tmp_path, seed=seed, name="other ") as other,
    ):
        yield one, other
