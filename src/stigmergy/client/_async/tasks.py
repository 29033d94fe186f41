"""`stigmergy.tasks`: what `App.tasks` is in the program itself."""

from collections.abc import Sequence
from typing import Any

import msgspec

from stigmergy.client import trigger_wire as wire
from stigmergy.client._async.http import Http
from stigmergy.client.calls import Call, an_id, path_of, read
from stigmergy.client.space_wire import given
from stigmergy.kernel.ids import new_id
from stigmergy.runs.model import Role, Run, RunMessage, Task, ToolCall, Usage
from stigmergy.runs.queries import Page
from stigmergy.runs.steps import NewCall


class Tasks:
    def __init__(self, http: Http) -> None:
        self._http = http

    async def give(self, name: str, instruction: str, *, space_id: str | None = None, **more: Any) -> Task:
        """A task for an agent (`agent:NAME`) or a tool (`tool:NAME`) that a program outside executes, if nothing else is said."""
        body = given(name=name, instruction=instruction, space_id=space_id, **{"executor": "external", **more})
        return wire.task(await self._http.call(Call("POST", "/v1/tasks", body=body, key=new_id())))

    async def get(self, id: str) -> Task:
        return wire.task(await self._http.call(read(_task(id))))

    async def find(self, *, cursor: int | None = None, limit: int = 50, **such: str) -> Page:
        """The newest changed first: `space_id`, `trigger_message_id`, `status`, `executor`."""
        return wire.tasks(await self._http.call(read("/v1/tasks", {"cursor": cursor, "limit": limit, **such})))

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
        body = given(status=status, result=result, error=error)
        return wire.task(await self._http.call(Call("PATCH", _task(id), body=body, if_match=if_match)))

    # ---- runs outside ----

    async def take_up(self, task_id: str, **more: Any) -> Run:
        """Begin a task: `instructions`, `max_steps`, `deadline_ms`, `metadata`. Asked again, the run that it has."""
        call = Call("POST", "/v1/sub-agents", body=given(task_id=task_id, **more), key=new_id())
        return wire.run(await self._http.call(call))

    async def run(self, id: str) -> Run:
        return wire.run(await self._http.call(read(_run(id))))

    async def runs(
        self, *, task_id: str | None = None, status: str | None = None, cursor: int | None = None, limit: int = 50
    ) -> Page:
        """Those outside, the newest changed first."""
        params = {"task_id": task_id, "status": status, "cursor": cursor, "limit": limit}
        return wire.runs(await self._http.call(read("/v1/sub-agents", params)))

    async def move(
        self, run_id: str, status: str, *, result: Any = None, error: str | None = None, if_match: int | None = None
    ) -> Run:
        """Move a run, and its task with it."""
        body = given(status=status, result=result, error=error)
        return wire.run(await self._http.call(Call("PATCH", _run(run_id), body=body, if_match=if_match)))

    async def messages(self, run_id: str, *, after: int = 0, limit: int = 200) -> list[RunMessage]:
        page = await self._http.call(read(_run(run_id, "messages"), {"cursor": after or None, "limit": limit}))
        return [wire.message(each, run_id) for each in wire.items(page)]

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
        body = given(role=role, content=content, name=name, tool_call_id=tool_call_id, model=model)
        if usage is not None:
            body["usage"] = {part: getattr(usage, part) for part in ("input_tokens", "output_tokens", "cached_tokens")}
        if calls:
            body["tool_calls"] = [wire.asked(call) for call in calls]
        call = Call("POST", _run(run_id, "messages"), body=body, if_match=if_match, key=new_id())
        return wire.message(await self._http.call(call), run_id)

    async def calls(self, run_id: str) -> list[ToolCall]:
        return [wire.call(each) for each in wire.items(await self._http.call(read(_run(run_id, "tool-calls"))))]

    async def add_call(self, run_id: str, call: NewCall) -> ToolCall:
        body = {"id": call.id, "tool_name": call.tool_name, "args": msgspec.to_builtins(call.args)}
        return wire.call(await self._http.call(Call("POST", _run(run_id, "tool-calls"), body=body, key=new_id())))

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
        body = given(status=status, result=result, error=error, duration_ms=duration_ms)
        return wire.call(await self._http.call(Call("PATCH", _run(run_id, "tool-calls", id), body=body, if_match=if_match)))


def _task(id: str) -> str:
    return path_of("/v1/tasks", an_id(id, "task"))


def _run(id: str, *rest: str) -> str:
    return path_of("/v1/sub-agents", *(an_id(part, "run") for part in (id, *rest)))
