"""What an agent is, as stored: data that any worker can read, versioned, pinned to the runs that use it. Pure.

An agent from a program's code and one that was sent over the API are the same here. What only code can do (a Python function)
is named, with the shape of its arguments; a worker that has functions of these names and shapes can run it.
"""

import hashlib
from typing import Any, Literal

import msgspec

from stigmergy.kernel.record import Record, declare

JsonObject = dict[str, Any]
Execution = Literal["internal", "gateway", "mcp", "client"]
Executor = Literal["engine", "external"]
Visibility = Literal["visible", "hidden", "result-only"]
CheckpointPolicy = Literal["every_step", "tool_error", "low_confidence", "manual"]
OnTimeout = Literal["continue", "cancel", "reject", "fail"]


class OutputSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the answer is: checked against a schema, written as a breadcrumb, or both."""

    json_schema: JsonObject | None = None
    schema_name: str | None = None
    tags: tuple[str, ...] = ()


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tool as its agent's definition has it. `gateway` tools say in `execution` how they are called. One with subscriptions is
    also called by itself, with what woke it."""

    name: str
    description: str = ""
    parameters: JsonObject = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    execution_type: Execution = "internal"
    visibility: Visibility = "hidden"
    execution: JsonObject | None = None
    display: JsonObject | None = None
    category: str | None = None
    agent_scope: tuple[str, ...] = ()
    timeout_ms: int = 30_000
    repeatable: bool = False
    tries: int = 1
    subscriptions: tuple[JsonObject, ...] = ()
    output: OutputSpec | None = None

    @property
    def shape(self) -> str:
        """What a function must agree with, to be the one that is meant."""
        return f"{self.name}:{hashlib.sha256(msgspec.json.encode(self.parameters, order='sorted')).hexdigest()[:16]}"


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What ends a run, and how many there may be. Times in milliseconds."""

    max_steps: int = 10
    max_tokens: int | None = None
    deadline_ms: int = 30 * 60_000
    concurrent_runs: int = 5
    waiting_runs: int = 5
    successive_waits: int = 10
    children: int = 16
    nesting: int = 8
    model_tries: int = 4
    model_timeout_ms: int = 120_000


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a person is asked first: for these tools, under this confidence, after an error."""

    tools: tuple[str, ...] = ()
    confidence_below: float | None = None
    on_error: bool = False
    timeout_ms: int = 600_000
    on_timeout: OnTimeout = "cancel"


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All that is said of an agent. With the executor `external` its runs are done by a program outside, by no worker of ours."""

    name: str
    model: str
    instructions: str = ""
    description: str = ""
    display_name: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    builtin_tools: tuple[str, ...] | None = None
    mcp_servers: tuple[JsonObject, ...] = ()
    delegates: tuple[str, ...] = ()
    subscriptions: tuple[JsonObject, ...] = ()
    budget: int | None = None
    window: int = 200
    history_tokens: int | None = None
    settings: JsonObject = msgspec.field(default_factory=JsonObject)
    limits: Limits = Limits()
    approval: Approval = Approval()
    output: OutputSpec | None = None
    checkpoints: CheckpointPolicy = "every_step"
    keep_checkpoints: int | None = None
    on_missing: Literal["wait", "fail"] = "fail"
    triggers_on_own: bool = False
    second_message: Literal["new_run", "same_run"] = "new_run"
    executor: Executor = "engine"
    code: tuple[str, ...] = ()

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def needs(self) -> tuple[str, ...]:
        """What a worker must have in its code to run this: functions by name and shape, hooks and models by name."""
        return tuple(sorted({*self.code, *(tool.shape for tool in self.tools if tool.execution_type == "internal")}))


class AgentRecord(Record, frozen=True, kw_only=True):
    """A definition, stored. `owner` is the program whose code declares it, or the actor that sent it."""

    name: str
    owner: str
    definition: Definition
    queue: str
    enabled: bool = True


AGENTS = declare(AgentRecord, "agents", path="agents/{name}", key=("name",))

# The queue of runs that any worker can serve.
ANYWHERE = "runs"


def queue_of(definition: Definition) -> str:
    """Where the runs of a definition are ready to be claimed: by those workers that have what it needs."""
    if not definition.needs:
        return ANYWHERE
    return f"{ANYWHERE}/{hashlib.sha256(' '.join(definition.needs).encode()).hexdigest()[:16]}"


def entity_of(agent: str) -> str:
    """The entity that an agent is in conversations and in the journal."""
    return f"agent:{agent}"
