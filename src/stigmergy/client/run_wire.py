"""Runs, their logs, their waits and agents, from the shapes on the wire to the records that a program has.

What the wire does not tell (how the store finds the run of a cause, say) has its default here.
"""

from typing import Any, TypeVar

import msgspec

from stigmergy.agents.model import AgentRecord, Definition, ToolSpec
from stigmergy.breadcrumbs.model import JsonObject
from stigmergy.client.wire import converted
from stigmergy.engine.defining import Declared
from stigmergy.engine.past import PastPrompt
from stigmergy.engine.watching import RunEvent
from stigmergy.kernel.record import Record
from stigmergy.runs.model import Run, Task
from stigmergy.runs.queries import Node, Page, RunView

R = TypeVar("R", bound=Record)
# An event that is none of the run's: where its stream begins anew, or ends.
OF_THE_STREAM = frozenset({"end", "reset"})


def record(fields: Any, kind: type[R]) -> R:
    return converted(fields, kind)


def records(page: Any, kind: type[R]) -> list[R]:
    return [record(each, kind) for each in items(page)]


def items(page: Any) -> list[JsonObject]:
    return converted(converted(page, JsonObject).get("items"), list[JsonObject])


def run(fields: Any) -> Run:
    return record(fields, Run)


def runs(page: Any) -> Page:
    cursor = converted(page, JsonObject).get("cursor")
    return Page(records(page, Run), None if cursor is None else converted(cursor, int, strict=False))


def view(fields: Any) -> RunView:
    more = converted(fields, JsonObject)
    held = converted(more.get("variables") or {}, JsonObject)
    return RunView(run(fields), held, more.get("wait_state"), bool(more.get("needs_worker")))


def node(fields: Any) -> Node:
    parts = converted(fields, JsonObject)
    return Node(run(parts.get("run")), [node(each) for each in converted(parts.get("children"), list[JsonObject])])


def openai(page: Any) -> list[JsonObject]:
    return converted(converted(page, JsonObject).get("messages"), list[JsonObject])


def prompt(fields: Any) -> PastPrompt:
    return converted(fields, PastPrompt)


def task(fields: Any) -> Task:
    return record(fields, Task)


def event(name: str, data: bytes) -> RunEvent | None:
    """The event of a frame."""
    if not data or name in OF_THE_STREAM:
        return None
    return converted(msgspec.json.decode(data), RunEvent)


# ---- agents ----


def agent(fields: Any) -> AgentRecord:
    """Who may not see the whole definition has as much of it as is told to everybody."""
    told = converted(fields, JsonObject)
    definition = told.get("definition")
    if definition is None:
        tools = tuple(ToolSpec(name=name) for name in converted(told.get("tools"), list[str]))
        of = ("name", "model", "description", "display_name", "delegates")
        definition = {**{name: told.get(name) for name in of}, "tools": msgspec.to_builtins(tools)}
    read = converted(definition, Definition)
    return record({**told, "definition": read, "queue": ""}, AgentRecord)


def agents(page: Any) -> list[AgentRecord]:
    return [agent(each) for each in items(page)]


def declared(fields: Any) -> Declared:
    parts = converted(fields, JsonObject)
    return Declared(agent(parts.get("agent")), converted(parts.get("notices"), list[str]))


def tools(catalog: Any) -> list[ToolSpec]:
    told = converted(converted(catalog, JsonObject).get("tools"), list[JsonObject])
    return [converted(each, ToolSpec) for each in told]
