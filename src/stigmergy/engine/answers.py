"""What a model's reply means for its run: more to do, the answer, or an answer that will not do."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from stigmergy.agents.model import Definition, ToolSpec
from stigmergy.agents.models.port import Reply
from stigmergy.engine.direct import DIRECT
from stigmergy.engine.toolbox import check_value
from stigmergy.errors import Invalid
from stigmergy.runs.delegation import FINAL_ANSWER
from stigmergy.runs.model import ToolCall
from stigmergy.runs.steps import Ending

# How often an answer that will not do goes back to the model.
SECOND_TRIES = 2


class Answer(NamedTuple):
    """How the step ends the run, if it does; or what the model is told of its answer."""

    ending: Ending | None = None
    remark: str | None = None


def answer_of(reply: Reply, definition: Definition, remarks: int) -> Answer:
    """`remarks` is how many answers in a row would not do already."""
    if reply.tool_calls:
        return Answer()
    try:
        return Answer(Ending("completed", checked_answer(reply.text, definition), output=definition.output))
    except Invalid as fault:
        if remarks >= SECOND_TRIES:
            return Answer(Ending("failed", error=f"answer: {fault} ({remarks + 1} tries)"))
        return Answer(remark=f"This answer will not do: {fault}. Answer again.")


def given_answer(calls: Iterable[ToolCall], definition: Definition, remarks: int) -> Ending | None:
    """How the step ends the run by the tool for that: with the answer; or without, when it would not do too often."""
    if definition.model == DIRECT:
        return next((_as_it_is(call) for call in calls), None)
    given = next((call for call in calls if call.tool_name == FINAL_ANSWER and call.execution_type != "mcp"), None)
    if given is None:
        return None
    if given.status == "success":
        return Ending("completed", given.result)
    return Ending("failed", error=f"answer: {given.error} ({remarks} tries)") if remarks > SECOND_TRIES else None


def _as_it_is(call: ToolCall) -> Ending:
    """A task that is a tool has that tool's result, or its failure."""
    return Ending("completed", call.result) if call.status == "success" else Ending("failed", error=f"tool: {call.error}")


def checked_answer(text: str, definition: Definition) -> Any:
    """The answer as its agent promised it. `Invalid` says what is wrong with it, for the model."""
    schema = None if definition.output is None else definition.output.json_schema
    if schema is None:
        if not text.strip():
            raise Invalid("it is empty", code="invalid_answer")
        return text
    try:
        value = msgspec.json.decode(_bare(text))
    except (ValueError, RecursionError) as error:
        raise Invalid(f"it is not JSON ({error})", code="invalid_answer") from error
    return check_value(schema, value, "answer")


def _bare(text: str) -> str:
    """JSON without the fence that models like to put around it."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1].rsplit("```", 1)[0]
    return text


def with_output(definition: Definition, spec: ToolSpec) -> ToolSpec:
    """The tool that gives the answer takes the answer's own shape."""
    schema = None if definition.output is None else definition.output.json_schema
    if schema is None:
        return spec
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    parameters = {"type": "object", "properties": {"result": inner}, "required": ["result"], "additionalProperties": False}
    return msgspec.structs.replace(spec, parameters=parameters | definitions)
