"""The loop: calls at once and in any order, one model call after them, what goes wrong in a tool, what is said meanwhile."""

import asyncio
import itertools
from typing import Any

import pytest

from stigmergy import Agent, App, Reply, Request, ToolContext, tool
from stigmergy.agents.model import ToolSpec
from stigmergy.agents.models.port import ModelFailed
from stigmergy.kernel.clock import SystemClock
from stigmergy.runs.model import ToolCall
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, calls, heard, results, until, until_status


class Gates:
    """Tools that end when the test lets them."""

    def __init__(self) -> None:
        self.open = {name: asyncio.Event() for name in "abc"}
        self.begun: list[str] = []

    def tools(self) -> list[Any]:
        async def a() -> str:
            """A."""
            return await self._passed("a")

        async def b() -> str:
            """B."""
            return await self._passed("b")

        async def c() -> str:
            """C."""
            return await self._passed("c")

        return [a, b, c]

    async def _passed(self, name: str) -> str:
        self.begun.append(name)
        await self.open[name].wait()
        return name


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
async def test_works_when_2_three_parallel_calls_in_any_order_are_one_model_call(
    settings: Settings, order: tuple[str, ...]
) -> None:
    gates = Gates()
    script = Steps(calls(asked("a"), asked("b"), asked("c")), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=gates.tools())]) as app:
        run = await app.runs.start("ada", "go")
        for settled, name in enumerate(order):
            await until(lambda: _begun(gates))
            assert [call.status for call in await app.runs.calls(run.id)].count("success") == settled
            gates.open[name].set()
            await until(lambda settled=settled: _settled(app, run.id, settled + 1))
        assert await run.result(20) == "done"
        assert len(script.asked) == 2
        assert results(script.asked[1]) == ["a", "b", "c"]
        assert script.asked[1].messages == (await app.runs.prompt(run.id, 2)).messages


async def _begun(gates: Gates) -> bool | None:
    return len(gates.begun) == 3 or None


async def _settled(app: App, id: str, count: int) -> list[ToolCall] | None:
    found = [call for call in await app.runs.calls(id) if call.settled_pos is not None]
    return found if len(found) >= count else None


async def test_works_when_2_one_that_times_out_has_its_error_in_its_place(settings: Settings) -> None:
    @tool(timeout=0.05)
    async def slow() -> str:
        """Never ends."""
        await asyncio.sleep(60)
        return "never"

    @tool
    async def quick(n: int) -> int:
        """Ends."""
        return n

    script = Steps(calls(asked("quick", n=1), asked("slow"), asked("quick", n=3)), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[slow, quick])]) as app:
        run = await app.runs.start("ada", "go")
        assert await run.result(20) == "done"
        assert results(script.asked[1]) == ["1", "error: slow took longer than 0.05 s", "3"]
        assert [(each.status, each.attempts) for each in await app.runs.calls(run.id)] == [
            ("success", 1),
            ("failed", 1),
            ("success", 1),
        ]


async def test_a_call_is_known_to_be_under_way_before_its_tool_runs_and_the_tool_knows_its_key(settings: Settings) -> None:
    seen: list[Any] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look at itself."""
        (own,) = await app.runs.calls(context.run_id)
        seen.append((own.status, own.id == context.call_id, context.idempotency_key, context.tenant, context.owner_id))
        return "ok"

    async with App(settings=settings, agents=[agent("ada", Steps(call("look"), "done"), tools=[look])]) as app:
        run = await app.runs.start("ada", "go", owner_id="mia")
        assert await run.result(20) == "done"
        assert seen == [("running", True, f"{run.id}/call_1_1", "main", "mia")]


async def test_only_a_tool_that_may_be_repeated_is_tried_again(settings: Settings) -> None:
    tried: list[str] = []

    @tool(repeatable=True, tries=3)
    async def flaky() -> str:
        """Works the third time."""
        tried.append("flaky")
        if tried.count("flaky") < 3:
            raise ConnectionError("not yet")
        return "at last"

    @tool(tries=3)
    async def once() -> str:
        """Never works."""
        tried.append("once")
        raise ConnectionError("no")

    script = Steps(calls(asked("flaky"), asked("once")), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[flaky, once])]) as app:
        assert await app.ask("ada", "go", timeout=20) == "done"
        assert results(script.asked[1]) == ["at last", "error: ConnectionError: no"]
        assert (tried.count("flaky"), tried.count("once")) == (3, 1)


async def test_what_a_model_asks_of_tools_badly_is_an_error_result_and_no_crash(settings: Settings) -> None:
    made: list[Any] = []

    @tool
    async def add(a: int, b: int = 0) -> int:
        """Add."""
        made.append((a, b))
        return a + b

    hidden = ToolSpec(name="hidden", execution_type="client", agent_scope=("somebody_else",))
    script = Steps(
        calls(
            asked("add", '{"a": 1'),
            asked("add", '{"a": "one"}'),
            asked("add", '{"a": 1, "c": 2}'),
            asked("add", "[1, 2]"),
            asked("add", ""),
            asked("nothing", "{}"),
            asked("hidden", "{}"),
            asked("", "{}"),
            asked("add", '{"a": 1}'),
            asked("add", "x" * (2 << 20)),
        ),
        "done",
    )
    async with App(settings=settings, agents=[agent("ada", script, tools=[add, hidden])]) as app:
        run = await app.runs.start("ada", "go")
        assert await run.result(20) == "done"
        given = results(script.asked[1])
        assert (given[8], made) == ("1", [(1, 0)])
        assert all(text.startswith("error: ") for place, text in enumerate(given) if place != 8)
        assert "are not JSON" in given[0]
        assert "there is no tool 'hidden' for you" in given[6]
        kept = await app.runs.calls(run.id)
        assert [each.status for each in kept] == ["failed"] * 8 + ["success", "failed"]
        assert len(kept[9].args) < 20_000
        assert (await app.runs.prompt(run.id, 2)).messages == script.asked[1].messages


async def test_what_is_said_while_the_agent_thinks_or_its_tools_run_comes_after_them(settings: Settings) -> None:
    gates = Gates()
    thinking, may_answer = asyncio.Event(), asyncio.Event()

    class Model:
        def __init__(self) -> None:
            self.asked: list[Request] = []

        async def request(self, request: Request, on_text: Any = None) -> Reply:
            self.asked.append(request)
            if len(self.asked) == 1:
                return call("a")
            if len(self.asked) == 2:
                thinking.set()
                await may_answer.wait()
                return Reply("too early")
            return Reply("heard")

    model = Model()
    async with App(settings=settings, agents=[Agent("ada", model, tools=gates.tools())]) as app:
        run = await app.runs.start("ada", "go")
        await until(lambda: _some(gates.begun))
        await app.runs.hear(run.id, "while a tool runs")
        gates.open["a"].set()
        await thinking.wait()
        await app.runs.hear(run.id, "while it thinks")
        may_answer.set()
        assert await run.result(20) == "heard"
        said = [(message.role, message.content) for message in model.asked[2].messages if message.role != "system"]
        assert said == [
            ("user", "go"),
            ("assistant", ""),
            ("tool", "a"),
            ("user", "while a tool runs"),
            ("assistant", "too early"),
            ("user", "while it thinks"),
        ]
        for step, request in enumerate(model.asked, 1):
            assert (await app.runs.prompt(run.id, step)).messages == request.messages


async def _some(found: list[Any]) -> list[Any] | None:
    return found or None


async def test_what_is_said_before_the_final_answer_is_written_is_answered_too(settings: Settings) -> None:
    gates = Gates()
    script = Steps(calls(asked("final_answer", result="early"), asked("a")), "late")
    async with App(settings=settings, agents=[agent("ada", script, tools=gates.tools())]) as app:
        run = await app.runs.start("ada", "go")
        await until(lambda: _some(gates.begun))
        await app.runs.hear(run.id, "wait, one more thing")
        gates.open["a"].set()
        assert await run.result(20) == "late"
        assert heard(script.asked[1])[-1] == "wait, one more thing"


async def test_a_completed_run_goes_on_when_it_is_spoken_to(settings: Settings) -> None:
    script = Steps("first", "second")
    async with App(settings=settings, agents=[agent("ada", script, max_steps=1)]) as app:
        run = await app.runs.start("ada", "go")
        assert await run.result(20) == "first"
        await app.runs.hear(run.id, "and now?")
        over = await until(lambda: _answered(app, run.id, "second"))
        assert (over.status, over.step, over.max_steps) == ("completed", 2, 2)
        assert heard(script.asked[1]) == ["go", "and now?"]


async def _answered(app: App, id: str, answer: str) -> Any:
    run = await until_status(app, id, "completed", "running", "queued")
    return run if run.result == answer else None


@pytest.mark.parametrize("window", [1, 2, 5])
async def test_a_step_with_more_calls_than_the_window_has_room_for_is_seen_whole(settings: Settings, window: int) -> None:
    @tool
    async def same(n: int) -> int:
        """The same."""
        return n

    client = ToolSpec(name="client", execution_type="client")
    many = [asked("same", n=n) for n in range(12)]
    script = Steps(calls(*many, asked("client")), "done")
    ada = agent("ada", script, tools=[same, client], window=window)
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "go")
        await until_status(app, run.id, "waiting_tool")
        (_, *_, last) = await app.runs.calls(run.id)
        await app.runs.tool_result(run.id, last.id, "from outside")
        assert await run.result(20) == "done"
        assert results(script.asked[1]) == [*(str(n) for n in range(12)), "from outside"]
        assert (await app.runs.prompt(run.id, 2)).messages == script.asked[1].messages


async def test_a_tool_with_the_name_of_one_of_the_engines_that_the_agent_does_not_have_is_the_agents(settings: Settings) -> None:
    @tool
    async def send_message(to: str, text: str) -> str:
        """By mail."""
        return f"mailed {text} to {to}"

    @tool
    async def search_breadcrumbs(query: str) -> str:
        """Elsewhere."""
        return f"found {query}"

    script = Steps(calls(asked("send_message", to="mia", text="hi"), asked("search_breadcrumbs", query="x")), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[send_message, search_breadcrumbs])]) as app:
        assert await app.ask("ada", "go", timeout=20) == "done"
        assert results(script.asked[1]) == ["mailed hi to mia", "found x"]


class CancelsOnce(SystemClock):
    """Whoever sleeps as long as a model asks for is cancelled, the first time."""

    done = False

    async def sleep(self, seconds: float) -> None:
        if seconds == 0.125 and not self.done:
            self.done = True
            raise asyncio.CancelledError
        await super().sleep(seconds)


async def test_a_run_whose_work_was_cancelled_by_nobody_is_taken_up_again(settings: Settings) -> None:
    def busy(request: Request) -> str:
        raise ModelFailed("busy", retryable=True, retry_after=0.125)

    clock = CancelsOnce()
    ada = agent("ada", Steps(busy, "fine"))
    async with App(settings=settings, agents=[ada], clock=clock) as app:
        assert await app.ask("ada", "go", timeout=20) == "fine"
        assert clock.done
