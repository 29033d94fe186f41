"""Handlers in Python subscribe as agents do: what they are given besides the change, and what becomes of their results."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stigmergy import App, latest, recent
from stigmergy.breadcrumbs.output import Output
from stigmergy.breadcrumbs.queries import View
from stigmergy.errors import Invalid
from stigmergy.settings import Settings
from stigmergy.triggers.events import Fired
from stigmergy.triggers.gathering import write_result
from support.agents import PATIENCE, until
from support.postgres import DatabaseUrls


@pytest.fixture
async def app(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[App]:
    """Not open yet, so that a test can declare its handlers."""
    if engine == "sqlite":
        yield App(settings=Settings(store=str(tmp_path / "app.db")))
        return
    server = request.getfixturevalue("postgres_server")
    urls: DatabaseUrls = server.urls(server.create_database())
    yield App(settings=Settings(store=urls.app, owner_store=urls.owner))


async def first(app: App, schema_name: str) -> Any:
    """The first breadcrumb with this name, and the change that made it."""
    async with asyncio.timeout(PATIENCE):
        async for change in app.breadcrumbs.follow({"schema_name": schema_name}, after=0):
            return await app.breadcrumbs.get(change.id, view="full"), change


async def test_a_handler_gets_the_version_that_fired_and_its_sources_as_models_see_them(app: App) -> None:
    seen: asyncio.Queue[Fired] = asyncio.Queue()

    @app.on("question.v1", sources=[latest("page.v1", as_="page"), recent("note.v1", limit=2)])
    async def answer(change: Fired) -> None:
        await seen.put(change)

    async with app:
        for n in (1, 2, 3):
            await app.breadcrumbs.create("note.v1", context={"n": n})
        await app.breadcrumbs.create("page.v1", context={"url": "u", "secret": "s"}, llm_hints={"exclude": ["secret"]})
        asked = await app.breadcrumbs.create("question.v1", context={"text": "why?"})
        change = await asyncio.wait_for(seen.get(), PATIENCE)
    assert change.assembly is not None
    context = change.assembly.context
    assert context["trigger"]["context"] == {"text": "why?"}
    assert context["page"]["context"] == {"url": "u"}
    assert [each["context"]["n"] for each in context["note"]] == [3, 2]
    assert (change.assembly.provenance[0].id, change.assembly.provenance[0].version) == (asked.id, 1)


async def test_its_result_is_a_breadcrumb_that_the_change_caused_and_one_however_often_it_is_called(app: App) -> None:
    calls: list[Fired] = []

    @app.on("question.v1", output={"schema_name": "answer.v1", "tags": ["done"], "same_tags": ["session:*"]})
    async def answer(change: Fired) -> dict[str, int]:
        calls.append(change)
        return {"answer": 42}

    async with app:
        await app.breadcrumbs.create("question.v1", tags=["session:1", "urgent"])
        made, change = await first(app, "answer.v1")
        assert (made.context, made.tags) == ({"answer": 42}, ["done", "session:1"])
        (fired,) = calls
        assert change.cause == fired.seq
        again = await app.write(write_result, Output(schema_name="answer.v1"), fired, {"answer": 43})
        assert (again.id, again.context) == (made.id, {"answer": 42})


async def test_nobody_reads_a_result_who_could_not_read_what_it_answers(app: App) -> None:
    @app.on("question.v1", output={"schema_name": "answer.v1"})
    def answer(change: Fired) -> str:
        return "for your eyes"

    async with app:
        await app.breadcrumbs_of("mia").create("question.v1", audience="private")

        async def answered() -> View | None:
            found = (await app.breadcrumbs_of("mia").find({"schema_name": "answer.v1"})).items
            return found[0] if found else None

        assert (await until(answered)).context == {"text": "for your eyes"}
        assert (await app.breadcrumbs_of("tom").find({"schema_name": "answer.v1"})).items == []


async def test_a_sentence_in_a_space_calls_the_handler_of_its_schema(app: App) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    @app.on("user.message.v1")
    async def hear(change: Fired) -> None:
        await heard.put(f"{change.collection}: {change.data.get('content') or change.data['context']['text']}")

    async with app:
        await app.breadcrumbs.create("user.message.v1", context={"text": "one"})
        space = await app.spaces_of("mia").create("us")
        await app.spaces_of("mia").post(space.id, "two")
        found = {await asyncio.wait_for(heard.get(), PATIENCE) for _ in range(2)}
    assert found == {"breadcrumbs: one", "space_messages: two"}


async def test_a_handler_whose_required_source_is_missing_is_called_when_it_is_there(app: App) -> None:
    seen: asyncio.Queue[Fired] = asyncio.Queue()
    from_page = latest("page.v1", as_="page", required=True)

    @app.on("question.v1", sources=[from_page])
    async def answer(change: Fired) -> None:
        await seen.put(change)

    async with app:
        await app.breadcrumbs.create("question.v1")

        async def tried() -> bool | None:
            found = await app.deliveries.find()
            return bool(found and (await app.deliveries.get(found[0].id)).tries) or None

        await until(tried)
        await app.breadcrumbs.create("page.v1", context={"n": 1})
        change = await asyncio.wait_for(seen.get(), PATIENCE)
    assert change.assembly is not None
    assert change.assembly.context["page"]["context"] == {"n": 1}


def test_what_is_no_source_and_no_output_is_refused_where_it_is_declared() -> None:
    app = App("unused.db")
    with pytest.raises(Invalid, match="wakes nobody"):
        app.on("question.v1", sources=[{"schema_name": "page.v1", "role": "trigger"}])
    with pytest.raises(Invalid, match="schema"):
        app.on("question.v1", output={"schema": "answer.v1"})
