"""What CEL's own cases come to here is what `docs/conditions.md` says: neither more of them fail, nor fewer."""

import pytest

from support.cel_cases import REFUSED, answers, cases, of_conditions, of_the_library, questions, refusals
from support.repository import ROOT

PAGE = (ROOT / "docs" / "conditions.md").read_text()


def block(title: str) -> str:
    """What stands under a heading of the page, after its first paragraph."""
    section = PAGE.split(f"### {title}\n", 1)[1].split("\n#", 1)[0].strip()
    return section.split("\n\n", 1)[1]


def test_the_cases_are_all_there() -> None:
    assert (len(cases()), len(list(questions()))) == (1_052, 898)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_library_fails_those_cases_that_the_page_lists_and_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    assert block("What the library answers otherwise") == answers(of_the_library())
    capfd.readouterr()  # where it panics it says so


def test_conditions_refuse_those_cases_that_the_page_lists_and_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    refused = [each for each in of_conditions() if each.got == REFUSED]
    assert block("What conditions refuse") == refusals(refused)


def test_conditions_answer_those_cases_otherwise_that_the_page_lists_and_no_other() -> None:
    others = [each for each in of_conditions() if each.got != REFUSED]
    assert block("What conditions answer otherwise") == answers(others)
