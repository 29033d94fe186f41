"""Replies recorded once and played back."""

import asyncio
from pathlib import Path

import pytest

from stigmergy.agents.models.named import named_model
from stigmergy.agents.models.port import Asked, Message, ModelFailed, Reply, Request, Thinking, ToolShown
from stigmergy.agents.models.recorded import Recording, request_hash
from stigmergy.agents.models.scripted import ScriptedModel
from stigmergy.errors import Invalid

FULL = Reply("It  is\n60k.", (Asked("a", "price", "{"),), (Thinking("Hm.", 0.5, "reported"),), 11, 7, 4, 0.25, "tiny")


def request(text: str, model: str = "mine", **settings: object) -> Request:
    return Request(model, (Message("user", text),), (ToolShown("price", "", {"b": 1, "a": 2}),), dict(settings))


async def recorded(file: Path, *exchanges: tuple[str, Reply]) -> str:
    replies = dict(exchanges)
    recording = Recording(ScriptedModel(lambda request: replies[request.messages[-1].content]), file)
    for text in replies:
        assert await recording.request(request(text)) == replies[text]
    return f"recorded:{file}"


async def test_a_recording_answers_as_the_model_did(tmp_path: Path) -> None:
    name = await recorded(tmp_path / "deep" / "one.jsonl", ("a", FULL), ("b", Reply("two")))
    model = named_model(name, {})
    pieces: list[str] = []
    assert await model.request(request("a", name), pieces.append) == FULL
    assert pieces == ["It  ", "is\n", "60k."]
    assert await model.request(request("b", name)) == Reply("two")


async def test_what_was_never_asked_fails_and_says_what_to_do(tmp_path: Path) -> None:
    model = named_model(await recorded(tmp_path / "one.jsonl", ("a", FULL)), {})
    for other in (request("c"), request("a", temperature=1), Request("mine", (Message("user", "a"),))):
        with pytest.raises(ModelFailed, match="record it again") as failed:
            await model.request(other)
        assert not failed.value.retryable


async def test_the_last_recording_of_a_request_stands(tmp_path: Path) -> None:
    await recorded(tmp_path / "one.jsonl", ("a", FULL))
    name = await recorded(tmp_path / "one.jsonl", ("a", Reply("newer")))
    assert await named_model(name, {}).request(request("a")) == Reply("newer")


async def test_a_line_is_in_the_file_before_its_reply_is_handed_on(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    name = await recorded(file, ("a", FULL))
    assert len(file.read_bytes().splitlines()) == 1
    await recorded(file, ("b", FULL))
    assert await named_model(name, {}).request(request("b")) == FULL


async def test_recordings_at_once_do_not_mix(tmp_path: Path) -> None:
    recording = Recording(ScriptedModel(lambda request: request.messages[0].content * 1000), tmp_path / "one.jsonl")
    await asyncio.gather(*(recording.request(request(f"{n}")) for n in range(100)))
    model = named_model(f"recorded:{tmp_path / 'one.jsonl'}", {})
    for n in range(100):
        assert (await model.request(request(f"{n}"))).text == f"{n}" * 1000


def test_the_hash_is_of_what_was_asked_and_not_of_who(tmp_path: Path) -> None:
    assert request_hash(request("a", "one")) == request_hash(request("a", "two"))
    other = Request("mine", (Message("user", "a"),), (ToolShown("price", "", {"a": 2, "b": 1}),))
    assert request_hash(request("a")) == request_hash(other)
    assert request_hash(request("a")) != request_hash(request("b"))


async def test_a_line_that_is_no_reply_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    await recorded(file, ("a", FULL))
    with file.open("a") as open_file:
        open_file.write('\n{"request": "x"}\n')
    with pytest.raises(Invalid, match=r"one\.jsonl:3: this line is no recorded reply .*`reply`"):
        named_model(f"recorded:{file}", {})
    with pytest.raises(Invalid, match="there is no such recording"):
        named_model(f"recorded:{tmp_path / 'none.jsonl'}", {})
