"""Hooks: guardrails and redaction around every model call and tool call, from the app and from the agent, in this order.

A hook gets what is about to happen (or what came of it) and the run, and gives the same back, changed or not; None changes
nothing. It may raise `Refuse` with a reason, or `AskFirst` to have a person decide. What it did is recorded as a thought.
"""

import inspect
import logging
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from stigmergy.agents.agent import Hook
from stigmergy.engine.contained import contained
from stigmergy.errors import StigmergyError
from stigmergy.runs.model import Run
from stigmergy.runs.steps import NewThought

T = TypeVar("T")
log = logging.getLogger(__name__)


class Refuse(Exception):
    """A hook's no. The reason is what the model, or who asks why the run failed, is told."""


class AskFirst(Exception):
    """A hook wants a person to approve. The text is the question."""


async def _asked(hook: Hook, value: Any, run: Run) -> Any:
    answer = hook(value, run)
    return await answer if inspect.isawaitable(answer) else answer


class Did(msgspec.Struct, frozen=True):
    """What a hook did."""

    hook: str
    moment: str
    what: str

    def thought(self) -> NewThought:
        return NewThought(type="reflection", content=self.what, metadata={"hook": self.hook, "moment": self.moment})


class HookFailed(StigmergyError):
    """A hook went wrong, and what it guards does not happen."""

    code = "hook_failed"


async def through(hooks: Iterable[Hook], moment: str, value: T, run: Run, did: list[Did], *, approved: bool = False) -> T:
    """The value after all hooks of a moment. When it was approved already, a hook that asks for that is content."""
    for hook in hooks:
        name = getattr(hook, "__name__", type(hook).__name__)
        try:
            given = await contained(_asked(hook, value, run))
        except Refuse as refusal:
            did.append(Did(name, moment, f"refused: {refusal}"))
            raise
        except AskFirst as question:
            if approved:
                continue
            did.append(Did(name, moment, f"asked for approval: {question}"))
            raise
        except Exception as error:
            log.exception("the hook %s failed at %s in run %s", name, moment, run.id)
            did.append(Did(name, moment, f"failed: {type(error).__name__}: {error}"))
            raise HookFailed(f"the hook {name} failed at {moment}: {type(error).__name__}: {error}") from error
        if given is None or given == value:
            continue
        if not isinstance(given, type(value)):
            did.append(Did(name, moment, f"failed: it gave a {type(given).__name__}"))
            raise HookFailed(f"the hook {name} gave a {type(given).__name__} at {moment}; it is to give a {type(value).__name__}")
        did.append(Did(name, moment, "changed it"))
        value = given
    return value
