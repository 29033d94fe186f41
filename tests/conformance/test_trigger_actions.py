"""What triggers do besides calling webhooks: functions of the program, agents, messages in spaces."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stigmergy import App
from stigmergy.agents.model import Definition
from stigmergy.errors import Invalid
from stigmergy.runs.external import Outcome, change_task
from stigmergy.settings import Settings
from stigmergy.triggers.events import Fired
from stigmergy.triggers.model import Delivery, Retry
from support.agents import PATIENCE
from support.postgres import DatabaseUrls

TASKS = "users/*/orch-chats/*/tasks"
FAILED = {"collection": "tasks", "event": "update (status='failed')"}
QUICK = Retry(tries=3, first_ms=1, most_ms=5)


@pytest.fixture
def new_app(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], App]:
    """A program on the test's store, as often as it is started; not open yet."""
    if engine == "sqlite":
        settings = Settings(store=str(tmp_path / "app.db"))
    else:
        server = request.getfixturevalue("postgres_server")
        urls: DatabaseUrls = server.urls(server.create_database())
        settings = Settings(store=urls.app, owner_store=urls.owner)
    return lambda: App(settings=settings)


async def settled(app: App, status: Any, count: int = 1) -> list[Delivery]:
    async with asyncio.timeout(PATIENCE):
        while len(found := await app.deliveries.find(status=status)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


async def fail(app: App, error: str, space_id: str | None = None) -> None:
    """A task that somebody outside was given, and could not do."""
    task, _ = await app.runs.give_task("agent:researcher", "Look.", executor="external", space_id=space_id)
    await app.write(change_task, task.id, Outcome("failed", error=error))


async def test_a_function_is_called_for_a_change_and_again_until_it_does_not_raise(new_app: Callable[[], App]) -> None:
    app, called = new_app(), list[tuple[str, str]]()

    @app.on_change(TASKS, "update (status='failed')", retry=QUICK)
    async def tell(change: Fired) -> None:
        called.append((change.event, change.data["error"]))
        if len(called) < 3:
            raise LookupError("not yet")

    @app.on("tasks", when="status == 'success'")
    def never(change: Fired) -> None:
        raise AssertionError

    async with app:
        await fail(app, "nobody knows")
        (delivered,) = await settled(app, "delivered")
    assert called == [("update", "nobody knows")] * 3
    assert (delivered.trigger_id, delivered.tries) == ("app:tell", 3)


async def test_one_that_always_raises_is_a_dead_letter_that_can_be_retried(new_app: Callable[[], App]) -> None:
    app, broken = new_app(), True

    @app.on_change("tasks", "update (status='failed')", retry=QUICK)
    def tell(change: Fired) -> None:
        if broken:
            raise LookupError("broken")

    async with app:
        await fail(app, "x")
        (dead,) = await settled(app, "dead")
        assert dead.answer is not None
        assert (dead.tries, dead.answer.error) == (3, "LookupError: broken")
        broken = False
        await app.deliveries.retry(dead.id)
        await settled(app, "delivered")


async def test_one_that_takes_too_long_is_called_again(new_app: Callable[[], App]) -> None:
    app, called = new_app(), 0

    @app.on_change("tasks", "update (status='failed')", retry=QUICK, timeout=0.1)
    async def tell(change: Fired) -> None:
        nonlocal called
        called += 1
        await asyncio.sleep(0 if called > 1 else PATIENCE)

    async with app:
        await fail(app, "x")
        await settled(app, "delivered")
    assert called == 2


async def test_what_a_function_writes_is_caused_by_its_change(new_app: Callable[[], App]) -> None:
    app = new_app()

    @app.on_change("tasks", "update (status='failed')")
    async def note(change: Fired) -> None:
        await app.breadcrumbs.create("failure.v1", context={"task": change.id})

    async with app:
        await fail(app, "x")
        async with asyncio.timeout(PATIENCE):
            async for change in app.breadcrumbs.follow({"schema_name": "failure.v1"}, after=0):
                (delivered,) = await app.deliveries.find(trigger="app:note")
                assert (change.cause, change.actor) == (delivered.change_seq, "app")
                break


async def test_what_fired_while_no_process_had_the_function_is_handed_over_to_the_next(new_app: Callable[[], App]) -> None:
    first, second, called = new_app(), new_app(), list[str]()
    first.settings = Settings(store=first.settings.store, owner_store=first.settings.owner_store, deliver=False)

    @first.on_change("tasks", "update (status='failed')")
    def tell(change: Fired) -> None:
        raise AssertionError

    async with first:
        await fail(first, "x")
        assert [each.status for each in await first.deliveries.find()] == ["pending"]

    @second.on_change("tasks", "update (status='failed')", name="tell")
    def tell_again(change: Fired) -> None:
        called.append(change.data["error"])

    async with second:
        await settled(second, "delivered")
    assert called == ["x"]


async def test_an_agent_is_started_once_for_a_change(new_app: Callable[[], App]) -> None:
    app = new_app()
    async with app:
        await app.agents.put(Definition(name="helper", model="theirs", executor="external"))
        await app.triggers.add(FAILED | {"id": "t", "action": {"type": "agent", "agent": "helper"}})
        await fail(app, "nobody knows")
        (run,) = (await app.runs.list(agent="helper")).items
        assert (run.cause.kind, run.executor) == ("trigger", "external")
        assert "nobody knows" in (await app.runs.messages(run.id))[-1].content


@pytest.mark.parametrize("where", ["", "a space"])
async def test_an_agent_that_is_not_there_is_a_diagnostic_and_the_write_stands(new_app: Callable[[], App], where: str) -> None:
    app = new_app()
    async with app:
        space = (await app.spaces.create(where)).id if where else None
        await app.agents.put(Definition(name="helper", model="theirs", executor="external"))
        await app.triggers.add(FAILED | {"id": "t", "action": {"type": "agent", "agent": "helper"}})
        await app.agents.delete("helper")
        await fail(app, "nobody knows", space_id=space)
        await fail(app, "nobody knows either", space_id=space)
        (diagnostic,) = await app.triggers.diagnostics("t")
        assert (diagnostic.kind, "no agent 'helper'" in diagnostic.message) == ("unknown_agent", True)
        assert (await app.runs.list(agent="helper")).items == []


async def test_a_message_is_posted_where_the_document_is_or_where_the_action_says(new_app: Callable[[], App]) -> None:
    app = new_app()
    async with app:
        here, there = await app.spaces.create("here"), await app.spaces.create("there")
        text = "{{ context.data.name }} could not: {{ context.data.error }}"
        await app.triggers.add({"id": "t", "action": {"type": "space_message", "text": text}} | FAILED)
        named = {"type": "space_message", "text": "One failed.", "space_id": there.id, "sender": "app"}
        await app.triggers.add({"id": "u", "action": named} | FAILED)
        task, _ = await app.runs.give_task("agent:researcher", "Look.", space_id=here.id, executor="external")
        await app.write(change_task, task.id, Outcome("failed", error="it is late"))
        (said,) = await app.spaces.messages(here.id)
        assert (said.role, said.content) == ("system", "agent:researcher could not: it is late")
        (said,) = await app.spaces.messages(there.id)
        assert (said.role, said.author, said.content) == ("human", "app", "One failed.")


async def test_a_message_that_cannot_be_posted_is_a_diagnostic_and_the_write_stands(new_app: Callable[[], App]) -> None:
    app = new_app()
    async with app:
        action = {"type": "space_message", "text": "x", "space_id": "nowhere"}
        await app.triggers.add({"id": "t", "action": action} | FAILED)
        await fail(app, "x")
        (diagnostic,) = await app.triggers.diagnostics("t")
        assert (diagnostic.kind, "nowhere" in diagnostic.message) == ("not_posted", True)


def test_two_functions_of_one_name_and_unknown_collections_are_refused(new_app: Callable[[], App]) -> None:
    app = new_app()

    @app.on("tasks")
    def tell(change: Fired) -> None: ...

    with pytest.raises(Invalid, match="two handlers"):
        app.on("runs", name="tell")(lambda change: None)
    with pytest.raises(Invalid, match="no collection"):
        app.on("taskz")
    with pytest.raises(Invalid, match="no field"):
        app.on("tasks", when="statuss == 'x'", name="misspelt")(lambda change: None)
