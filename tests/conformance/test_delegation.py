"""Tasks: given and waited for, given and heard of later, spoken to again; trees, and the limits of them."""

import json
from typing import Any

import pytest

from stigmergy import App, Reply, Request, tool
from stigmergy.kernel.transaction import Scope
from stigmergy.runs import queries
from stigmergy.runs.delegation import begin_task
from stigmergy.runs.endings import cancel_run
from stigmergy.runs.model import InvalidTransition, Run, Task
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, calls, ended, heard, results, runs_of, until, until_status, until_waiting


def given(request: Request) -> list[Any]:
    return [json.loads(text) if text[:1] in "[{" else text for text in results(request)]


async def _tasks(tx: Any) -> list[Task]:
    return sorted((await queries.tasks(tx)).items, key=lambda task: task.id)


async def test_works_when_1_a_new_task_claimed_twice_is_one_run_with_one_system_and_one_user_message(settings: Settings) -> None:
    script = Steps("done")
    async with App(settings=settings, agents=[agent("ada", script, instructions="Be Ada.")]) as app:
        task, none = await app.runs.give_task("agent:ada", "look", executor="external")
        assert (task.status, none) == ("pending", None)
        first, second = [await app.write(begin_task, task.id) for _ in range(2)]
        assert first[1].id == second[1].id
        over = await ended(app, first[1].id)
        (run,) = await runs_of(app, "ada")
        assert (run.task_id, run.id, over.result) == (task.id, first[1].id, "done")
        messages = await app.runs.messages(run.id)
        assert [(message.role, message.content) for message in messages] == [
            ("system", "Be Ada."),
            ("user", "look"),
            ("assistant", "done"),
        ]
        (stored,) = await app.read(_tasks)
        assert (stored.status, stored.result, stored.run_id) == ("success", "done", run.id)


async def test_a_parent_waits_for_any_number_of_children_at_once_and_sees_results_in_the_order_of_its_calls(
    settings: Settings,
) -> None:
    child = agent("child", lambda request: f"{heard(request)[0]} is done")
    wanted = [asked("create_task", agent="child", instruction=str(n)) for n in range(4)]
    script = Steps(calls(*wanted), "all done")
    async with App(settings=settings, agents=[agent("lead", script, delegates=[child])]) as app:
        run = await app.runs.start("lead", "go")
        assert await run.result(20) == "all done"
        seen = given(script.asked[1])
        assert [each["result"] for each in seen] == [f"{n} is done" for n in range(4)]
        assert {each["status"] for each in seen} == {"success"}
        assert len(script.asked) == 2
        children = await runs_of(app, "child")
        assert {(child.parent_run_id, child.nesting, child.root_id) for child in children} == {(run.id, 1, run.id)}


async def test_a_parent_sees_a_childs_result_and_never_its_monologue(settings: Settings) -> None:
    @tool
    async def secret() -> str:
        """Something of the child's own."""
        return "the secret"

    child = agent("child", Steps(calls(asked("secret"), text="I think aloud"), "42"), tools=[secret])
    script = Steps(call("create_task", agent="child", instruction="x"), "done")
    async with App(settings=settings, agents=[agent("lead", script, delegates=[child])]) as app:
        assert await app.ask("lead", "go", timeout=20) == "done"
        prompt = str(script.asked[1].messages)
        assert "42" in prompt
        assert "secret" not in prompt
        assert "aloud" not in prompt


async def test_a_task_that_is_not_waited_for_comes_as_one_message_per_completion(settings: Settings) -> None:
    child = agent("child", Steps("first result", "second result"))

    def lead(request: Request) -> Reply | str:
        told = heard(request)[1:]
        if not results(request):
            return call("create_task", agent="child", instruction="x", wait=False)
        if len(told) == 1 and len(results(request)) == 1:
            return call("reactivate_task", task_id=given(request)[0]["task_id"], instruction="more")
        return f"heard {len(told)}"

    async with App(settings=settings, agents=[agent("lead", lead, delegates=[child])]) as app:
        run = await app.runs.start("lead", "go")
        over = await until(lambda: _answered(app, run.id, "heard 2"))
        messages = [message for message in await app.runs.messages(over.id) if message.role == "user"][1:]
        (task,) = await app.read(_tasks)
        assert [message.name for message in messages] == [f"task:{task.id}:1", f"task:{task.id}:2"]
        assert "first result" in messages[0].content
        assert "second result" in messages[1].content
        assert (task.status, task.completions) == ("success", 2)


async def _answered(app: App, id: str, answer: str) -> Run | None:
    run = (await app.runs.get(id)).run
    return run if run.status == "completed" and run.result == answer else None


async def test_a_childs_failure_is_a_result_the_parent_can_act_on(settings: Settings) -> None:
    def broken(request: Request) -> str:
        raise ValueError("no idea")

    script = Steps(call("create_task", agent="child", instruction="x"), "I did it myself")
    lead = agent("lead", script, delegates=[agent("child", broken)])
    async with App(settings=settings, agents=[lead]) as app:
        assert await app.ask("lead", "go", timeout=20) == "I did it myself"
        (seen,) = given(script.asked[1])
        assert seen["status"] == "failed"
        assert "no idea" in seen["error"]


async def test_works_when_7_the_middle_of_a_tree_recovers_from_a_leaf_and_the_root_cites_it(settings: Settings) -> None:
    def leaf(request: Request) -> str:
        if "north" in heard(request)[0]:
            raise ValueError("lost in the north")
        return "the south is warm"

    def middle(request: Request) -> Reply | str:
        if not results(request):
            return calls(
                asked("create_task", agent="leaf", instruction="north"), asked("create_task", agent="leaf", instruction="south")
            )
        north, south = given(request)
        return f"north: {north['error']}; south: {south['result']}"

    def root(request: Request) -> Reply | str:
        if not results(request):
            return call("create_task", agent="middle", instruction="the world")
        return f"Report: {given(request)[0]['result']}"

    leaf_agent = agent("leaf", leaf)
    top = agent("root", root, delegates=[agent("middle", middle, delegates=[leaf_agent])])
    async with App(settings=settings, agents=[top]) as app:
        run = await app.runs.start("root", "go")
        answer = await run.result(20)
        assert "lost in the north" in answer
        assert "the south is warm" in answer
        tree = await app.runs.tree(run.id)
        (middle_node,) = tree.children
        assert sorted(child.run.status for child in middle_node.children) == ["completed", "failed"]
        assert (tree.run.status, middle_node.run.status) == ("completed", "completed")


async def test_depth_and_fan_out_have_limits_that_the_agent_is_told_of(settings: Settings) -> None:
    def deeper(request: Request) -> Reply | str:
        if not results(request):
            return call("create_task", agent="deep", instruction="deeper")
        return str(given(request)[0])

    deep = agent("deep", deeper, delegates=["deep"], nesting=3)
    many = agent(
        "many",
        Steps(calls(*[asked("create_task", agent="leaf", instruction=str(n)) for n in range(4)]), "done"),
        delegates=[agent("leaf", Steps("leaf"))],
        children=2,
    )
    async with App(settings=settings, agents=[deep, many]) as app:
        assert "may be 3 runs deep" in await app.ask("deep", "go", timeout=20)
        assert len(await runs_of(app, "deep")) == 4
        run = await app.runs.start("many", "go")
        assert await run.result(20) == "done"
        errors = [each.error for each in await app.runs.calls(run.id) if each.status == "failed"]
        assert errors == ["you have given 2 tasks, which is the limit; use the results you have"] * 2


async def test_only_delegates_get_tasks_and_only_own_tasks_are_spoken_to(settings: Settings) -> None:
    script = Steps(
        calls(
            asked("create_task", agent="stranger", instruction="x"),
            asked("create_task", agent="nobody", instruction="x"),
            asked("reactivate_task", task_id="t0", instruction="x"),
            asked("reply_to_task", task_id="t0", text="x"),
            asked("create_task", agent="child", instruction=""),
        ),
        "done",
    )
    lead = agent("lead", script, delegates=["nobody", agent("child", Steps("x"))])
    async with App(settings=settings, agents=[lead, agent("stranger", Steps("x"))]) as app:
        run = await app.runs.start("lead", "go")
        assert await run.result(20) == "done"
        first, second, third, fourth, fifth = results(script.asked[1])
        assert "not one of your delegates" in first
        assert "there is no agent 'nobody'" in second
        assert third == fourth == "error: you have given no task t0"
        assert fifth.startswith("error: instruction")
        assert await app.read(_tasks) == []


async def test_a_question_goes_to_the_parents_agent_first_and_once_then_to_the_person(settings: Settings) -> None:
    def lead(request: Request) -> Reply | str:
        last = heard(request)[-1]
        if "asks:" in last:
            return "It is blue" if "colour" in last else call("ask_user", question="I do not know")
        if not results(request):
            return call("create_task", agent="child", instruction="find out")
        return str(given(request)[0]["result"])

    def child(request: Request) -> Reply | str:
        known = given(request)
        if not known:
            return call("ask_user", question="Which colour?")
        if len(known) == 1:
            return call("ask_user", question="How many?")
        return f"{known[0]['replies'][0]['text']}, {known[1]['replies'][0]['text']}"

    async with App(settings=settings, agents=[agent("lead", lead, delegates=[agent("child", child)])]) as app:
        run = await app.runs.start("lead", "the sky", owner_id="mia")
        wait = await until(lambda: _posted(app))
        assert (wait.question, wait.for_entity) == ("How many?", "mia")
        (asking,) = await runs_of(app, "child")
        assert asking.status == "waiting_reply"
        (task,) = [task for task in await app.read(_tasks) if task.run_id == asking.id]
        assert task.status == "waiting"
        await app.runs.answer(wait.id, text="seven")
        assert await run.result(20) == "It is blue, seven"
        first, second = [each.result["replies"][0] for each in await app.runs.calls(asking.id)]
        assert (first["from"], first["entity_id"], second["from"]) == ("agent:lead", "agent:lead", "mia")
        (task,) = [task for task in await app.read(_tasks) if task.run_id == asking.id]
        assert (task.status, (await app.runs.get(asking.id)).run.id) == ("success", asking.id)
        answering = [run for run in await runs_of(app, "lead") if "answers" in run.metadata]
        assert len(answering) == 2


async def _posted(app: App) -> Any:
    """The question that was put to the person."""
    return next((wait for wait in await app.runs.waits() if wait.message_id is not None), None)


async def test_a_tool_task_runs_a_tool_with_no_model(settings: Settings) -> None:
    made: list[int] = []

    @tool
    async def double(n: int) -> dict[str, int]:
        """Twice as much."""
        made.append(n)
        if n < 0:
            raise ValueError("negative")
        return {"twice": 2 * n}

    async with App(settings=settings, agents=[agent("ada", Steps("x"), tools=[double])]) as app:
        outcomes: list[Any] = []
        for args in ('{"n": 4}', '{"n": -1}', '{"n": "x"}', "no json"):
            task, run = await app.runs.give_task("tool:double", args)
            assert run is not None
            await ended(app, run.id)
            stored = await app.read(queries.task, task.id)
            outcomes.append((stored.status, stored.result, stored.error))
        assert outcomes[0] == ("success", {"twice": 8}, None)
        assert outcomes[1] == ("failed", None, "tool: ValueError: negative")
        assert [each[0] for each in outcomes] == ["success", "failed", "failed", "failed"]
        assert made == [4, -1]


async def test_a_final_transition_is_final_and_writes_nothing(settings: Settings) -> None:
    def broken(request: Request) -> str:
        raise ValueError("no")

    async with App(settings=settings, agents=[agent("ada", broken)]) as app:
        run = await ended(app, (await app.runs.start("ada", "go")).id)
        before = await app.runs.get(run.id), await app.runs.messages(run.id)
        with pytest.raises(InvalidTransition, match="is failed and cannot become running"):
            await app.runs.hear(run.id, "again")
        assert (await app.runs.cancel(run.id)).status == "failed"
        assert (await app.runs.get(run.id), await app.runs.messages(run.id)) == before


async def test_a_tenant_has_no_runs_of_another(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps("done"))]) as app:
        run = await app.runs.start("ada", "go")
        await run.result(20)
        with pytest.raises(Exception, match="no run"):
            await app.database.write(cancel_run, run.id, scope=Scope("other"))
        assert await until_status(app, run.id, "completed")
        assert await until_waiting(app, 0) == []
