"""Triggers, deliveries and tasks, from the shapes on the wire to the records that a program has.

What the wire does not tell (an action's secret, in which queue a delivery waits) is not there.
"""

from typing import Any, TypeVar

import msgspec

from stigmergy.breadcrumbs.model import JsonObject
from stigmergy.client.wire import converted, milliseconds
from stigmergy.kernel.record import Record
from stigmergy.kernel.rules import Diagnostic, Rule
from stigmergy.runs.model import Run, RunMessage, Task, ToolCall
from stigmergy.runs.queries import Page
from stigmergy.runs.steps import NewCall
from stigmergy.triggers.lint import Finding
from stigmergy.triggers.model import Answer, Delivery
from stigmergy.triggers.queries import Shown, Told

R = TypeVar("R", bound=Record)


def items(page: Any, name: str = "items") -> list[JsonObject]:
    return converted(converted(page, JsonObject).get(name), list[JsonObject])


# ---- triggers ----


def rule(fields: Any) -> Rule:
    shown = converted(fields, JsonObject)
    action = converted(shown.get("action"), JsonObject)
    renamed = {"kind": action.get("type"), "events": shown.get("event"), "position": shown.get("order")}
    return converted({**shown, **renamed}, Rule)


def findings(answer: Any) -> list[Finding]:
    return [converted(list(each.values()), Finding) for each in items(answer, "findings")]


def told(answer: Any) -> list[Told]:
    return [Told(each["id"], each["fires"], each.get("why_not")) for each in items(answer, "triggers")]


def diagnostics(answer: Any, rule_id: str) -> list[Diagnostic]:
    return [converted({**each, "id": "", "rule": rule_id}, Diagnostic) for each in items(answer)]


# ---- deliveries ----


def shown(fields: Any) -> Shown:
    wire = converted(fields, JsonObject)
    answer = None if wire.get("answer") is None else _answer(wire["answer"])
    next_at = wire.get("next_at")
    return Shown(delivery(fields), wire["tries"], answer, None if next_at is None else milliseconds(next_at))


def delivery(fields: Any) -> Delivery:
    wire = dict(converted(fields, JsonObject))
    answer = wire.pop("answer", None)
    renamed: JsonObject = {"trigger_id": wire.get("trigger"), "change_seq": wire.get("seq"), "settled_at": None}
    if wire.get("settled_at") is not None:
        renamed["settled_at"] = milliseconds(wire["settled_at"])
    untold = {"trigger_version": 0, "queue": "", "actor": "", "at": 0, "cause": None, "depth": 0}
    made = converted({**untold, **wire, **renamed}, Delivery)
    return made if answer is None else msgspec.structs.replace(made, answer=_answer(answer))


def _answer(fields: JsonObject) -> Answer:
    return converted({**fields, "at": milliseconds(fields["at"])}, Answer)


# ---- tasks, and the runs that programs outside execute ----


def task(fields: Any) -> Task:
    return converted(fields, Task)


def tasks(page: Any) -> Page:
    return _page(page, Task)


def run(fields: Any) -> Run:
    wire = converted(fields, JsonObject)
    agent: str = wire["role"]
    told = {"agent": agent, "entity_id": f"agent:{agent}", "step": wire["iteration_count"], "executor": "external"}
    untold = {"agent_version": 0, "root_id": wire.get("parent_run_id") or wire["id"]}
    return converted({**untold, **wire, **told}, Run)


def runs(page: Any) -> Page:
    wire = converted(page, JsonObject)
    return Page([run(each) for each in items(page)], _cursor(wire))


def message(fields: Any, run_id: str) -> RunMessage:
    return converted({"owner_id": "", "space_id": "", **converted(fields, JsonObject), "run_id": run_id}, RunMessage)


def call(fields: Any) -> ToolCall:
    return converted({"owner_id": "", "space_id": "", **converted(fields, JsonObject)}, ToolCall)


def asked(call: NewCall) -> JsonObject:
    """A call as an assistant's message has it."""
    text = call.args if isinstance(call.args, str) else msgspec.json.encode(call.args).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.tool_name, "arguments": text}}


def _page(page: Any, kind: type[R]) -> Page:
    wire = converted(page, JsonObject)
    return Page([converted(each, kind) for each in items(page)], _cursor(wire))


def _cursor(wire: JsonObject) -> int | None:
    return None if wire.get("cursor") is None else converted(wire["cursor"], int, strict=False)
