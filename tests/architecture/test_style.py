"""The same checks as `make check`, so that a green test run means a clean tree."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import ROOT


@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "pyright", "lint-imports --no-logo --no-cache"])
def test_the_tree_is_clean_for(command):
    program, *arguments = command.split()
    done = subprocess.run([Path(sys.executable).with_name(program), *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
