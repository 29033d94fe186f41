"""The providers' models by name, reached through pydantic-ai: `openai:gpt-5-mini`, `anthropic:claude-sonnet-4-5`, … and servers
of one's own (compatible.py). Keys come from the environment, each under the name that its provider gives it.

Light: pydantic-ai takes a second to import, and is imported when a model is first asked.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from stigmergy.agents.models.compatible import COMPATIBLE, compatible_server
from stigmergy.agents.models.port import ModelFailed, OnText, Reply, Request
from stigmergy.errors import Invalid

INSTALL = "pip install 'stigmergy[models]'"

# What pydantic-ai 2.66 has for conversations. One that it learns later is known once it was asked.
_KNOWN = """
alibaba anthropic azure azure-responses bedrock bedrock-mantle cerebras cohere crusoe deepseek fireworks github github-copilot
google google-cloud groq heroku huggingface litellm meta mistral moonshotai nebius ollama openai openai-chat openai-chatgpt
openai-codex openai-responses openrouter ovhcloud sambanova snowflake together vercel vllm xai zai
"""
KNOWN = frozenset(_KNOWN.split())


class Client(msgspec.Struct, frozen=True):
    """An opened model: how to ask it, how to close it. What stands behind it belongs to the loop it was opened in."""

    request: Callable[[Request, OnText | None], Awaitable[Reply]]
    close: Callable[[], Awaitable[None]]


class ProviderModel:
    """A provider's model. Its connections are shared by all in one event loop, and kept until `close_models`."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        client = await self._client()
        return await client.request(request, on_text)

    async def _client(self) -> Client:
        clients = _clients.setdefault(asyncio.get_running_loop(), {})
        opening = clients.get(self.name)
        if opening is None or _came_to_nothing(opening):
            opening = clients[self.name] = asyncio.create_task(_opened(self.name), name=f"opens {self.name}")
        return await asyncio.shield(opening)


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Task[Client]]] = WeakKeyDictionary()


def _came_to_nothing(opening: asyncio.Task[Any]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


async def _opened(name: str) -> Client:
    # In a thread, because the import holds the loop for a second otherwise; what is opened touches the loop only later.
    model = await asyncio.to_thread(_build, name)
    return Client(*await model.open())


def _build(name: str) -> Any:
    try:
        from stigmergy.agents.models.reach import build

        return build(name)
    except ImportError as error:
        said = str(error).split("\n", 1)[0]
        raise Invalid(f"{name} needs packages that are not installed ({said}): {INSTALL}", "model", "missing_package") from error


async def close_models() -> None:
    """Closes the connections of this event loop, as a program does when it ends. A model that is asked again opens new ones."""
    for opening in _clients.pop(asyncio.get_running_loop(), {}).values():
        try:
            client = await opening
        except (ModelFailed, Invalid):
            continue  # it was never open
        await client.close()


@lru_cache(256)
def provider_model(name: str) -> ProviderModel:
    """`Invalid` when no provider is called so, or when what reaches providers is not installed."""
    kind, _, model = name.partition(":")
    if kind == COMPATIBLE:
        compatible_server(name)
    elif not model or not (kind in KNOWN or _known_later(kind)):
        raise Invalid(
            f"there is no model {name!r}; name a provider's, such as openai:gpt-5-mini, {COMPATIBLE}:MODEL@https://host/v1,"
            " scripted:FILE or recorded:FILE",
            "model",
            "unknown_model",
        )
    if find_spec("pydantic_ai") is None:
        raise Invalid(f"{name} needs packages that are not installed: {INSTALL}", "model", "missing_package")
    return ProviderModel(name)


def _known_later(kind: str) -> bool:
    """Whether the pydantic-ai that is installed knows a provider that the list above does not."""
    if re.fullmatch(r"[a-z][a-z0-9-]*", kind) is None or find_spec("pydantic_ai") is None:
        return False
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(kind)
    except ValueError:
        return False
    except ImportError:  # known, and the first request says what is missing
        return True
    return True
