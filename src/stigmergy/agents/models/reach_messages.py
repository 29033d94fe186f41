"""Between the port's messages and pydantic-ai's."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_json

from stigmergy.agents.models.port import Asked, Image, Message, Reply, Request, Thinking
from stigmergy.agents.models.reach_kept import again, with_kept


def to_messages(messages: Sequence[Message]) -> list[ModelMessage]:
    """What lies between two answers of the model is one request."""
    found: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    tools: dict[str, str] = {}
    for message in messages:
        if message.role != "assistant":
            parts.append(_part(message, tools))
            continue
        if parts:
            found.append(ModelRequest(parts))
            parts = []
        tools |= {call.id: call.name for call in message.tool_calls}
        found.append(again(message) or ModelResponse(_answer(message)))
    if parts:
        found.append(ModelRequest(parts))
    return found


def _part(message: Message, tools: dict[str, str]) -> ModelRequestPart:
    if message.role == "system":
        return SystemPromptPart(message.content)
    content = [message.content, *_binaries(message.images)] if message.images else message.content
    if message.role == "user":
        return UserPromptPart(content)
    call = message.tool_call_id or ""
    return ToolReturnPart(message.name or tools.get(call, "tool"), content, tool_call_id=call)


def _answer(message: Message) -> list[ModelResponsePart]:
    text: list[ModelResponsePart] = [TextPart(message.content)] if message.content else []
    return [*text, *(ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in message.tool_calls)]


def _binaries(images: Iterable[Image]) -> list[BinaryContent]:
    return [BinaryContent(data=image.data, media_type=image.media_type, identifier=image.name) for image in images]


def to_parameters(request: Request) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=tool.name, parameters_json_schema=tool.parameters, description=tool.description or None)
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools)


def settings_of(request: Request, model: Model) -> ModelSettings:
    """The agent's own, and no retries: the engine makes them, and shows them."""
    settings = dict(request.settings)
    if "max_retries" not in model.unsupported_settings:
        settings["max_retries"] = 0
    return cast(ModelSettings, settings)


def from_response(response: ModelResponse) -> Reply:
    usage = response.usage
    text, kept = with_kept(response)
    measured = usage.unmeasured_requests == 0 and (usage.input_tokens or usage.output_tokens)
    return Reply(
        text=text,
        tool_calls=tuple(_asked(part) for part in response.parts if isinstance(part, ToolCallPart)),
        thinking=_thinking(response),
        input_tokens=usage.input_tokens if measured else None,
        output_tokens=usage.output_tokens if measured else None,
        cached_tokens=usage.cache_read_tokens,
        cost=_cost(response) if measured else None,
        model=response.model_name,
        kept=kept,
    )


def _asked(part: ToolCallPart) -> Asked:
    """The arguments as the model wrote them: whether they are JSON is for the one who runs the tool to say."""
    arguments = part.args if isinstance(part.args, str) else to_json(part.args or {}).decode()
    return Asked(part.tool_call_id, part.tool_name, arguments or "{}")


def _thinking(response: ModelResponse) -> tuple[Thinking, ...]:
    thoughts = [part.content for part in response.parts if isinstance(part, ThinkingPart) and part.content]
    confidence = _confidence(response)
    if confidence is None:
        return tuple(Thinking(thought) for thought in thoughts)
    *before, last = thoughts or [""]
    return (*(Thinking(thought) for thought in before), Thinking(last, confidence, "logprob"))


def _confidence(response: ModelResponse) -> float | None:
    """The mean probability of the answer's tokens, where the agent's settings asked for it (`openai_logprobs`)."""
    logprobs: Any = (response.provider_details or {}).get("logprobs")
    if not logprobs:
        return None
    return math.exp(sum(min(0.0, token["logprob"]) for token in logprobs) / len(logprobs))


def _cost(response: ModelResponse) -> float | None:
    """In dollars, where the provider said it or its prices are known."""
    if response.usage.cost is not None:
        return float(response.usage.cost)
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None
