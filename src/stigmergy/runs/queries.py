"""What may be asked of runs: one with what it waits for, lists, the whole tree, its log, the inbox."""

from typing import Any, NamedTuple

import msgspec

from stigmergy.breadcrumbs.audience import Reader
from stigmergy.errors import NotFound
from stigmergy.kernel.history import EVERYTHING
from stigmergy.kernel.leases import described
from stigmergy.kernel.query import as_each
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs import store
from stigmergy.runs.model import ENDED, Checkpoint, JsonObject, Run, RunMessage, Task, Thought, ToolCall, Wait
from stigmergy.runs.notebook import variables
from stigmergy.runs.waits import wait_state


class RunView(msgspec.Struct, frozen=True):
    """A run as it is shown: with its variables, and what it waits for in the form that other programs know."""

    run: Run
    variables: JsonObject
    wait_state: JsonObject | None
    needs_worker: bool = False  # no living worker serves the queue that it is ready in


class Page(NamedTuple):
    items: list[Any]
    next: int | None


async def view(tx: Snapshot, id: str) -> RunView:
    run = await store.the_run(tx, id)
    waits: list[Wait] = []
    if run.status in ("waiting_tool", "waiting_reply"):
        open_ = await tx.find(store.WAITS_OF_RUN, run_id=id)
        if open_:
            waits = await tx.find(store.WAITS_OF_CALL, run_id=id, call_id=open_[0].call_id)
    held = variables(await tx.find(store.VARIABLES_OF, run_id=id)) if run.step else {}
    return RunView(run, held, wait_state(waits), run.status in ("queued", "running") and await _is_unserved(tx, id))


async def _is_unserved(tx: Snapshot, id: str) -> bool:
    """Whether no living worker can run it: they lack what its definition needs, or there is none."""
    ((queue, active),) = await tx.rows(store.QUEUE, run_id=id)
    return not active and not any(queue in served.split() for served in await described(tx))


# Sees every run of its tenant, as a program does.
ANYBODY = Reader("", everything=True)


async def runs(
    tx: Snapshot,
    reader: Reader = ANYBODY,
    *,
    agent: str | None = None,
    status: str | None = None,
    parent: str | None = None,
    space_id: str | None = None,
    below: int | None = None,
    limit: int = 50,
) -> Page:
    """The newest changed first, of those that the reader may see."""
    query, place = store.NEWEST_RUNS, {}
    if parent is not None:
        query, place = store.OF_PARENT, {"parent": parent}
    elif space_id is not None:
        query, place = store.OF_SPACE, {"space_id": space_id}
    elif agent is not None and status is not None and status not in ENDED:
        query = store.OF_AGENT
    given: JsonObject = {
        **place,
        "agent": agent,
        "status": status,
        "below": EVERYTHING if below is None else below,
        "limit": limit,
        "entity": reader.entity,
        "spaces": as_each(sorted(reader.spaces or ())),
        "everything": reader.everything,
    }
    found = await tx.find(query, **given)
    return Page(found, found[-1].seq if len(found) == limit else None)


class Node(msgspec.Struct, frozen=True):
    """A run and the runs that it started."""

    run: Run
    children: "list[Node]"


async def tree(tx: Snapshot, id: str) -> Node:
    """The whole tree that a run is in, read in one query."""
    run = await store.the_run(tx, id)
    found = await tx.find(store.OF_TREE, root_id=run.root_id)
    nodes = {each.id: Node(each, []) for each in found}
    for each in found:
        if each.parent_run_id in nodes:
            nodes[each.parent_run_id].children.append(nodes[each.id])
    return nodes[run.root_id]


async def messages(tx: Snapshot, id: str, *, after: int = 0, limit: int = 200) -> list[RunMessage]:
    await store.the_run(tx, id)
    return await tx.find(store.MESSAGES_FROM, run_id=id, after=after, upto=EVERYTHING, limit=limit)


async def calls(tx: Snapshot, id: str, *, from_step: int = 0) -> list[ToolCall]:
    await store.the_run(tx, id)
    return await tx.find(store.CALLS_FROM, run_id=id, step=from_step)


async def thoughts(tx: Snapshot, id: str, *, after: int = 0, limit: int = 200) -> list[Thought]:
    await store.the_run(tx, id)
    return await tx.find(store.THOUGHTS_OF, run_id=id, after=after, limit=limit)


async def checkpoints(tx: Snapshot, id: str) -> list[Checkpoint]:
    await store.the_run(tx, id)
    return await tx.find(store.CHECKPOINTS_OF, run_id=id)


async def inbox(
    tx: Snapshot, reader: Reader = ANYBODY, *, for_entity: str | None = None, after: int = 0, limit: int = 50
) -> list[Wait]:
    """Every question, approval and client's tool that waits, the oldest first: for somebody, or for all. Who does not see
    everything sees what is for them, and what the runs wait for that belong to them."""
    return await tx.find(
        store.INBOX, for_entity=for_entity, entity=reader.entity, everything=reader.everything, after=after, limit=limit
    )


async def task(tx: Snapshot, id: str) -> Task:
    found = await tx.get(Task, id)
    if found is None:
        raise NotFound(f"no task {id}")
    return found


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks; nothing that is not said matters."""

    space_id: str | None = None
    trigger_message_id: str | None = None
    status: str | None = None
    executor: str | None = None
    owner_id: str | None = None


ALL_TASKS = TaskFilter()


async def tasks(tx: Snapshot, such: TaskFilter = ALL_TASKS, *, below: int | None = None, limit: int = 50) -> Page:
    """The newest changed first."""
    rest: dict[str, Any] = {"status": such.status, "executor": such.executor, "owner_id": such.owner_id}
    rest |= {"below": EVERYTHING if below is None else below, "limit": limit}
    if such.trigger_message_id is not None:
        rest["trigger_message_id"] = such.trigger_message_id
        found = await tx.find(store.TASKS_OF_MESSAGE, space_id=such.space_id, **rest)
    elif such.space_id is not None:
        found = await tx.find(store.TASKS_OF_SPACE, space_id=such.space_id, **rest)
    elif such.owner_id is not None:
        found = await tx.find(store.TASKS_OF_OWNER, **rest)
    else:
        found = await tx.find(store.NEWEST_TASKS, **rest)
    return Page(found, found[-1].seq if len(found) == limit else None)


async def runs_outside(
    tx: Snapshot, *, task_id: str | None = None, status: str | None = None, below: int | None = None, limit: int = 50
) -> Page:
    """The runs that programs outside execute, the newest changed first."""
    rest: dict[str, Any] = {"status": status, "below": EVERYTHING if below is None else below, "limit": limit}
    if task_id is not None:
        found = await tx.find(store.OUTSIDE_OF_TASK, task_id=task_id, **rest)
    else:
        found = await tx.find(store.OUTSIDE, **rest)
    return Page(found, found[-1].seq if len(found) == limit else None)
