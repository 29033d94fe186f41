"""What is listed in two places is the same in both."""

import re

from support.repository import ROOT, pyproject

FIRST_CELL = re.compile(r"^\| (?!word |package |---)([^|]+?) +\|", re.MULTILINE)


def rows(page: str) -> list[str]:
    return FIRST_CELL.findall((ROOT / "docs" / page).read_text())


def declared() -> set[str]:
    project = pyproject()["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values(), *pyproject()["dependency-groups"].values()]
    return {re.split(r"[\[<>=~! ]", requirement)[0] for group in groups for requirement in group}


def test_glossary_has_each_word_once_and_in_order():
    words = rows("glossary.md")
    assert words == sorted(set(words))


def test_each_dependency_has_a_reason():
    assert sorted(rows("decisions/dependencies.md")) == sorted(declared())


def test_each_dependency_is_locked():
    locked = re.findall(r"^([\w.-]+)(?:\[.*?\])?==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert declared() <= set(locked), "run: make lock"


def test_each_make_target_is_explained():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pages = (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / "README.md").read_text()
    assert targets
    assert not [target for target in targets if f"make {target}" not in pages]
