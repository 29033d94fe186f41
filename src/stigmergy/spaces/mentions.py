"""`@Name`: whom a message names. Pure.

A name counts where it stands alone: not inside a word (an address), not inside code. Of several names that begin alike the
longest is meant, whatever its case; `@id` names by id, and `@"A Name"` where the end of a name would not be clear.
"""

import re
from collections.abc import Sequence

from stigmergy.errors import Invalid
from stigmergy.spaces.model import MOST_MENTIONS, Member, Roster

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_AT = re.compile(r"(?<![\w@.+-])@(?=[\w\"])")
_WORD = re.compile(r"[\w.:-]*\w")
_QUOTED = re.compile(r'"([^"\n]{1,200})"')


class AmbiguousName(Invalid):
    """Two members have this name; the message says how to tell them apart."""

    code = "ambiguous_name"


class UnknownName(Invalid):
    """Nobody in the space has this name; the message names those who are there."""

    code = "unknown_name"


def find_mentions(content: str, roster: Roster) -> list[str]:
    """The ids of the entities that a text names, each once, in order. Refuses names that fit nobody, or more than one."""
    if "@" not in content:
        return []
    text = _CODE.sub(lambda code: " " * len(code[0]), content)
    found: dict[str, None] = {}
    for at in _AT.finditer(text):
        found[_named(text, at.end(), roster)] = None
    if len(found) > MOST_MENTIONS:
        raise Invalid(f"a message names at most {MOST_MENTIONS} entities, this one {len(found)}", "content")
    return list(found)


def _named(text: str, start: int, roster: Roster) -> str:
    quoted = _QUOTED.match(text, start)
    if quoted is not None:
        return _the_one(quoted[1], roster.by_name.get(quoted[1].casefold(), []), roster.members)
    rest = text[start : start + 250].casefold()
    for name in roster.names:
        if rest.startswith(name) and not re.match(r"\w", rest[len(name) : len(name) + 1]):
            return _the_one(name, roster.by_name[name], roster.members)
    word = _WORD.match(text, start)
    return _the_one(word[0] if word else text[start : start + 20], [], roster.members)


def _the_one(said: str, fitting: Sequence[Member], members: Sequence[Member]) -> str:
    if len(fitting) == 1:
        return fitting[0].id
    if fitting:
        choices = ", ".join(f"@{member.id} ({member.name})" for member in fitting)
        raise AmbiguousName(f"@{said} could be any of {choices}; name one by its id", "content")
    known = ", ".join(f"@{member.name}" for member in members[:20]) or "nobody"
    raise UnknownName(f"nobody here is called @{said}; here are {known}. Write a name that is none in `code`", "content")
