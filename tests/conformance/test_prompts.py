"""Prompts: what a model is given, in which order, rebuilt exactly for any past step, and stored once."""

import json
from typing import Any

import msgspec
import pytest

from stigmergy import Agent, App, Hooks, Reply, Request, Thinking, latest, on, recent, tool
from stigmergy.agents.model import ToolSpec
from stigmergy.agents.models.port import Message
from stigmergy.errors import NotFound
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs.model import Run
from stigmergy.settings import Settings
from support.agents import agent, asked, call, calls, ended, heard, results, runs_of, until, until_status, until_waiting

BLOCKS = Statement("test.blocks", "SELECT hash, size FROM blocks WHERE tenant = :tenant ORDER BY hash")
MESSAGES = Statement("test.messages", "SELECT step, prompt FROM run_messages WHERE tenant = :tenant AND run_id = :run_id")


@tool
async def count(n: int) -> str:
    """Count."""
    return f"counted {n}"


async def blocks(tx: Snapshot) -> list[tuple[Any, ...]]:
    return await tx.rows(BLOCKS)


class Recording:
    """A script that keeps what it was asked by its answers."""

    def __init__(self, script: Any) -> None:
        self.script = script
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Reply | str:
        self.asked.append(request)
        return self.script(len(self.asked), request)


def varied(step: int, request: Request) -> Reply | str:
    """Everything that can be in a log."""
    match step:
        case 1:
            return Reply("first", (asked("count", n=1), asked("count", n=2)), (Thinking("hm", 0.9, "reported"),))
        case 2:
            return calls(asked("count", '{"n": '), asked("nothing"), text="badly")
        case 3:
            return call("pick")
        case 4:
            return "no JSON"
        case 5:
            return call("create_task", agent="child", instruction="help")
        case 6:
            return call("set_variable", key="a", value=[1, 2])
        case n if n < 14:
            return call("count", n=n)
        case _:
            return '{"n": 42}'


def louder(request: Request, run: Run) -> Request:
    """A hook that changes some prompts: in place, by adding, not at all."""
    if len(request.messages) % 3 == 0:
        return msgspec.structs.replace(request, messages=(*request.messages, Message("system", "added")))
    if len(request.messages) % 3 == 1:
        last = msgspec.structs.replace(request.messages[-1], content=request.messages[-1].content.upper())
        return msgspec.structs.replace(request, messages=(*request.messages[:-1], last))
    return request


def program(script: Recording, *, instructions: str, hooked: bool, window: int) -> Agent:
    return agent(
        "ada",
        script,
        instructions=instructions,
        tools=[count, ToolSpec(name="pick", execution_type="client")],
        delegates=[agent("child", lambda request: "helped", description="Helps.")],
        subscriptions=[on("question.v1"), latest("page.v1", as_="page"), recent("note.v1", limit=3)],
        output=dict[str, int],
        hooks=Hooks(before_model=(louder,)) if hooked else None,
        window=window,
        max_steps=16,
    )


@pytest.mark.parametrize(("hooked", "window"), [(False, 200), (False, 4), (True, 6)])
async def test_every_past_prompt_is_exactly_what_the_model_was_given_whatever_changed_since(
    settings: Settings, hooked: bool, window: int
) -> None:
    script = Recording(varied)
    async with App(settings=settings, agents=[program(script, instructions="Be Ada.", hooked=hooked, window=window)]) as app:
        page = await app.breadcrumbs.create("page.v1", "A page", context={"url": "/", "secret": 1})
        await app.breadcrumbs.create("note.v1", "A note", context={"text": "remember"})
        await app.breadcrumbs.create("question.v1", context={"text": "How many?"})
        (run,) = await until(lambda: _some(app))
        (wait,) = await until_waiting(app)
        await until_status(app, run.id, "waiting_tool")
        await app.runs.hear(run.id, "meanwhile")
        await app.runs.tool_result(run.id, wait.call_id, {"picked": True})
        over = await ended(app, run.id)
        assert (over.status, over.result) == ("completed", {"n": 42})
        await app.breadcrumbs.patch(page.id, context={"url": "/elsewhere"}, llm_hints={"exclude": ["secret"]})
    other = agent("ada", lambda request: "x", instructions="Be somebody else.", tools=[])
    async with App(settings=settings, agents=[other]) as app:
        assert over.step == len(script.asked) == 14
        for step, request in enumerate(script.asked, 1):
            past = await app.runs.prompt(run.id, step)
            assert past.messages == request.messages, step
            assert past.tools == request.tools
            if not hooked:
                assert sum(part.tokens for part in past.parts) > 0
        with pytest.raises(NotFound):
            await app.runs.prompt(run.id, 15)
        with pytest.raises(NotFound):
            await app.runs.prompt("nowhere", 1)


async def _some(app: App) -> Any:
    return await runs_of(app, "ada") or None


async def test_what_is_stable_comes_first_and_remarks_come_last(settings: Settings) -> None:
    script = Recording(lambda step, request: call("count", n=step) if step < 8 else '{"n": 1}')
    async with App(settings=settings, agents=[program(script, instructions="Be Ada.", hooked=False, window=200)]) as app:
        await app.breadcrumbs.create("page.v1", context={"url": "/"})
        await app.breadcrumbs.create("question.v1", context={"text": "How many?"})
        (run,) = await until(lambda: _some(app))
        await ended(app, run.id)
    first, last = script.asked[0].messages, script.asked[-1].messages
    assert [message.role for message in first] == ["system"] * 4 + ["user"]
    assert first[0].content == "Be Ada."
    assert first[1].content == "You may give tasks to these agents:\n- child: Helps."
    assert "JSON Schema" in first[2].content
    assert first[3].content.startswith("What you asked to see:\n")
    assert heard(script.asked[0]) == ["How many?"]
    assert last[:5] == first
    past = await _parts(settings, run.id)
    assert [part[0] for part in past][:5] == ["instructions", "block", "block", "block", "history"]


async def _parts(settings: Settings, id: str) -> list[tuple[str, int]]:
    async with App(settings=settings) as app:
        return [(part.what, part.tokens) for part in (await app.runs.prompt(id, 1)).parts]


async def test_a_step_stores_what_it_added_and_blocks_are_stored_once(settings: Settings) -> None:
    long = "Instructions. " * 500

    def script(step: int, request: Request) -> Reply | str:
        return call("count", n=len(results(request))) if len(results(request)) < 20 else '{"n": 1}'

    def ada() -> Agent:
        return agent(
            "ada",
            Recording(script),
            instructions=long,
            tools=[count],
            subscriptions=[on("question.v1"), latest("page.v1")],
            output=dict[str, int],
            max_steps=30,
        )

    async with App(settings=settings, agents=[ada()]) as app:
        await app.breadcrumbs.create("page.v1", context={"text": "A long page. " * 1_000})
        stored: list[set[str]] = []
        for n in range(2):
            await app.breadcrumbs.create("question.v1", context={"text": "How many?"}, id="q") if n == 0 else (
                await app.breadcrumbs.patch("q", context={"again": n})
            )
            await until(lambda n=n: _ended(app, n + 1))
            stored.append({row[0] for row in await app.read(blocks)})
        (run, _) = await runs_of(app, "ada")
        rows = await app.read(_messages, run.id)
        prompts = [row for row in rows if row[1] is not None]
        assert len(prompts) == 21
        assert max(len(json.dumps(row[1])) for row in prompts) < 600
        # the tools, what the answer is, and the assembly of each run: nothing for a step
        assert len(stored[0]) == 3
        assert len(stored[1]) == 4


async def _ended(app: App, count: int) -> bool | None:
    found = await runs_of(app, "ada")
    return (len(found) == count and all(run.status == "completed" for run in found)) or None


async def _messages(tx: Snapshot, run_id: str) -> list[tuple[Any, ...]]:
    return await tx.rows(MESSAGES, run_id=run_id)
