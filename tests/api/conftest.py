from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server import SECRET, Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that is open to whoever is on this machine."""
    with Server(tmp_path / "store.db") as server:
        yield server


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Server]:
    """A server that asks for tokens."""
    with Server(tmp_path / "store.db", secret=SECRET) as server:
        yield server


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for many tests that leave nothing behind."""
    with Server(tmp_path_factory.mktemp("open") / "store.db") as server:
        yield server
