"""What agents leave as breadcrumbs, read and search: as whom, with which rights, and because of what."""

import json
from typing import Any

import pytest

from stigmergy import App, Request, on
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.output import catalog_id
from stigmergy.breadcrumbs.queries import find
from stigmergy.errors import NotFound
from stigmergy.kernel.selectors import Selector
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, calls, ended, results, runs_of, until
from support.units import whole_journal

TOOLS = ("final_answer", "write_breadcrumb", "read_breadcrumbs", "search_breadcrumbs")


def given(request: Request) -> list[Any]:
    """What the tools gave."""
    return [json.loads(text) if text[:1] in "[{" else text for text in results(request)]


async def test_what_an_agent_writes_belongs_to_whom_it_works_for_and_names_what_set_it_off(settings: Settings) -> None:
    note = call("write_breadcrumb", schema_name="note.v1", title="Seen", context={"it": 1}, tags=["x"])
    ada = agent("ada", Steps(note, "done"), subscriptions=[on("page.v1")])
    async with App(settings=settings, agents=[ada]) as app:
        page = await app.breadcrumbs_of("mia").create("page.v1", "A page", context={"url": "/"})
        (run,) = await until(lambda: _some(app, "ada"))
        await ended(app, run.id)
        (crumb,) = (await app.breadcrumbs.find({"schema_name": "note.v1"})).items
        assert (crumb.owner_id, crumb.created_by, crumb.tags, crumb.context) == ("mia", "agent:ada", ["x"], {"it": 1})
        journal = {(change.collection, change.id): change for change in await whole_journal(app.database)}
        written = journal["breadcrumbs", crumb.id]
        assert (written.cause, written.depth, written.actor) == (journal["breadcrumbs", page.id].seq, 1, "agent:ada")


async def _some(app: App, name: str) -> Any:
    return await runs_of(app, name) or None


async def test_an_agent_reads_and_searches_views_of_what_it_may_see(settings: Settings) -> None:
    script = Steps(
        calls(
            asked("read_breadcrumbs", schema_name="note.v1"),
            asked("read_breadcrumbs", schema_name="note.*", tags=["b"], limit=1),
            asked("read_breadcrumbs", id="hidden"),
            asked("search_breadcrumbs", query="whales in the sea"),
        ),
        "done",
    )
    async with App(settings=settings, agents=[agent("ada", script, builtin_tools=TOOLS)]) as app:
        mia = app.breadcrumbs_of("mia")
        await mia.create(
            "note.v1",
            "Sea",
            id="a",
            context={"text": "whales swim in the sea", "secret": 1},
            tags=["a"],
            llm_hints={"exclude": ["secret"]},
        )
        await mia.create("note.v1", "Land", id="b", context={"text": "goats climb on rocks"}, tags=["b"])
        await mia.create("note.v1", "Mine", id="hidden", context={"text": "whales, in private"}, audience="private")
        await until(lambda: _searchable(app))
        run = await app.runs.start("ada", "look")
        assert await run.result(20) == "done"
        read, one, hidden, found = given(script.asked[-1])
        assert [(each["id"], each["context"]) for each in read] == [
            ("b", {"text": "goats climb on rocks"}),
            ("a", {"text": "whales swim in the sea"}),
        ]
        assert [each["id"] for each in one] == ["b"]
        assert "no breadcrumb hidden" in hidden
        assert found[0]["id"] == "a"
        assert "hidden" not in [each["id"] for each in found]


async def _searchable(app: App) -> bool | None:
    return (await app.breadcrumbs.search("goats", method="text")).stale == 0 or None


async def test_what_a_breadcrumb_cannot_be_is_told_to_the_agent_and_nothing_is_written(settings: Settings) -> None:
    script = Steps(
        calls(
            asked("write_breadcrumb", schema_name="", context={}),
            asked("write_breadcrumb", schema_name="tool.catalog.v1", context={"tools": []}),
            asked("write_breadcrumb", schema_name="note.v1", context={}, id=catalog_id("ada")),
            asked("write_breadcrumb", schema_name="note.v1", context={}, owner_id="tom"),
            asked("write_breadcrumb", schema_name="note.v1", context={}, id="nowhere"),
            asked("search_breadcrumbs", query="x", schema_name="note.v1", limit=1_000),
        ),
        "done",
    )
    async with App(settings=settings, agents=[agent("ada", script, builtin_tools=TOOLS)]) as app:
        before = (await app.breadcrumbs.find()).items
        run = await app.runs.start("ada", "write")
        assert await run.result(20) == "done"
        assert [each.status for each in await app.runs.calls(run.id)] == ["failed"] * 6
        assert all(text.startswith("error: ") for text in results(script.asked[-1]))
        assert (await app.breadcrumbs.find()).items == before


async def test_a_breadcrumb_is_changed_by_merging_and_keeps_its_audience(settings: Settings) -> None:
    change = call("write_breadcrumb", schema_name="note.v1", id="a", context={"n": 2, "gone": None})
    async with App(settings=settings, agents=[agent("ada", Steps(change, "done"), builtin_tools=TOOLS)]) as app:
        await app.breadcrumbs_of("mia").create("note.v1", "Title", id="a", context={"n": 1, "kept": True, "gone": 1})
        await app.ask("ada", "change it", timeout=20)
        after = await app.breadcrumbs.get("a")
        assert (after.title, after.context, after.version, after.owner_id) == ("Title", {"n": 2, "kept": True}, 2, "mia")


async def test_an_answer_becomes_a_breadcrumb_with_the_trigger_as_its_cause(settings: Settings) -> None:
    ada = agent(
        "ada", Steps("The answer"), subscriptions=[on("question.v1")], output={"schema_name": "agent.response.v1", "tags": ["t"]}
    )
    async with App(settings=settings, agents=[ada]) as app:
        asked_first = await app.breadcrumbs_of("mia").create("question.v1", context={"text": "What?"})
        (run,) = await until(lambda: _some(app, "ada"))
        await ended(app, run.id)
        (answer,) = (await app.breadcrumbs.find({"schema_name": "agent.response.v1"})).items
        assert (answer.context, answer.tags, answer.created_by) == ({"text": "The answer"}, ["t"], "agent:ada")
        journal = {(change.collection, change.id): change for change in await whole_journal(app.database)}
        assert journal["breadcrumbs", answer.id].cause == journal["breadcrumbs", asked_first.id].seq


async def test_the_answer_to_what_a_space_alone_can_read_is_for_that_space_alone(settings: Settings) -> None:
    ada = agent("ada", Steps("The answer"), subscriptions=[on("question.v1")], output={"schema_name": "agent.response.v1"})
    async with App(settings=settings, agents=[ada]) as app:
        space = await app.spaces_of("mia").create("ours", members=["tom", "agent:ada"])
        await app.breadcrumbs_of("mia").create("question.v1", context={"text": "?"}, audience="team", space_id=space.id)
        (run,) = await until(lambda: _some(app, "ada"))
        await ended(app, run.id)
        tom = Reader("tom", frozenset([space.id]))
        (answer,) = (await app.read(find, tom, Selector(schema_name="agent.response.v1"))).crumbs
        assert (answer.audience, answer.space_id) == ("team", space.id)
        with pytest.raises(NotFound):
            await app.breadcrumbs_of("eve").get(answer.id)


async def test_the_catalogue_of_tools_is_there_in_every_tenant_that_uses_the_agent(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps("done"))]) as app:
        assert (await app.breadcrumbs.get(catalog_id("ada"))).schema_name == "tool.catalog.v1"
        other = App(settings=settings, tenant="other", agents=[agent("ada", Steps("done"))])
        async with other:
            assert await other.ask("ada", "hello", timeout=20) == "done"
            names = [tool["name"] for tool in (await other.breadcrumbs.get(catalog_id("ada"))).context["tools"]]
            assert {"ask_user", "final_answer"} <= set(names)
