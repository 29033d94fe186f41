"""The tools of a run: which there are, which its agent may call, and whether what it was asked fits."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs
import msgspec

from stigmergy.agents.model import Definition, JsonObject, ToolSpec
from stigmergy.agents.models.port import Asked, ToolShown
from stigmergy.agents.tools import Tool
from stigmergy.errors import Invalid
from stigmergy.kernel.json_schemas import schema_validator
from stigmergy.runs.model import Run
from stigmergy.runs.texts import sound_value
from stigmergy.runs.tools import Asking, Builtin

MAX_ARGUMENTS = 1 << 20
# Of a name or arguments that are of no use, how much is kept.
LONGEST_NAME = 200
LONGEST_BAD = 16_000
_NOTHING: Mapping[str, Tool] = {}


class Toolbox:
    """What one run may call. Scope is decided here, where the tool is run, whatever the prompt said."""

    def __init__(
        self,
        definition: Definition,
        builtins: Mapping[str, Builtin | Asking],
        functions: Mapping[str, Tool] = _NOTHING,
        more: Iterable[ToolSpec] = (),
        *,
        in_conversation: bool = False,
    ) -> None:
        self.definition = definition
        self.builtins = {name: builtins[name] for name in _chosen(definition, builtins, in_conversation)}
        scoped = (tool for tool in definition.tools if not tool.agent_scope or definition.name in tool.agent_scope)
        self.specs: dict[str, ToolSpec] = {}
        for spec in (*(each.spec for each in self.builtins.values()), *scoped, *more):
            # of two with one name the first holds: no server from outside can put itself before what the engine or the agent has
            self.specs.setdefault(spec.name, spec)
        self.functions = {name: functions.get(spec.shape) for name, spec in self.specs.items()}
        self._validators: dict[str, jsonschema_rs.Validator] = {}  # a schema is long to look up by itself

    def shown(self) -> list[ToolShown]:
        return [ToolShown(spec.name, spec.description, spec.parameters) for spec in self.specs.values()]

    def checked(self, asked: Asked) -> tuple[ToolSpec, JsonObject]:
        """The tool and its arguments. `Invalid`, in words for the model, where they are no good."""
        spec = self.specs.get(asked.name)
        if spec is None:
            known = ", ".join(self.specs) or "none"
            raise Invalid(f"there is no tool {asked.name!r} for you; you have: {known}", code="unknown_tool")
        return spec, self.check_arguments(spec, parse_arguments(asked.arguments))

    def check_arguments(self, spec: ToolSpec, args: Any) -> JsonObject:
        """Arguments that fit the schema of one of these tools."""
        validator = self._validators.get(spec.name)
        if validator is None:
            validator = self._validators[spec.name] = _validator(spec.parameters)
        _check(validator, args, "arguments")
        if not isinstance(args, dict):
            raise Invalid("the arguments of a tool are an object", code="invalid_arguments")
        return cast(JsonObject, args)


def parse_arguments(text: str) -> Any:
    """A model's arguments as JSON."""
    if len(text) > MAX_ARGUMENTS:
        raise Invalid(f"the arguments are longer than {MAX_ARGUMENTS:,} characters", code="invalid_arguments")
    try:
        args: Any = msgspec.json.decode(text) if text.strip() else {}
        return sound_value(args) if "\\u0000" in text else args
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the arguments are not JSON ({error}); send an object", code="invalid_arguments") from error


def clipped_arguments(text: str) -> str:
    """Arguments that will not do, as the log has them."""
    return text if len(text) <= LONGEST_BAD else f"{text[:LONGEST_BAD]} … ({len(text):,} characters in all)"


def check_value(schema: JsonObject, value: Any, where: str) -> Any:
    """A value that fits a schema. `Invalid` with the place of the fault."""
    _check(_validator(schema), value, where)
    return value


def _check(validator: jsonschema_rs.Validator, value: Any, where: str) -> None:
    for fault in validator.iter_errors(value):
        place = ".".join(str(part) for part in fault.instance_path)
        raise Invalid(f"{place or where}: {fault.message}", code=f"invalid_{where}")


def _validator(schema: JsonObject) -> jsonschema_rs.Validator:
    return _validator_of(msgspec.json.encode(schema))


@lru_cache(1_000)
def _validator_of(schema: bytes) -> jsonschema_rs.Validator:
    return schema_validator(msgspec.json.decode(schema), "schema")


# What every agent has unless its definition names the built-in tools that it wants.
ALWAYS = ("ask_user", "final_answer")
DELEGATING = ("create_task", "reply_to_task", "reactivate_task")
CONVERSING = (
    *("enter_space", "send_message", "send_reply", "read_messages", "get_my_runs", "stop_run"),
    *(
        "set_memory",
        "get_memories",
        "delete_memory",
        "set_goal",
        "get_goals",
        "delete_goal",
        "set_plan",
        "get_plans",
        "delete_plan",
    ),
)
REMEMBERING = ("write_breadcrumb", "read_breadcrumbs", "search_breadcrumbs")


def _chosen(definition: Definition, builtins: Mapping[str, Builtin | Asking], in_conversation: bool) -> list[str]:
    if definition.builtin_tools is not None:
        if unknown := [name for name in definition.builtin_tools if name not in builtins]:
            raise Invalid(f"there is no built-in tool {unknown[0]!r}; there are {', '.join(sorted(builtins))}", "builtin_tools")
        return list(definition.builtin_tools)
    wanted: list[str] = [*ALWAYS]
    if definition.delegates:
        wanted += DELEGATING
    if definition.subscriptions:
        wanted += REMEMBERING
    if in_conversation:
        wanted += CONVERSING
    return [name for name in wanted if name in builtins]


def is_in_conversation(run: Run) -> bool:
    return run.cause.kind in ("mention", "direct", "plan", "service") or run.active_space_id is not None
