"""A team of agents for the tests of doors to runs: each does what its user's words ask for, without a model."""

import asyncio
import json
from typing import Any

from stigmergy import Agent, App, Asked, Reply, ScriptedModel, Thinking, ToolContext, tool
from stigmergy.agents.model import ToolSpec
from stigmergy.agents.models.port import Request
from stigmergy.settings import Settings


@tool
async def price(symbol: str) -> float:
    """The price of a coin."""
    return {"BTC": 97_000.0}.get(symbol, 1.0)


@tool
async def drop(table: str, context: ToolContext) -> str:
    """Somebody is asked first."""
    return f"dropped {table} for {context.owner_id}"


@tool
def fail() -> str:
    """Never works."""
    raise RuntimeError("it is broken")


HERE = ToolSpec(name="here", description="Where the user is.", execution_type="client", visibility="visible")


def called(name: str, **arguments: Any) -> Reply:
    return Reply(tool_calls=(Asked("1", name, json.dumps(arguments)),), thinking=(Thinking(f"I call {name}.", 0.9, "reported"),))


def lead(request: Request) -> Reply | str:
    last = [message for message in request.messages if message.role != "system"][-1]
    if last.role == "tool":
        return f"It is: {last.content}"
    asked = last.content
    if asked.startswith("price"):
        return called("price", symbol=asked.split()[1])
    if asked.startswith("drop"):
        return called("drop", table=asked.split()[1])
    if asked.startswith("delegate"):
        return called("create_task", agent="helper", instruction=asked.removeprefix("delegate "))
    if asked in ("here", "fail"):
        return called(asked)
    if asked.startswith("ask"):
        return called("ask_user", question=asked.removeprefix("ask "))
    return f"You said: {asked}"


def heard(request: Request) -> str:
    return [message.content for message in request.messages if message.role == "user"][-1]


class Slow:
    """A model that streams its words, one for each `go()`; `began` is set with the first."""

    name = "slow"

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self._words = asyncio.Semaphore(0)

    def go(self, words: int = 1) -> None:
        for _ in range(words):
            self._words.release()

    async def request(self, request: Request, on_text: Any = None) -> Reply:
        text = ""
        for word in ("one ", "two ", "three"):
            await self._words.acquire()
            text += word
            if on_text is not None:
                on_text(word)
            self.began.set()
        return Reply(text=text)


def team(settings: Settings, *more: Agent) -> App:
    helper = Agent("helper", ScriptedModel(lambda request: f"helped with {heard(request)}"), "Help.")
    agents = Agent(
        "lead",
        ScriptedModel(lead),
        "You lead.",
        tools=[price, drop, fail, HERE],
        delegates=[helper],
        require_approval=["drop"],
    )
    return App(agents=[agents, helper, *more], settings=settings)
