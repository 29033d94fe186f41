"""Agents as JSON: the `configJson` that other programs hold, in its second form, and in its first with a notice of what was
changed on the way; our own form (a `Definition`'s fields) as it is. Pure.

In the first form a tool's visibility was `displayTool` and `display.mode`. Where both are given, `mode` wins; where
`visibility` is given already, they are dropped.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from stigmergy.agents.checking import check_definition
from stigmergy.agents.gateway import check_execution
from stigmergy.agents.model import Definition, Execution, JsonObject, ToolSpec, Visibility
from stigmergy.errors import Invalid
from stigmergy.kernel.json_schemas import schema_validator

# The seeds' words for how a tool is executed.
_EXECUTION: dict[str, Execution] = {
    "gateway": "gateway",
    "internal": "internal",
    "mcp": "mcp",
    "client": "client",
    "space": "client",
    "external": "client",
}
_MODES: dict[Any, Visibility] = {"full": "visible", "minimal": "result-only", "hidden": "hidden"}
_KEPT_IN_DISPLAY = frozenset({"customUI", "showInput", "showOutput"})
_TOOL = frozenset(
    {"name", "description", "executionType", "visibility", "inputSchema", "execution", "display", "displayTool", "timeout"}
    | {"category", "agentScope", "repeatable", "tries"}
)
# camelCase in a config, and ours.
_FIELDS = {
    "displayName": "display_name",
    "systemPrompt": "instructions",
    "instructions": "instructions",
    "builtinTools": "builtin_tools",
    "mcpServers": "mcp_servers",
    "secondMessage": "second_message",
    "maxSteps": "max_steps",
}


class Parsed(NamedTuple):
    """A definition, and what was changed to make it one."""

    definition: Definition
    notices: list[str]


def parse_config(config: Mapping[str, Any], *, name: str | None = None) -> Parsed:
    """An agent's config. `name` is that of the agent where the config has none."""
    given = {_FIELDS.get(key, key): value for key, value in config.items()}
    if name is not None:
        given.setdefault("name", name)
    notices: list[str] = []
    tools: Any = given.pop("tools", None) or []
    if not isinstance(tools, list):
        raise Invalid("tools is a list", "tools")
    parsed = [_tool(each, f"tools[{place}]", notices) for place, each in enumerate(cast(list[Any], tools))]
    if (max_steps := given.pop("max_steps", None)) is not None:
        given["limits"] = {**given.get("limits", {}), "max_steps": max_steps}
    try:
        definition = msgspec.convert({**given, "tools": ()}, Definition)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise Invalid(message, place.strip("`.") or "config") from error
    return Parsed(check_definition(msgspec.structs.replace(definition, tools=tuple(parsed))), notices)


def _tool(given: Any, where: str, notices: list[str]) -> ToolSpec:
    if not isinstance(given, Mapping):
        raise Invalid("a tool is an object", where)
    tool = cast(Mapping[str, Any], given)
    if not isinstance(tool.get("name"), str):
        raise Invalid("a tool has a name", f"{where}.name")
    if "execution_type" in tool or "parameters" in tool:
        return _ours(tool, where)
    if unknown := set(tool) - _TOOL:
        raise Invalid(f"a tool has no {min(unknown)!r}", where)
    execution_type = _EXECUTION.get(tool.get("executionType", "internal"))
    if execution_type is None:
        raise Invalid(f"an executionType is one of {', '.join(_EXECUTION)}", f"{where}.executionType")
    display = _object(tool.get("display"), f"{where}.display")
    execution = _object(tool.get("execution"), f"{where}.execution")
    fields: JsonObject = {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "parameters": _schema(tool.get("inputSchema"), where),
        "execution_type": execution_type,
        "visibility": _visibility(tool, display, execution_type, where, notices),
        "execution": execution,
        "display": {key: value for key, value in (display or {}).items() if key in _KEPT_IN_DISPLAY} or None,
        "category": tool.get("category"),
        "agent_scope": tool.get("agentScope", ()),
        "timeout_ms": tool.get("timeout") or (execution or {}).get("timeout") or 30_000,
        "repeatable": tool.get("repeatable", _is_repeatable(execution_type, execution)),
        "tries": tool.get("tries", 1),
    }
    return _checked(fields, where)


def _ours(tool: Mapping[str, Any], where: str) -> ToolSpec:
    fields = dict(tool)
    fields.setdefault("visibility", default_visibility(fields.get("execution_type", "internal")))
    _schema(fields.get("parameters"), where)
    return _checked(fields, where)


def _checked(fields: JsonObject, where: str) -> ToolSpec:
    try:
        spec = msgspec.convert({key: value for key, value in fields.items() if value is not None}, ToolSpec)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise Invalid(message, f"{where}{place.strip('`')}") from error
    if spec.execution_type == "gateway":
        check_execution(spec, where)
    return spec


def _visibility(
    tool: Mapping[str, Any], display: JsonObject | None, execution_type: Execution, where: str, notices: list[str]
) -> Visibility:
    """`visibility` as it is; else what the first form meant, with a notice."""
    mode = (display or {}).get("mode")
    shown = tool.get("displayTool")
    given: Any = tool.get("visibility")
    if given is not None:
        if mode is not None or shown is not None:
            notices.append(f"{where}: displayTool and display.mode are not used any more; visibility {given!r} holds")
        return given
    if mode is not None:
        if mode not in _MODES:
            raise Invalid(f"display.mode is one of {', '.join(_MODES)}", f"{where}.display.mode")
        notices.append(f"{where}: display.mode {mode!r} was migrated to visibility {_MODES[mode]!r}")
        return _MODES[mode]
    if shown is not None:
        migrated: Visibility = "visible" if shown else "hidden"
        notices.append(f"{where}: displayTool {shown!r} was migrated to visibility {migrated!r}")
        return migrated
    return default_visibility(execution_type)


def default_visibility(execution_type: str) -> Visibility:
    """What a tool's visibility is when its config does not say."""
    return "visible" if execution_type in ("gateway", "client") else "hidden"


def _is_repeatable(execution_type: Execution, execution: JsonObject | None) -> bool:
    """A call that only reads may be made again after a crash."""
    return execution_type == "gateway" and str((execution or {}).get("method", "GET")).upper() in ("GET", "HEAD")


def _schema(schema: Any, where: str) -> JsonObject:
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise Invalid("a schema of arguments is an object", f"{where}.inputSchema")
    checked = cast(JsonObject, schema)
    schema_validator(checked, f"{where}.inputSchema")
    return checked


def _object(value: Any, where: str) -> JsonObject | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Invalid("an object is wanted", where)
    return cast(JsonObject, value)
