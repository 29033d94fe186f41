"""`app.tasks`: tasks, and the runs that programs outside execute, for the tenant and entity that somebody acts for."""

from collections.abc import Sequence
from typing import Any

from stigmergy.breadcrumbs.model import JsonObject
from stigmergy.engine.starting import give_task
from stigmergy.errors import NotFound
from stigmergy.kernel.namespace import Namespace
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs import external, queries
from stigmergy.runs.delegation import NewTask
from stigmergy.runs.external import Outcome, Spoken, TakeUp
from stigmergy.runs.model import Role, Run, RunMessage, Task, ToolCall, Usage
from stigmergy.runs.queries import Page, TaskFilter
from stigmergy.runs.steps import NewCall


class Tasks(Namespace):
    async def give(self, name: str, instruction: str, *, space_id: str | None = None, **more: Any) -> Task:
        """A task for an agent (`agent:NAME`) or a tool (`tool:NAME`) that a program outside executes, if nothing else is said."""
        given: JsonObject = {"owner_id": self._scope.actor, "space_id": space_id or "", "executor": "external", **more}
        return (await self._write(give_task, NewTask(name=name, instruction=instruction, **given)))[0]

    async def get(self, id: str) -> Task:
        return await self._read(queries.task, id)

    async def find(self, *, cursor: int | None = None, limit: int = 50, **such: str) -> Page:
        """The newest changed first: `space_id`, `trigger_message_id`, `status`, `executor`."""
        return await self._read(queries.tasks, TaskFilter(**such), below=cursor, limit=limit)

    async def change(
        self,
        id: str,
        status: str | None = None,
        *,
        result: Any = None,
        error: str | None = None,
        if_match: int | None = None,
    ) -> Task:
        """Move a task that is executed outside, and its run with it; without a status put right what came of it."""
        return await self._write(external.change_task, id, Outcome(status, result, error), if_match=if_match)

    # ---- runs outside ----

    async def take_up(self, task_id: str, **more: Any) -> Run:
        """Begin a task: `instructions`, `max_steps`, `deadline_ms`, `metadata`. Asked again, the run that it has."""
        return (await self._write(external.take_up, TakeUp(task_id=task_id, **more))).run

    async def run(self, id: str) -> Run:
        return await self._read(run_outside, id)

    async def runs(
        self, *, task_id: str | None = None, status: str | None = None, cursor: int | None = None, limit: int = 50
    ) -> Page:
        """Those outside, the newest changed first."""
        return await self._read(queries.runs_outside, task_id=task_id, status=status, below=cursor, limit=limit)

    async def move(
        self, run_id: str, status: str, *, result: Any = None, error: str | None = None, if_match: int | None = None
    ) -> Run:
        """Move a run, and its task with it."""
        return await self._write(external.change_run, run_id, Outcome(status, result, error), if_match=if_match)

    async def messages(self, run_id: str, *, after: int = 0, limit: int = 200) -> list[RunMessage]:
        await self.run(run_id)
        return await self._read(queries.messages, run_id, after=after, limit=limit)

    async def say(
        self,
        run_id: str,
        role: Role,
        content: str,
        *,
        name: str | None = None,
        tool_call_id: str | None = None,
        calls: Sequence[NewCall] = (),
        model: str | None = None,
        usage: Usage | None = None,
        if_match: int | None = None,
    ) -> RunMessage:
        """Add to the log: an assistant's message is a step, a user's wakes, a tool's settles the call that it names."""
        spoken = Spoken(role=role, content=content, name=name, tool_call_id=tool_call_id, calls=calls, model=model, usage=usage)
        return await self._write(external.speak, run_id, spoken, if_match=if_match)

    async def calls(self, run_id: str) -> list[ToolCall]:
        await self.run(run_id)
        return await self._read(queries.calls, run_id)

    async def add_call(self, run_id: str, call: NewCall) -> ToolCall:
        return await self._write(external.add_call, run_id, call)

    async def change_call(
        self,
        run_id: str,
        id: str,
        status: str,
        *,
        result: Any = None,
        error: str | None = None,
        duration_ms: int | None = None,
        if_match: int | None = None,
    ) -> ToolCall:
        """Begin a call, or settle it."""
        outcome = Outcome(status, result, error)
        return await self._write(external.change_call, run_id, id, outcome, duration_ms=duration_ms, if_match=if_match)


async def run_outside(tx: Snapshot, id: str) -> Run:
    """A run that a program outside executes; any other is not found here."""
    run = await tx.get(Run, id)
    if run is None or run.executor != "external":
        raise NotFound(f"no run {id} that is executed outside")
    return run
