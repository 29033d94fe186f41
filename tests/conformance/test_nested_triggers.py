"""The triggers of `examples/nested_agents` load as they are, and each fires when it says and at no other time."""

from collections import Counter
from typing import Any

import pytest

from stigmergy.agents.model import Definition
from stigmergy.agents.store import put_agent
from stigmergy.engine.starting import give_task
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope
from stigmergy.net import Reach
from stigmergy.runs import external
from stigmergy.runs.delegation import NewTask
from stigmergy.runs.external import Outcome, Spoken, TakeUp
from stigmergy.runs.model import Run, Task
from stigmergy.runs.steps import NewCall
from stigmergy.spaces.commands import Said, add_member, create_space, edit, post, tell
from stigmergy.spaces.model import Space
from stigmergy.triggers import commands, queries
from stigmergy.triggers.commands import start_delivery
from stigmergy.triggers.definitions import Reading
from stigmergy.triggers.lint import lint
from stigmergy.triggers.loading import load_triggers
from stigmergy.triggers.model import Delivery
from support.repository import ROOT

FILE = ROOT / "examples" / "nested_agents" / "triggers.json"
READING = Reading("tester", webhook_base="http://127.0.0.1:9", reach=Reach(loopback=True))
MIA = Scope("main", "mia")


@pytest.fixture
async def watched(store: Database) -> Database:
    """A store with the triggers of the file."""
    store.rules.start_with("webhook", start_delivery)
    await store.write(commands.put_triggers, load_triggers(FILE, READING))
    return store


class Fired:
    """What has been set off since it was asked last."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._seen: set[str] = set()

    async def now(self) -> dict[str, int]:
        found: list[Delivery] = await self._store.read(queries.deliveries, limit=500)
        fresh = [each for each in found if each.id not in self._seen]
        self._seen |= {each.id for each in found}
        return dict(Counter(each.trigger_id for each in fresh))


@pytest.fixture
def fired(watched: Database) -> Fired:
    return Fired(watched)


async def a_space(store: Database) -> Space:
    return await store.write(create_space, "mia", scope=MIA)


async def a_task(store: Database, name: str = "agent:researcher") -> Task:
    new = NewTask(name=name, instruction="Look.", owner_id="mia", space_id="", executor="external")
    return (await store.write(give_task, new))[0]


async def a_run(store: Database) -> Run:
    task = await a_task(store)
    return (await store.write(external.take_up, TakeUp(task_id=task.id, instructions="You look things up."))).run


async def move(store: Database, task_id: str | None, status: Any, **outcome: Any) -> Task:
    return await store.write(external.change_task, task_id, Outcome(status, **outcome))


def test_the_file_loads_as_it_is_and_nothing_in_it_starts_itself() -> None:
    rules = {rule.id: rule for rule in load_triggers(FILE, READING)}
    assert [*rules] == [
        "on-user-message",
        "on-new-task",
        "on-sub-agent-message",
        "on-sub-agent-tool",
        "on-task-completed",
        "on-task-waiting",
        "on-task-failed",
    ]
    assert rules["on-new-task"].action["url"] == "http://127.0.0.1:9/webhook/agent-init"
    assert lint(rules.values()) == []


async def test_a_users_message_and_no_other_reaches_the_orchestrator(watched: Database, fired: Fired) -> None:
    space = await a_space(watched)
    await watched.write(put_agent, Definition(name="orchestrator", model="theirs", executor="external"), "tester")
    await watched.write(add_member, "mia", space.id, "agent:orchestrator", scope=MIA)
    assert await fired.now() == {}
    said = await watched.write(post, "mia", space.id, Said(content="What is Bitcoin worth?"), scope=MIA)
    assert await fired.now() == {"on-user-message": 1}
    await watched.write(edit, "mia", space.id, said.id, "And Ether?", scope=MIA)
    await watched.write(post, "agent:orchestrator", space.id, Said(content="97,000 dollars."))
    await watched.write(tell, space.id, "Something happened.")
    await watched.write(tell, space.id, "A tool was used.", role="tool", author="agent:orchestrator")
    assert await fired.now() == {}


async def test_a_new_task_of_an_agent_is_begun_and_no_other(watched: Database, fired: Fired) -> None:
    await a_task(watched, "tool:search")
    assert await fired.now() == {}
    task = await a_task(watched)
    assert await fired.now() == {"on-new-task": 1}
    await move(watched, task.id, "running")
    assert await fired.now() == {}


async def test_a_sub_agent_is_woken_by_users_and_tools_and_never_by_itself(watched: Database, fired: Fired) -> None:
    run = await a_run(watched)
    assert await fired.now() == {"on-new-task": 1, "on-sub-agent-message": 1}  # its user message; not its system message
    call = NewCall(id="c1", tool_name="search", args={}, execution_type="internal", visibility="hidden", begun=False)
    await watched.write(external.speak, run.id, Spoken(role="assistant", content="I look.", calls=[call]))
    assert await fired.now() == {"on-sub-agent-tool": 1}
    await watched.write(external.change_call, run.id, "c1", Outcome("running"))
    assert await fired.now() == {}
    await watched.write(external.change_call, run.id, "c1", Outcome("success", "found"))
    assert await fired.now() == {"on-sub-agent-message": 1}
    await watched.write(external.speak, run.id, Spoken(role="assistant", content="I know."))
    await watched.write(external.speak, run.id, Spoken(role="system", content="Be brief."))
    assert await fired.now() == {}
    await watched.write(external.speak, run.id, Spoken(role="user", content="Go on."))
    assert await fired.now() == {"on-sub-agent-message": 1}


async def test_a_call_that_was_begun_with_its_step_is_nobody_elses_to_run(watched: Database, fired: Fired) -> None:
    run = await a_run(watched)
    await fired.now()
    call = NewCall(id="c1", tool_name="search", args={}, execution_type="internal", visibility="hidden", begun=True)
    await watched.write(external.add_call, run.id, call)
    assert await fired.now() == {}


async def test_a_completed_task_that_is_edited_again_fires_nothing(watched: Database, fired: Fired) -> None:
    run = await a_run(watched)
    await fired.now()
    await move(watched, run.task_id, "success", result="97,000")
    assert await fired.now() == {"on-task-completed": 1}
    await move(watched, run.task_id, None, result="97,001")
    await move(watched, run.task_id, None, result="97,002")
    assert await fired.now() == {}


async def test_waiting_then_running_then_success_fires_once(watched: Database, fired: Fired) -> None:
    run = await a_run(watched)
    await fired.now()
    await move(watched, run.task_id, "waiting")
    assert await fired.now() == {"on-task-waiting": 1}
    await move(watched, run.task_id, "running")
    assert await fired.now() == {}
    await move(watched, run.task_id, "success", result="97,000")
    assert await fired.now() == {"on-task-completed": 1}
    await move(watched, run.task_id, "running")
    await move(watched, run.task_id, "success", result="98,000")
    assert await fired.now() == {"on-task-completed": 1}  # it became so once more


@pytest.mark.parametrize("with_a_run", [True, False])
async def test_a_task_that_fails_fires_once(watched: Database, fired: Fired, with_a_run: bool) -> None:
    task_id = (await a_run(watched)).task_id if with_a_run else (await a_task(watched)).id
    await fired.now()
    await move(watched, task_id, "failed", error="nobody knows")
    assert await fired.now() == {"on-task-failed": 1}
    await move(watched, task_id, None, error="nobody can know")
    assert await fired.now() == {}
