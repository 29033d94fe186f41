"""`stigmergy.runs`: what `App.runs` is in the program itself."""

import time
from collections.abc import AsyncIterator
from typing import Any

from stigmergy.agents.agent import Agent
from stigmergy.breadcrumbs.model import JsonObject
from stigmergy.client import run_wire as wire
from stigmergy.client._async.http import Http
from stigmergy.client.calls import Call, read, run_path, wait_path
from stigmergy.engine.past import PastPrompt
from stigmergy.engine.watching import RunEvent, RunFailed
from stigmergy.errors import Invalid
from stigmergy.kernel.ids import new_id
from stigmergy.runs.model import ENDED, Checkpoint, Run, RunMessage, RunStatus, Task, Thought, ToolCall, Wait
from stigmergy.runs.queries import Node, Page, RunView

# How long one call waits for the end of a run, of the time that an answer may take.
SHARE_OF_TIMEOUT = 0.6


class RunHandle:
    """A run that was started."""

    def __init__(self, runs: "Runs", run: Run) -> None:
        self._runs = runs
        self.id = run.id
        self.agent = run.agent

    async def result(self, timeout: float | None = None) -> Any:
        """The answer. `RunFailed` when the run ended without."""
        return await self._runs.result(self.id, timeout=timeout)

    def events(self, after: int | None = None) -> AsyncIterator[RunEvent]:
        """What happens to it and to the runs under it, from its beginning on, until it has ended."""
        return self._runs.events(self.id, after=after)

    async def cancel(self, reason: str = "canceled") -> Run:
        return await self._runs.cancel(self.id, reason)

    async def view(self) -> RunView:
        return await self._runs.get(self.id)

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.agent}>"


class Runs:
    def __init__(self, http: Http) -> None:
        self._http = http

    async def start(
        self,
        agent: Agent | str,
        instruction: str | None = None,
        *,
        key: str | None = None,
        space_id: str | None = None,
        owner_id: str | None = None,
        metadata: JsonObject | None = None,
    ) -> RunHandle:
        """Start a run. With a `key`, the same key starts it once. It belongs to who comes with the token; no other may be
        named."""
        if owner_id is not None:
            raise Invalid("over HTTP a run belongs to who comes with the token", "owner_id")
        body = {
            "agent": agent if isinstance(agent, str) else agent.name,
            "instruction": instruction,
            "space_id": space_id,
            "metadata": metadata or {},
        }
        return RunHandle(self, wire.run(await self._http.call(Call("POST", "/v1/runs", body=body, key=key or new_id()))))

    async def result(self, id: str, *, timeout: float | None = None) -> Any:
        """The answer of a run, when it is there. `RunFailed` when it ended without; `TimeoutError` when that takes longer."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            longest = self._http.timeout * SHARE_OF_TIMEOUT
            left = longest if until is None else max(0.0, min(longest, until - time.monotonic()))
            run = wire.run(await self._http.call(read(run_path(id), {"wait": f"{left:.3f}"})))
            if run.status == "completed":
                return run.result
            if run.status in ENDED:
                raise RunFailed(f"run {id} {run.status}: {run.error}")
            if until is not None and time.monotonic() >= until:
                raise TimeoutError

    async def get(self, id: str) -> RunView:
        return wire.view(await self._http.call(read(run_path(id))))

    async def list(
        self,
        *,
        agent: str | None = None,
        status: RunStatus | None = None,
        parent: str | None = None,
        space_id: str | None = None,
        cursor: int | None = None,
        limit: int = 50,
    ) -> Page:
        """The newest changed first."""
        params = {"agent": agent, "status": status, "parent": parent, "space": space_id, "cursor": cursor, "limit": limit}
        return wire.runs(await self._http.call(read("/v1/runs", params)))

    async def tree(self, id: str) -> Node:
        """The whole tree that a run is in."""
        return wire.node(await self._http.call(read(run_path(id, "tree"))))

    async def messages(self, id: str, *, after: int = 0, limit: int = 200) -> "list[RunMessage]":
        """Its monologue, in order, behind a position."""
        params = {"cursor": after, "limit": limit}
        return wire.records(await self._http.call(read(run_path(id, "messages"), params)), RunMessage)

    async def openai_messages(self, id: str, *, after: int = 0, limit: int = 200) -> "list[JsonObject]":
        """The same in the shape that OpenAI's protocol has for messages."""
        params = {"format": "openai", "cursor": after, "limit": limit}
        return wire.openai(await self._http.call(read(run_path(id, "messages"), params)))

    async def calls(self, id: str) -> "list[ToolCall]":
        """What it asked of tools, in order."""
        return wire.records(await self._http.call(read(run_path(id, "tool-calls"))), ToolCall)

    async def thoughts(self, id: str, *, after: int = 0, limit: int = 200) -> "list[Thought]":
        params = {"cursor": after, "limit": limit}
        return wire.records(await self._http.call(read(run_path(id, "thoughts"), params)), Thought)

    async def checkpoints(self, id: str) -> "list[Checkpoint]":
        return wire.records(await self._http.call(read(run_path(id, "checkpoints"))), Checkpoint)

    async def prompt(self, id: str, step: int) -> PastPrompt:
        """Exactly what the model was asked in a step."""
        return wire.prompt(await self._http.call(read(run_path(id, "steps", str(step), "prompt"))))

    async def events(self, id: str, *, after: int | None = None) -> AsyncIterator[RunEvent]:
        """What happens to a run and to those under it, until it has ended. It comes back by itself when the connection is lost;
        text that is on its way is told again then, from the `offset` that it says."""
        async for event in self._http.follow(read(run_path(id, "events")), after, wire.event):
            yield event

    async def hear(self, id: str, text: str) -> RunMessage:
        """Say something to a run; a completed one goes on with it."""
        call = Call("POST", run_path(id, "messages"), body={"text": text}, key=new_id())
        return wire.record(await self._http.call(call), RunMessage)

    async def cancel(self, id: str, reason: str = "canceled") -> Run:
        """Stop it and everything under it."""
        call = Call("POST", run_path(id, "cancel"), body={"reason": reason}, key=new_id())  # what is stopped stays so
        return wire.run(await self._http.call(call))

    async def waits(self, *, mine: bool = False, after: int = 0, limit: int = 50) -> "list[Wait]":
        """The inbox: every question, approval and client's tool that waits, the oldest first."""
        params = {"for": "me" if mine else "all", "cursor": after, "limit": limit}
        return wire.records(await self._http.call(read("/v1/waits", params)), Wait)

    async def answer(self, wait_id: str, **given: Any) -> Run:
        """Answer a wait: `text="…"` a question, `decision="approve"` an approval, `result=…` or `error=…` a client's tool."""
        return wire.run(await self._http.call(Call("POST", wait_path(wait_id, "answer"), body=given)))

    async def tool_result(self, run_id: str, call_id: str, result: Any = None, *, error: str | None = None) -> Run:
        given = {"result": result} if error is None else {"error": error}
        body = {"tool_call_id": call_id, **given}
        return wire.run(await self._http.call(Call("POST", run_path(run_id, "tool-results"), body=body)))

    async def give_task(
        self, name: str, instruction: str, *, space_id: str | None = None, **more: Any
    ) -> "tuple[Task, Run | None]":
        """A task for an agent (`agent:NAME`) or a tool (`tool:NAME`, whose instruction is its arguments as JSON)."""
        body = {"executor": "engine", **more, "name": name, "instruction": instruction, "space_id": space_id}
        task = wire.task(await self._http.call(Call("POST", "/v1/tasks", body=body, key=new_id())))
        return task, None if task.run_id is None else (await self.get(task.run_id)).run
