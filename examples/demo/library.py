"""The project's own documentation, as two tools: what a team of agents can look up without a network or a key."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from stigmergy import tool

DOCS = Path(__file__).parent.parent.parent / "docs"
LONGEST_EXCERPT = 200


class Section(NamedTuple):
    page: str
    heading: str
    text: str


@lru_cache(1)
def sections() -> list[Section]:
    return [section for page in sorted(DOCS.glob("*.md")) for section in _cut(page)]


def _cut(page: Path) -> Iterator[Section]:
    heading, lines = page.stem, list[str]()
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("#"):
            yield Section(page.name, heading, "\n".join(lines).strip())
            heading, lines = line.lstrip("# "), []
        elif page.stem == "glossary" and line.startswith("| "):
            _, word, meaning, _ = (part.strip() for part in line.split("|", 3))
            yield Section(page.name, word, f"{word.capitalize()}: {meaning}.")
        else:
            lines.append(line)
    yield Section(page.name, heading, "\n".join(lines).strip())


def words(text: str) -> list[str]:
    """What a question is about: its longer words, without their endings."""
    return [word.rstrip("s") for word in re.findall(r"[a-z_]{3,}", text.lower()) if word not in COMMON]


_COMMON = """the and for are was what when where which who how why does did can could will would should about with from
that this there their them they you your have has had not tell say show explain please mean work works know want like some any
hello hey"""
COMMON = frozenset(_COMMON.split())


@tool(repeatable=True, visibility="visible")
async def search_docs(query: str, limit: int = 3) -> list[dict[str, Any]]:
    """Find the sections of the documentation that speak of something, the best first."""
    wanted = words(query)
    scored = [(_score(section, wanted), section) for section in sections() if section.text]
    best = sorted((each for each in scored if each[0] > 0), key=lambda each: -each[0])[:limit]
    return [{"page": section.page, "heading": section.heading, "score": round(score, 2)} for score, section in best]


def _score(section: Section, wanted: list[str]) -> float:
    heading, text = words(section.heading), words(section.text)
    found = [3.0 * (word in heading) + min(text.count(word), 5) / 5 for word in wanted]
    return sum(found) / (len(found) or 1) + sum(each > 0 for each in found)


@tool(repeatable=True, visibility="result-only")
async def read_docs(page: str, heading: str) -> str:
    """Read one section of the documentation."""
    for section in sections():
        if (section.page, section.heading) == (page, heading):
            return section.text
    raise ValueError(f"there is no section {heading!r} in {page}; search_docs gives those that there are")


def excerpt(text: str) -> str:
    """The beginning of a section, as prose."""
    paragraphs = [each for each in text.split("\n\n") if not each.startswith(("|", "```", "<"))] or [text]
    plain = " ".join(re.sub(r"[`*]|\]\([^)]*\)|\[", "", paragraphs[0]).split())
    return plain if len(plain) <= LONGEST_EXCERPT else plain[:LONGEST_EXCERPT].rsplit(" ", 1)[0] + " …"
