"""Tools that are units of work: what they write and the settling of their call are one transaction, so that they happen once,
whatever crashes. Each part gives its own as `TOOLS`; the engine collects them.

A tool is told who acts and what was asked, and answers with what came of it: `Done`, `Refused`, or `Waiting` for somebody.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from stigmergy.agents.model import Definition, ToolSpec
from stigmergy.agents.tools import parameters_of
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.model import JsonObject, Run, ToolCall, WaitKind


class Acting(NamedTuple):
    """Who calls a tool: the run, its agent's definition, and the call itself. Tenant and user are the run's own."""

    run: Run
    definition: Definition
    call: ToolCall


class Done(msgspec.Struct, frozen=True):
    """The call is settled with this result."""

    result: Any


class Refused(msgspec.Struct, frozen=True):
    """The call failed, with a sentence that the agent can act on."""

    error: str


class Party(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody who is waited for. `key` is the entity's id for a reply, the run's id for a child."""

    key: str
    name: str
    type: Literal["human", "agent", "client", "run"]


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The call is open until every party has answered, or the time is over."""

    kind: WaitKind
    parties: Sequence[Party]
    timeout_ms: int
    for_entity: str | None = None
    space_id: str | None = None
    message_id: str | None = None
    question: str | None = None
    details: JsonObject | None = None


Outcome = Done | Refused | Waiting
Unit = Callable[[Transaction, Acting, JsonObject], Awaitable[Outcome]]


class Builtin(NamedTuple):
    """A tool of ours. `args` says the shape of its arguments; the unit gets them checked, as a dict."""

    spec: ToolSpec
    unit: Unit


class Outside(NamedTuple):
    """What a tool may use that is no unit."""

    database: Database
    searcher: Searcher | None = None


Ask = Callable[[Outside, Acting, JsonObject], Awaitable[Any]]


class Asking(NamedTuple):
    """A tool of ours that only reads, outside of any unit: what it looks for may take a model, or long."""

    spec: ToolSpec
    ask: Ask


def asking(name: str, description: str, args: type[msgspec.Struct], ask: Ask) -> Asking:
    return Asking(ToolSpec(name=name, description=description, parameters=parameters_of(args), repeatable=True), ask)


def builtin(name: str, description: str, args: type[msgspec.Struct], unit: Unit) -> Builtin:
    """A tool whose parameters are the fields of a struct."""
    return Builtin(ToolSpec(name=name, description=description, parameters=parameters_of(args), repeatable=True), unit)
