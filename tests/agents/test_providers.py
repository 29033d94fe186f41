"""Models over OpenAI's protocol, against a real HTTP server: what is sent, what is understood, what each failure becomes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.models import known_model_names
from pydantic_ai.providers import infer_provider_class

from stigmergy.agents.models.compatible import compatible_server
from stigmergy.agents.models.named import named_model
from stigmergy.agents.models.port import Asked, Image, Message, ModelFailed, Reply, Request, Thinking, ToolShown
from stigmergy.agents.models.providers import KNOWN, close_models
from stigmergy.errors import Invalid
from support.model_server import Answer, ModelServer, call, chunk, refused, streamed, whole

PRICE = ToolShown("price", "The price of a coin.", {"type": "object", "properties": {"symbol": {"type": "string"}}})
QUESTION = (Message("system", "Be brief."), Message("user", "What is it worth?"))


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server
        await close_models()


async def ask(server: ModelServer, *messages: Message, pieces: list[str] | None = None, **settings: object) -> Reply:
    asked = Request(server.model, messages or QUESTION, (PRICE,), dict(settings))
    return await named_model(server.model, {}).request(asked, pieces.append if pieces is not None else None)


async def test_text_comes_in_pieces_and_whole(server: ModelServer) -> None:
    server.answers.append(streamed([{"role": "assistant", "content": "It is "}, {"content": "60"}, {"content": "k."}]))
    pieces: list[str] = []
    reply = await ask(server, pieces=pieces)
    assert pieces == ["It is ", "60", "k."]
    assert reply == Reply(text="It is 60k.", input_tokens=11, output_tokens=7, cached_tokens=4, model="tiny")
    sent = server.asked[0]
    assert (sent["path"], sent["model"], sent["stream"]) == ("/v1/chat/completions", "tiny", True)
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is it worth?"}]
    assert sent["tools"][0]["function"]["name"] == "price"
    assert sent["tools"][0]["function"]["parameters"]["properties"] == {"symbol": {"type": "string"}}


async def test_without_a_listener_it_is_one_answer(server: ModelServer) -> None:
    server.answers.append(whole({"content": "60k", "reasoning_content": "I know it."}))
    reply = await ask(server)
    assert (reply.text, reply.thinking) == ("60k", (Thinking("I know it."),))
    assert not server.asked[0].get("stream")


async def test_parallel_tool_calls_keep_their_order_and_their_ids(server: ModelServer) -> None:
    deltas = [call(0, "a", "price", '{"sym'), call(1, "b", "price", ""), call(0, None, None, 'bol":"BTC"}')]
    server.answers.append(streamed([*deltas, call(1, None, None, '{"symbol": "ETH"}')], finish="tool_calls"))
    reply = await ask(server, pieces=[])
    assert reply.tool_calls == (Asked("a", "price", '{"symbol":"BTC"}'), Asked("b", "price", '{"symbol": "ETH"}'))


async def test_arguments_that_are_no_json_are_handed_on_as_they_are(server: ModelServer) -> None:
    server.answers += [streamed([call(0, "a", "price", '{"symbol": BTC')], finish="tool_calls") for _ in range(2)]
    reply = await ask(server, pieces=[])
    assert reply.tool_calls == (Asked("a", "price", '{"symbol": BTC'),)
    # and the model can be shown what it wrote, beside the error that came of it
    again = (Message("assistant", "", tool_calls=reply.tool_calls), Message("tool", "no JSON", tool_call_id="a", name="price"))
    await ask(server, *QUESTION, *again, pieces=[])
    shown = server.asked[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert "BTC" in json.dumps(json.loads(shown))


async def test_thinking_is_apart_from_the_text(server: ModelServer) -> None:
    deltas = [{"reasoning_content": "Let me "}, {"reasoning_content": "see."}, {"content": "60k"}]
    server.answers.append(streamed(deltas))
    pieces: list[str] = []
    reply = await ask(server, pieces=pieces)
    assert (reply.text, reply.thinking, pieces) == ("60k", (Thinking("Let me see."),), ["60k"])


async def test_the_probability_of_the_answer_is_a_confidence(server: ModelServer) -> None:
    answer = streamed([{"content": "60k"}])
    assert answer.chunks is not None
    answer.chunks[0]["choices"][0]["logprobs"] = {
        "content": [{"token": "60k", "logprob": -0.6931471805599453, "top_logprobs": []}]
    }
    server.answers.append(answer)
    reply = await ask(server, pieces=[], openai_logprobs=True)
    [thought] = reply.thinking
    assert (thought.text, thought.source) == ("", "logprob")
    assert thought.confidence == pytest.approx(0.5)
    assert server.asked[0]["logprobs"] is True


async def test_a_conversation_is_sent_in_its_order(server: ModelServer) -> None:
    server.answers.append(streamed([{"content": "ok"}]))
    picture = Image("image/png", b"\x89PNG\r\n\x1a\n")
    calls = (Asked("a", "price", '{"symbol":"BTC"}'), Asked("b", "price", '{"symbol":"ETH"}'))
    await ask(
        server,
        Message("system", "Be brief."),
        Message("user", "And this?", images=(picture,)),
        Message("assistant", "I look.", tool_calls=calls),
        Message("tool", "60000", tool_call_id="a", name="price"),
        Message("tool", "3000", tool_call_id="b", name="price"),
        Message("user", "Go on."),
        pieces=[],
        temperature=0.5,
    )
    sent = server.asked[0]
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]
    text, image = sent["messages"][1]["content"]
    assert (text["text"], image["image_url"]["url"][:22]) == ("And this?", "data:image/png;base64,")
    assert [each["id"] for each in sent["messages"][2]["tool_calls"]] == ["a", "b"]
    assert [(each["tool_call_id"], each["content"]) for each in sent["messages"][3:5]] == [("a", "60000"), ("b", "3000")]
    assert sent["temperature"] == 0.5


async def test_too_many_requests_say_when_to_come_back_and_are_not_repeated_here(server: ModelServer) -> None:
    server.answers += [refused(429, "slow down", retry_after="7"), refused(429, "slow down", retry_after="0.5")]
    for pieces, seconds in ((None, 7.0), ([], 0.5)):
        with pytest.raises(ModelFailed, match="is asked too often: slow down") as failed:
            await ask(server, pieces=pieces)
        assert (failed.value.retryable, failed.value.retry_after) == (True, seconds)
    assert len(server.asked) == 2


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529, 408])
async def test_what_fails_on_their_side_can_be_tried_again(server: ModelServer, status: int) -> None:
    server.answers.append(refused(status, "oh"))
    with pytest.raises(ModelFailed, match="oh") as failed:
        await ask(server, pieces=[])
    assert failed.value.retryable
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (400, "rejected the request"),
        (401, "refused the key"),
        (403, "key"),
        (404, "was not found"),
        (402, "quota"),
        (422, "rejected"),
    ],
)
async def test_what_is_wrong_with_the_request_is_not_tried_again(server: ModelServer, status: int, says: str) -> None:
    server.answers.append(refused(status, "no", retry_after="3"))
    with pytest.raises(ModelFailed, match=says) as failed:
        await ask(server, pieces=[])
    assert (failed.value.retryable, failed.value.retry_after) == (False, None)


async def test_a_quota_that_is_used_up_is_not_waited_for(server: ModelServer) -> None:
    server.answers.append(
        Answer(status=429, body={"error": {"message": "pay", "code": "insufficient_quota", "type": "insufficient_quota"}})
    )
    with pytest.raises(ModelFailed, match="quota is used up: pay") as failed:
        await ask(server)
    assert not failed.value.retryable


async def test_a_prompt_that_is_too_long_says_what_to_lower(server: ModelServer) -> None:
    server.answers.append(Answer(status=400, body={"error": {"message": "too long", "code": "context_length_exceeded"}}))
    with pytest.raises(ModelFailed, match="history_tokens") as failed:
        await ask(server)
    assert not failed.value.retryable


@pytest.mark.parametrize(
    "answer",
    [
        streamed([{"content": "It is "}], finish=None, broken=True),
        streamed([{"content": "It is "}], finish=None, done=False),
        streamed([{"content": "It is "}], finish=None),
        streamed([call(0, "a", "price", '{"symbol":')], finish=None, broken=True),
    ],
    ids=["connection broken", "quiet end", "no reason for the end", "within a call"],
)
async def test_a_cut_stream_is_no_answer(server: ModelServer, answer: Answer) -> None:
    server.answers.append(answer)
    with pytest.raises(ModelFailed) as failed:
        await ask(server, pieces=[])
    assert failed.value.retryable


async def test_an_error_within_the_stream_is_the_error_it_is(server: ModelServer) -> None:
    server.answers.append(Answer(chunks=[chunk({"content": "It "}), {"error": {"message": "overloaded", "code": 503}}]))
    with pytest.raises(ModelFailed, match="overloaded") as failed:
        await ask(server, pieces=[])
    assert failed.value.retryable


@pytest.mark.parametrize("answer", [Answer(body=b"<html>"), Answer(body={"choices": "?"}), Answer(chunks=["{no json"])])
async def test_an_answer_that_is_no_answer_can_be_tried_again(server: ModelServer, answer: Answer) -> None:
    server.answers.append(answer)
    with pytest.raises(ModelFailed, match="cannot be understood") as failed:
        await ask(server, pieces=[] if answer.chunks else None)
    assert failed.value.retryable


async def test_a_slow_answer_ends_at_the_time_that_was_set(server: ModelServer) -> None:
    server.answers += [streamed([{"content": "late"}], after=20) for _ in range(2)]
    for settings in ({"timeout": 0.2}, {"request_timeout": 0.2}):
        with pytest.raises(ModelFailed, match="did not answer in time") as failed:
            await ask(server, pieces=[], **settings)
        assert failed.value.retryable


async def test_who_stops_listening_hangs_up(server: ModelServer) -> None:
    server.answers.append(streamed([{"content": "late"}], after=20))
    asking = asyncio.create_task(ask(server, pieces=[]))
    await asyncio.wait_for(server.waited_for.wait(), 10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(server.hung_up.wait(), 10)


async def test_a_server_that_is_not_there_can_be_tried_again() -> None:
    async with ModelServer() as server:
        pass
    with pytest.raises(ModelFailed, match="could not be reached") as failed:
        await ask(server)
    await close_models()
    assert failed.value.retryable


async def test_many_ask_one_model_over_the_same_connections(server: ModelServer) -> None:
    server.answers += [streamed([{"content": "ok"}]) for _ in range(20)]
    replies = await asyncio.gather(*(ask(server, pieces=[]) for _ in range(20)))
    assert {reply.text for reply in replies} == {"ok"}


async def test_a_closed_model_opens_again(server: ModelServer) -> None:
    server.answers += [streamed([{"content": "ok"}]) for _ in range(2)]
    await ask(server, pieces=[])
    await close_models()
    assert (await ask(server, pieces=[])).text == "ok"


async def test_the_key_of_a_server_is_that_of_its_host(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not for them")
    monkeypatch.setenv("STIGMERGY_KEY_127_0_0_1", "for them")
    server.answers.append(streamed([{"content": "ok"}]))
    await ask(server, pieces=[])
    assert server.headers[0]["authorization"] == "Bearer for them"


async def test_without_its_key_a_server_gets_no_other(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not for them")
    server.answers.append(streamed([{"content": "ok"}]))
    await ask(server, pieces=[])
    assert "not for them" not in server.headers[0].get("authorization", "")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt-5-mini", "there is no model 'gpt-5-mini'"),
        ("opnai:gpt-5-mini", "there is no model 'opnai:gpt-5-mini'"),
        ("openai:", "there is no model"),
        ("openai-compatible:tiny", "write openai-compatible:MODEL@https://host/v1"),
        ("openai-compatible:@http://localhost", "write openai-compatible"),
        ("openai-compatible:tiny@ftp://localhost", "write openai-compatible"),
        ("openai-compatible:tiny@http://-host-/v1", "write openai-compatible"),
        ("openai-compatible:tiny@http://localhost:none/v1", "is no URL"),
        ("openai-compatible:tiny@https://me:secret@localhost/v1", "keys belong in the environment"),
        ("openai-compatible:tiny@https://localhost/v1?key=1", "keys belong in the environment"),
    ],
)
def test_a_name_that_means_nothing_is_refused_at_once(name: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        named_model(name, {})
    assert refused.value.code == "unknown_model"


def test_a_key_is_not_sent_over_the_net_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STIGMERGY_KEY_MODELS_EXAMPLE", "secret")
    with pytest.raises(Invalid, match="without TLS"):
        named_model("openai-compatible:tiny@http://models.example/v1", {})
    named_model("openai-compatible:tiny@https://models.example/v1", {})


@given(st.tuples(*[st.from_regex(r"[a-z0-9](-{1,2}[a-z0-9]|\.[a-z0-9]){0,4}", fullmatch=True)] * 2))
def test_no_two_hosts_share_a_key(hosts: tuple[str, str]) -> None:
    one, other = (compatible_server(f"openai-compatible:m@https://{host}/v1").key_variable for host in hosts)
    assert (one == other) == (hosts[0] == hosts[1])


def test_every_provider_for_conversations_is_known_without_an_import() -> None:
    """Of what pydantic-ai infers from names; the rest embeds, decides or tests."""
    others = {"test", "sentence-transformers", "voyageai", "elevenlabs", "openai-decisions", "system-one", "typesafe"}
    named = {name.partition(":")[0] for name in known_model_names() if not name.startswith("gateway/")}
    assert named - others <= KNOWN
    for name in KNOWN:
        with suppress(ImportError):  # known, but its package is not installed
            assert infer_provider_class(name)


async def test_a_missing_package_is_named() -> None:
    with pytest.raises(Invalid, match="`groq` package") as refused:
        await named_model("groq:llama", {}).request(Request("groq:llama", QUESTION))
    assert refused.value.code == "missing_package"
    await close_models()
