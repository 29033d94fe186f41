"""Agents for the tests: scripts that are short to write, and ways to wait for what their runs come to."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from stigmergy import Agent, App, Asked, Reply, Request, ScriptedModel
from stigmergy.runs.model import ENDED, Run, Wait

T = TypeVar("T")
Script = Callable[[Request], Reply | str]
PATIENCE = 20


def agent(name: str, script: Script, **more: Any) -> Agent:
    return Agent(name, ScriptedModel(script, name=name), **more)


def asked(name: str, arguments: Any = None, /, **named: Any) -> Asked:
    return Asked("x", name, arguments if isinstance(arguments, str) else json.dumps(named))


def call(name: str, **arguments: Any) -> Reply:
    return Reply(tool_calls=(asked(name, **arguments),))


def calls(*wanted: Asked, text: str = "") -> Reply:
    return Reply(text, wanted)


def results(request: Request) -> list[str]:
    """What the tools gave, in the order of the prompt."""
    return [message.content for message in request.messages if message.role == "tool"]


def steps_done(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def heard(request: Request) -> list[str]:
    """What users said."""
    return [message.content for message in request.messages if message.role == "user"]


def system(request: Request) -> str:
    return "\n\n".join(message.content for message in request.messages if message.role == "system")


class Steps:
    """A script of one reply after another, that keeps what it was asked; the last one again and again."""

    def __init__(self, *replies: Reply | str | Callable[[Request], Reply | str]) -> None:
        self.replies = replies
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Reply | str:
        self.asked.append(request)
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        return reply(request) if callable(reply) else reply


async def until(found: Callable[[], Awaitable[T | None]]) -> T:
    """What is found, as soon as there is something."""
    async with asyncio.timeout(PATIENCE):
        while (there := await found()) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return there


async def until_status(app: App, id: str, *wanted: str) -> Run:
    async def reached() -> Run | None:
        run = (await app.runs.get(id)).run
        assert run.status in wanted or run.status not in ENDED, f"{run.status}: {run.error}"
        return run if run.status in wanted else None

    return await until(reached)


async def until_waiting(app: App, count: int = 1) -> list[Wait]:
    """What is in the inbox, as soon as there is so much."""

    async def waiting() -> list[Wait] | None:
        found = await app.runs.waits()
        return found if len(found) >= count else None

    return await until(waiting)


async def ended(app: App, id: str) -> Run:
    return await until_status(app, id, *ENDED)


async def runs_of(app: App, name: str) -> list[Run]:
    """Every run of an agent, the first one first."""
    return sorted((await app.runs.list(agent=name, limit=500)).items, key=lambda run: run.id)
