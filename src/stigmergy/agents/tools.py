"""Tools from Python functions: a typed function with a docstring becomes a schema, and its arguments are checked against it."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple, get_type_hints, overload

import msgspec

from stigmergy.agents.model import JsonObject, OutputSpec, ToolSpec, Visibility
from stigmergy.errors import Invalid


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool may know of the call. A function that has a parameter of this type is given one; the model never sees it.

    `idempotency_key` is the same for every attempt at this call: hand it on to services that understand such keys. `assembly`
    is what was gathered for a tool that was woken by itself: the trigger, and each source under its name.
    """

    tenant: str
    owner_id: str
    entity_id: str
    space_id: str
    agent: str
    run_id: str
    call_id: str
    attempt: int = 1
    assembly: JsonObject | None = None

    @property
    def idempotency_key(self) -> str:
        return f"{self.run_id}/{self.call_id}"


class Tool(NamedTuple):
    """A function that an agent may call."""

    spec: ToolSpec
    function: Callable[..., Any]
    args: type[msgspec.Struct]
    context: str | None

    async def call(self, args: JsonObject, context: ToolContext) -> Any:
        """Run it. `args` were checked; what cannot be converted is `Invalid`."""
        given = self.checked(args)
        values = {name: getattr(given, name) for name in self.args.__struct_fields__}
        if self.context is not None:
            values[self.context] = context
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**values)
        return await asyncio.to_thread(self.function, **values)

    def checked(self, args: JsonObject) -> Any:
        try:
            return msgspec.convert(args, self.args, strict=False)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            raise Invalid(message, place.strip("`.") or "arguments") from error


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 30.0,
    repeatable: bool = False,
    tries: int = 1,
    visibility: Visibility = "hidden",
    category: str | None = None,
    agent_scope: tuple[str, ...] = (),
    subscriptions: Sequence[Any] = (),
    output: JsonObject | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **about: Any) -> Any:
    """Make a function a tool, with or without arguments: `@tool` or `@tool(timeout=5, repeatable=True)`.

    A `repeatable` tool may run more than once for one call (after a crash, and `tries` times when it fails); any other runs
    at most once. With `subscriptions` (`on`, `latest`, …) it is also called by itself when one of them matches: its arguments
    are the fields of these names in the trigger. `output={"schema_name": …, "tags": […]}` makes a breadcrumb of its result.
    """
    if function is not None:
        return as_tool(function)

    def named(function: Callable[..., Any]) -> Tool:
        return as_tool(function, **about)

    return named


def as_tool(function: "Callable[..., Any] | Tool", **about: Any) -> Tool:
    if isinstance(function, Tool):
        return function
    name = about.pop("name", None) or function.__name__
    fields, context = _parameters(function, name)
    args = msgspec.defstruct(f"{name}_arguments", fields, forbid_unknown_fields=True, kw_only=True)
    timeout = about.pop("timeout", 30.0)
    description = about.pop("description", None) or inspect.getdoc(function) or ""
    about["subscriptions"] = tuple(msgspec.to_builtins(each) for each in about.get("subscriptions", ()))
    about["output"] = _output(about.get("output"), name)
    spec = ToolSpec(name=name, description=description, parameters=parameters_of(args), timeout_ms=int(timeout * 1000), **about)
    return Tool(spec, function, args, context)


def _output(given: JsonObject | None, name: str) -> OutputSpec | None:
    try:
        return None if given is None else msgspec.convert(given, OutputSpec)
    except msgspec.ValidationError as error:
        raise Invalid(f"the output of the tool {name}: {error}", "output") from error


def parameters_of(args: type[msgspec.Struct]) -> JsonObject:
    """A struct as the JSON Schema of a tool's parameters."""
    try:
        (schema,), components = msgspec.json.schema_components([args], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise Invalid(
            f"the parameters of {args.__name__.removesuffix('_arguments')} have no JSON Schema ({error})", "tools"
        ) from error
    parameters = dict(components.pop(args.__name__)) if "$ref" in schema else dict(schema)
    parameters.pop("title", None)
    if components:
        parameters["$defs"] = components
    return parameters


def _parameters(function: Callable[..., Any], name: str) -> tuple[list[Any], str | None]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise Invalid(
            f"a type of the tool {name} cannot be found ({error}); define it at the top of its module", "tools"
        ) from error
    fields: list[Any] = []
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise Invalid(f"the parameter {parameter.name!r} of the tool {name} has no name that a model could give", "tools")
        kind = hints.get(parameter.name)
        if kind is None:
            raise Invalid(f"the parameter {parameter.name!r} of the tool {name} needs a type", "tools")
        if kind is ToolContext:
            context = parameter.name
        elif parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, _default(parameter.default)))
    return fields, context


def _default(value: Any) -> Any:
    """A list or a dict as a default is copied for every call."""
    return msgspec.field(default_factory=partial(copy, value)) if type(value) in _COPIED else value


_COPIED = frozenset({list, dict, set})
