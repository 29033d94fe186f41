"""Tasks, runs and their logs, as stored, and the transitions that each may make. Pure.

One log per run: messages, thoughts, the opening and the settling of a tool call, and changes of variables each take the next
`pos` of their run, without gaps. A checkpoint is such a position. Nothing in the log is ever written again, but for a tool
call, which is settled.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stigmergy.agents.model import Execution, Executor, Visibility
from stigmergy.errors import Conflict
from stigmergy.kernel.record import Record, declare

JsonObject = dict[str, Any]

TaskType = Literal["agent", "tool"]
TaskStatus = Literal["pending", "running", "waiting", "success", "failed"]
RunStatus = Literal["queued", "running", "waiting_tool", "waiting_reply", "completed", "failed", "canceled"]
CallStatus = Literal["pending", "running", "success", "failed", "canceled"]
WaitKind = Literal["reply", "tool", "approval", "child"]
WaitStatus = Literal["open", "answered", "expired", "canceled"]
Role = Literal["system", "user", "assistant", "tool"]
ThoughtType = Literal["planning", "reasoning", "tool_selection", "tool_execution", "reflection", "decision"]
CheckpointReason = Literal["step_complete", "manual", "low_confidence", "tool_error", "auto"]
CauseKind = Literal["api", "task", "subscription", "trigger", "mention", "direct", "plan", "service", "external"]


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a run was started: by which change, by which message; and in which span of a trace, where somebody traces."""

    kind: CauseKind
    change_seq: int | None = None
    message_id: str | None = None
    traceparent: str | None = None


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """An image, a file or the whole of a long text that is kept as a block."""

    kind: Literal["image", "file", "text"]
    block: str
    media_type: str = "application/octet-stream"
    size: int = 0
    name: str | None = None


class StepPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step's prompt was made of: blocks by their hashes, and the log from one position up to another. `rewritten` has
    what a hook changed of the messages."""

    blocks: tuple[str, ...]
    first: int
    upto: int
    tools: str | None = None
    notes: tuple[str, ...] = ()
    rewritten: str | None = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step cost. Times in milliseconds."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    duration_ms: int = 0
    cost: float | None = None


class Task(Record, frozen=True, kw_only=True):
    """An assignment to an agent (`agent:NAME`) or a tool (`tool:NAME`)."""

    id: str
    owner_id: str
    space_id: str
    type: TaskType = "agent"
    name: str
    instruction: str
    run_id: str | None = None
    trigger_message_id: str | None = None
    parent_run_id: str | None = None
    tool_call_id: str | None = None
    executor: Executor = "engine"
    status: TaskStatus = "pending"
    result: Any = None
    error: str | None = None
    completions: int = 0


class Run(Record, frozen=True, kw_only=True):
    """One life of an agent. `cause_key` is unique: one cause starts one run of an agent, however often it is delivered."""

    id: str
    owner_id: str
    space_id: str
    agent: str
    agent_version: int
    agent_shared: bool = False
    entity_id: str
    task_id: str | None = None
    parent_run_id: str | None = None
    root_id: str
    nesting: int = 0
    depth: int = 0
    cause: Cause = Cause("api")
    cause_key: str | None = None
    executor: Executor = "engine"
    status: RunStatus = "queued"
    step: int = 0
    max_steps: int = 10
    active_space_id: str | None = None
    assembly: str | None = None
    metadata: JsonObject = msgspec.field(default_factory=JsonObject)
    tokens_used: int = 0
    cost: float | None = None
    deadline: int = 0
    attempts: int = 0
    result: Any = None
    error: str | None = None
    started_at: int | None = None
    ended_at: int | None = None


class RunMessage(Record, frozen=True, kw_only=True):
    """The inner monologue of a run. What an assistant asked of tools are the tool calls of its step; `kept` is what its provider
    wants to see again with its message."""

    run_id: str
    pos: int
    owner_id: str
    space_id: str
    step: int
    role: Role
    content: str
    parts: list[Part] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    token_count: int = 0
    stream_id: str | None = None
    model: str | None = None
    prompt: StepPrompt | None = None
    usage: Usage | None = None
    kept: JsonObject | None = None


class ToolCall(Record, frozen=True, kw_only=True):
    """What an assistant asked of a tool. `args` is what the model gave, an object once it was checked."""

    run_id: str
    id: str
    owner_id: str
    space_id: str
    opened_pos: int
    settled_pos: int | None = None
    step: int
    tool_name: str
    args: Any
    execution_type: Execution = "internal"
    visibility: Visibility = "hidden"
    status: CallStatus = "pending"
    result: Any = None
    error: str | None = None
    duration_ms: int | None = None
    attempts: int = 0


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True):
    option: str
    reason_rejected: str
    confidence: float | None = None


class Thought(Record, frozen=True, kw_only=True):
    """What the agent thought, as far as it said so. That it chose a tool, and what came of it, is in the tool call."""

    run_id: str
    pos: int
    step: int
    type: ThoughtType
    content: str
    reasoning: str | None = None
    confidence: float | None = None
    alternatives: list[Alternative] | None = None
    parent_id: str | None = None
    metadata: JsonObject | None = None


class Variable(Record, frozen=True, kw_only=True):
    """A change of one of the run's variables. The last one of a key is what holds."""

    run_id: str
    pos: int
    step: int
    key: str
    value: Any = None
    removed: bool = False


class Checkpoint(Record, frozen=True, kw_only=True):
    """A position in a run's log. Tokens and time are what the run has used up to it."""

    id: str
    run_id: str
    pos: int
    step: int
    reason: CheckpointReason = "step_complete"
    tokens_used: int = 0
    duration_ms: int = 0
    name: str | None = None
    description: str | None = None
    parent_id: str | None = None
    is_branch: bool = False
    branch_reason: str | None = None


class Wait(Record, frozen=True, kw_only=True):
    """One party that a tool call waits for: an entity's reply, a client's answer, a person's approval, a child's end."""

    run_id: str
    call_id: str
    party: str
    id: str
    kind: WaitKind
    party_name: str
    party_type: Literal["human", "agent", "client", "run"]
    for_entity: str | None = None
    space_id: str | None = None
    message_id: str | None = None
    question: str | None = None
    details: JsonObject | None = None
    status: WaitStatus = "open"
    deadline: int
    answer: JsonObject | None = None
    answered_by: str | None = None
    answered_at: int | None = None


TASKS = declare(Task, "tasks", path="users/{owner_id}/orch-chats/{space_id}/tasks")
RUNS = declare(Run, "runs", path="users/{owner_id}/orch-chats/{space_id}/sub-agents")
OF_RUN = {"run_id": "runs"}
RUN_MESSAGES = declare(
    RunMessage,
    "run_messages",
    path="users/{owner_id}/orch-chats/{space_id}/sub-agents/{run_id}/messages",
    key=("run_id", "pos"),
    history="append",
    belongs_to=OF_RUN,
)
TOOL_CALLS = declare(
    ToolCall,
    "run_tool_calls",
    path="users/{owner_id}/orch-chats/{space_id}/sub-agents/{run_id}/tool-calls",
    key=("run_id", "id"),
    schema_name="tool_call.v1",
    comes_back=False,
    belongs_to=OF_RUN,
)
THOUGHTS = declare(
    Thought,
    "run_thoughts",
    path="runs/{run_id}/thoughts",
    key=("run_id", "pos"),
    history="append",
    schema_name="thought.v1",
    belongs_to=OF_RUN,
)
VARIABLES = declare(
    Variable,
    "run_variables",
    path="runs/{run_id}/variables",
    key=("run_id", "pos"),
    history="append",
    schema_name="variable.v1",
    belongs_to=OF_RUN,
)
CHECKPOINTS = declare(
    Checkpoint,
    "run_checkpoints",
    path="runs/{run_id}/checkpoints",
    schema_name="checkpoint.v1",
    comes_back=False,
    belongs_to=OF_RUN,
)
WAITS = declare(
    Wait,
    "waits",
    path="runs/{run_id}/waits",
    key=("run_id", "call_id", "party"),
    comes_back=False,
    belongs_to=OF_RUN,
)


# ---- what may follow what; anything else is refused and nothing is written ----

TASK_TRANSITIONS: dict[str, frozenset[str]] = {
    "pending": frozenset({"running", "failed"}),
    "running": frozenset({"success", "failed", "waiting"}),
    "waiting": frozenset({"running", "failed"}),
    "success": frozenset({"running"}),
    "failed": frozenset(),
}
RUN_TRANSITIONS: dict[str, frozenset[str]] = {
    "queued": frozenset({"running", "failed", "canceled"}),
    "running": frozenset({"waiting_tool", "waiting_reply", "completed", "failed", "canceled"}),
    "waiting_tool": frozenset({"running", "waiting_reply", "failed", "canceled"}),
    "waiting_reply": frozenset({"running", "waiting_tool", "failed", "canceled"}),
    "completed": frozenset({"running"}),
    "failed": frozenset(),
    "canceled": frozenset(),
}
CALL_TRANSITIONS: dict[str, frozenset[str]] = {
    "pending": frozenset({"running", "success", "failed", "canceled"}),
    "running": frozenset({"success", "failed", "canceled"}),
    "success": frozenset(),
    "failed": frozenset(),
    "canceled": frozenset(),
}
ENDED = frozenset({"completed", "failed", "canceled"})
SETTLED = frozenset({"success", "failed", "canceled"})
WAITING = frozenset({"waiting_tool", "waiting_reply"})


class InvalidTransition(Conflict):
    """From this status nothing leads to that one."""

    code = "invalid_transition"


def check_transition(table: Mapping[str, frozenset[str]], what: str, before: str, after: str) -> None:
    """`InvalidTransition` for a move that the table does not have."""
    if after not in table[before]:
        after_this = ", ".join(sorted(table[before])) or "nothing, it is final"
        raise InvalidTransition(f"{what} is {before} and cannot become {after}; what may follow is: {after_this}")


SUB_AGENT_STATUS: dict[str, str] = {
    "queued": "active",
    "running": "active",
    "waiting_tool": "active",
    "waiting_reply": "waiting_for_user",
    "completed": "completed",
    "failed": "failed",
    "canceled": "failed",
}
