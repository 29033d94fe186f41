"""`/v1/sub-agents`: runs that a program outside executes, their messages and tool calls. An operator's."""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, get, patch, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta

from stigmergy.api import wire
from stigmergy.api.requests import AnyRequest, Cursor, IdempotencyKey, IfMatch, once, operators_only, read, write
from stigmergy.api.responses import JsonResponse
from stigmergy.api.tasks import Milliseconds, NewId
from stigmergy.engine.outside import run_outside
from stigmergy.errors import NotFound
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs import external, queries
from stigmergy.runs.external import Outcome, Spoken, Taken, TakeUp, sub_agent_status
from stigmergy.runs.model import CallStatus, Role, Run, RunMessage, RunStatus, ToolCall, Usage
from stigmergy.runs.steps import NewCall

Id = Annotated[str, PathParameter(description="A run's id.")]
CallId = Annotated[str, PathParameter(description="A tool call's id, which is the `tool_call_id` of its message.")]
Reason = Annotated[str, Meta(min_length=1, max_length=10_000)]
ToolName = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")]
Tokens = Annotated[int, Meta(ge=0, le=10**12)]
# Ours, and the two words of other programs that are not.
NewStatus = RunStatus | Literal["active", "waiting_for_user"]


class SubAgentIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take a task up. Its run begins with `instructions` as its system message and the task's instruction as its user's; these,
    and the limits, are the agent's own where it has a definition and they are not given. Asked again, the run that is there."""

    task_id: str
    id: NewId | None = None
    instructions: Annotated[str, Meta(max_length=1 << 20)] | None = None
    max_steps: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    deadline_ms: Milliseconds | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class SubAgentPatchIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a run goes; its task goes with it. `active` is `running`, and `waiting_for_user` is `waiting_reply`."""

    status: NewStatus
    result: Any = None
    error: Reason | None = None


class SubAgentOut(msgspec.Struct, kw_only=True):
    """A run outside. `state` is its status in the words of other programs: active, waiting_for_user, completed, failed. `version`
    changes with every step: who adds an assistant's message names the one it has thought about in If-Match."""

    id: str
    owner_id: str
    space_id: str
    chat_id: str
    task_id: str | None
    parent_run_id: str | None
    role: str
    status: RunStatus
    state: str
    iteration_count: int
    max_steps: int
    tokens_used: int
    metadata: dict[str, Any]
    result: Any
    error: str | None
    deadline: wire.Moment
    version: int
    created_at: wire.Moment
    updated_at: wire.Moment


class SubAgentPage(msgspec.Struct):
    """The newest changed first. `cursor` asks for what follows; without one there is no more."""

    items: list[SubAgentOut]
    cursor: str | None


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`arguments` is JSON in a text, as models give it."""

    name: ToolName
    arguments: Annotated[str, Meta(max_length=1 << 20)] = "{}"


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call as an assistant's message has it."""

    id: NewId
    type: str = "function"
    function: Function


class UsageIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cached_tokens: Tokens = 0


class SubAgentMessageIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message for the log. An assistant's is a step, and opens the calls that it asks for; a tool's settles the call it names;
    a user's answers a run that waits for one, and wakes a completed one."""

    role: Role
    content: Annotated[str, Meta(max_length=1 << 22)]
    name: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[Asked], Meta(max_length=128)] = msgspec.field(default_factory=list[Asked])
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    usage: UsageIn | None = None


class SubAgentMessageOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message of the log at its position, in the form that models are given."""

    pos: int
    step: int
    role: Role
    content: str
    created_at: wire.Moment
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[Asked] = msgspec.field(default_factory=list[Asked])
    token_count: int = 0


class SubAgentMessages(msgspec.Struct):
    """In the order of the log. `version` is the run's: an assistant's message that was thought of these says it in If-Match."""

    items: list[SubAgentMessageOut]
    status: RunStatus
    version: int
    cursor: str | None


class ToolCallIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more call, besides those that came with an assistant's message."""

    id: NewId
    tool_name: ToolName
    args: Any = msgspec.field(default_factory=dict[str, Any])


class ToolCallPatchIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that is begun, or settled: the message of its result is written with it."""

    status: CallStatus
    result: Any = None
    error: Reason | None = None
    duration_ms: Annotated[int, Meta(ge=0, le=10**12)] | None = None


class ToolCallOut(msgspec.Struct, kw_only=True):
    id: str
    run_id: str
    step: int
    tool_name: str
    args: Any
    status: CallStatus
    result: Any
    error: str | None
    attempts: int
    opened_pos: int
    settled_pos: int | None
    duration_ms: int | None
    version: int
    created_at: wire.Moment
    updated_at: wire.Moment


class ToolCallsOut(msgspec.Struct):
    """In the order in which they were opened."""

    items: list[ToolCallOut]


class SubAgentRoutes(Controller):
    path = "/v1/sub-agents"
    tags = ("tasks",)
    guards = (operators_only,)

    @post(summary="Take up a task that is executed outside", operation_id="create_sub_agent")
    async def create(
        self, request: AnyRequest, data: JSONBody[SubAgentIn], key: IdempotencyKey = None
    ) -> JsonResponse[SubAgentOut]:
        wanted = TakeUp(**{name: getattr(data, name) for name in data.__struct_fields__})
        body = await request.body() if key is not None else b""
        taken: Taken = await write(request, _take_up, wanted, key, body)
        return answer(taken.run, 201 if taken.created else 200)

    @get(summary="List runs outside, the newest changed first", operation_id="list_sub_agents")
    async def find(
        self,
        request: AnyRequest,
        task_id: Annotated[str | None, QueryParameter(max_length=200, description="Only of this task.")] = None,
        status: Annotated[RunStatus | None, QueryParameter(description="Only these.")] = None,
        limit: wire.Limit = 50,
        cursor: Cursor = None,
    ) -> SubAgentPage:
        below = wire.below(cursor)
        page = await read(request, queries.runs_outside, task_id=task_id, status=status, below=below, limit=limit)
        return SubAgentPage([sub_agent_out(each) for each in page.items], None if page.next is None else str(page.next))

    @get("/{id:str}", summary="One run outside", operation_id="get_sub_agent")
    async def one(self, request: AnyRequest, id: Id) -> JsonResponse[SubAgentOut]:
        return answer(await read(request, run_outside, id))

    @patch("/{id:str}", summary="Move a run outside, and its task with it", operation_id="patch_sub_agent")
    async def change(
        self, request: AnyRequest, id: Id, data: JSONBody[SubAgentPatchIn], if_match: IfMatch = None
    ) -> JsonResponse[SubAgentOut]:
        outcome = Outcome(data.status, data.result, data.error)
        return answer(await write(request, external.change_run, id, outcome, if_match=wire.expected(if_match)))

    @post("/{id:str}/messages", summary="Add a message to its log", operation_id="create_sub_agent_message")
    async def speak(
        self,
        request: AnyRequest,
        id: Id,
        data: JSONBody[SubAgentMessageIn],
        if_match: IfMatch = None,
        key: IdempotencyKey = None,
    ) -> SubAgentMessageOut:
        spoken = Spoken(
            role=data.role,
            content=data.content,
            name=data.name,
            tool_call_id=data.tool_call_id,
            calls=[new_call(each.id, each.function.name, arguments(each.function.arguments)) for each in data.tool_calls],
            model=data.model,
            usage=None if data.usage is None else msgspec.convert(data.usage, Usage, from_attributes=True),
        )
        body = await request.body() if key is not None else b""
        message: RunMessage = await write(request, _speak, id, spoken, wire.expected(if_match), key, body)
        return message_out(message, list(data.tool_calls))

    @get("/{id:str}/messages", summary="Its log", operation_id="list_sub_agent_messages")
    async def messages(self, request: AnyRequest, id: Id, limit: wire.Limit = 200, cursor: Cursor = None) -> SubAgentMessages:
        return await read(request, _messages, id, 0 if cursor is None else wire.below(cursor), limit)

    @post("/{id:str}/tool-calls", summary="Open a tool call", operation_id="create_sub_agent_tool_call")
    async def add_call(
        self, request: AnyRequest, id: Id, data: JSONBody[ToolCallIn], key: IdempotencyKey = None
    ) -> JsonResponse[ToolCallOut]:
        body = await request.body() if key is not None else b""
        return call_answer(await write(request, _add_call, id, new_call(data.id, data.tool_name, data.args), key, body), 201)

    @get("/{id:str}/tool-calls", summary="Its tool calls", operation_id="list_sub_agent_tool_calls")
    async def calls(self, request: AnyRequest, id: Id) -> ToolCallsOut:
        return ToolCallsOut([call_out(each) for each in await read(request, _calls, id)])

    @get("/{id:str}/tool-calls/{call_id:str}", summary="One tool call", operation_id="get_sub_agent_tool_call")
    async def one_call(self, request: AnyRequest, id: Id, call_id: CallId) -> JsonResponse[ToolCallOut]:
        return call_answer(await read(request, _call, id, call_id))

    @patch("/{id:str}/tool-calls/{call_id:str}", summary="Begin or settle it", operation_id="patch_sub_agent_tool_call")
    async def change_call(
        self, request: AnyRequest, id: Id, call_id: CallId, data: JSONBody[ToolCallPatchIn], if_match: IfMatch = None
    ) -> JsonResponse[ToolCallOut]:
        outcome = Outcome(data.status, data.result, data.error)
        version = wire.expected(if_match)
        changed = await write(request, external.change_call, id, call_id, outcome, duration_ms=data.duration_ms, if_match=version)
        return call_answer(changed)


# ---- what the routes ask of the store ----


async def _take_up(tx: Transaction, wanted: TakeUp, key: str | None, body: bytes) -> Taken:
    return await once(tx, "POST /v1/sub-agents", key, body, lambda: external.take_up(tx, wanted), Taken)


async def _speak(tx: Transaction, id: str, spoken: Spoken, if_match: int | None, key: str | None, body: bytes) -> RunMessage:
    route = f"POST /v1/sub-agents/{id}/messages"
    return await once(tx, route, key, body, lambda: external.speak(tx, id, spoken, if_match=if_match), RunMessage)


async def _add_call(tx: Transaction, id: str, call: NewCall, key: str | None, body: bytes) -> ToolCall:
    route = f"POST /v1/sub-agents/{id}/tool-calls"
    return await once(tx, route, key, body, lambda: external.add_call(tx, id, call), ToolCall)


async def _messages(tx: Snapshot, id: str, after: int, limit: int) -> SubAgentMessages:
    run = await run_outside(tx, id)
    found = await queries.messages(tx, id, after=after, limit=limit)
    thought = [each.step for each in found if each.role == "assistant"]
    asked: dict[int, list[Asked]] = {step: [] for step in thought}
    for call in await queries.calls(tx, id, from_step=min(thought)) if thought else ():
        if call.step in asked:
            asked[call.step].append(asked_of(call))
    items = [message_out(each, asked[each.step] if each.role == "assistant" else []) for each in found]
    return SubAgentMessages(items, run.status, run.version, str(found[-1].pos) if len(found) == limit else None)


async def _calls(tx: Snapshot, id: str) -> list[ToolCall]:
    await run_outside(tx, id)
    return await queries.calls(tx, id)


async def _call(tx: Snapshot, id: str, call_id: str) -> ToolCall:
    await run_outside(tx, id)
    found = await tx.get(ToolCall, id, call_id)
    if found is None:
        raise NotFound(f"run {id} has no tool call {call_id}")
    return found


# ---- the shapes ----


def new_call(id: str, tool_name: str, args: Any) -> NewCall:
    return NewCall(id=id, tool_name=tool_name, args=args, execution_type="internal", visibility="hidden", begun=False)


def arguments(text: str) -> Any:
    """What a model gave, as a value where it is JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def asked_of(call: ToolCall) -> Asked:
    text = call.args if isinstance(call.args, str) else msgspec.json.encode(call.args).decode()
    return Asked(id=call.id, function=Function(call.tool_name, text))


def answer(run: Run, status: int = 200) -> JsonResponse[SubAgentOut]:
    return JsonResponse(sub_agent_out(run), status_code=status, headers={"ETag": wire.etag(run.version)})


def sub_agent_out(run: Run) -> SubAgentOut:
    return SubAgentOut(
        id=run.id,
        owner_id=run.owner_id,
        space_id=run.space_id,
        chat_id=run.space_id,
        task_id=run.task_id,
        parent_run_id=run.parent_run_id,
        role=run.agent,
        status=run.status,
        state=sub_agent_status(run),
        iteration_count=run.step,
        max_steps=run.max_steps,
        tokens_used=run.tokens_used,
        metadata=run.metadata,
        result=run.result,
        error=run.error,
        deadline=wire.moment(run.deadline),
        version=run.version,
        created_at=wire.moment(run.created_at),
        updated_at=wire.moment(run.updated_at),
    )


def message_out(message: RunMessage, asked: list[Asked]) -> SubAgentMessageOut:
    return SubAgentMessageOut(
        pos=message.pos,
        step=message.step,
        role=message.role,
        content=message.content,
        created_at=wire.moment(message.created_at),
        name=message.name,
        tool_call_id=message.tool_call_id,
        tool_calls=asked,
        token_count=message.token_count,
    )


def call_answer(call: ToolCall, status: int = 200) -> JsonResponse[ToolCallOut]:
    return JsonResponse(call_out(call), status_code=status, headers={"ETag": wire.etag(call.version)})


def call_out(call: ToolCall) -> ToolCallOut:
    fields: dict[str, Any] = {name: getattr(call, name) for name in ToolCallOut.__struct_fields__}
    for name in ("created_at", "updated_at"):
        fields[name] = wire.moment(fields[name])
    return ToolCallOut(**fields)


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (
    *(SubAgentIn, SubAgentPatchIn, SubAgentOut, SubAgentPage, SubAgentMessageIn, SubAgentMessageOut, SubAgentMessages),
    *(ToolCallIn, ToolCallPatchIn, ToolCallOut, ToolCallsOut),
)
MORE: dict[str, tuple[int, ...]] = {
    "create_sub_agent": (404, 409),
    "get_sub_agent": (404,),
    "patch_sub_agent": (404, 409, 412),
    "create_sub_agent_message": (404, 409, 412),
    "list_sub_agent_messages": (404,),
    "create_sub_agent_tool_call": (404, 409),
    "list_sub_agent_tool_calls": (404,),
    "get_sub_agent_tool_call": (404,),
    "patch_sub_agent_tool_call": (404, 409, 412),
}
TAGGED = {
    *("create_sub_agent", "get_sub_agent", "patch_sub_agent"),
    *("create_sub_agent_tool_call", "get_sub_agent_tool_call", "patch_sub_agent_tool_call"),
}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"query": "BTC"}'}}
EXAMPLES: dict[str, Any] = {
    "create_sub_agent": {"task_id": "01890a5d-ac96-774b-bcce-b302099a8057", "instructions": "You look things up."},
    "patch_sub_agent": {"status": "waiting_reply"},
    "create_sub_agent_message": {"role": "assistant", "content": "I look it up.", "tool_calls": [_CALL]},
    "create_sub_agent_tool_call": {"id": "call_2", "tool_name": "search", "args": {"query": "ETH"}},
    "patch_sub_agent_tool_call": {"status": "success", "result": {"price": 97000}, "duration_ms": 120},
}
