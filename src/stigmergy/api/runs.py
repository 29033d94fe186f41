"""`/v1/runs`: start, look at, watch, speak to and stop what agents do. Who may do which of these is said in `engine.rights`."""

import asyncio
from typing import Annotated, Any, Literal

from litestar import Controller, get, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from litestar.response.base import ASGIResponse

from stigmergy.access.model import Claims
from stigmergy.api import run_shapes as shapes
from stigmergy.api import wire
from stigmergy.api.auth import claims_of, unit_scope
from stigmergy.api.events import HEADERS, AfterPosition, EventStream, LastEventId, position
from stigmergy.api.feeds import Feeds
from stigmergy.api.requests import AnyRequest, Cursor, IdempotencyKey, database_of, once, read, write
from stigmergy.api.run_events import frames
from stigmergy.api.run_shapes import RunOut
from stigmergy.engine.namespace import key_of
from stigmergy.engine.openai import openai_messages
from stigmergy.engine.past import prompt_of
from stigmergy.engine.rights import check_may_answer_call, check_may_start_in, own_run, reader_of, seen_run
from stigmergy.engine.starting import start
from stigmergy.engine.watching import until_ended
from stigmergy.errors import Invalid
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs import queries, waits
from stigmergy.runs.commands import Start, hear
from stigmergy.runs.endings import cancel_run
from stigmergy.runs.model import Run, RunMessage, RunStatus
from stigmergy.runs.queries import RunView
from stigmergy.settings import Settings

Id = Annotated[str, PathParameter(description="A run's id.")]
Waiting = Annotated[
    float,
    QueryParameter(
        ge=0,
        le=300,
        description="How many seconds to wait for the run's end before it is answered with what there is by then; less where"
        " the setting `request_seconds` does not allow so much.",
    ),
]
# What is left of the time for a request when the waiting is over.
SHARE_OF_DEADLINE = 0.8


class RunRoutes(Controller):
    path = "/v1/runs"
    tags = ("runs",)

    @post(summary="Start a run", operation_id="start_run")
    async def start(
        self, request: AnyRequest, data: JSONBody[shapes.StartIn], wait: Waiting = 0, key: IdempotencyKey = None
    ) -> RunOut:
        body = await request.body() if key is not None else b""
        id: str = await write(request, _start, claims_of(request), data, key, body)
        return await _ended(request, id, wait)

    @get(summary="List runs, the newest changed first", operation_id="list_runs")
    async def find(
        self,
        request: AnyRequest,
        agent: Annotated[str | None, QueryParameter(max_length=200, description="Only runs of this agent.")] = None,
        status: Annotated[RunStatus | None, QueryParameter(description="Only these.")] = None,
        parent: Annotated[str | None, QueryParameter(max_length=200, description="Only those that this run started.")] = None,
        space: Annotated[str | None, QueryParameter(max_length=200, description="Only those in this space.")] = None,
        limit: wire.Limit = 50,
        cursor: Cursor = None,
    ) -> shapes.RunPage:
        page: queries.Page = await read(
            request,
            _find,
            claims_of(request),
            agent=agent,
            status=status,
            parent=parent,
            space_id=space,
            below=wire.below(cursor),
            limit=limit,
        )
        return shapes.RunPage([shapes.run_out(run) for run in page.items], None if page.next is None else str(page.next))

    @get("/{id:str}", summary="One run, and what it waits for", operation_id="get_run")
    async def one(self, request: AnyRequest, id: Id, wait: Waiting = 0) -> RunOut:
        claims = claims_of(request)
        if wait:
            await read(request, seen_run, claims, id)
        return await _ended(request, id, wait)

    @get("/{id:str}/tree", summary="The whole tree that a run is in", operation_id="get_run_tree")
    async def tree(self, request: AnyRequest, id: Id) -> shapes.NodeOut:
        return shapes.node_out(await read(request, _tree, claims_of(request), id))

    @get("/{id:str}/messages", summary="What a run was told and said, in order", operation_id="list_run_messages")
    async def messages(
        self,
        request: AnyRequest,
        id: Id,
        format: Annotated[
            Literal["ours", "openai"],
            QueryParameter(description="`openai`: the shape of OpenAI's protocol, with the calls in the assistant's message."),
        ] = "ours",
        limit: wire.Limit = 200,
        cursor: Cursor = None,
    ) -> shapes.RunMessagePage | shapes.OpenAIMessages:
        after = wire.position(cursor)
        if format == "openai":
            said = await read(request, _openai, claims_of(request), id, after, limit)
            return shapes.OpenAIMessages(said.messages, _next(said.size, said.last, limit))
        found: list[RunMessage] = await read(request, _messages, claims_of(request), id, after, limit)
        items = [shapes.shown(each, shapes.RunMessageOut) for each in found]
        return shapes.RunMessagePage(items, _next(len(found), found[-1].pos if found else None, limit))

    @post("/{id:str}/messages", summary="Say something to a run; a completed one goes on", operation_id="say_to_run")
    async def say(
        self, request: AnyRequest, id: Id, data: JSONBody[shapes.SayIn], key: IdempotencyKey = None
    ) -> shapes.RunMessageOut:
        body = await request.body() if key is not None else b""
        return shapes.shown(await write(request, _say, claims_of(request), id, data.text, key, body), shapes.RunMessageOut)

    @get("/{id:str}/tool-calls", summary="What a run asked of tools, and what came of it", operation_id="list_tool_calls")
    async def calls(self, request: AnyRequest, id: Id) -> shapes.RunToolCalls:
        found = await read(request, _calls, claims_of(request), id)
        return shapes.RunToolCalls([shapes.shown(each, shapes.RunToolCallOut) for each in found])

    @post("/{id:str}/tool-results", status_code=200, summary="Answer for a client's tool", operation_id="give_tool_result")
    async def tool_result(self, request: AnyRequest, id: Id, data: JSONBody[shapes.ToolResultIn]) -> RunOut:
        return shapes.run_out(await write(request, _tool_result, claims_of(request), id, data))

    @get("/{id:str}/thoughts", summary="What a run thought, in order", operation_id="list_thoughts")
    async def thoughts(self, request: AnyRequest, id: Id, limit: wire.Limit = 200, cursor: Cursor = None) -> shapes.ThoughtPage:
        found = await read(request, _thoughts, claims_of(request), id, wire.position(cursor), limit)
        items = [shapes.shown(each, shapes.ThoughtOut) for each in found]
        return shapes.ThoughtPage(items, _next(len(found), found[-1].pos if found else None, limit))

    @get("/{id:str}/checkpoints", summary="The positions that a run can be looked at from", operation_id="list_checkpoints")
    async def checkpoints(self, request: AnyRequest, id: Id) -> shapes.Checkpoints:
        found = await read(request, _checkpoints, claims_of(request), id)
        return shapes.Checkpoints([shapes.shown(each, shapes.CheckpointOut) for each in found])

    @get("/{id:str}/steps/{step:int}/prompt", summary="What the model was asked in a step", operation_id="get_step_prompt")
    async def prompt(
        self,
        request: AnyRequest,
        id: Id,
        step: Annotated[int, PathParameter(ge=1, le=10**9, description="The step's number, from 1 on.")],
    ) -> shapes.PromptOut:
        return shapes.prompt_out(await read(request, _prompt, claims_of(request), id, step))

    @post("/{id:str}/cancel", status_code=200, summary="Stop a run and all under it", operation_id="cancel_run")
    async def cancel(self, request: AnyRequest, id: Id, data: JSONBody[shapes.CancelIn]) -> RunOut:
        return shapes.run_out(await write(request, _cancel, claims_of(request), id, data.reason))

    @get(
        "/{id:str}/events",
        summary="Watch a run and all under it, until its end",
        operation_id="watch_run",
        media_type="text/event-stream",
    )
    async def events(
        self, request: AnyRequest, id: Id, after: AfterPosition = None, last_event_id: LastEventId = None
    ) -> ASGIResponse:
        claims = claims_of(request)
        seen = await read(request, seen_run, claims, id)
        start = position(last_event_id) or position(after)
        feeds: Feeds = request.app.state.feeds
        told = frames(feeds, claims, id, None if start is None else int(start), in_full=seen.is_own)
        return EventStream(iterator=told, media_type="text/event-stream", headers=HEADERS)


async def _ended(request: AnyRequest, id: str, wait: float) -> RunOut:
    """The run as it is when it has ended, when the time is over, or when the server closes. Who started it may see it, whatever
    the token's grants."""
    claims = claims_of(request)
    if wait:
        settings: Settings = request.app.state.settings
        feeds: Feeds = request.app.state.feeds
        ending = until_ended(database_of(request), id, unit_scope(claims))
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(ending), asyncio.create_task(feeds.ended.wait())]
        longest = min(wait, settings.request_seconds * SHARE_OF_DEADLINE)
        try:
            await asyncio.wait(tasks, timeout=longest, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    view, in_full = await database_of(request).read(_get, claims, id, scope=unit_scope(claims))
    return shapes.view_out(view, in_full=in_full)


def _next(count: int, last: int | None, limit: int) -> str | None:
    return str(last) if count == limit else None


# ---- units of work: who may, and then a command or a query ----


async def _start(tx: Transaction, claims: Claims, data: shapes.StartIn, key: str | None, body: bytes) -> str:
    async def make() -> str:
        await check_may_start_in(tx, claims, data.space_id)
        given = Start(
            agent=data.agent,
            instruction=data.instruction,
            owner_id=tx.actor,
            space_id=data.space_id or "",
            active_space_id=data.space_id,
            cause_key=key_of(tx.actor, key),
            metadata=data.metadata,
        )
        return (await start(tx, given)).id

    return await once(tx, "start_run", key, body, make, str)


async def _get(tx: Snapshot, claims: Claims, id: str) -> tuple[RunView, bool]:
    seen = await seen_run(tx, claims, id)
    return await queries.view(tx, id), seen.is_own


async def _find(tx: Snapshot, claims: Claims, **chosen: Any) -> queries.Page:
    return await queries.runs(tx, await reader_of(tx, claims), **chosen)


async def _tree(tx: Snapshot, claims: Claims, id: str) -> queries.Node:
    await seen_run(tx, claims, id)
    return await queries.tree(tx, id)


async def _messages(tx: Snapshot, claims: Claims, id: str, after: int, limit: int) -> list[RunMessage]:
    await own_run(tx, claims, id)
    return await queries.messages(tx, id, after=after, limit=limit)


async def _openai(tx: Snapshot, claims: Claims, id: str, after: int, limit: int) -> Any:
    await own_run(tx, claims, id)
    return await openai_messages(tx, id, after=after, limit=limit)


async def _say(tx: Transaction, claims: Claims, id: str, text: str, key: str | None, body: bytes) -> RunMessage:
    async def make() -> RunMessage:
        await own_run(tx, claims, id)
        return await hear(tx, id, text)

    return await once(tx, f"say_to_run {id}", key, body, make, RunMessage)


async def _calls(tx: Snapshot, claims: Claims, id: str) -> Any:
    await own_run(tx, claims, id)
    return await queries.calls(tx, id)


async def _tool_result(tx: Transaction, claims: Claims, id: str, data: shapes.ToolResultIn) -> Run:
    if (data.result is shapes.UNSET) == (data.error is shapes.UNSET):
        raise Invalid("give a `result` or an `error`", "result")
    await check_may_answer_call(tx, claims, id, data.tool_call_id)
    if isinstance(data.error, str):
        return await waits.answer_tool(tx, id, data.tool_call_id, error=data.error)
    return await waits.answer_tool(tx, id, data.tool_call_id, result=data.result)


async def _thoughts(tx: Snapshot, claims: Claims, id: str, after: int, limit: int) -> Any:
    await own_run(tx, claims, id)
    return await queries.thoughts(tx, id, after=after, limit=limit)


async def _checkpoints(tx: Snapshot, claims: Claims, id: str) -> Any:
    await own_run(tx, claims, id)
    return await queries.checkpoints(tx, id)


async def _prompt(tx: Snapshot, claims: Claims, id: str, step: int) -> Any:
    await own_run(tx, claims, id)
    return await prompt_of(tx, id, step)


async def _cancel(tx: Transaction, claims: Claims, id: str, reason: str) -> Run:
    await own_run(tx, claims, id)
    return await cancel_run(tx, id, reason)


# ---- for the description of the API ----

MORE: dict[str, tuple[int, ...]] = {
    "start_run": (404, 409),
    **dict.fromkeys(("get_run", "get_run_tree", "list_run_messages", "list_tool_calls", "watch_run"), (404,)),
    **dict.fromkeys(("list_thoughts", "list_checkpoints", "get_step_prompt", "cancel_run"), (404,)),
    "say_to_run": (404, 409),
    "give_tool_result": (404, 409),
}
EXAMPLES: dict[str, Any] = {
    "start_run": {"agent": "lead", "instruction": "What is Bitcoin worth?", "metadata": {"ticket": 42}},
    "say_to_run": {"text": "And Ether?"},
    "cancel_run": {"reason": "no longer needed"},
    "give_tool_result": {"tool_call_id": "call_1_1", "result": {"dollars": 97_000}},
}
