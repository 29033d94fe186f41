"""Tools of MCP servers in runs: shown, called, failed, missed, and closed with the worker."""

import sys
from pathlib import Path
from typing import Any

import psutil

from stigmergy import App, Request, tool
from stigmergy.breadcrumbs.output import catalog_id
from stigmergy.settings import Settings
from support import mcp_server as small
from support.agents import Steps, agent, asked, call, calls, results, system

LOCAL: dict[str, Any] = {"command": sys.executable, "args": [str(Path(small.__file__))], "name": "small"}


async def test_a_run_calls_the_tools_of_a_server_and_the_connection_ends_with_the_worker(settings: Settings) -> None:
    script = Steps(calls(asked("add", a=2, b=3), asked("process")), lambda request: " ".join(results(request)))
    async with App(settings=settings, agents=[agent("ada", script, mcp_servers=[LOCAL])]) as app:
        run = await app.runs.start("ada", "add")
        answer = await run.result(20)
        total, process = answer.split()
        assert total == "5"
        assert psutil.pid_exists(int(process))
        assert {"add", "say", "fail"} <= {shown.name for shown in script.asked[0].tools}
        (add, _) = await app.runs.calls(run.id)
        assert (add.execution_type, add.status, add.result) == ("mcp", "success", 5)
        past = await app.runs.prompt(run.id, 1)
        assert past.tools == script.asked[0].tools
        catalog = await app.breadcrumbs.get(catalog_id("ada"))
        assert {"add", "final_answer"} <= {each["name"] for each in catalog.context["tools"]}
    assert not psutil.pid_exists(int(process))


async def test_what_fails_in_a_server_is_the_result_of_the_call(settings: Settings, tmp_path: Path) -> None:
    script = Steps(
        calls(asked("fail", why="no paper"), asked("add", a="x")),
        call("end", touch=str(tmp_path / "ended")),
        calls(asked("say", text="again")),
        "done",
    )
    async with App(settings=settings, agents=[agent("ada", script, mcp_servers=[LOCAL])]) as app:
        run = await app.runs.start("ada", "fail")
        assert await run.result(30) == "done"
        failed, unfit, gone, again = await app.runs.calls(run.id)
        assert (failed.status, unfit.status, gone.status, again.result) == ("failed", "failed", "failed", "again")
        assert "no paper" in str(failed.error)
        assert "required property" in str(unfit.error)
        assert "may or may not have happened" in str(gone.error)
        assert (tmp_path / "ended").read_text() == "here"


async def test_a_picture_is_kept_once_and_shown_to_the_model(settings: Settings) -> None:
    script = Steps(call("picture"), call("picture"), "seen")
    async with App(settings=settings, agents=[agent("ada", script, mcp_servers=[LOCAL])]) as app:
        run = await app.runs.start("ada", "look")
        assert await run.result(20) == "seen"
        shown = [message.images for message in script.asked[-1].messages if message.role == "tool"]
        assert [[image.data for image in images] for images in shown] == [[b"\x89PNG"], [b"\x89PNG"]]
        assert [(await app.runs.prompt(run.id, step)).messages == script.asked[step - 1].messages for step in (1, 2, 3)] == [
            True
        ] * 3


async def test_a_server_that_is_not_there_takes_only_its_own_tools(settings: Settings) -> None:
    missing = {"command": "/nowhere/server", "name": "gone"}
    script = Steps(call("add", a=1, b=1), "done without")
    async with App(settings=settings, agents=[agent("ada", script, mcp_servers=[missing])]) as app:
        run = await app.runs.start("ada", "try")
        assert await run.result(20) == "done without"
        assert "the MCP server gone" in system(script.asked[0])
        (called,) = await app.runs.calls(run.id)
        assert "there is no tool 'add' for you" in str(called.error)


async def test_a_server_cannot_put_its_tools_before_those_of_the_agent(settings: Settings) -> None:
    @tool
    def say(text: str) -> str:
        """Its own."""
        return f"own: {text}"

    def answer(request: Request) -> Any:
        return results(request)[0] if results(request) else call("say", text="x")

    async with App(settings=settings, agents=[agent("ada", answer, tools=[say], mcp_servers=[LOCAL])]) as app:
        assert await app.ask("ada", "say", timeout=20) == "own: x"
