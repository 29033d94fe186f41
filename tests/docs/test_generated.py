"""Pages that are made from the code say what the code says now."""

import runpy

import pytest

from support.repository import ROOT

PAGES = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))["PAGES"]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    assert (ROOT / name).read_text() == PAGES[name](), "run `make fix`"
