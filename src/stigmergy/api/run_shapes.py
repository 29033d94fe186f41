"""Runs, their logs and their waits, as they are on the wire: times are ISO 8601."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from stigmergy.agents.model import Execution, Visibility
from stigmergy.agents.models.port import Message, ToolShown
from stigmergy.api import wire
from stigmergy.engine.approvals import What
from stigmergy.engine.past import PastPrompt, PromptPart
from stigmergy.engine.watching import RunEvent
from stigmergy.kernel.record import Record
from stigmergy.runs.commands import LONGEST_INSTRUCTION
from stigmergy.runs.model import (
    Alternative,
    CallStatus,
    Cause,
    CheckpointReason,
    Executor,
    JsonObject,
    Part,
    Role,
    Run,
    RunStatus,
    StepPrompt,
    ThoughtType,
    Usage,
    Wait,
    WaitKind,
    WaitStatus,
)
from stigmergy.runs.queries import Node, RunView

# Fields that are times in milliseconds in the store.
TIMES = frozenset({"created_at", "updated_at", "started_at", "ended_at", "answered_at", "deadline"})

Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_INSTRUCTION)]


class RunOut(msgspec.Struct, kw_only=True):
    """A run. Where one run is asked for, `needs_worker` says whether no living worker can run it; `variables` and `wait_state`
    are told to those who may read its log."""

    id: str
    agent: str
    agent_version: int
    owner_id: str
    entity_id: str
    space_id: str
    active_space_id: str | None
    task_id: str | None
    parent_run_id: str | None
    root_id: str
    nesting: int
    depth: int
    cause: Cause
    executor: Executor
    status: RunStatus
    step: int
    max_steps: int
    metadata: JsonObject
    tokens_used: int
    cost: float | None
    deadline: wire.Moment
    attempts: int
    result: Any
    error: str | None
    started_at: wire.Moment | None
    ended_at: wire.Moment | None
    created_at: wire.Moment
    updated_at: wire.Moment
    version: int
    seq: int
    variables: JsonObject | UnsetType = UNSET
    wait_state: JsonObject | UnsetType | None = UNSET
    needs_worker: bool | UnsetType = UNSET


class RunPage(msgspec.Struct):
    """The newest changed first. `cursor` asks for what follows; without one there is no more."""

    items: list[RunOut]
    cursor: str | None


class NodeOut(msgspec.Struct):
    """A run and the runs that it started."""

    run: RunOut
    children: "list[NodeOut]"


class StartIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run to start. In a space of its own, unless one is named that the caller is in."""

    agent: Annotated[str, Meta(min_length=1, max_length=200)]
    instruction: Text | None = None
    space_id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    metadata: JsonObject = msgspec.field(default_factory=JsonObject)


class SayIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to say to a run, as its user."""

    text: Text


class CancelIn(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Why it is stopped."""

    reason: Annotated[str, Meta(min_length=1, max_length=1_000)] = "canceled"


class ToolResultIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What came of a tool that the client runs: a result, or an error."""

    tool_call_id: Annotated[str, Meta(min_length=1, max_length=200)]
    result: Any = UNSET
    error: str | UnsetType = UNSET


class AnswerIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An answer, by what is asked: a `text` to a question; a `decision` to an approval, with a `reason`, and where it is `modify`
    other `args` or another `text`; a `result` or an `error` of a client's tool."""

    text: Text | UnsetType = UNSET
    decision: What | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    args: JsonObject | UnsetType = UNSET
    result: Any = UNSET
    error: str | UnsetType = UNSET


class RunMessageOut(msgspec.Struct, kw_only=True):
    """One entry of a run's monologue. What an assistant asked of tools are the tool calls of its step."""

    run_id: str
    pos: int
    owner_id: str
    space_id: str
    step: int
    role: Role
    content: str
    parts: list[Part] | None
    tool_call_id: str | None
    name: str | None
    token_count: int
    stream_id: str | None
    model: str | None
    usage: Usage | None
    created_at: wire.Moment
    seq: int


class RunMessagePage(msgspec.Struct):
    """In their order. `cursor` asks for what follows; without one there is no more."""

    items: list[RunMessageOut]
    cursor: str | None


class OpenAIMessages(msgspec.Struct):
    """The same in the shape that OpenAI's protocol has for messages."""

    messages: list[JsonObject]
    cursor: str | None


class RunToolCallOut(msgspec.Struct, kw_only=True):
    """What was asked of a tool, and what came of it. The `id` is unique in its run."""

    run_id: str
    id: str
    owner_id: str
    space_id: str
    opened_pos: int
    settled_pos: int | None
    step: int
    tool_name: str
    args: Any
    execution_type: Execution
    visibility: Visibility
    status: CallStatus
    result: Any
    error: str | None
    duration_ms: int | None
    attempts: int
    created_at: wire.Moment
    updated_at: wire.Moment
    version: int
    seq: int


class RunToolCalls(msgspec.Struct):
    """In the order in which they were opened."""

    items: list[RunToolCallOut]


class ThoughtOut(msgspec.Struct, kw_only=True):
    run_id: str
    pos: int
    step: int
    type: ThoughtType
    content: str
    reasoning: str | None
    confidence: float | None
    alternatives: list[Alternative] | None
    parent_id: str | None
    metadata: JsonObject | None
    created_at: wire.Moment
    seq: int


class ThoughtPage(msgspec.Struct):
    """In their order. `cursor` asks for what follows; without one there is no more."""

    items: list[ThoughtOut]
    cursor: str | None


class CheckpointOut(msgspec.Struct, kw_only=True):
    """A position in a run's log. Tokens and time are what the run had used up to it."""

    id: str
    run_id: str
    pos: int
    step: int
    reason: CheckpointReason
    tokens_used: int
    duration_ms: int
    name: str | None
    description: str | None
    parent_id: str | None
    is_branch: bool
    branch_reason: str | None
    created_at: wire.Moment
    version: int
    seq: int


class Checkpoints(msgspec.Struct):
    """In their order."""

    items: list[CheckpointOut]


class PromptOut(msgspec.Struct):
    """Exactly what a model was asked in a step, what of the run's log and which blocks that was made of, and the tokens of each
    part."""

    run_id: str
    step: int
    model: str | None
    messages: list[Message]
    tools: list[ToolShown]
    made_of: StepPrompt
    parts: list[PromptPart]


class WaitOut(msgspec.Struct, kw_only=True):
    """Something that a run has stopped for: a question (`reply`), an `approval`, a client's `tool`."""

    id: str
    run_id: str
    call_id: str
    kind: WaitKind
    party: str
    party_name: str
    party_type: str
    for_entity: str | None
    space_id: str | None
    message_id: str | None
    question: str | None
    details: JsonObject | None
    status: WaitStatus
    deadline: wire.Moment
    answer: JsonObject | None
    answered_by: str | None
    answered_at: wire.Moment | None
    created_at: wire.Moment
    updated_at: wire.Moment
    version: int
    seq: int


class WaitPage(msgspec.Struct):
    """The oldest first. `cursor` asks for what follows; without one there is no more."""

    items: list[WaitOut]
    cursor: str | None


def shown(record: Record, shape: Any) -> Any:
    """A record in the shape that it has on the wire."""
    fields = {name: getattr(record, name) for name in shape.__struct_fields__ if hasattr(record, name)}
    for name in TIMES & fields.keys():
        fields[name] = None if fields[name] is None else wire.moment(fields[name])
    return shape(**fields)


def run_out(run: Run) -> RunOut:
    return shown(run, RunOut)


def view_out(view: RunView, *, in_full: bool) -> RunOut:
    out = run_out(view.run)
    out.needs_worker = view.needs_worker
    if in_full:
        out.variables, out.wait_state = view.variables, view.wait_state
    return out


def node_out(node: Node) -> NodeOut:
    return NodeOut(run_out(node.run), [node_out(child) for child in node.children])


def wait_out(wait: Wait) -> WaitOut:
    return shown(wait, WaitOut)


def prompt_out(prompt: PastPrompt) -> PromptOut:
    return PromptOut(
        prompt.run_id, prompt.step, prompt.model, list(prompt.messages), list(prompt.tools), prompt.made_of, list(prompt.parts)
    )


SHAPES: tuple[Any, ...] = (
    *(RunOut, RunPage, NodeOut, StartIn, SayIn, CancelIn, ToolResultIn, AnswerIn, RunMessagePage, OpenAIMessages),
    *(RunToolCalls, ThoughtPage, Checkpoints, PromptOut, WaitOut, WaitPage, RunEvent),
)
