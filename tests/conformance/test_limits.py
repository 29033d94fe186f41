"""What ends a run before its answer, each with its own reason: steps, tokens, time, repetition, somebody's word; and queues."""

import asyncio
from typing import Any

import pytest

from stigmergy import Agent, App, Reply, Request, tool
from stigmergy.agents.model import Limits
from stigmergy.errors import Invalid
from stigmergy.runs import queries
from stigmergy.runs.model import Run
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, ended, runs_of, steps_done, system, until, until_status, until_waiting


@tool
async def count(n: int) -> int:
    """Count."""
    return n


def counting(request: Request) -> Reply:
    """Never comes to an end."""
    return call("count", n=sum(message.role == "assistant" for message in request.messages))


async def test_works_when_3_past_max_steps_the_task_has_failed_nothing_runs_and_the_conversation_says_so(
    settings: Settings,
) -> None:
    made: list[Request] = []

    def script(request: Request) -> Reply:
        made.append(request)
        return counting(request)

    async with App(settings=settings, agents=[agent("ada", script, tools=[count], max_steps=4)]) as app:
        space = await app.spaces_of("mia").create("us", members=["agent:ada"])
        task, run = await app.runs.give_task("agent:ada", "count", space_id=space.id)
        assert run is not None
        over = await ended(app, run.id)
        assert (over.status, over.error, over.step) == ("failed", "max_steps: 4 steps without an answer", 4)
        task = await app.read(queries.task, task.id)
        assert (task.status, task.error) == ("failed", over.error)
        said = await until(lambda: _said(app, space.id, "could not finish"))
        assert "max_steps: 4 steps without an answer" in said
        steps = len(made)
        await asyncio.sleep(0.1)
        assert (len(made), steps) == (4, 4)
        warned = ["steps left" in system(request) for request in made]
        assert warned == [False, False, False, True]
        assert "You have 1 of 4 steps left" in system(made[3])


async def _said(app: App, space_id: str, text: str) -> str | None:
    messages = await app.spaces_of("mia").messages(space_id)
    return next((message.content for message in messages if text in message.content), None)


async def test_tokens_are_a_limit_with_a_warning_before(settings: Settings) -> None:
    seen: list[Request] = []

    def script(request: Request) -> Reply:
        seen.append(request)
        return Reply("", (asked("count", n=len(seen)),), input_tokens=40, output_tokens=10)

    async with App(settings=settings, agents=[agent("ada", script, tools=[count], max_tokens=200)]) as app:
        over = await ended(app, (await app.runs.start("ada", "count")).id)
        assert (over.status, over.error, over.tokens_used) == ("failed", "max_tokens: 200 tokens of 200 are used", 200)
        assert ["tokens. Come to an answer" in system(request) for request in seen] == [False, False, False, True]


async def test_time_is_a_limit_for_a_run_that_thinks_and_for_one_that_waits(settings: Settings) -> None:
    class Slow:
        canceled = False

        async def request(self, request: Request, on_text: Any = None) -> Reply:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                Slow.canceled = True
                raise
            return Reply("late")

    slow = Agent("slow", Slow(), deadline_ms=150)
    waits = agent("waits", Steps(call("ask_user", question="?")), deadline_ms=150)
    async with App(settings=settings, agents=[slow, waits]) as app:
        for name in ("slow", "waits"):
            over = await ended(app, (await app.runs.start(name, "go")).id)
            assert (over.status, over.error) == ("failed", "deadline: it was not done within 0.15 s")
        assert await app.runs.waits() == []
        await until(lambda: _true(Slow.canceled))


async def _true(value: bool) -> bool | None:
    return value or None


async def test_the_same_call_three_times_in_six_is_warned_of_and_then_stopped(settings: Settings) -> None:
    seen: list[Request] = []

    def script(request: Request) -> Reply:
        seen.append(request)
        spaces = " " * len(seen)  # however it is written
        return Reply(tool_calls=(asked("count", f'{{"n":{spaces}1}}'),))

    async with App(settings=settings, agents=[agent("ada", script, tools=[count])]) as app:
        over = await ended(app, (await app.runs.start("ada", "count")).id)
        assert over.status == "failed"
        assert over.error == "loop: it called count with the same arguments again, after it was warned"
        assert ["three times of late" in system(request) for request in seen] == [False, False, False, True]
        assert len(await app.runs.calls(over.id)) == 3


async def test_an_agent_that_heeds_the_warning_goes_on(settings: Settings) -> None:
    same = call("count", n=1)
    script = Steps(same, same, same, call("count", n=2), call("count", n=3), call("count", n=4), call("count", n=5), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[count])]) as app:
        assert await app.ask("ada", "count", timeout=20) == "done"


async def test_five_runs_of_an_agent_at_once_and_the_sixth_stays_queued(settings: Settings) -> None:
    gate = asyncio.Event()

    class Waiting:
        def __init__(self) -> None:
            self.at_once = self.most = 0

        async def request(self, request: Request, on_text: Any = None) -> Reply:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await gate.wait()
            self.at_once -= 1
            return Reply("done")

    model = Waiting()
    async with App(settings=settings, agents=[Agent("ada", model)]) as app:
        handles = [await app.runs.start("ada", str(n)) for n in range(8)]
        await until(lambda: _true(model.at_once == 5))
        await asyncio.sleep(0.1)
        found = await runs_of(app, "ada")
        assert [run.status for run in found].count("running") == 5
        assert [run.status for run in found].count("queued") == 3
        gate.set()
        assert [await handle.result(20) for handle in handles] == ["done"] * 8
        assert model.most == 5


async def test_a_run_that_waits_makes_room(settings: Settings) -> None:
    script = Steps(call("ask_user", question="?"))
    async with App(settings=settings, agents=[agent("ada", script, concurrent_runs=1)]) as app:
        for _ in range(3):
            await app.runs.start("ada", "go")
        assert len(await until_waiting(app, 3)) == 3


async def test_cancel_goes_down_the_tree_aborts_the_model_and_stays(settings: Settings) -> None:
    aborted = asyncio.Event()
    begun = asyncio.Event()

    class Slow:
        async def request(self, request: Request, on_text: Any = None) -> Reply:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                aborted.set()
                raise
            return Reply("late")

    leaf = Agent("leaf", Slow())
    middle = agent("middle", Steps(call("create_task", agent="leaf", instruction="x")), delegates=[leaf])
    root = agent("root", Steps(call("create_task", agent="middle", instruction="x")), delegates=[middle])
    async with App(settings=settings, agents=[root]) as app:
        handle = await app.runs.start("root", "go")
        await begun.wait()
        stopped = await handle.cancel("enough")
        assert (stopped.status, stopped.error) == ("canceled", "enough")
        async with asyncio.timeout(10):
            await aborted.wait()
        tree = await app.runs.tree(handle.id)
        runs = _flat(tree)
        assert [(run.agent, run.status) for run in runs] == [(name, "canceled") for name in ("root", "middle", "leaf")]
        assert await handle.cancel("again") == stopped
        assert [task.status for task in (await app.read(queries.tasks)).items] == ["failed", "failed"]


async def test_cancel_of_a_run_that_is_over_ends_what_it_left_at_work(settings: Settings) -> None:
    begun = asyncio.Event()

    class Slow:
        async def request(self, request: Request, on_text: Any = None) -> Reply:
            begun.set()
            await asyncio.sleep(60)
            return Reply("late")

    leaf = Agent("leaf", Slow())
    root = agent("root", Steps(call("create_task", agent="leaf", instruction="x", wait=False), "done"), delegates=[leaf])
    async with App(settings=settings, agents=[root]) as app:
        handle = await app.runs.start("root", "go")
        assert await handle.result() == "done"
        await begun.wait()
        assert (await handle.cancel("enough")).status == "completed"
        runs = _flat(await app.runs.tree(handle.id))
        assert [(run.agent, run.status) for run in runs] == [("root", "completed"), ("leaf", "canceled")]
        assert [task.error for task in (await app.read(queries.tasks)).items] == ["enough"]


def _flat(node: Any) -> list[Run]:
    return [node.run, *(run for child in node.children for run in _flat(child))]


@pytest.mark.parametrize("limits", [{"max_steps": 0}, {"concurrent_runs": -1}, {"deadline_ms": 0}])
def test_a_limit_is_a_positive_number(limits: dict[str, int]) -> None:
    with pytest.raises(Invalid, match="positive"):
        agent("ada", Steps("x"), **limits)


def test_what_a_limit_is_unless_said() -> None:
    limits = Limits()
    assert (limits.max_steps, limits.concurrent_runs, limits.deadline_ms) == (10, 5, 30 * 60_000)


async def test_who_answers_a_run_that_is_over_is_told_so(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps(call("ask_user", question="?")))]) as app:
        handle = await app.runs.start("ada", "go")
        (wait,) = await until_waiting(app)
        await until_status(app, handle.id, "waiting_reply")
        await handle.cancel()
        with pytest.raises(Exception, match="canceled already"):
            await app.runs.answer(wait.id, text="late")


def _waits_for_ever(request: Request) -> Reply | str:
    """Asks and waits, again and again, until that is refused."""
    last = request.messages[-1].content
    return last if last.startswith("error: ") else call("send_message", text=f"number {steps_done(request)}?", wait=True)


async def test_a_run_waits_so_often_one_after_another_and_no_more(settings: Settings) -> None:
    ada = agent("ada", _waits_for_ever, max_steps=20, successive_waits=3)
    async with App(settings=settings, agents=[ada]) as app:
        mia = app.spaces_of("mia")
        space = await mia.create("us", members=["tom", "agent:ada"])
        await mia.post(space.id, "@ada, ask me")
        for number in range(3):
            await until(lambda number=number: _said(app, space.id, f"number {number}?"))
            await mia.post(space.id, f"answer {number}")
        run = await ended(app, (await runs_of(app, "ada"))[0].id)
        assert run.result == "error: you have waited 3 times, one after another, and may not wait again; go on with what you know"
        # woken again it may wait again
        await app.runs.hear(run.id, "once more")
        await until(lambda: _said(app, space.id, "number 5?"))


async def test_so_many_runs_of_an_agent_wait_for_replies_and_no_more(settings: Settings) -> None:
    ada = agent("ada", _waits_for_ever)
    async with App(settings=settings, agents=[ada, agent("bob", _waits_for_ever)]) as app:
        mia, tom = app.spaces_of("mia"), app.spaces_of("tom")
        space = await mia.create("us", members=["tom", "agent:ada", "agent:bob"])
        for number in range(6):
            await tom.post(space.id, f"@ada, ask for {number}")  # who is waited for is mia, the first other one
        refused = await until(lambda: _first_completed(app, "ada"))
        assert refused.result == (
            "error: 5 other runs of yours wait for replies already; send it without waiting, or stop one with stop_run"
        )
        assert sorted(run.status for run in await runs_of(app, "ada")) == ["completed"] + ["waiting_reply"] * 5
        asked = [message for message in await mia.messages(space.id) if message.author == "agent:ada"]
        assert len(asked) == 5
        await tom.post(space.id, "@bob, ask too")
        await until(lambda: _waiting(app, "bob"))


async def _first_completed(app: App, name: str) -> Run | None:
    return next((run for run in await runs_of(app, name) if run.status == "completed"), None)


async def _waiting(app: App, name: str) -> bool | None:
    return any(run.status == "waiting_reply" for run in await runs_of(app, name)) or None
