"""`/v1/tasks`: assignments to agents and tools. An operator gives them, and moves those that a program outside executes."""

from typing import Annotated, Any

import msgspec
from litestar import Controller, get, patch, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta

from stigmergy.api import wire
from stigmergy.api.auth import claims_of
from stigmergy.api.requests import AnyRequest, Cursor, IdempotencyKey, IfMatch, once, operators_only, read, write
from stigmergy.api.responses import JsonResponse
from stigmergy.engine.starting import give_task
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import external, queries
from stigmergy.runs.delegation import NewTask
from stigmergy.runs.external import Outcome
from stigmergy.runs.model import Executor, Task, TaskStatus, TaskType

Id = Annotated[str, PathParameter(description="A task's id.")]
NewId = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$")]
Name = Annotated[str, Meta(pattern="^(agent|tool):[A-Za-z0-9_.-]{1,128}$")]
Milliseconds = Annotated[int, Meta(ge=1, le=wire.LONGEST_TTL_MS)]


class TaskIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to give. `name` is `agent:NAME` or `tool:NAME`. Without a space (`space_id`, or `chat_id`) it gets one of its own.
    The engine begins it at once. With the executor `external` it waits to be taken up by a program outside: until `deadline_ms`
    are over, half an hour if not said."""

    name: Name
    instruction: Annotated[str, Meta(min_length=1, max_length=1 << 20)]
    id: NewId | None = None
    type: TaskType | None = None
    space_id: str | None = None
    chat_id: str | None = None
    trigger_message_id: Annotated[str, Meta(max_length=200)] | None = None
    executor: Executor = "engine"
    deadline_ms: Milliseconds | None = None


class TaskPatchIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a task goes, and what came of it. The run that it has goes with it. Without a status the result of a task that is
    over is put right, and nothing is moved."""

    status: TaskStatus | None = None
    result: Any = None
    error: Annotated[str, Meta(min_length=1, max_length=10_000)] | None = None


class TaskOut(msgspec.Struct, kw_only=True):
    """A task. `sub_agent_id` is `run_id`, and `chat_id` is `space_id`, under the names that other programs have for them."""

    id: str
    owner_id: str
    space_id: str
    chat_id: str
    type: TaskType
    name: str
    instruction: str
    executor: Executor
    status: TaskStatus
    run_id: str | None
    sub_agent_id: str | None
    trigger_message_id: str | None
    parent_run_id: str | None
    tool_call_id: str | None
    result: Any
    error: str | None
    completions: int
    version: int
    created_at: wire.Moment
    updated_at: wire.Moment


class TaskPage(msgspec.Struct):
    """The newest changed first. `cursor` asks for what follows; without one there is no more."""

    items: list[TaskOut]
    cursor: str | None


class TaskRoutes(Controller):
    path = "/v1/tasks"
    tags = ("tasks",)

    @post(summary="Give a task", operation_id="create_task", guards=[operators_only])
    async def create(self, request: AnyRequest, data: JSONBody[TaskIn], key: IdempotencyKey = None) -> JsonResponse[TaskOut]:
        new = new_task(data, claims_of(request).entity)
        body = await request.body() if key is not None else b""
        return answer(await write(request, _give, new, key, body, grant="operate"), 201)

    @get(summary="List tasks, the newest changed first", operation_id="list_tasks")
    async def find(
        self,
        request: AnyRequest,
        space_id: Annotated[str | None, QueryParameter(max_length=200, description="Only of this space.")] = None,
        trigger_message_id: Annotated[
            str | None, QueryParameter(max_length=200, description="Only those that this message led to.")
        ] = None,
        status: Annotated[TaskStatus | None, QueryParameter(description="Only these.")] = None,
        executor: Annotated[Executor | None, QueryParameter(description="Only these.")] = None,
        limit: wire.Limit = 50,
        cursor: Cursor = None,
    ) -> TaskPage:
        such = queries.TaskFilter(
            space_id=space_id,
            trigger_message_id=trigger_message_id,
            status=status,
            executor=executor,
            owner_id=_whose(request),
        )
        page = await read(request, queries.tasks, such, below=wire.below(cursor), limit=limit)
        return TaskPage([task_out(each) for each in page.items], None if page.next is None else str(page.next))

    @get("/{id:str}", summary="One task; its owner's or an operator's", operation_id="get_task")
    async def one(self, request: AnyRequest, id: Id) -> JsonResponse[TaskOut]:
        task: Task = await read(request, queries.task, id)
        if _whose(request) not in (None, task.owner_id):
            raise NotFound(f"no task {id}")
        return answer(task)

    @patch("/{id:str}", summary="Move a task that is executed outside", operation_id="patch_task", guards=[operators_only])
    async def change(
        self, request: AnyRequest, id: Id, data: JSONBody[TaskPatchIn], if_match: IfMatch = None
    ) -> JsonResponse[TaskOut]:
        outcome = Outcome(data.status, data.result, data.error)
        version = wire.expected(if_match)
        return answer(await write(request, external.change_task, id, outcome, if_match=version, grant="operate"))


async def _give(tx: Transaction, new: NewTask, key: str | None, body: bytes) -> Task:
    async def give() -> Task:
        return (await give_task(tx, new))[0]

    return await once(tx, "POST /v1/tasks", key, body, give, Task)


def _whose(request: AnyRequest) -> str | None:
    """Whose tasks the caller may see; None is everybody's."""
    claims = claims_of(request)
    return None if "operate" in claims.grants else claims.entity


def new_task(given: TaskIn, owner_id: str) -> NewTask:
    if given.type not in (None, given.name.partition(":")[0]):
        raise Invalid(f"a task of the type {given.type} is called {given.type}:NAME", "type")
    if given.space_id is not None and given.chat_id not in (None, given.space_id):
        raise Invalid("this is another name for space_id, and says something else", "chat_id")
    return NewTask(
        id=given.id,
        name=given.name,
        instruction=given.instruction,
        owner_id=owner_id,
        space_id=given.space_id or given.chat_id or "",
        trigger_message_id=given.trigger_message_id,
        executor=given.executor,
        deadline_ms=given.deadline_ms,
    )


def answer(task: Task, status: int = 200) -> JsonResponse[TaskOut]:
    return JsonResponse(task_out(task), status_code=status, headers={"ETag": wire.etag(task.version)})


def task_out(task: Task) -> TaskOut:
    return TaskOut(
        id=task.id,
        owner_id=task.owner_id,
        space_id=task.space_id,
        chat_id=task.space_id,
        type=task.type,
        name=task.name,
        instruction=task.instruction,
        executor=task.executor,
        status=task.status,
        run_id=task.run_id,
        sub_agent_id=task.run_id,
        trigger_message_id=task.trigger_message_id,
        parent_run_id=task.parent_run_id,
        tool_call_id=task.tool_call_id,
        result=task.result,
        error=task.error,
        completions=task.completions,
        version=task.version,
        created_at=wire.moment(task.created_at),
        updated_at=wire.moment(task.updated_at),
    )


# ---- for the description of the API ----

SHAPES: tuple[Any, ...] = (TaskIn, TaskPatchIn, TaskOut, TaskPage)
MORE: dict[str, tuple[int, ...]] = {
    "create_task": (404, 409),
    "get_task": (404,),
    "patch_task": (404, 409, 412),
}
TAGGED = {"create_task", "get_task", "patch_task"}
EXAMPLES: dict[str, Any] = {
    "create_task": {"name": "agent:researcher", "instruction": "What is Bitcoin worth?", "executor": "external"},
    "patch_task": {"status": "waiting"},
}
