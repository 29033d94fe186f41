"""What becomes of runs when definitions and programs change under them, and when no worker can run them."""

from typing import Any

from stigmergy import App, tool
from stigmergy.agents.model import Definition, ToolSpec
from stigmergy.breadcrumbs.output import catalog_id
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, calls, ended, results, system, until, until_status, until_waiting


@tool
async def old(n: int) -> str:
    """The old tool."""
    return f"old {n}"


@tool
async def new(n: int) -> str:
    """The new tool."""
    return f"new {n}"


async def test_a_run_keeps_the_definition_that_it_began_with(settings: Settings) -> None:
    asks = calls(asked("ask_user", question="?"), asked("old", n=1))
    first = agent("ada", Steps(asks), instructions="Be the old Ada.", tools=[old])
    async with App(settings=settings, agents=[first]) as app:
        run = await app.runs.start("ada", "go")
        await until_status(app, run.id, "waiting_reply")
        (wait,) = await app.runs.waits()
    script = Steps(call("old", n=2), "done")
    second = agent("ada", script, instructions="Be the new Ada.", tools=[new, old])
    async with App(settings=settings, agents=[second]) as app:
        await app.runs.answer(wait.id, text="go on")
        over = await ended(app, run.id)
        assert (over.result, over.agent_version) == ("done", 1)
        assert "Be the old Ada." in system(script.asked[0])
        assert {"old", "new"} & {shown.name for shown in script.asked[0].tools} == {"old"}
        assert results(script.asked[1])[-1] == "old 2"
        told = {tool["name"] for tool in (await app.breadcrumbs.get(catalog_id("ada"))).context["tools"]}
        assert {"old", "new"} <= told
        fresh = await app.runs.start("ada", "go")
        assert await fresh.result(20) == "done"
        assert ((await fresh.view()).run.agent_version, "Be the new Ada." in system(script.asked[-1])) == (2, True)


async def test_a_run_that_no_worker_can_run_is_shown_so_and_waits_for_one(settings: Settings) -> None:
    ada = agent("ada", Steps(calls(asked("old", n=1)), "done"), tools=[old])
    async with App(settings=settings, agents=[ada]) as app:
        version = (await app.agents.get("ada")).version
        assert version == 1
    without = agent("bob", Steps("fine"))
    async with App(settings=settings, agents=[without], entity="another") as app:
        run = await app.runs.start("ada", "go")
        assert await app.ask("bob", "go", timeout=20) == "fine"
        view = await until(lambda: _needing(app, run.id))
        assert (view.run.status, view.needs_worker) == ("queued", True)
    async with App(settings=settings, agents=[ada]) as app:
        over = await ended(app, run.id)
        assert over.result == "done"
        assert not (await app.runs.get(run.id)).needs_worker


async def _needing(app: App, id: str) -> Any:
    view = await app.runs.get(id)
    return view if view.needs_worker else None


async def test_a_tenants_own_agent_is_served_by_a_worker_that_has_its_functions(settings: Settings, tmp_path: Any) -> None:
    script = tmp_path / "says.toml"
    script.write_text(
        '[[rules]]\nwhen = {last_role = "user"}\ncall = [{name = "old", arguments = {n = 3}}]\n[[rules]]\nreply = "{{ last }}"\n'
    )
    async with App(settings=settings, agents=[agent("ada", Steps("x"), tools=[old, new])]) as app:
        definition = Definition(name="own", model=f"scripted:{script}", tools=(old.spec,))
        other = App(settings=settings, tenant="acme")
        async with other:
            await other.agents.put(definition)
            run = await other.runs.start("own", "go")
            assert await run.result(20) == "old 3"
        assert app.scope == Scope("main", "app")


async def test_a_tool_that_is_data_can_be_a_task_of_its_own(settings: Settings) -> None:
    pick = ToolSpec(name="pick", execution_type="client")
    async with App(settings=settings) as app:
        await app.agents.put(Definition(name="ada", model="scripted:x", tools=(pick,)))
        task, run = await app.runs.give_task("tool:pick", "{}")
        assert run is not None
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, result={"picked": 1})
        assert (await ended(app, run.id)).result == {"picked": 1}
        assert task.type == "tool"
        names = [record.name for record in await app.agents.list()]
        assert names == ["ada"]
