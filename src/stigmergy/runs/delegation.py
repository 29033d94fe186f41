"""Tasks: how one run has another do something, and the tools that agents have for it.

With `wait` the parent's call is open until the child has ended; without, the task's end comes as a message. What a parent sees
of a child is its result, never its monologue.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stigmergy.agents import store as agents
from stigmergy.agents.model import Executor, Limits
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.faults import point
from stigmergy.kernel.rules import MAX_DEPTH
from stigmergy.kernel.timers import set_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import store
from stigmergy.runs.commands import Start, hear, start_run
from stigmergy.runs.model import Cause, JsonObject, Run, Task, TaskType
from stigmergy.runs.tools import Acting, Builtin, Done, Outcome, Party, Refused, Waiting, builtin
from stigmergy.runs.waits import answer

# A task that is executed outside and has no run yet ends with this.
TASK_DEADLINE = "task.deadline"


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to give. `name` is `agent:NAME` or `tool:NAME`; a tool's instruction is its arguments, as JSON. Of one that is
    executed outside, `deadline_ms` says how long it may be without a run or an end."""

    name: str
    instruction: str
    owner_id: str
    space_id: str
    id: str | None = None
    trigger_message_id: str | None = None
    executor: Executor = "engine"
    deadline_ms: int | None = None
    parent: Run | None = None
    tool_call_id: str | None = None


async def create_task(tx: Transaction, new: NewTask) -> tuple[Task, Run | None]:
    """Write a task down, and begin it in the same unit unless somebody outside executes it."""
    kind, _, target = new.name.partition(":")
    if kind not in ("agent", "tool") or not target:
        raise Invalid("a task's name is agent:NAME or tool:NAME", "name")
    type_: TaskType = "agent" if kind == "agent" else "tool"
    outside = new.executor == "external"
    executor = (await agents.named(tx, target)).definition.executor if type_ == "agent" and not outside else new.executor
    task = await tx.insert(
        Task(
            id=new.id or tx.new_id(),
            owner_id=new.owner_id,
            space_id=new.space_id,
            type=type_,
            name=new.name,
            instruction=new.instruction,
            trigger_message_id=new.trigger_message_id,
            parent_run_id=None if new.parent is None else new.parent.id,
            tool_call_id=new.tool_call_id,
            executor=executor,
        )
    )
    point("task.half")
    if not outside:
        return await begin_task(tx, task.id, parent=new.parent)
    await set_timer(tx, TASK_DEADLINE, task.id, tx.now + (new.deadline_ms or Limits().deadline_ms))
    return task, None


async def begin_task(tx: Transaction, task_id: str, *, parent: Run | None = None) -> tuple[Task, Run]:
    """Have a pending task done: its run, the first time; asked again, the run that it has."""
    task = await tx.lock(Task, task_id)
    if task is None:
        raise NotFound(f"no task {task_id}")
    if task.run_id is not None:
        return task, await store.the_run(tx, task.run_id)
    if parent is None and task.parent_run_id is not None:
        parent = await store.the_run(tx, task.parent_run_id)
    run = await start_run(
        tx,
        Start(
            agent=agent_of(task.name),
            instruction=task.instruction,
            owner_id=task.owner_id,
            space_id=task.space_id,
            active_space_id=None if parent is None else parent.active_space_id,
            cause=Cause("task", message_id=task.trigger_message_id),
            cause_key=f"task:{task.id}",
            parent=parent,
            task=task,
        ),
    )
    return await tx.update(task, run_id=run.id, status="running"), run


def agent_of(task_name: str) -> str:
    """Whose run does a task: an agent's, or that of the agent that does nothing but call a tool."""
    kind, _, target = task_name.partition(":")
    return target if kind == "agent" else f"tool.{target}"


# ---- the tools ----


class CreateTask(msgspec.Struct, forbid_unknown_fields=True):
    agent: Annotated[str, Meta(description="The name of the agent.")]
    instruction: Annotated[str, Meta(description="All it needs to know; it sees nothing of this conversation.", min_length=1)]
    wait: Annotated[bool, Meta(description="Whether to wait for its result. If not, it comes as a message later.")] = True


class ReplyToTask(msgspec.Struct, forbid_unknown_fields=True):
    task_id: str
    text: Annotated[str, Meta(description="The answer to what it asks.")]


class ReactivateTask(msgspec.Struct, forbid_unknown_fields=True):
    task_id: str
    instruction: Annotated[str, Meta(description="What more is to be done.", min_length=1)]


class FinalAnswer(msgspec.Struct, forbid_unknown_fields=True):
    result: Annotated[Any, Meta(description="The answer, whole; nothing else is seen of this conversation.")]


async def _create_task(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    run, wanted = acting.run, args["agent"]
    await store.lock_head(tx, run.id)
    if wanted not in acting.definition.delegates:
        return Refused(f"{wanted!r} is not one of your delegates; they are: {', '.join(acting.definition.delegates)}")
    try:
        most = (await agents.named(tx, wanted)).definition.limits.nesting
    except agents.UnknownAgent as error:
        return Refused(str(error))
    if run.nesting >= most:
        return Refused(f"{wanted} may be {most} runs deep, and would be deeper; do it yourself")
    if run.depth >= MAX_DEPTH:
        return Refused(f"this chain of causes is {run.depth} deep, which is the limit; do it yourself")
    ((children,),) = await tx.rows(store.COUNT_CHILDREN, run_id=run.id)
    if children >= acting.definition.limits.children:
        return Refused(f"you have given {children} tasks, which is the limit; use the results you have")
    new = NewTask(
        name=f"agent:{wanted}",
        instruction=args["instruction"],
        owner_id=run.owner_id,
        space_id=run.space_id,
        trigger_message_id=run.cause.message_id,
        parent=run,
        tool_call_id=acting.call.id,
    )
    task, child = await create_task(tx, new)
    assert child is not None
    if not args.get("wait", True):
        return Done({"task_id": task.id, "status": task.status})
    timeout = max(1, child.deadline - tx.now)
    return Waiting(kind="child", parties=[Party(child.id, wanted, "run")], timeout_ms=timeout + 5_000)


async def _own_task(tx: Transaction, acting: Acting, task_id: str) -> tuple[Task, Run] | Refused:
    await store.lock_head(tx, acting.run.id)
    task = await tx.get(Task, task_id)
    if task is None or task.parent_run_id != acting.run.id or task.run_id is None:
        return Refused(f"you have given no task {task_id}")
    return task, await store.locked_run(tx, task.run_id)


async def _reply_to_task(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    found = await _own_task(tx, acting, args["task_id"])
    if isinstance(found, Refused):
        return found
    task, child = found
    waits = await tx.find(store.WAITS_OF_RUN, run_id=child.id)
    asked = next((wait for wait in waits if wait.kind == "reply"), None)
    if asked is None:
        if task.status != "running":
            return Refused(f"task {task.id} is {task.status} and asks nothing; reactivate_task gives it more to do")
        await hear(tx, child.id, args["text"])
        return Done({"task_id": task.id, "told": True})
    await answer(tx, child, asked, {"text": args["text"], "from": acting.run.entity_id}, by=acting.run.entity_id)
    return Done({"task_id": task.id, "answered": asked.question})


async def _reactivate_task(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    found = await _own_task(tx, acting, args["task_id"])
    if isinstance(found, Refused):
        return found
    task, child = found
    if child.status in ("failed", "canceled"):
        return Refused(f"task {task.id} has failed; give a new one")
    await hear(tx, child.id, args["instruction"])
    return Done({"task_id": task.id, "status": "running"})


async def _final_answer(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    return Done(args["result"])


FINAL_ANSWER = "final_answer"
TOOLS: tuple[Builtin, ...] = (
    builtin("create_task", "Give one of your delegates a task.", CreateTask, _create_task),
    builtin("reply_to_task", "Answer what a task you gave asks.", ReplyToTask, _reply_to_task),
    builtin("reactivate_task", "Give a task that is done more to do.", ReactivateTask, _reactivate_task),
    builtin(FINAL_ANSWER, "Give your answer and end.", FinalAnswer, _final_answer),
)
