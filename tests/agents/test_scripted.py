"""Models that need no provider: scripts in Python and in files."""

import json
from pathlib import Path

import pytest

from stigmergy.agents.models.named import named_model
from stigmergy.agents.models.port import Asked, Message, Reply, Request, Thinking
from stigmergy.agents.models.scripted import ScriptedModel
from stigmergy.errors import Invalid

RULES = """
[[rules]]
when = { last_role = "user", contains = "Price Of" }
call = [{ name = "price", arguments = { symbol = "{{ last[-3:] }}", deep = { of = ["{{ step }}"] } } }, { name = "news" }]
thinking = "I need the price."
confidence = 0.8

[[rules]]
when = { tool = "price" }
reply = "It is {{ last }} dollars; {{ results | length }} result for: {{ first_user }}"

[[rules]]
when = { matches = "^hel+o$" }
reply = "Hello  to\\nyou"

[[rules]]
when = { said = "always French", step = 1 }
reply = "Bonjour"
"""
USER = Message("user", "the price of BTC")


def script(folder: Path, text: str, name: str = "script.toml") -> str:
    (folder / name).write_text(text)
    return f"scripted:{folder / name}"


async def ask(name: str, *messages: Message, pieces: list[str] | None = None) -> Reply:
    return await named_model(name, {}).request(Request(name, messages), pieces.append if pieces is not None else None)


async def test_a_script_in_python_is_a_function_from_request_to_reply() -> None:
    model = ScriptedModel(lambda request: f"{len(request.messages)} messages")
    pieces: list[str] = []
    assert (await model.request(Request("mine", (USER,)), pieces.append)).text == "1 messages"
    assert pieces == ["1 ", "messages"]
    assert named_model("mine", {"mine": model}) is model


async def test_the_first_rule_that_fits_answers(tmp_path: Path) -> None:
    name = script(tmp_path, RULES)
    reply = await ask(name, USER)
    assert reply.tool_calls == (
        Asked("call_1_0", "price", '{"symbol": "BTC", "deep": {"of": ["1"]}}'),
        Asked("call_1_1", "news", "{}"),
    )
    assert reply.thinking == (Thinking("I need the price.", 0.8, "reported"),)
    told = await ask(
        name, USER, Message("assistant", "", tool_calls=reply.tool_calls), Message("tool", "60", tool_call_id="a", name="price")
    )
    assert told.text == "It is 60 dollars; 1 result for: the price of BTC"


async def test_rules_see_the_system_and_the_step(tmp_path: Path) -> None:
    name = script(tmp_path, RULES)
    french = Message("system", "Speak always French.")
    assert (await ask(name, french, Message("user", "Hi"))).text == "Bonjour"
    later = (french, Message("user", "Hi"), Message("assistant", "Bonjour"), Message("user", "Hi"))
    assert "no rule of" in (await ask(name, *later)).text


async def test_what_no_rule_fits_is_said(tmp_path: Path) -> None:
    assert (await ask(script(tmp_path, RULES), Message("user", "?"))).text.endswith("script.toml fits: ?")


async def test_the_pieces_of_an_answer_are_the_answer(tmp_path: Path) -> None:
    pieces: list[str] = []
    reply = await ask(script(tmp_path, RULES), Message("user", "hello"), pieces=pieces)
    assert pieces == ["Hello  ", "to\n", "you"]
    assert "".join(pieces) == reply.text


async def test_a_script_is_the_same_every_time(tmp_path: Path) -> None:
    name = script(tmp_path, RULES)
    assert await ask(name, USER) == await ask(name, USER)


async def test_json_is_a_script_too(tmp_path: Path) -> None:
    name = script(tmp_path, json.dumps({"rules": [{"reply": "ok"}]}), "script.json")
    assert (await ask(name, USER)).text == "ok"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rules = 3", r"`\$.rules`"),
        ("[[rules]]\nanswer = 'x'", r"`answer` - at `\$.rules\[0\]`"),
        ("[[rules]]\nwhen = { step = 'one' }", r"at `\$.rules\[0\].when.step`"),
        ("[[rules]]\nwhen = { matches = '(' }", r"rules\[0\]"),
        ("[[rules]]\n[[rules]]\nreply = '{{ last'", r"rules\[1\]"),
        ("[[rules]]\nreply = x", "line 2"),
    ],
)
def test_what_is_no_script_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        named_model(script(tmp_path, text), {})
    assert refused.value.where is not None
    assert refused.value.where.endswith("script.toml")


def test_a_script_that_is_not_there_is_an_unknown_model(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no such script"):
        named_model(f"scripted:{tmp_path / 'none.toml'}", {})


async def test_a_script_that_changed_is_read_again(tmp_path: Path) -> None:
    assert (await ask(script(tmp_path, "[[rules]]\nreply = 'one'"), USER)).text == "one"
    assert (await ask(script(tmp_path, "[[rules]]\nreply = 'other'"), USER)).text == "other"
