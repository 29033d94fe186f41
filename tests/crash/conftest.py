import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.crash import Mortal, Mother
from support.crash_deliveries import LastingReceiver, MortalDeliveries
from support.crash_runs import MortalRuns
from support.postgres import PostgresServer
from support.stores import app_template

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
def notes_store(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> list[str]:
    """Where a store of notes is: a file, or the two URLs of a database."""
    return [str(tmp_path / "store.db")] if engine == "sqlite" else list(request.getfixturevalue("postgres_database"))


@pytest.fixture
def mortal(notes_store: list[str], tmp_path: Path, mother: Mother, seed: int) -> Iterator[Mortal]:
    with Mortal(mother, notes_store, tmp_path, seed=seed) as mortal:
        yield mortal


@pytest.fixture(scope="session")
def mother_of_deliverers() -> Iterator[Mother]:
    with Mother("support.crash_deliveries_child") as mother:
        yield mother


@pytest.fixture
def mortal_deliveries(
    notes_store: list[str], tmp_path: Path, mother_of_deliverers: Mother, seed: int
) -> Iterator[MortalDeliveries]:
    with (
        LastingReceiver() as receiver,
        MortalDeliveries(mother_of_deliverers, notes_store, tmp_path, seed=seed) as mortal,
    ):
        mortal.receiver = receiver
        yield mortal


@pytest.fixture(scope="session")
def mother_of_agents() -> Iterator[Mother]:
    with Mother("support.crash_runs_child") as mother:
        yield mother


@pytest.fixture
def program_store(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Where a program's store is: a file, or the two URLs of a database."""
    if engine == "sqlite":
        yield [str(tmp_path / "store.db")]
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database(server.template_ready("app", app_template))
    yield list(server.urls(name))
    server.drop_database(name)


@pytest.fixture
def mortal_runs(program_store: list[str], tmp_path: Path, mother_of_agents: Mother, seed: int) -> Iterator[MortalRuns]:
    with MortalRuns(mother_of_agents, program_store, tmp_path, seed=seed) as mortal:
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
