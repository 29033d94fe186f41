"""Text while it comes: in order, from the middle on, withdrawn when it came to nothing, stored under the same id."""

import asyncio
from typing import Any

from stigmergy import Agent, App, Reply, Request
from stigmergy.agents.models.port import ModelFailed
from stigmergy.engine.watching import RunEvent
from stigmergy.settings import Settings
from support.agents import Steps, agent, call, until_status, until_waiting

PATIENCE = 20


class Slowly:
    """Says piece after piece as it is let to; may fail the first time."""

    def __init__(self, pieces: list[str], *, fails_first: bool = False) -> None:
        self.pieces = pieces
        self.fails_first = fails_first
        self.said = asyncio.Semaphore(0)
        self.tries = 0

    async def request(self, request: Request, on_text: Any = None) -> Reply:
        self.tries += 1
        for piece in self.pieces:
            await self.said.acquire()
            on_text(piece)
        if self.fails_first and self.tries == 1:
            await self.said.acquire()
            raise ModelFailed("cut off", retryable=True, retry_after=0.0)
        await self.said.acquire()
        return Reply("".join(self.pieces))

    def say(self, count: int = 1) -> None:
        for _ in range(count):
            self.said.release()


class Reader:
    """Reads a run's events in the background."""

    def __init__(self, app: App, id: str) -> None:
        self.events: list[RunEvent] = []
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._read(app, id))

    async def _read(self, app: App, id: str) -> None:
        async for event in app.runs.events(id):
            self.events.append(event)
            self._changed.set()

    def text(self) -> str:
        """What was streamed and not withdrawn, put together by its offsets."""
        texts: dict[str, str] = {}
        for event in self.events:
            if event.kind == "withdrawn":
                texts = {} if event.stream_id == "*" else {id: text for id, text in texts.items() if id != event.stream_id}
            elif event.kind == "text":
                so_far = texts.get(str(event.stream_id), "")
                assert event.offset is not None
                assert event.offset <= len(so_far), "a gap"
                texts[str(event.stream_id)] = so_far[: event.offset] + str(event.text)
        return "".join(texts.values())

    async def until_text(self, wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.text() != wanted:
                self._changed.clear()
                await self._changed.wait()

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._task


async def test_text_is_streamed_and_who_comes_in_the_middle_gets_what_was_said_so_far(settings: Settings) -> None:
    model = Slowly(["Once ", "upon ", "a ", "time"])
    async with App(settings=settings, agents=[Agent("ada", model)]) as app:
        run = await app.runs.start("ada", "a story")
        first = Reader(app, run.id)
        model.say(2)
        await first.until_text("Once upon ")
        second = Reader(app, run.id)
        await second.until_text("Once upon ")
        model.say(3)
        await first.ended()
        await second.ended()
        stored = [event for event in first.events if event.kind == "message" and event.role == "assistant"]
        assert [event.text for event in stored] == ["Once upon a time"]
        ids = {event.stream_id for reader in (first, second) for event in reader.events if event.kind == "text"}
        assert ids == {stored[0].stream_id}
        assert "Once upon a time".startswith(first.text())


async def test_what_came_to_nothing_is_withdrawn_and_said_again_under_another_id(settings: Settings) -> None:
    model = Slowly(["half "], fails_first=True)
    async with App(settings=settings, agents=[Agent("ada", model)]) as app:
        run = await app.runs.start("ada", "a story")
        reader = Reader(app, run.id)
        model.say(1)
        await reader.until_text("half ")
        withdrawn = reader.events[-1].stream_id
        model.say(1)
        await reader.until_text("")
        model.say(1)
        await reader.until_text("half ")
        model.say(1)
        await reader.ended()
        assert [event.stream_id for event in reader.events if event.kind == "withdrawn"] == [withdrawn]
        stored = next(event for event in reader.events if event.kind == "message" and event.role == "assistant")
        assert stored.stream_id != withdrawn


async def test_what_a_canceled_run_was_saying_is_withdrawn(settings: Settings) -> None:
    model = Slowly(["never ", "ends"])
    async with App(settings=settings, agents=[Agent("ada", model)]) as app:
        run = await app.runs.start("ada", "a story")
        reader = Reader(app, run.id)
        model.say(1)
        await reader.until_text("never ")
        await run.cancel()
        await reader.ended()
        assert (reader.events[-1].kind, reader.events[-1].status) == ("status", "canceled")
        assert [message.role for message in await app.runs.messages(run.id)] == ["user"]


async def test_the_events_of_a_tree_are_in_order_and_each_once(settings: Settings) -> None:
    child = agent("child", Steps("helped"))
    script = Steps(call("create_task", agent="child", instruction="x"), call("ask_user", question="?"), "done")
    async with App(settings=settings, agents=[agent("lead", script, delegates=[child])]) as app:
        run = await app.runs.start("lead", "go")
        live = Reader(app, run.id)
        (wait,) = await until_waiting(app)
        await until_status(app, run.id, "waiting_reply")
        await app.runs.answer(wait.id, text="yes")
        await live.ended()
        later = Reader(app, run.id)
        await later.ended()

        def told(reader: Reader) -> list[tuple[Any, ...]]:
            return [(event.seq, event.kind, event.agent, event.status) for event in reader.events if event.seq is not None]

        assert told(live) == told(later)
        seqs = [seq for seq, *_ in told(later)]
        assert seqs == sorted(set(seqs))
        kinds = [(kind, who) for _, kind, who, _ in told(later)]
        assert ("status", "child") in kinds
        assert ("wait", "lead") in kinds
        assert kinds[-1] == ("status", "lead")
        half = told(later)[len(seqs) // 2]
        rest = [event async for event in app.runs.events(run.id, after=half[0])]
        assert [event.seq for event in rest if event.seq is not None] == [seq for seq in seqs if seq > half[0]]
