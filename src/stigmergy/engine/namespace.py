"""`app.runs`, `app.agents`: what a program may do and ask, in its own words, for the tenant and entity that it acts for."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from stigmergy.agents import store as agents
from stigmergy.agents.agent import Agent
from stigmergy.agents.model import AgentRecord, Definition, ToolSpec
from stigmergy.breadcrumbs.model import JsonObject
from stigmergy.engine.approvals import checked_decision
from stigmergy.engine.defining import Declared, delete_agent, put_agent, read_definition, tools_of, versions_of
from stigmergy.engine.openai import openai_messages
from stigmergy.engine.past import PastPrompt, prompt_of
from stigmergy.engine.starting import give_task, start
from stigmergy.engine.watching import RunEvent, RunFailed, Watch, until_ended
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.database import Database
from stigmergy.kernel.history import EVERYTHING
from stigmergy.kernel.namespace import Namespace
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.runs import queries, store, waits
from stigmergy.runs.commands import Start, hear
from stigmergy.runs.delegation import NewTask
from stigmergy.runs.endings import cancel_run
from stigmergy.runs.model import Checkpoint, Run, RunMessage, RunStatus, Task, Thought, ToolCall, Wait
from stigmergy.runs.queries import Node, Page, RunView


class RunHandle:
    """A run that was started."""

    def __init__(self, runs: "Runs", run: Run) -> None:
        self._runs = runs
        self.id = run.id
        self.agent = run.agent

    async def result(self, timeout: float | None = None) -> Any:
        """The answer, in its own type when the agent has one. `RunFailed` when the run ended without."""
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


class Runs(Namespace):
    def __init__(self, database: Database, scope: Scope, output_types: dict[str, Any]) -> None:
        super().__init__(database, scope)
        self._output_types = output_types

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
        """Start a run. With a `key`, the same key starts it once."""
        given = Start(
            agent=agent if isinstance(agent, str) else agent.name,
            instruction=instruction,
            owner_id=owner_id or self._scope.actor,
            space_id=space_id or "",
            active_space_id=space_id,
            cause_key=key_of(self._scope.actor, key),
            metadata=metadata or {},
        )
        return RunHandle(self, await self._write(start, given))

    async def result(self, id: str, *, timeout: float | None = None) -> Any:
        run = await until_ended(self._database, id, self._scope, timeout)
        if run.status != "completed":
            raise RunFailed(f"run {id} {run.status}: {run.error}")
        kind = self._output_types.get(run.agent)
        return run.result if kind is None else msgspec.convert(run.result, kind)

    async def get(self, id: str) -> RunView:
        return await self._read(queries.view, id)

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
        return await self._read(
            queries.runs, agent=agent, status=status, parent=parent, space_id=space_id, below=cursor, limit=limit
        )

    async def tree(self, id: str) -> Node:
        """The whole tree that a run is in."""
        return await self._read(queries.tree, id)

    async def messages(self, id: str, *, after: int = 0, limit: int = 200) -> "list[RunMessage]":
        """Its monologue, in order, behind a position."""
        return await self._read(queries.messages, id, after=after, limit=limit)

    async def openai_messages(self, id: str, *, after: int = 0, limit: int = 200) -> "list[JsonObject]":
        """The same in the shape that OpenAI's protocol has for messages."""
        return (await self._read(openai_messages, id, after=after, limit=limit)).messages

    async def calls(self, id: str) -> "list[ToolCall]":
        """What it asked of tools, in order."""
        return await self._read(queries.calls, id)

    async def thoughts(self, id: str, *, after: int = 0, limit: int = 200) -> "list[Thought]":
        return await self._read(queries.thoughts, id, after=after, limit=limit)

    async def checkpoints(self, id: str) -> "list[Checkpoint]":
        return await self._read(queries.checkpoints, id)

    async def prompt(self, id: str, step: int) -> PastPrompt:
        """Exactly what the model was asked in a step."""
        return await self._read(prompt_of, id, step)

    def events(self, id: str, *, after: int | None = None) -> AsyncIterator[RunEvent]:
        return Watch(self._database, id, self._scope, after=after).events()

    async def hear(self, id: str, text: str) -> RunMessage:
        """Say something to a run; a completed one goes on with it."""
        return await self._write(hear, id, text)

    async def cancel(self, id: str, reason: str = "canceled") -> Run:
        """Stop it and everything under it."""
        return await self._write(cancel_run, id, reason)

    async def waits(self, *, mine: bool = False, after: int = 0, limit: int = 50) -> "list[Wait]":
        """The inbox: every question, approval and client's tool that waits, the oldest first."""
        return await self._read(queries.inbox, for_entity=self._scope.actor if mine else None, after=after, limit=limit)

    async def answer(self, wait_id: str, **given: Any) -> Run:
        """Answer a wait: `text="…"` a question, `decision="approve"` an approval, `result=…` or `error=…` a client's tool."""
        return await self._write(answer_wait, wait_id, given)

    async def tool_result(self, run_id: str, call_id: str, result: Any = None, *, error: str | None = None) -> Run:
        return await self._write(waits.answer_tool, run_id, call_id, result=result, error=error)

    async def give_task(
        self, name: str, instruction: str, *, space_id: str | None = None, **more: Any
    ) -> "tuple[Task, Run | None]":
        """A task for an agent (`agent:NAME`) or a tool (`tool:NAME`, whose instruction is its arguments as JSON)."""
        new = NewTask(name=name, instruction=instruction, owner_id=self._scope.actor, space_id=space_id or "", **more)
        return await self._write(give_task, new)


def key_of(actor: str, key: str | None) -> str | None:
    """What makes runs that somebody starts with the same key one run."""
    return None if key is None else f"key:{actor}:{key}"


async def answer_wait(tx: Transaction, wait_id: str, given: JsonObject) -> Run:
    """Answer whatever waits under this id; refused when the answer is not of its kind."""
    found = await tx.find(store.WAIT_BY_ID, id=wait_id)
    if not found:
        raise NotFound(f"nothing waits under {wait_id}")
    kind = found[0].kind
    if kind == "approval":
        checked_decision(found[0], given)
    elif kind == "tool" and not given.keys() & {"result", "error"}:
        raise Invalid("a client's tool is answered with a result or an error", "result")
    elif kind == "reply" and not isinstance(given.get("text"), str):
        raise Invalid("a question is answered with a text", "text")
    elif kind == "child":
        raise Invalid("a child is not answered; it ends", "wait")
    return await waits.answer_wait(tx, wait_id, given)


class Agents(Namespace):
    """Definitions that are data, of one tenant. Those of the program's code are listed too, and stay the code's."""

    async def put(
        self, definition: Definition | Mapping[str, Any], *, name: str | None = None, if_match: int | None = None
    ) -> Declared:
        """Store a definition, or a config that is read as one. Its subscriptions hold from this moment on."""
        read, notices = read_definition(definition, name)
        record = await self._write(put_agent, read, if_match=if_match)
        return Declared(record, notices)

    async def get(self, name: str) -> AgentRecord:
        """The definition in force."""
        return await self._read(agents.named, name)

    async def list(self, *, after: str = "", limit: int = 100) -> "list[AgentRecord]":
        """Those that runs can be started with, by name."""
        return await self._read(agents.listed, after=after, limit=limit)

    async def versions(self, name: str, *, limit: int = 50) -> "list[AgentRecord]":
        """Every version of a definition, newest first."""
        return await self._read(versions_of, name, below=EVERYTHING, limit=limit)

    async def tools(self, name: str) -> "list[ToolSpec]":
        """Every tool that the agent may have in a run, the engine's among them; of its MCP servers those that were seen last."""
        return await self._read(tools_of, name)

    async def delete(self, name: str, *, if_match: int | None = None) -> None:
        """Take a definition away; runs that have begun go on with it."""
        await self._write(delete_agent, name, if_match=if_match)
