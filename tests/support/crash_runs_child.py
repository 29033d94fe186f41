"""A process that works on runs until it is killed, with somebody in it who starts them, answers them, speaks to them and stops
some; what this person was told is kept in a file. As a program it is a mother, like `crash_child`.
"""

import asyncio
import os
import random
from pathlib import Path
from typing import Any, Literal

import msgspec

from stigmergy import App
from stigmergy.errors import Conflict, NotFound
from stigmergy.runs.model import ENDED, Wait
from support.crash_child import Life, bear_children
from support.mortal_agents import program

# How many runs the person has begun and not seen the end of.
AT_ONCE = 3
LOOKS_EVERY_SECONDS = 0.005
DONE_ONCE = "done once"


class Told(msgspec.Struct):
    """What the person was told was so. `key` is what a run was started under, `text` what was said."""

    what: Literal["started", "answered", "heard", "canceled"]
    run_id: str
    key: str = ""
    wait_id: str = ""
    text: str = ""


class Person:
    """Whoever has the agents work. `path` None: nobody needs to know what they were told."""

    def __init__(self, app: App, name: str, seed: int, path: str | None = None) -> None:
        self._app = app
        self._name = name
        self._random = random.Random(f"{seed} {name}")
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._said = 0

    def note(self, told: Told) -> None:
        if self._file is not None:
            os.write(self._file, msgspec.json.encode(told) + b"\n")

    async def have_work_done(self) -> None:
        """One run after the other, for ever."""
        while True:
            self._said += 1
            agent, key = self._random.choice(("lead", "lead", "careful")), f"{self._name} {self._said}"
            handle = await self._app.runs.start(agent, "go", key=key)
            self.note(Told("started", handle.id, key=key))
            meddling = self._random.choice((None, None, self._speak, self._stop, self._stop))
            if meddling is not None:
                await asyncio.sleep(self._random.uniform(0, 0.05))
                await meddling(handle.id)
            await self._see_the_end(handle.id)
            if meddling is None and self._random.random() < 0.5:
                await self._speak(handle.id)
                await self._see_the_end(handle.id)

    async def _see_the_end(self, run_id: str) -> None:
        while (await self._app.runs.get(run_id)).run.status not in ENDED:  # noqa: ASYNC110
            await asyncio.sleep(LOOKS_EVERY_SECONDS)

    async def _speak(self, run_id: str) -> None:
        self._said += 1
        text = f"{self._name} says {self._said}"
        try:
            await self._app.runs.hear(run_id, text)
        except Conflict:
            return
        self.note(Told("heard", run_id, text=text))

    async def _stop(self, run_id: str) -> None:
        """Mostly when it has given tasks, so that these are stopped with it."""
        if self._random.random() < 0.8:
            while not (node := await self._app.runs.tree(run_id)).children and node.run.status not in ENDED:  # noqa: ASYNC110
                await asyncio.sleep(LOOKS_EVERY_SECONDS)
        await self._app.runs.cancel(run_id)
        self.note(Told("canceled", run_id))

    async def answer_for_ever(self) -> None:
        while True:
            await self.answer_all()
            await asyncio.sleep(LOOKS_EVERY_SECONDS)

    async def answer_all(self) -> None:
        """Answer what waits, some of it twice at once. Most approvals are left to their time."""
        for wait in await self._app.runs.waits(limit=200):
            if wait.kind != "approval" or self._random.random() < 0.05:
                await asyncio.gather(*(self._answer(wait) for _ in range(self._random.choice((1, 2)))))

    async def _answer(self, wait: Wait) -> None:
        self._said += 1
        text = f"{self._name} answers {self._said}"
        given: dict[str, Any] = {"text": text}
        if wait.kind != "reply":
            given |= {"decision": "approve"} if wait.kind == "approval" else {"result": text}
        try:
            await self._app.runs.answer(wait.id, **given)
        except (Conflict, NotFound):
            return
        self.note(Told("answered", wait.run_id, wait_id=wait.id, text=text))


async def work(life: Life) -> None:
    random.seed(f"{life.seed} {life.name}")
    app = program(life.store, Path(life.answers).with_name(DONE_ONCE))
    async with app, asyncio.TaskGroup() as all_at_once:
        people = [Person(app, f"{life.name}.{number}", life.seed, life.answers) for number in range(AT_ONCE)]
        for person in people:
            all_at_once.create_task(person.have_work_done())
        all_at_once.create_task(people[0].answer_for_ever())


if __name__ == "__main__":
    bear_children(work)
