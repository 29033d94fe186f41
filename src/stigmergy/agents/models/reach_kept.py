"""What a provider wants to see again: its signed or encrypted thoughts, and marks on its texts and calls, in their order.

Some refuse a conversation in which these are missing. The texts and the calls are in the message already; kept is the rest.
"""

from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart

from stigmergy.agents.models.port import JsonObject, Message


def with_kept(response: ModelResponse) -> tuple[str, JsonObject | None]:
    """The text of a reply, as it is streamed, and what has to be kept of it besides; None where nothing has."""
    text, calls, apart = "", 0, False
    parts: list[JsonObject] = []
    for part in response.parts:
        apart = apart or not isinstance(part, TextPart)
        if isinstance(part, TextPart):
            text += "\n\n" if text and apart else ""
            parts.append({"text": [len(text), len(text) + len(part.content)], **_marks(part)})
            text += part.content
            apart = False
        elif isinstance(part, ToolCallPart):
            parts.append({"call": calls, **_marks(part)})
            calls += 1
        elif isinstance(part, ThinkingPart):
            parts.append({"thinking": part.content, "signature": part.signature, **_marks(part)})
    if not any(part.get("signature") or part.get("provider_details") for part in parts):
        return text, None
    of = {"provider_name": response.provider_name, "canonical_system": response.canonical_system}
    return text, {**of, "characters": len(text), "calls": calls, "parts": parts}


def _marks(part: TextPart | ToolCallPart | ThinkingPart) -> JsonObject:
    marks = {"id": part.id, "provider_name": part.provider_name, "provider_details": part.provider_details}
    return {name: mark for name, mark in marks.items() if mark is not None}


def again(message: Message) -> ModelResponse | None:
    """The provider's own message, where it was kept and belongs to this one still."""
    kept = message.kept
    if kept is None or kept.get("characters") != len(message.content) or kept.get("calls") != len(message.tool_calls):
        return None
    parts = [_part(message, dict(part)) for part in cast(list[JsonObject], kept["parts"])]
    return replace(ModelResponse(parts), provider_name=kept.get("provider_name"), canonical_system=kept.get("canonical_system"))


def _part(message: Message, kept: JsonObject) -> ModelResponsePart:
    if "text" in kept:
        start, end = kept.pop("text")
        return TextPart(message.content[start:end], **kept)
    if "call" in kept:
        call = message.tool_calls[int(kept.pop("call"))]
        return ToolCallPart(call.name, call.arguments, tool_call_id=call.id, **kept)
    thinking: Any = kept.pop("thinking")
    return ThinkingPart(thinking, **kept)
