"""Subscriptions through real runs: what starts one, what it sees, how chains end."""

import asyncio
import json
from typing import Any

import msgspec

from stigmergy import Agent, App, Reply, Request, ToolContext, latest, nearest, on, recent, tool
from stigmergy.agents.model import Definition
from stigmergy.kernel.rules import MAX_DEPTH, Diagnostic
from stigmergy.runs.model import Run
from stigmergy.settings import Settings
from support.agents import Steps, agent, call, ended, heard, results, runs_of, until
from support.units import whole_journal


def seen(request: Request) -> dict[str, Any]:
    """The assembly in a prompt."""
    text = next(message.content for message in request.messages if message.content.startswith("What you asked to see"))
    return json.loads(text.split("\n", 1)[1])


async def over(app: App, name: str, count: int = 1) -> list[Run]:
    """The runs of an agent, as soon as there are so many and all have ended."""

    async def found() -> list[Run] | None:
        runs = await runs_of(app, name)
        return runs if len(runs) >= count and all(run.ended_at is not None for run in runs) else None

    return await until(found)


async def test_one_trigger_is_one_run_with_the_latest_of_its_sources_as_views(settings: Settings) -> None:
    script = Steps("done")
    sources = [latest("page.v1", as_="page"), recent("note.v1", limit=2, as_="notes")]
    ada = agent("ada", script, subscriptions=[on("question.v1"), on("question.v1", when="context.text != ''"), *sources])
    async with App(settings=settings, agents=[ada]) as app:
        mia = app.breadcrumbs_of("mia")
        page = await mia.create("page.v1", context={"url": "/1", "secret": 1}, llm_hints={"exclude": ["secret"]})
        notes = [await mia.create("note.v1", context={"n": n}) for n in range(3)]
        page = await mia.patch(page.id, context={"url": "/2"})
        assert await runs_of(app, "ada") == []
        question = await mia.create("question.v1", context={"text": "What now?"})
        (run,) = await over(app, "ada")
        assert (run.owner_id, run.cause.kind, heard(script.asked[0])) == ("mia", "subscription", ["What now?"])
        context = seen(script.asked[0])["context"]
        assert context["trigger"]["context"] == {"text": "What now?"}
        assert context["page"]["context"] == {"url": "/2"}
        assert [each["context"] for each in context["notes"]] == [{"n": 2}, {"n": 1}]
        view = (await app.runs.get(run.id)).run
        assert [(each["as"], each["id"], each["version"]) for each in view.metadata["provenance"]] == [
            ("trigger", question.id, 1),
            ("page", page.id, 2),
            ("notes", notes[2].id, 1),
            ("notes", notes[1].id, 1),
        ]
        await mia.patch(page.id, context={"url": "/3"})
        await mia.create("note.v1", context={"n": 9})
        await asyncio.sleep(0.1)
        assert len(await runs_of(app, "ada")) == 1


async def test_the_run_is_started_in_the_transaction_of_the_change(settings: Settings) -> None:
    ada = agent("ada", Steps("done"), subscriptions=[on("question.v1")])
    async with App(settings=settings, agents=[ada]) as app:
        question = await app.breadcrumbs.create("question.v1", context={"text": "?"})
        (run,) = await over(app, "ada")
        journal = await whole_journal(app.database)
        written = next(change for change in journal if change.id == question.id)
        started = next(change for change in journal if change.id == run.id)
        assert (started.at, started.cause, started.depth) == (written.at, written.seq, 1)
        assert (run.cause.change_seq, run.depth) == (written.seq, 1)


async def test_a_run_sees_the_version_that_fired_and_no_later_one(settings: Settings) -> None:
    begun, may_read = asyncio.Event(), asyncio.Event()
    script = Steps("done")

    class Busy:
        async def request(self, request: Request, on_text: Any = None) -> Reply:
            begun.set()
            await may_read.wait()
            return Reply("free")

    busy = Agent("ada", Busy(), concurrent_runs=1)
    ada = agent("bob", script, subscriptions=[on("page.v1", when="context.n == 3"), latest("note.v1")], concurrent_runs=1)
    held = msgspec.structs.replace(settings, concurrent_runs=1)
    async with App(settings=held, agents=[busy, ada]) as app:
        page = await app.breadcrumbs.create("page.v1", context={"n": 1})
        await app.breadcrumbs.create("note.v1", context={"text": "x"})
        await app.runs.start("ada", "hold the only worker")
        await begun.wait()
        for n in (2, 3, 4):
            await app.breadcrumbs.patch(page.id, context={"n": n})
        may_read.set()
        (run,) = await over(app, "bob")
        assert seen(script.asked[0])["context"]["trigger"]["context"] == {"n": 3}
        provenance = [(each["id"], each["version"]) for each in (await app.runs.get(run.id)).run.metadata["provenance"]]
        assert provenance[0] == (page.id, 3)
        assert len(provenance) == 2


async def test_ping_pong_stops_at_the_depth_limit_with_one_diagnostic_and_both_stay_usable(settings: Settings) -> None:
    def writes(what: str) -> Any:
        def script(request: Request) -> Reply | str:
            return "done" if results(request) else call("write_breadcrumb", schema_name=what, context={"text": what})

        return script

    ping = agent("ping", writes("pong.v1"), subscriptions=[on("ping.v1")], concurrent_runs=50)
    pong = agent("pong", writes("ping.v1"), subscriptions=[on("pong.v1")], concurrent_runs=50)
    async with App(settings=settings, agents=[ping, pong]) as app:
        await app.breadcrumbs.create("ping.v1", context={"text": "begin"})
        await over(app, "ping", MAX_DEPTH // 2)
        await over(app, "pong", MAX_DEPTH // 2)
        await asyncio.sleep(0.1)
        assert (len(await runs_of(app, "ping")), len(await runs_of(app, "pong"))) == (MAX_DEPTH // 2, MAX_DEPTH // 2)
        journal = await whole_journal(app.database)
        told = [change.record for change in journal if isinstance(change.record, Diagnostic)]
        assert [each.kind for each in told] == ["depth_limit"]
        assert max(change.depth for change in journal if not isinstance(change.record, Diagnostic)) == MAX_DEPTH
        await app.breadcrumbs.create("other.v1")
        assert await app.ask("ping", "still there?", timeout=20) == "done"


async def test_an_agent_does_not_wake_itself_unless_it_says_so(settings: Settings) -> None:
    def script(request: Request) -> Reply | str:
        if results(request) or "last" in heard(request)[0]:
            return "done"
        return call("write_breadcrumb", schema_name="note.v1", context={"text": "last"})

    shy = agent("shy", script, subscriptions=[on("note.v1")])
    async with App(settings=settings, agents=[shy]) as app:
        await app.breadcrumbs.create("note.v1", context={"text": "first"})
        await over(app, "shy")
        await asyncio.sleep(0.1)
        assert len(await runs_of(app, "shy")) == 1
    bold = agent("shy", script, subscriptions=[on("note.v1")], triggers_on_own=True)
    async with App(settings=settings, agents=[bold]) as app:
        await app.breadcrumbs.create("note.v1", context={"text": "first"})
        assert len(await over(app, "shy", 3)) == 3


async def test_only_what_is_in_scope_and_in_budget_and_the_same_bytes_twice(settings: Settings) -> None:
    script = Steps("done")
    page = latest("page.v1", as_="page", same_tags=["session:*"], priority=1)
    scoped = [page, recent("note.v1", as_="notes", same_tags=["session:*"])]
    ada = agent("ada", script, subscriptions=[on("question.v1"), *scoped], budget=220)
    async with App(settings=settings, agents=[ada]) as app:
        elsewhere = app.breadcrumbs_of("mia", tenant="other")
        for where, session in ((app.breadcrumbs, "a"), (app.breadcrumbs, "b"), (elsewhere, "a")):
            await where.create("page.v1", context={"of": session}, tags=[f"session:{session}"])
            for n in range(3):
                await where.create("note.v1", context={"of": session, "n": n, "text": "words " * 20}, tags=[f"session:{session}"])
        for _ in range(2):
            await app.breadcrumbs.create("question.v1", id="q", context={"text": "?"}, tags=["session:a"])
            await over(app, "ada", len(script.asked) + 1)
            await app.breadcrumbs.delete("q")
        first, second = (seen(request) for request in script.asked)
        assert {each["context"]["of"] for each in (first["context"]["page"], *first["context"]["notes"])} == {"a"}
        assert first["context"]["trigger"]["id"] == "q"
        assert first["dropped"]
        assert sum(each["tokens"] for each in first["provenance"]) <= 220
        second["provenance"][0]["version"] = 1  # the trigger was made anew
        assert json.dumps(first) == json.dumps(second)


async def test_what_is_required_and_missing_fails_the_run_or_holds_it_until_it_is_there(settings: Settings) -> None:
    needs = [on("question.v1"), latest("page.v1", as_="page", required=True)]
    patient = Steps("seen")
    agents = [
        agent("hasty", Steps("never"), subscriptions=needs),
        agent("patient", patient, subscriptions=needs, on_missing="wait"),
    ]
    async with App(settings=settings, agents=agents) as app:
        await app.breadcrumbs.create("question.v1", context={"text": "?"})
        (failed,) = await over(app, "hasty")
        assert (failed.status, failed.error) == (
            "failed",
            "required_missing: nothing was found for page, which hasty needs",
        )
        (waiting,) = await runs_of(app, "patient")
        assert waiting.ended_at is None
        await app.breadcrumbs.create("page.v1", context={"url": "/"})
        (run,) = await over(app, "patient")
        assert (run.result, run.attempts) == ("seen", 1)
        assert seen(patient.asked[0])["context"]["page"]["context"] == {"url": "/"}


async def test_sources_are_searched_by_what_the_trigger_says(settings: Settings) -> None:
    script = Steps("done")
    ada = agent("ada", script, subscriptions=[on("question.v1"), nearest("note.v1", limit=1, as_="near")])
    async with App(settings=settings, agents=[ada]) as app:
        await app.breadcrumbs.create("note.v1", id="sea", context={"text": "whales swim in the deep sea"})
        await app.breadcrumbs.create("note.v1", id="land", context={"text": "goats climb on rocks"})
        await until(lambda: _indexed(app))
        await app.breadcrumbs.create("question.v1", context={"text": "Where do whales swim?"})
        await over(app, "ada")
        near = seen(script.asked[0])["context"]["near"]
        assert near["id"] == "sea"


async def _indexed(app: App) -> bool | None:
    return (await app.breadcrumbs.search("goats", method="text")).stale == 0 or None


async def test_an_agent_that_is_data_is_woken_from_the_moment_that_it_is_stored(settings: Settings, tmp_path: Any) -> None:
    script = tmp_path / "says.toml"
    script.write_text('[[rules]]\nreply = "by rule"\n')
    async with App(settings=settings) as app:
        await app.breadcrumbs.create("question.v1", context={"text": "too early"})
        definition = Definition(name="data", model=f"scripted:{script}", subscriptions=({"schema_name": "question.v1"},))
        await app.agents.put(definition)
        await app.breadcrumbs.create("question.v1", context={"text": "now"})
        (run,) = await over(app, "data")
        assert (run.result, (await app.runs.messages(run.id))[0].content) == ("by rule", "now")


async def test_a_private_breadcrumb_wakes_nobody_who_may_not_read_it(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps("done"), subscriptions=[on("note.v1")])]) as app:
        await app.breadcrumbs_of("mia").create("note.v1", context={"text": "mine"}, audience="private")
        await app.breadcrumbs_of("mia").create("note.v1", context={"text": "ours"})
        (run,) = await over(app, "ada")
        assert (await app.runs.messages(run.id))[0].content == "ours"
        assert (await ended(app, run.id)).status == "completed"


# ---- tools that are woken by themselves ----


async def test_a_tool_that_subscribes_is_called_with_the_trigger_and_what_was_gathered_and_its_result_is_a_breadcrumb(
    settings: Settings,
) -> None:
    gathered: list[Any] = []

    @tool(subscriptions=[on("price.wanted.v1"), latest("rates.v1", as_="rates")], output={"schema_name": "price.found.v1"})
    async def price(symbol: str, context: ToolContext) -> dict[str, float]:
        """What a coin is worth."""
        gathered.append(context.assembly)
        assert context.assembly is not None
        return {symbol: context.assembly["rates"]["context"][symbol]}

    async with App(settings=settings, tools=[price]) as app:
        await app.breadcrumbs.create("rates.v1", context={"BTC": 64_000.0, "key": 1}, llm_hints={"exclude": ["key"]})
        assert await runs_of(app, "tool.price") == []
        wanted = await app.breadcrumbs.create("price.wanted.v1", context={"symbol": "BTC", "for": "mia"})
        (run,) = await over(app, "tool.price")
        assert (run.status, run.error, run.cause.kind) == ("completed", None, "subscription")
        (found,) = (await app.breadcrumbs.find({"schema_name": "price.found.v1"})).items
        assert found.context == {"BTC": 64_000.0}
        assert gathered[0]["trigger"]["context"] == wanted.context
        assert gathered[0]["rates"]["context"] == {"BTC": 64_000.0}


async def test_a_trigger_that_does_not_fit_a_tool_fails_its_run_and_nothing_else(settings: Settings) -> None:
    @tool(subscriptions=[on("price.wanted.v1")], output={"schema_name": "price.found.v1"})
    async def price(symbol: str) -> float:
        """What a coin is worth."""
        return 1.0

    async with App(settings=settings, tools=[price]) as app:
        await app.breadcrumbs.create("price.wanted.v1", context={"coin": "BTC"})
        (run,) = await over(app, "tool.price")
        assert run.status == "failed"
        assert run.error is not None
        assert "symbol" in run.error
        await app.breadcrumbs.create("price.wanted.v1", context={"symbol": "BTC"})
        assert sorted(run.status for run in await over(app, "tool.price", 2)) == ["completed", "failed"]
