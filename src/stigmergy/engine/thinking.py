"""One model call: tried again where that can help, with a time limit, its text streamed while it comes."""

import asyncio
import logging
import random
import sys
from collections.abc import Callable
from typing import cast

import msgspec

from stigmergy.agents.model import Limits
from stigmergy.agents.models.port import Asked, Model, ModelFailed, Reply, Request
from stigmergy.engine.contained import contained
from stigmergy.engine.patience import within
from stigmergy.engine.streaming import Stream
from stigmergy.errors import StigmergyError
from stigmergy.kernel.clock import Clock
from stigmergy.runs.texts import is_sound, sound

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# More than any model reads or writes.
MOST_TOKENS = 10**9


async def think(
    model: Model, request: Request, limits: Limits, clock: Clock, new_stream: Callable[[], Stream], *, streams: bool = True
) -> tuple[Reply, Stream]:
    """A reply and the stream that it came by; `streams` says whether anybody may see it while it comes. `ModelFailed` when there
    was none after as many tries as the agent has."""
    for attempt in range(1, limits.model_tries + 1):
        stream = new_stream()
        try:
            asked = contained(model.request(request, stream.add if streams else None))
            return checked(await within(limits.model_timeout_ms / 1000, asked), request.model), stream
        except TimeoutError:
            stream.withdraw()
            failure = ModelFailed(f"{request.model} did not answer within {limits.model_timeout_ms / 1000:g} s", retryable=True)
        except ModelFailed as error:
            stream.withdraw()
            failure = error
        except (StigmergyError, asyncio.CancelledError):
            stream.withdraw()
            raise
        except Exception as error:  # a program's own model may raise anything
            stream.withdraw()
            log.exception("the model %s failed", request.model)
            raise ModelFailed(f"{request.model} raised {type(error).__name__}: {error}") from error
        if not failure.retryable:
            raise failure
        if attempt == limits.model_tries:
            raise ModelFailed(f"{failure} ({attempt} tries)")
        await clock.sleep(_pause(attempt, failure.retry_after))
    raise ModelFailed(f"{request.model} was not asked: model_tries is {limits.model_tries}")


def checked(reply: object, model: str) -> Reply:
    """What a model gave, if it is a reply. One of a program's own may give anything."""
    if not isinstance(reply, Reply):
        raise ModelFailed(f"{model} gave a {type(reply).__name__}, which is no reply")
    _check_measures(reply, model)
    texts = [reply.text, *(thought.text for thought in reply.thinking)]
    for asked in reply.tool_calls:
        texts += (asked.name, asked.arguments)
    try:
        if is_sound("".join(texts)):
            return reply
    except TypeError:
        raise ModelFailed(f"{model} gave a reply whose text, thoughts, or a name or the arguments in it, are no text") from None
    return msgspec.structs.replace(
        reply,
        text=sound(reply.text),
        tool_calls=tuple(Asked(asked.id, sound(asked.name), sound(asked.arguments)) for asked in reply.tool_calls),
        thinking=tuple(msgspec.structs.replace(thought, text=sound(thought.text)) for thought in reply.thinking),
    )


def _check_measures(reply: Reply, model: str) -> None:
    """What is counted, and what it is sure of. Stored as it was given, nobody could read the run any more."""
    counts = (reply.input_tokens, reply.output_tokens, reply.cached_tokens)
    if not all(count is None or (type(count) is int and 0 <= count <= MOST_TOKENS) for count in counts):
        raise ModelFailed(f"{model} gave a reply whose numbers of tokens are no counts")
    if not _is_between(reply.cost, 0, sys.float_info.max):
        raise ModelFailed(f"{model} gave a reply whose cost is no amount")
    if not all(_is_between(thought.confidence, 0, 1) for thought in reply.thinking):
        raise ModelFailed(f"{model} gave a reply whose confidence is not between 0 and 1")


def _is_between(number: object, least: float, most: float) -> bool:
    return number is None or (type(number) in (int, float) and least <= cast(float, number) <= most)


def _pause(attempt: int, wanted: float | None) -> float:
    """What the provider asked for, or twice as long each time, with jitter."""
    if wanted is not None:
        return min(wanted, LONGEST_PAUSE * 4)
    return min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE) * random.uniform(0.8, 1.2)
