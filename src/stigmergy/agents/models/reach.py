"""One request to a provider's model, through `pydantic_ai.direct`: the loop, the retries and the record of it are the engine's.

Imports pydantic-ai, and so is itself imported only when a model is first asked (providers.py).
"""

import re
from collections.abc import Awaitable, Callable

from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from stigmergy.agents.models.compatible import COMPATIBLE, compatible_server
from stigmergy.agents.models.port import ModelFailed, OnText, Reply, Request
from stigmergy.agents.models.reach_failures import failed
from stigmergy.agents.models.reach_messages import from_response, settings_of, to_messages, to_parameters
from stigmergy.errors import Invalid, StigmergyError

Asking = Callable[[Request, OnText | None], Awaitable[Reply]]
Closing = Callable[[], Awaitable[None]]


def build(name: str) -> "Reach":
    """`ModelFailed` when its key is missing, `Invalid` when there is no such model, `ImportError` when its package is missing."""
    try:
        if name.startswith(f"{COMPATIBLE}:"):
            server = compatible_server(name)
            provider = OpenAICompatibleProvider(server.host, base_url=server.url, api_key=server.key)
            return Reach(name, OpenAIChatModel(server.model, provider=provider))
        return Reach(name, infer_model(name))
    except UserError as error:
        raise _unusable(name, error) from error


def _unusable(name: str, error: UserError) -> StigmergyError:
    if str(error).startswith("Unknown model"):
        return Invalid(_line(error), "model", "unknown_model")
    variables = list(dict.fromkeys(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", str(error))))
    if variables:
        return ModelFailed(f"{name} cannot be asked without a key: set {' or '.join(variables)} in the worker's environment")
    return ModelFailed(f"{name} cannot be asked: {_line(error)}")


def _line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:500]


class Reach:
    """A pydantic-ai model behind the port."""

    def __init__(self, name: str, model: Model) -> None:
        self.name = name
        self._model = model

    async def open(self) -> tuple[Asking, Closing]:
        await self._model.__aenter__()
        return self.request, self.close

    async def close(self) -> None:
        await self._model.__aexit__(None, None, None)

    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        try:
            parameters = to_parameters(request)
            messages = self._model.prepare_messages(to_messages(request.messages), parameters)
            settings = settings_of(request, self._model)
            if on_text is None:
                response = await model_request(
                    self._model, messages, model_settings=settings, model_request_parameters=parameters
                )
            else:
                response = await self._streamed(messages, settings, parameters, on_text)
            if response.state == "suspended":
                raise ModelFailed(f"{self.name} paused its turn, which only its own tools can end; do not ask for them")
            return from_response(response)
        except StigmergyError:
            raise
        except Exception as error:
            raise failed(error, self.name) from error

    async def _streamed(
        self, messages: list[ModelMessage], settings: ModelSettings, parameters: ModelRequestParameters, on_text: OnText
    ) -> ModelResponse:
        asked = model_request_stream(self._model, messages, model_settings=settings, model_request_parameters=parameters)
        begun = False
        async with asked as stream:
            async for event in stream:
                piece = _text_of(event, begun=begun)
                if piece:
                    begun = True
                    on_text(piece)
            response = stream.get()
        if _cut(stream, response):
            raise ModelFailed(f"the answer of {self.name} was cut off before its end", retryable=True)
        return response


def _text_of(event: ModelResponseStreamEvent, *, begun: bool) -> str:
    """What an event adds to the text. All pieces together are the text of the reply."""
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        apart = begun and event.previous_part_kind not in (None, "text")
        return ("\n\n" if apart else "") + event.part.content
    return ""


def _cut(stream: StreamedResponse, response: ModelResponse) -> bool:
    """Whether the stream ended without the reason that every provider gives at its end; a connection may close that quietly."""
    if response.state in ("incomplete", "interrupted"):
        return True
    if (response.provider_details or {}).get("finish_reason"):
        return False
    supposed = isinstance(stream, OpenAIStreamedResponse) and response.finish_reason == "stop"
    return supposed or response.finish_reason is None
