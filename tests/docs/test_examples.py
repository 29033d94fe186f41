"""A fenced block that opens with "python run" is a whole program: it runs in an empty folder, and a warning fails it."""

import re
import subprocess
import sys

import pytest

from support.repository import ROOT, files

BLOCK = re.compile(r"^```python run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {
    f"{page.relative_to(ROOT)} {number}": program
    for page in files("*.md")
    for number, program in enumerate(BLOCK.findall(page.read_text()), 1)
}


@pytest.mark.parametrize("block", PROGRAMS)
def test_example_runs(block, tmp_path):
    command = [sys.executable, "-W", "error", "-c", PROGRAMS[block]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
