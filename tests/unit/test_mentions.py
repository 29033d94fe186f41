"""Who is named by a text."""

import pytest

from stigmergy.errors import Invalid
from stigmergy.spaces.mentions import AmbiguousName, UnknownName, find_mentions
from stigmergy.spaces.model import MOST_MENTIONS, Member, Roster, Space

ROSTER = Roster(
    Space(id="s", owner_id="mia"),
    [
        Member("mia", "human", "Mia"),
        Member("agent:des", "agent", "Designer"),
        Member("agent:des2", "agent", "Designer Two"),
        Member("u-7", "human", "Åse Østby"),
        Member("t1", "human", "Tom"),
        Member("t2", "human", "tom"),
    ],
)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nobody", []),
        ("@Mia", ["mia"]),
        ("@MIA, and you (@designer)?", ["mia", "agent:des"]),
        ("@Designer Two: look", ["agent:des2"]),
        ("@Designer twofold", ["agent:des"]),
        ("@Designer-2", ["agent:des"]),
        ("hello @åse østby!", ["u-7"]),
        ('@"Designer Two"@mia', ["agent:des2", "mia"]),
        ('@"Designer" Two', ["agent:des"]),
        ("@agent:des2 and @u-7", ["agent:des2", "u-7"]),
        ("@Mia @mia @MIA", ["mia"]),
        ("write to mia@example.org or see a@Mia", []),
        ("`@nobody` and ```\n@nobody\n``` @Mia", ["mia"]),
        ("a bare @ or @@ or @, or @!", []),
        ("@t1", ["t1"]),
    ],
)
def test_names_are_found(text: str, named: list[str]) -> None:
    assert find_mentions(text, ROSTER) == named


@pytest.mark.parametrize("text", ["@nobody", "@Mi", "@Miau", '@"Mia "', "@Designers"])
def test_a_name_that_nobody_has_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(UnknownName, match="here are @Mia, @Designer"):
        find_mentions(text, ROSTER)


def test_a_name_that_two_have_is_refused_with_the_choices() -> None:
    with pytest.raises(AmbiguousName, match=r"@t1 \(Tom\), @t2 \(tom\)"):
        find_mentions("@tom?", ROSTER)


def test_a_message_does_not_name_a_crowd() -> None:
    crowd = Roster(Space(id="s", owner_id="mia"), [Member(f"e{n}", "human", f"E{n}") for n in range(100)])
    named = find_mentions(" ".join(f"@e{n}" for n in range(MOST_MENTIONS)), crowd)
    assert len(named) == MOST_MENTIONS
    with pytest.raises(Invalid, match="at most"):
        find_mentions(" ".join(f"@e{n}" for n in range(MOST_MENTIONS + 1)), crowd)
