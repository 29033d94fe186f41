"""A program whose processes are killed: agents that give each other tasks, ask, wait, fail and are approved of.

What they do follows from what they were told, so that any process goes on where another one was killed. `once` is a tool that
must not run twice for one call: it leaves a line in a file, outside of the store, each time it runs.
"""

import asyncio
import fcntl
import json
import os
import random
from pathlib import Path
from typing import Any

from stigmergy import Agent, App, Asked, Reply, Request, ScriptedModel, Thinking, tool
from stigmergy.agents.model import Approval, Limits, ToolSpec
from stigmergy.agents.models.port import ModelFailed
from stigmergy.agents.tools import Tool, ToolContext
from stigmergy.settings import Settings

# So long a worker may be silent. A process that follows a killed one waits for this.
LEASE_SECONDS = 0.1
# Thinking and tools take up to so long, so that a kill meets them at it.
LONGEST_PAUSE_SECONDS = 0.004
# What is told to a leaf that takes longer than whoever has it work, and how long it thinks.
SLOW, SLOW_SECONDS = "slowly", 0.03
# How a line begins that two processes leave at once.
TWO = "two at once: "
# How long the approver has, who mostly says nothing.
APPROVAL_MS = 60


def calls(*asked: tuple[str, dict[str, Any]]) -> Reply:
    made = tuple(Asked(str(place), name, json.dumps(arguments)) for place, (name, arguments) in enumerate(asked))
    return Reply("", made, (Thinking("This comes next."),), input_tokens=50, output_tokens=10)


def thoughts(request: Request) -> int:
    """How often the agent asked for tools already."""
    return sum(bool(message.tool_calls) for message in request.messages)


def told(request: Request) -> str:
    return next(message.content for message in request.messages if message.role == "user")


def results(request: Request) -> str:
    return "; ".join(message.content for message in request.messages if message.role == "tool")


def lead(request: Request) -> Reply | str:
    """Two tasks and two tools at once, then a question, then the answer. What it hears later it only takes note of."""
    if " asks:\n" in told(request):
        return "yes, go on"
    match thoughts(request):
        case 0:
            return calls(
                ("note", {"text": "begun"}),
                ("create_task", {"agent": "middle", "instruction": "build it"}),
                ("once", {"what": "lead"}),
            )
        case 1:
            return calls(
                ("ask_user", {"question": "which colour?"}),
                ("set_variable", {"key": "built", "value": True}),
                ("create_task", {"agent": "leaf", "instruction": SLOW, "wait": False}),
            )
        case _:
            return f"built: {results(request)}"


def middle(request: Request) -> Reply | str:
    """Two leaves, one of which fails; then a question to whoever gave the task; then what came of it."""
    match thoughts(request):
        case 0:
            return calls(
                ("create_task", {"agent": "leaf", "instruction": "good"}),
                ("create_task", {"agent": "leaf", "instruction": "bad"}),
                ("once", {"what": "middle"}),
            )
        case 1:
            return calls(("ask_user", {"question": "may I go on?"}))
        case _:
            return f"one leaf failed, the other did it: {results(request)}"


def leaf(request: Request) -> Reply | str:
    if thoughts(request) == 0:
        return calls(("once", {"what": "leaf"}), ("note", {"text": told(request)}))
    if told(request) == "bad":
        raise ModelFailed("this leaf is rotten")
    return f"{told(request)} is done"


def careful(request: Request) -> Reply | str:
    """A tool that a person has to agree to, then one that a client answers."""
    match thoughts(request):
        case 0:
            return calls(("once", {"what": "careful"}))
        case 1:
            return calls(("show", {"text": "look"}), ("note", {"text": "shown"}))
        case _:
            return f"it was so: {results(request)}"


def walker(request: Request) -> Reply | str:
    """As many steps as it was told, each with one call of a tool."""
    walked = thoughts(request)
    return "arrived" if walked == int(told(request)) else calls(("alone", {"step": walked + 1}))


class _Thinking(ScriptedModel):
    async def request(self, request: Request, on_text: Any = None) -> Reply:
        await pause()
        if told(request) == SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        return await super().request(request, on_text)


async def pause() -> None:
    await asyncio.sleep(random.uniform(0, LONGEST_PAUSE_SECONDS))


@tool(repeatable=True)
async def note(text: str) -> str:
    """Say it back."""
    await pause()
    return text


def once_in(file: Path) -> Tool:
    @tool
    async def once(what: str, context: ToolContext) -> str:
        """Do what must not be done twice."""
        await pause()
        leave_line(file, context.idempotency_key)
        await pause()
        return f"{what} did it"

    return once


def alone_in(file: Path) -> Tool:
    @tool
    async def alone(step: int, context: ToolContext) -> str:
        """Leave a line, and one that says so where another process is at work on the same run."""
        lock = os.open(file.with_name(f"{context.run_id}.lock"), os.O_WRONLY | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leave_line(file, context.idempotency_key)
            await pause()
        except BlockingIOError:
            leave_line(file, TWO + context.idempotency_key)
        finally:
            os.close(lock)
        return str(os.getpid())

    return alone


def leave_line(file: Path, text: str) -> None:
    line = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(line, f"{text}\n".encode())
    os.fsync(line)
    os.close(line)


SHOW = ToolSpec(
    name="show",
    parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    execution_type="client",
)


def agents(done_once: Path) -> list[Agent]:
    """`leaf` may be two at once, so that some wait for room."""
    once = once_in(done_once)
    a_leaf = Agent("leaf", _Thinking(leaf), "Do it.", tools=[once, note], concurrent_runs=2)
    a_middle = Agent("middle", _Thinking(middle), "See to it.", tools=[once], delegates=[a_leaf])
    a_lead = Agent("lead", _Thinking(lead), "Lead.", tools=[once, note], delegates=[a_middle, a_leaf], builtin_tools=LEADS)
    approval = Approval(tools=("once",), timeout_ms=APPROVAL_MS, on_timeout="continue")
    a_careful = Agent("careful", _Thinking(careful), "Be careful.", tools=[once, note, SHOW], approval=approval)
    limits = Limits(max_steps=10_000, concurrent_runs=1_000)
    a_walker = Agent("walker", _Thinking(walker), "Walk.", tools=[alone_in(done_once)], limits=limits, window=100_000)
    return [a_lead, a_careful, a_walker]


LEADS = ("create_task", "ask_user", "set_variable", "final_answer")


def program(store: list[str], done_once: Path, **more: Any) -> App:
    given: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "embedder": "off", "deliver": False, **more}
    settings = Settings(store=store[-1], owner_store=store[0] if len(store) == 2 else None, **given)
    return App(settings=settings, agents=agents(done_once), entity="somebody")
