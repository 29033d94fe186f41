from pathlib import Path

import pytest

from support.stores import make_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a store in it, under the name that a command takes when it is given none."""
    make_file(tmp_path / "stigmergy.db")
    return tmp_path
