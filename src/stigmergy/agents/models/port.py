"""The port to a model: canonical messages go in, a reply comes out. What a provider makes of them is the adapter's own.

An adapter retries nothing and keeps nothing; the engine does both. What it raises is `ModelFailed`, which says whether trying
again can help.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from stigmergy.errors import StigmergyError

JsonObject = dict[str, Any]


class Image(msgspec.Struct, frozen=True, omit_defaults=True):
    """A picture or a file in a message."""

    media_type: str
    data: bytes
    name: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """A tool call as the model wrote it. `arguments` is its text, JSON when all is well."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One canonical message. `tool_calls` are an assistant's, `tool_call_id` and `name` a tool's; `kept` is what came with the
    assistant's reply."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    images: tuple[Image, ...] = ()
    tool_calls: tuple[Asked, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    kept: JsonObject | None = None


class ToolShown(msgspec.Struct, frozen=True):
    """A tool as a model is told of it."""

    name: str
    description: str
    parameters: JsonObject


class Request(msgspec.Struct, frozen=True):
    """What is asked of a model. `settings` are the agent's own (temperature and the like)."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolShown, ...] = ()
    settings: JsonObject = msgspec.field(default_factory=JsonObject)


class Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the model says it thought. `confidence` in 0 to 1 where it reported one, or where `source` is logprob."""

    text: str
    confidence: float | None = None
    source: Literal["reported", "logprob"] | None = None


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model answered. Tokens are the provider's own count; None where it gave none. `kept` is what the provider wants to
    see again with this message, such as its signed thoughts: to be stored as it is, and given back as the message's `kept`."""

    text: str = ""
    tool_calls: tuple[Asked, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    cost: float | None = None
    model: str | None = None
    kept: JsonObject | None = None


OnText = Callable[[str], None]
"""Called with each piece of the answer's text while it comes."""


class Model(Protocol):
    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        """Think once. `ModelFailed` when there is no answer."""
        ...


class ModelFailed(StigmergyError):
    """No answer came. `retry_after` is what the provider asked for, in seconds."""

    code = "model_failed"
    status = 502

    def __init__(self, message: str, *, retryable: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
