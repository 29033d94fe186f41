"""The program's own view: `App`, its namespaces, what it runs in the background."""

import asyncio
from pathlib import Path

import pytest

from stigmergy import App
from stigmergy.breadcrumbs.commands import create
from stigmergy.breadcrumbs.model import Draft
from stigmergy.errors import Invalid, NotFound, StoreClosed
from stigmergy.kernel.feed import Follower
from stigmergy.kernel.journal import Change
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.transaction import Transaction
from stigmergy.settings import Settings
from support.postgres import DatabaseUrls


@pytest.fixture
def settings(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    if engine == "sqlite":
        return Settings(store=str(tmp_path / "app.db"))
    server = request.getfixturevalue("postgres_server")
    urls: DatabaseUrls = server.urls(server.create_database())
    return Settings(store=urls.app, owner_store=urls.owner)


async def test_a_program_writes_reads_and_follows(settings: Settings) -> None:
    async with App(settings=settings) as app:
        first = await app.breadcrumbs.create("note.v1", "one", context={"n": 1}, tags=["a"])
        following = app.breadcrumbs.follow({"any_tags": ["a"]}, after=0)
        await app.breadcrumbs.patch(first.id, context={"n": 2}, if_match=1)
        await app.breadcrumbs.create("note.v1", "other")
        await app.breadcrumbs.retag(first.id, add=["b"])
        seen = [await anext(following) for _ in range(3)]
        assert [(change.version, change.event) for change in seen] == [(1, "create"), (2, "update"), (3, "update")]
        assert [view.title for view in (await app.breadcrumbs.find({"schema_name": "note.*"})).items] == ["one", "other"]
        assert [view.version for view in await app.breadcrumbs.history(first.id)] == [3, 2, 1]
        assert (await app.breadcrumbs.at_version(first.id, 1)).context == {"n": 1}
        await app.breadcrumbs.delete(first.id)
        again = await app.breadcrumbs.replace(first.id, Draft(schema_name="note.v1", title="again"))
        assert again.version == 5


async def test_what_was_written_is_there_when_the_program_comes_back(settings: Settings) -> None:
    async with App(settings=settings) as app:
        made = await app.breadcrumbs.create("note.v1", context={"n": 1})
    async with App(settings=settings) as app:
        assert (await app.breadcrumbs.get(made.id)).context == {"n": 1}


async def test_others_see_what_they_may(settings: Settings) -> None:
    async with App(settings=settings) as app:
        made = await app.breadcrumbs_of("mia").create("note.v1", audience="private")
        assert (await app.breadcrumbs_of("mia").get(made.id)).owner_id == "mia"
        for other in (app.breadcrumbs_of("tom"), app.breadcrumbs_of("mia", tenant="other")):
            with pytest.raises(NotFound):
                await other.get(made.id)


async def test_what_expires_is_taken_away_in_the_background(settings: Settings) -> None:
    async with App(settings=settings) as app:
        following = app.breadcrumbs.follow(after=0)
        made = await app.breadcrumbs.create("note.v1", expires_at=app.database.clock.now() + 200)
        assert (await anext(following)).event == "create"
        follower = Follower(app.database, after=1, scope=app.scope)
        async with asyncio.timeout(10):
            gone = await anext(aiter(follower))
        assert (gone.event, gone.id, gone.actor) == ("delete", made.id, "clock")


async def test_a_rule_starts_what_the_program_says(settings: Settings) -> None:
    async def answer(tx: Transaction, rule: Rule, change: Change) -> None:
        await create(tx, Draft(schema_name="answer.v1", title=f"to {change.id}"))

    app = App(settings=settings)
    app.start_with("answer", answer)
    async with app:
        rule = Rule(
            id="r", owner="test", kind="answer", collection="breadcrumbs", events=["create"], selector={"schema_name": "ask.*"}
        )
        await app.add_rule(rule)
        asked = await app.breadcrumbs.create("ask.v1")
        (answer_view,) = (await app.breadcrumbs.find({"schema_name": "answer.v1"})).items
        assert answer_view.title == f"to {asked.id}"


async def test_an_app_that_is_not_open_says_so() -> None:
    with pytest.raises(StoreClosed, match="async with"):
        await App("never.db").breadcrumbs.find()
    with pytest.raises(Invalid, match="tenant"):
        App("never.db", tenant="a,b")
