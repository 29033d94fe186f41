"""Hooks: guardrails and redaction around every model call and tool call, from the app and from the agent, in this order.

A hook gets what is about to happen (or what came of it) and the run, and gives the same back, changed or not; None changes
nothing. It may raise `Refuse` with a reason, or `AskFirst` to have a person decide. What it did is recorded as a thought.
"""

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from stigmergy.agents.agent import Hook
from stigmergy.runs.model import Run

T = TypeVar("T")


class Refuse(Exception):
    """A hook's no. The reason is what the model, or who asks why the run failed, is told."""


class AskFirst(Exception):
    """A hook wants a person to approve. The text is the question."""


class Did(msgspec.Struct, frozen=True):
    """What a hook did."""

    hook: str
    moment: str
    what: str


async def through(hooks: Iterable[Hook], moment: str, value: T, run: Run, did: list[Did]) -> T:
    """The value after all hooks of a moment."""
    for hook in hooks:
        name = getattr(hook, "__name__", type(hook).__name__)
        try:
            answer: Any = hook(value, run)
            given = await answer if inspect.isawaitable(answer) else answer
        except Refuse as refusal:
            did.append(Did(name, moment, f"refused: {refusal}"))
            raise
        except AskFirst as question:
            did.append(Did(name, moment, f"asked for approval: {question}"))
            raise
        if given is not None and given != value:
            did.append(Did(name, moment, "changed it"))
            value = given
    return value
