"""How a conversation looks in a terminal."""

from typing import Any

import pytest

from stigmergy.cli.chat_view import colour_of, shown_event, shown_message, shown_wait
from stigmergy.spaces.following import Event
from stigmergy.spaces.queries import Message

ABOUT: dict[str, Any] = {
    "id": "m1",
    "space_id": "s",
    "seq": 3,
    "role": "human",
    "author": "mia",
    "author_name": "Mia",
    "content": "hello",
    "version": 1,
    "created_at": 1_700_000_000_000,
    "updated_at": 1_700_000_000_000,
}


def shown(**fields: Any) -> str:
    return shown_message(Message(**(ABOUT | fields)), "tom").plain[6:]


def test_a_message_has_who_said_it_and_what() -> None:
    assert shown() == "Mia  hello"
    assert shown(author="tom") == "you  hello"
    assert shown(reply_to="m0", version=2) == "Mia ↩  hello (changed)"
    assert shown(deleted=True, content="") == "Mia  (taken back)"
    assert shown(content="one\ntwo") == "Mia  one\n      two"
    assert shown(role="system", content="ada could not finish") == "ada could not finish"


@pytest.mark.parametrize("text", ["\x1b[2Jgone", "\x1b]0;title\x07", "a\rb", "\x9b31m", "\u202edrawkcab"])
def test_what_others_write_cannot_move_or_colour_anything(text: str) -> None:
    line = shown(content=text, author_name=text)
    assert not set(line) & set("\x1b\x07\r\x9b\u202e")
    assert shown(content="[bold]x[/]") == "Mia  [bold]x[/]"


def test_the_use_of_a_tool_is_one_line() -> None:
    call = {"type": "call", "name": "price", "call_id": "c", "args": {"coin": "BTC", "n": [1]}}
    assert shown(role="tool", author_name="ada", metadata={"tool": call}) == "ada  ⚙ price(coin=BTC, n=[1])"
    result = {"type": "result", "name": "price", "call_id": "c", "status": "success", "result": "x" * 300}
    line = shown(role="tool", author_name="ada", metadata={"tool": result})
    assert line == f"ada  ✓ price → {'x' * 160} …"
    failed = {"type": "result", "name": "price", "call_id": "c", "status": "failed", "error": "no\nline"}
    assert shown(role="tool", author_name="ada", metadata={"tool": failed}) == "ada  ✗ price: no line"


def test_changes_and_who_comes_and_goes_are_told() -> None:
    names = {"mia": "Mia"}
    edited = Event(kind="message.updated", entity_id="mia", message=Message(**ABOUT))
    assert str(shown_event(edited, names, "tom")).strip() == "Mia changed it: hello (message 3)"
    assert str(shown_event(Event(kind="member.left", entity_id="mia"), names, "tom")).strip() == "Mia left"
    assert str(shown_event(Event(kind="member.joined", entity_id="tom"), names, "tom")).strip() == "you came in"
    assert shown_event(Event(kind="member.read", entity_id="mia"), names, "tom") is None


def test_a_question_says_how_it_is_answered() -> None:
    details = {"tool": "pay", "args": {"euros": 5}, "decisions": ["approve", "reject", "modify"]}
    asked = Event(kind="wait.opened", wait_kind="approval", question="May ada call pay?", details=details)
    assert str(shown_wait(2, asked)).splitlines()[0].strip() == "?2 May ada call pay?"
    assert "pay(euros=5)" in str(shown_wait(2, asked))
    assert "/approve, /reject" in str(shown_wait(2, asked))
    tool = Event(kind="wait.opened", wait_kind="tool", details={"tool": "pick", "args": {}})
    assert "/answer" in str(shown_wait(1, tool))
    assert shown_wait(1, Event(kind="wait.opened", wait_kind="reply", question="which?")) is None


def test_somebody_has_one_colour() -> None:
    assert colour_of("mia") == colour_of("mia")
    assert len({colour_of(f"entity {number}") for number in range(50)}) > 4
