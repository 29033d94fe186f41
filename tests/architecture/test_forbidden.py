"""What may be in no file of the repository, because it is true on one machine only."""

import re

import pytest

from support.repository import ROOT, files

FORBIDDEN = {
    "a path of one machine": r"(?<![\w.])/(work|opt/wheels|opt/pypi)/|/\.pyenv/|/Users/\w",
    "the address of a package registry": r"\bpypi\.org|pythonhosted\.org|npmjs\.(org|com)|yarnpkg\.com|deb\.debian\.org",
    "where packages come from": r"^\s*--(extra-)?index-url|^\s*--find-links",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what):
    pattern = re.compile(FORBIDDEN[what])
    found: list[str] = []
    for path in files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue  # not text
        found += [f"{path.relative_to(ROOT)}:{number}" for number, line in enumerate(lines, 1) if pattern.search(line)]
    assert not found
