"""What is refused of a definition when it is given, so that no run has to find out: each fault with its place.

What only a worker can tell (whether a model can be reached, whether a built-in tool or a delegate is there) is said by the run.
"""

import re

import jsonschema_rs
import msgspec

from stigmergy.agents.gateway import check_execution
from stigmergy.agents.mcp_definition import mcp_server
from stigmergy.agents.model import Definition, JsonObject, Limits, ToolSpec
from stigmergy.breadcrumbs.model import check_name, check_tags
from stigmergy.breadcrumbs.subscriptions import parse_subscriptions
from stigmergy.errors import Invalid

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
# What is longer is clipped in a run's log, and a model would see only its beginning.
LONGEST_INSTRUCTIONS = 64 * 1024
# Of any limit; as milliseconds 31 years.
MOST = 10**12


def check_definition(definition: Definition) -> Definition:
    """Refuses what no run could use, with the place of the fault."""
    if _NAME.fullmatch(definition.name) is None:
        raise Invalid("an agent's name has 1 to 128 letters, digits, `_`, `.` or `-`", "name")
    if not definition.model or len(definition.model) > 200:
        raise Invalid("name a model, such as openai:gpt-5-mini, or scripted:NAME", "model")
    if (size := len(definition.instructions.encode(errors="surrogatepass"))) > LONGEST_INSTRUCTIONS:
        raise Invalid(
            f"instructions have at most {LONGEST_INSTRUCTIONS:,} bytes, these have {size:,}; let it read the rest itself",
            "instructions",
        )
    seen: set[str] = set()
    for place, tool in enumerate(definition.tools):
        _check_tool(tool, f"tools[{place}]")
        if tool.name in seen:
            raise Invalid(f"two tools are called {tool.name!r}", f"tools[{place}].name")
        seen.add(tool.name)
    for place, server in enumerate(definition.mcp_servers):
        mcp_server(server, f"mcp_servers[{place}]")
    for name in definition.delegates:
        if _NAME.fullmatch(name) is None:
            raise Invalid(f"{name[:60]!r} can name no agent", "delegates")
    parse_subscriptions(list(definition.subscriptions))
    _check_output(definition)
    _check_numbers(definition)
    return definition


def _check_tool(tool: ToolSpec, where: str) -> None:
    if _TOOL_NAME.fullmatch(tool.name) is None:
        raise Invalid("a tool's name has 1 to 64 letters, digits, `_`, `.` or `-`", f"{where}.name")
    check_schema(tool.parameters, f"{where}.parameters")
    if tool.execution_type == "gateway":
        check_execution(tool, where)
    if tool.timeout_ms < 1 or tool.tries < 1:
        raise Invalid("a tool has at least a millisecond and one try", where)
    _check_most(tool.timeout_ms, f"{where}.timeout_ms")
    _check_most(tool.tries, f"{where}.tries")


def check_schema(schema: JsonObject, where: str) -> None:
    try:
        jsonschema_rs.validator_for(schema)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
        raise Invalid(f"this is no JSON Schema ({str(error).splitlines()[0]})", where) from error


def _check_output(definition: Definition) -> None:
    output = definition.output
    if output is None:
        return
    if output.json_schema is not None:
        check_schema(output.json_schema, "output.json_schema")
    if output.schema_name is not None:
        check_name(output.schema_name, "output.schema_name")
    check_tags(list(output.tags))


def _check_numbers(definition: Definition) -> None:
    limits = definition.limits
    for field in msgspec.structs.fields(Limits):
        value = getattr(limits, field.name)
        if value is not None and value < (0 if field.name in ("children", "nesting") else 1):
            raise Invalid("a limit is a positive number", f"limits.{field.name}")
        _check_most(value, f"limits.{field.name}")
    for name in ("window", "budget", "history_tokens", "keep_checkpoints"):
        value = getattr(definition, name)
        if value is not None and value < 1:
            raise Invalid("this is a positive number", name)
        _check_most(value, name)
    below = definition.approval.confidence_below
    if below is not None and not 0 <= below <= 1:
        raise Invalid("a confidence is between 0 and 1", "approval.confidence_below")
    if definition.approval.timeout_ms < 1:
        raise Invalid("a time to decide is at least a millisecond", "approval.timeout_ms")
    _check_most(definition.approval.timeout_ms, "approval.timeout_ms")


def _check_most(value: int | None, where: str) -> None:
    """A moment that lies so far off could not be stored, and nothing could be started any more."""
    if value is not None and value > MOST:
        raise Invalid(f"this is at most {MOST:,}; leave it out where it does not matter", where)
