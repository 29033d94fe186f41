"""Making the calls of a step: what is run where, how long it may take, how often it is tried, and what counts as a result.

What cannot be told (a tool that is not repeatable was under way when its worker died) is a failure that says so.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from stigmergy.agents.model import ToolSpec
from stigmergy.agents.models.port import Image
from stigmergy.engine.contained import BrokeOff, contained
from stigmergy.engine.patience import within
from stigmergy.errors import Invalid, StigmergyError
from stigmergy.runs.model import ToolCall
from stigmergy.runs.texts import sound, sound_value

log = logging.getLogger(__name__)

UNTOLD = "it may or may not have happened"
UNKNOWN_OUTCOME = f"unknown outcome: it was under way when its worker stopped, and {UNTOLD.removeprefix('it ')}"
PAUSE_SECONDS = 0.2


class Outcome(NamedTuple):
    """What came of a call, and how long it took."""

    result: Any = None
    error: str | None = None
    duration_ms: int = 0
    images: tuple[Image, ...] = ()


class Pictured(NamedTuple):
    """A result with pictures or files beside it."""

    value: Any
    images: tuple[Image, ...]


Make = Callable[[], Awaitable[Any]]


async def attempt(spec: ToolSpec, call: ToolCall, make: Make) -> Outcome:
    """Make a call, within its time; a repeatable one as often as its tool says."""
    began = time.perf_counter()
    tries = spec.tries if spec.repeatable else 1
    error = ""
    for number in range(1, tries + 1):
        if number > 1:
            await asyncio.sleep(PAUSE_SECONDS * 2 ** (number - 2))
        try:
            made = await within(spec.timeout_ms / 1000, contained(make()))
            value, images = made if isinstance(made, Pictured) else (made, ())
            return Outcome(plain(value), None, _ms(began), images)
        except TimeoutError:
            error = f"{spec.name} took longer than {spec.timeout_ms / 1000:g} s"
        except Invalid as fault:
            return Outcome(None, str(fault), _ms(began))
        except (StigmergyError, BrokeOff) as fault:
            error = str(fault)
        except Exception as fault:
            log.info("the tool %s failed in call %s of run %s", spec.name, call.id, call.run_id, exc_info=fault)
            error = f"{type(fault).__name__}: {fault}"
    return Outcome(None, sound(error), _ms(began))


def _ms(began: float) -> int:
    return round((time.perf_counter() - began) * 1000)


def plain(value: Any) -> Any:
    """A result as JSON has it. `Invalid` for what cannot be said in JSON."""
    if value is None or value.__class__ is bool or (value.__class__ is str and value.isascii() and "\0" not in value):
        return value
    try:
        said = msgspec.json.encode(value)
        return sound_value(msgspec.json.decode(said)) if b"\\u0000" in said else msgspec.json.decode(said)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        kind = type(value).__name__
        raise Invalid(f"the tool gave a {kind}, which cannot be said in JSON ({error})", code="invalid_result") from error
