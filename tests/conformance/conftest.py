from collections.abc import Iterator
from pathlib import Path

import pytest

from stigmergy.settings import Settings
from support.postgres import PostgresServer
from support.stores import app_template


@pytest.fixture
def settings(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """For an `App` with a store of the test's own."""
    if engine == "sqlite":
        yield Settings(store=str(tmp_path / "app.db"))
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database(server.template_ready("app", app_template))
    urls = server.urls(name)
    yield Settings(store=urls.app, owner_store=urls.owner)
    server.drop_database(name)
