"""The providers that have protocols of their own, against a real HTTP server: what one step says, the next gives back."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from stigmergy.agents.models.named import named_model
from stigmergy.agents.models.port import Asked, Message, ModelFailed, Reply, Request, Thinking, ToolShown
from stigmergy.agents.models.providers import close_models
from support.model_server import Answer, ModelServer, refused

PRICE = ToolShown("price", "The price of a coin.", {"type": "object", "properties": {"symbol": {"type": "string"}}})
QUESTION = (Message("system", "Be brief."), Message("user", "What is it worth?"))
CALLED = Asked("call_1", "price", '{"symbol":"BTC"}')

CLAUDE = "anthropic:claude-haiku-5-5"
GPT = "openai:gpt-5-mini"
GEMINI = "google:gemini-2.5-flash"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        base = server.url.removesuffix("/v1")
        for name, value in {
            "ANTHROPIC_API_KEY": "key a",
            "ANTHROPIC_BASE_URL": base,
            "OPENAI_API_KEY": "key o",
            "OPENAI_BASE_URL": server.url,
            "GOOGLE_API_KEY": "key g",
            "GOOGLE_GEMINI_BASE_URL": base,
        }.items():
            monkeypatch.setenv(name, value)
        yield server
        await close_models()


async def ask(model: str, *messages: Message, pieces: list[str] | None = None, **settings: object) -> Reply:
    heard = [] if pieces is None else pieces
    return await named_model(model, {}).request(Request(model, messages, (PRICE,), dict(settings)), heard.append)


def next_step(reply: Reply) -> tuple[Message, ...]:
    """What the engine sends after the call was made. Kept things have been through the store."""
    kept = msgspec.json.decode(msgspec.json.encode(reply.kept)) if reply.kept is not None else None
    said = Message("assistant", reply.text, tool_calls=reply.tool_calls, kept=kept)
    return (*QUESTION, said, Message("tool", "60000", tool_call_id=reply.tool_calls[0].id, name="price"))


def claude(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], stop: str | None = "tool_use") -> Answer:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-x", "content": [], "stop_reason": None}
    usage = {"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "stop_sequence": None, "usage": usage}}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if stop:
        events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}})
        events.append({"type": "message_stop"})
    return Answer(chunks=events, done=False)


THOUGHT = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [{"type": "thinking_delta", "thinking": "I look."}, {"type": "signature_delta", "signature": "c2ln"}],
)
WORDS = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "One "}, {"type": "text_delta", "text": "moment."}])
USE = (
    {"type": "tool_use", "id": "call_1", "name": "price", "input": {}},
    [{"type": "input_json_delta", "partial_json": '{"symbol":'}, {"type": "input_json_delta", "partial_json": '"BTC"}'}],
)


async def test_anthropic_gets_its_signed_thoughts_back(server: ModelServer) -> None:
    server.answers += [claude(THOUGHT, WORDS, USE), claude(WORDS, stop="end_turn")]
    thinking = {"thinking": True, "max_tokens": 4096}
    pieces: list[str] = []
    reply = await ask(CLAUDE, *QUESTION, pieces=pieces, **thinking)
    assert (reply.text, reply.tool_calls, reply.thinking) == ("One moment.", (CALLED,), (Thinking("I look."),))
    assert "".join(pieces) == reply.text
    assert (reply.input_tokens, reply.output_tokens, reply.cached_tokens) == (15, 7, 4)
    assert reply.cost is None  # of claude-x nobody knows the price

    await ask(CLAUDE, *next_step(reply), **thinking)
    sent = server.asked[1]
    assert sent["path"] == "/v1/messages"
    assert server.headers[1]["authorization"] == "Bearer key a"
    said, result = sent["messages"][1:]
    assert [block["type"] for block in said["content"]] == ["thinking", "text", "tool_use"]
    assert said["content"][0]["signature"] == "c2ln"
    assert said["content"][2]["input"] == {"symbol": "BTC"}
    assert (result["content"][0]["type"], result["content"][0]["tool_use_id"]) == ("tool_result", "call_1")


async def test_remarks_after_the_conversation_reach_a_provider_that_takes_one_system_prompt(server: ModelServer) -> None:
    server.answers.append(claude(WORDS, stop="end_turn"))
    await ask(CLAUDE, *QUESTION, Message("system", "You have two steps left."))
    assert "two steps left" in json.dumps(server.asked[0]["messages"])
    assert "Be brief." in json.dumps(server.asked[0]["system"])


async def test_an_anthropic_stream_that_was_cut_is_no_answer(server: ModelServer) -> None:
    server.answers.append(claude(WORDS, stop=None))
    with pytest.raises(ModelFailed, match="cut off") as failed:
        await ask(CLAUDE, *QUESTION)
    assert failed.value.retryable


async def test_anthropic_is_asked_once_and_says_when_to_come_back(server: ModelServer) -> None:
    server.answers.append(refused(529, "Overloaded", retry_after="3"))
    with pytest.raises(ModelFailed, match="is not available now: Overloaded") as failed:
        await ask(CLAUDE, *QUESTION)
    assert (failed.value.retryable, failed.value.retry_after) == (True, 3.0)
    assert len(server.asked) == 1


def gpt(output: list[dict[str, Any]], *, ended: bool = True) -> Answer:
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-mini",
        "output": [],
        "status": "in_progress",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    events: list[dict[str, Any]] = [{"type": "response.created", "response": response}]
    for index, item in enumerate(output):
        events.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    usage = {
        "input_tokens": 11,
        "output_tokens": 7,
        "total_tokens": 18,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    if ended:
        done = {**response, "status": "completed", "output": output, "usage": usage}
        events.append({"type": "response.completed", "response": done})
    return Answer(chunks=[{**event, "sequence_number": n} for n, event in enumerate(events)], done=False)


REASONED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"}
FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "price", "arguments": '{"symbol":"BTC"}'}


async def test_openai_gets_its_encrypted_thoughts_back(server: ModelServer) -> None:
    server.answers += [gpt([REASONED, {**FUNCTION, "status": "completed"}]), gpt([])]
    reply = await ask(GPT, *QUESTION)
    assert [call.name for call in reply.tool_calls] == ["price"]
    assert (reply.input_tokens, reply.output_tokens, reply.cached_tokens) == (11, 7, 4)
    assert reply.cost is not None
    assert 0 < reply.cost < 0.001
    await ask(GPT, *next_step(reply))
    sent = server.asked[1]
    assert sent["path"] == "/v1/responses"
    assert server.headers[1]["authorization"] == "Bearer key o"
    kinds = [item.get("type", item.get("role")) for item in sent["input"]]
    assert kinds[-3:] == ["reasoning", "function_call", "function_call_output"]
    assert sent["input"][-3]["encrypted_content"] == "ZW5j"


async def test_an_openai_stream_that_was_cut_is_no_answer(server: ModelServer) -> None:
    server.answers.append(gpt([FUNCTION], ended=False))
    with pytest.raises(ModelFailed) as failed:
        await ask(GPT, *QUESTION)
    assert failed.value.retryable


def gemini(*parts: dict[str, Any], finish: str | None = "STOP") -> Answer:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
    ends = {"finishReason": finish} if finish else {}
    return Answer(chunks=[{"candidates": [{**candidate, **ends}], "usageMetadata": usage, "modelVersion": "g"}], done=False)


async def test_google_gets_its_signatures_back(server: ModelServer) -> None:
    call = {"functionCall": {"id": "call_1", "name": "price", "args": {"symbol": "BTC"}}, "thoughtSignature": "c2ln"}
    server.answers += [gemini({"text": "I look.", "thought": True}, call), gemini({"text": "60k"})]
    reply = await ask(GEMINI, *QUESTION)
    assert (reply.tool_calls, reply.thinking) == ((CALLED,), (Thinking("I look."),))
    assert (reply.input_tokens, reply.output_tokens) == (11, 7)
    assert (await ask(GEMINI, *next_step(reply))).text == "60k"
    sent = server.asked[1]
    assert "gemini-2.5-flash" in sent["path"]
    assert server.headers[1]["x-goog-api-key"] == "key g"
    assert "c2ln" in json.dumps(sent["contents"][1])


async def test_a_google_stream_that_was_cut_is_no_answer(server: ModelServer) -> None:
    server.answers.append(gemini({"text": "60"}, finish=None))
    with pytest.raises(ModelFailed, match="cut off") as failed:
        await ask(GEMINI, *QUESTION)
    assert failed.value.retryable


async def test_google_is_asked_once(server: ModelServer) -> None:
    server.answers.append(refused(503, "overloaded"))
    with pytest.raises(ModelFailed, match="overloaded") as failed:
        await ask(GEMINI, *QUESTION)
    assert failed.value.retryable
    assert len(server.asked) == 1


async def test_what_was_kept_with_another_message_is_not_sent(server: ModelServer) -> None:
    server.answers += [claude(THOUGHT, WORDS, USE), claude(WORDS, stop="end_turn")]
    reply = await ask(CLAUDE, *QUESTION)
    changed = msgspec.structs.replace(reply, text="Something else.")
    await ask(CLAUDE, *next_step(changed))
    assert [block["type"] for block in server.asked[1]["messages"][1]["content"]] == ["text", "tool_use"]


@pytest.mark.parametrize(
    ("model", "variable"),
    [(CLAUDE, "ANTHROPIC_API_KEY"), (GEMINI, "GOOGLE_API_KEY"), ("openrouter:x/y", "OPENROUTER_API_KEY")],
)
async def test_a_missing_key_names_its_variable(model: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelFailed, match=f"set {variable} in the worker's environment") as failed:
        await ask(model, *QUESTION)
    assert not failed.value.retryable
    await close_models()
