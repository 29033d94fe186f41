"""Agents as a program declares them: what is data becomes a definition, what is code stays in the process by its name."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from stigmergy.agents.checking import check_definition
from stigmergy.agents.model import (
    Approval,
    CheckpointPolicy,
    Definition,
    JsonObject,
    Limits,
    OutputSpec,
    ToolSpec,
)
from stigmergy.agents.models.port import Model
from stigmergy.agents.tools import Tool, as_tool
from stigmergy.errors import Invalid

Hook = Callable[..., Any | Awaitable[Any]]


class Hooks(msgspec.Struct, frozen=True):
    """What looks at every model call and tool call, and may change it, refuse it or ask for approval. See `docs/agents.md`."""

    before_model: tuple[Hook, ...] = ()
    after_model: tuple[Hook, ...] = ()
    before_tool: tuple[Hook, ...] = ()
    after_tool: tuple[Hook, ...] = ()

    def __add__(self, other: "Hooks") -> "Hooks":
        return Hooks(*(getattr(self, name) + getattr(other, name) for name in Hooks.__struct_fields__))


class Agent:
    """`Agent("researcher", "openai:gpt-5-mini", "…", tools=[price])`.

    `model` is a name or a model object; `tools` are functions or `Tool`s or, as data, `ToolSpec`s; `delegates` agents or
    their names; `subscriptions` what `on`, `latest`, `recent`, `nearest` make, or the same as data. `output` is the type of the
    answer, or `{"schema_name": …, "tags": […]}` for a breadcrumb that has it, or both in a list. Limits go by their names.
    """

    def __init__(
        self,
        name: str,
        model: str | Model,
        instructions: str = "",
        *,
        description: str = "",
        tools: Iterable[Callable[..., Any] | Tool | ToolSpec] = (),
        delegates: Iterable["Agent | str"] = (),
        subscriptions: Sequence[Any] = (),
        mcp_servers: Iterable[JsonObject] = (),
        output: Any = None,
        hooks: Hooks | None = None,
        require_approval: Iterable[str] = (),
        approval: Approval | None = None,
        limits: Limits | None = None,
        settings: JsonObject | None = None,
        checkpoints: CheckpointPolicy = "every_step",
        keep_checkpoints: int | None = None,
        **more: Any,
    ) -> None:
        self.name = name
        self.model = None if isinstance(model, str) else model
        self.hooks = hooks or Hooks()
        self.output_type, output_spec = _output(output)
        given = list(tools)
        self.tools = {each.spec.name: each for each in (as_tool(tool) for tool in given if not isinstance(tool, ToolSpec))}
        self.delegates = list(delegates)
        limited = {field: more.pop(field) for field in list(more) if field in Limits.__struct_fields__}
        specs = [tool if isinstance(tool, ToolSpec) else as_tool(tool).spec for tool in given]
        asked_first = tuple(require_approval)
        try:
            self.definition = check_definition(
                Definition(
                    name=name,
                    model=model if isinstance(model, str) else f"code:{name}",
                    instructions=instructions,
                    description=description,
                    tools=tuple(specs),
                    mcp_servers=tuple(mcp_servers),
                    delegates=tuple(each if isinstance(each, str) else each.name for each in self.delegates),
                    subscriptions=tuple(_as_data(each) for each in subscriptions),
                    settings=settings or {},
                    limits=msgspec.structs.replace(limits or Limits(), **limited),
                    approval=_approval(approval or Approval(), asked_first),
                    output=output_spec,
                    checkpoints=checkpoints,
                    keep_checkpoints=keep_checkpoints,
                    code=self._code(),
                    **more,
                )
            )
        except TypeError as error:
            raise Invalid(f"an agent has no such setting ({error})", f"agent {name}") from error

    def _code(self) -> tuple[str, ...]:
        """What of this agent is in the process alone, and so must be there for a worker to run it."""
        named = [f"model:code:{self.name}"] if self.model is not None else []
        if self.hooks != Hooks():
            named.append(f"hooks:{self.name}")
        return tuple(named)


def _approval(approval: Approval, tools: Iterable[str]) -> Approval:
    return msgspec.structs.replace(approval, tools=tuple(dict.fromkeys((*approval.tools, *tools))))


def _output(output: Any) -> tuple[Any, OutputSpec | None]:
    kind: Any = None
    written: Mapping[str, Any] = {}
    for each in cast(list[Any], output) if isinstance(output, list) else [output]:
        if isinstance(each, Mapping):
            written = cast(Mapping[str, Any], each)
        elif each is not None:
            kind = each
    if kind is None and not written:
        return None, None
    if unknown := set(written) - {"schema_name", "tags"}:
        raise Invalid(f"output has schema_name and tags, not {', '.join(sorted(unknown))}", "output")
    schema = None
    if kind is not None:
        try:
            schema = msgspec.json.schema(kind)
        except TypeError as error:
            raise Invalid(f"this type has no JSON Schema ({error})", "output") from error
    return kind, OutputSpec(json_schema=schema, schema_name=written.get("schema_name"), tags=tuple(written.get("tags", ())))


def _as_data(subscription: Any) -> JsonObject:
    return msgspec.to_builtins(subscription)


# ---- subscriptions, as a program writes them ----


def on(schema_name: str, *, when: str | None = None, **more: Any) -> JsonObject:
    """What wakes the agent: `on("user.message.v1", when="context.urgent")`."""
    where = {"where": when} if when is not None else {}
    return {"schema_name": schema_name, "role": "trigger", **where, **more}


def latest(schema_name: str, *, as_: str | None = None, **more: Any) -> JsonObject:
    """The newest one, when the agent wakes."""
    return _source(schema_name, as_, {"method": "latest"}, more)


def recent(schema_name: str, *, limit: int = 10, as_: str | None = None, **more: Any) -> JsonObject:
    """The newest ones, newest first."""
    return _source(schema_name, as_, {"method": "recent", "limit": limit}, more)


def nearest(schema_name: str, *, limit: int = 5, query: str | None = None, as_: str | None = None, **more: Any) -> JsonObject:
    """Those nearest to what woke the agent, by words and by meaning."""
    asked = {"query": query} if query is not None else {}
    return _source(schema_name, as_, {"method": "hybrid", "limit": limit, **asked}, more)


def _source(schema_name: str, name: str | None, fetch: JsonObject, more: JsonObject) -> JsonObject:
    named = {"as": name} if name is not None else {}
    return {"schema_name": schema_name, "role": "context", "fetch": fetch, **named, **more}
