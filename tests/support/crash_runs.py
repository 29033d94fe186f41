"""Processes that are killed while their agents work, and what must be true once another has finished what they began."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from stigmergy.kernel.database import Database
from stigmergy.kernel.opening import open_database
from stigmergy.runs.model import ENDED
from stigmergy.runs.points import POINTS
from support.crash import Mortals
from support.crash_runs_child import DONE_ONCE, LOOKS_EVERY_SECONDS, Person, Told
from support.mortal_agents import program
from support.run_check import Lives, check_all_ended, check_done_once, check_runs, left_of, workers

# All that was begun is over within this, the lease of who was killed and the deadlines of questions among it.
PATIENCE_SECONDS = 20


class MortalRuns(Mortals[Told]):
    """A program whose agents work, process after process."""

    said = Told
    points = POINTS
    longest_seconds = 0.3
    latest_passing = 4

    def live_a_while(self) -> None:
        """Killed at a random moment: while it opens its store, or mostly once it has told somebody something."""
        self.begin()
        if self._random.random() < 0.7:
            self._wait_for_a_word()
        time.sleep(self._random.uniform(0, self.longest_seconds))
        self.kill()

    def _wait_for_a_word(self) -> None:
        assert self._life is not None
        said, began = Path(self._life.answers), time.monotonic()
        while not (said.exists() and said.stat().st_size):
            assert time.monotonic() - began < PATIENCE_SECONDS, "it never began"
            time.sleep(LOOKS_EVERY_SECONDS)

    async def check(self) -> dict[str, Lives]:
        """Fail unless the store is whole as the dead left it, and whole and at rest once a new process has gone on with it."""
        store = await self.open_store()
        try:
            await check_runs(store)
        finally:
            await store.close()
        await self._finish()
        store = await self.open_store()
        try:
            found = await check_all_ended(store)
        finally:
            await store.close()
        done_once = self._folder / DONE_ONCE
        lines = done_once.read_text().splitlines() if done_once.exists() else []
        check_done_once(found["main"], lines)
        check_told(found["main"], self.answers)
        return found

    async def open_store(self) -> Database:
        return await open_database(self.store[-1], owner_place=self.store[0] if len(self.store) == 2 else None)

    async def _finish(self) -> None:
        app = program(self.store, self._folder / DONE_ONCE)
        began = time.monotonic()
        async with app:
            person = Person(app, f"after {self.kills}", self._seed)
            while not await self._at_rest(app.database):
                assert time.monotonic() - began < PATIENCE_SECONDS, f"not over: {await left_of(app.database)}"
                await person.answer_all()
                await asyncio.sleep(LOOKS_EVERY_SECONDS)

    async def _at_rest(self, store: Database) -> bool:
        """Nothing is left to do, and of the workers only the living one."""
        return len(await workers(store)) == 1 and not any(await left_of(store))


def check_told(lives: Lives, answers: Iterable[Told]) -> None:
    """Fail unless what the person was told is so."""
    waits = {wait.id: wait for life in lives.of.values() for wait in life.waits}
    heard = Counter(message.content for life in lives.of.values() for message in life.messages if " says " in message.content)
    assert set(heard.values()) <= {1}, f"heard more than once: {heard}"
    for told in answers:
        life = lives.of.get(told.run_id)
        assert life is not None, f"lost: {told}"
        match told.what:
            case "started":
                assert life.run.cause_key == f"key:somebody:{told.key}", f"{told} is {life.run}"
            case "heard":
                assert heard[told.text] == 1, f"lost: {told}"
            case "answered":
                wait = waits[told.wait_id]
                assert wait.status == "answered", f"lost: {told}"
                assert told.text in (wait.answer or {}).values() or wait.kind == "approval", f"{told} is {wait}"
            case _:
                assert life.run.status in ENDED, f"lost: {told}"
    acknowledged = Counter(told.wait_id for told in answers if told.what == "answered")
    assert not [id for id, times in acknowledged.items() if times > 1], "one wait took more than one answer"
