"""When a person is asked first: for a tool, under a confidence, after an error; every word that they can say, and silence."""

import asyncio
import json
from typing import Any

import pytest

from stigmergy import Agent, App, AskFirst, Hooks, Reply, Thinking, tool
from stigmergy.agents.model import Approval, ToolSpec
from stigmergy.errors import Invalid
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.query import Statement
from stigmergy.runs.model import ENDED, Checkpoint, Run
from stigmergy.runs.store import CHECKPOINTS_OF
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, calls, ended, heard, results, until, until_status, until_waiting

MADE: list[str] = []
READY = Statement("test.ready_approvals", "SELECT id FROM ready WHERE tenant = :tenant")


@tool
async def pay(amount: int) -> str:
    """Pay somebody."""
    MADE.append(f"pay {amount}")
    return f"paid {amount}"


@tool
async def look() -> str:
    """Look only."""
    MADE.append("look")
    return "seen"


@tool
async def breaks() -> str:
    """Never works."""
    raise ValueError("it broke")


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


def payer(*replies: Any, **more: Any) -> tuple[Agent, Steps]:
    script = Steps(*replies)
    return agent("ada", script, tools=[pay, look, breaks], **more), script


async def checkpoints(app: App, run: Run) -> list[Checkpoint]:
    return await app.database.read(_checkpoints, run.id)


async def _checkpoints(tx: Any, id: str) -> list[Checkpoint]:
    return await tx.find(CHECKPOINTS_OF, run_id=id)


async def test_a_tool_to_be_approved_waits_for_it_and_the_others_do_not(settings: Settings) -> None:
    ada, script = payer(calls(asked("pay", amount=5), asked("look")), "done", require_approval=["pay"])
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him", owner_id="mia")
        (wait,) = await until_waiting(app)
        at = await until_status(app, run.id, "waiting_reply")
        assert MADE == ["look"]
        assert (wait.kind, wait.for_entity, wait.question) == ("approval", "mia", "May ada call pay?")
        assert wait.details is not None
        assert (wait.details["tool"], wait.details["args"]) == ("pay", {"amount": 5})
        assert [mark.reason for mark in await checkpoints(app, at)] == ["step_complete"]
        await app.runs.answer(wait.id, decision="approve")
        assert await run.result(20) == "done"
        assert MADE == ["look", "pay 5"]
        assert results(script.asked[1]) == ["paid 5", "seen"]
        assert (await app.runs.waits(), len(script.asked)) == ([], 2)


async def test_a_rejected_call_fails_with_the_reason_and_the_agent_goes_on(settings: Settings) -> None:
    ada, script = payer(call("pay", amount=5), "fine", require_approval=["pay"])
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="reject", reason="too much")
        assert await run.result(20) == "fine"
        assert (results(script.asked[1]), MADE) == (["error: too much"], [])


async def test_a_modified_call_is_made_as_the_person_said(settings: Settings) -> None:
    ada, script = payer(call("pay", amount=500), "fine", require_approval=["pay"])
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him")
        (wait,) = await until_waiting(app)
        for bad in ({"decision": "modify"}, {"decision": "modify", "args": {"amount": "much"}}, {"decision": "perhaps"}, {}):
            with pytest.raises(Invalid):
                await app.runs.answer(wait.id, **bad)
        await app.runs.answer(wait.id, decision="modify", args={"amount": 5})
        assert await run.result(20) == "fine"
        assert (MADE, results(script.asked[1])) == (["pay 5"], ["paid 5"])


async def test_cancel_ends_the_run_and_nothing_is_called(settings: Settings) -> None:
    ada, _ = payer(calls(asked("pay", amount=5), asked("pay", amount=6)), "never", require_approval=["pay"])
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him")
        first, _ = await until_waiting(app, 2)
        await app.runs.answer(first.id, decision="cancel", reason="stop all of this")
        over = await ended(app, run.id)
        assert (over.status, over.error, MADE) == ("canceled", "stop all of this", [])
        assert [each.status for each in await app.runs.calls(run.id)] == ["canceled", "canceled"]
        assert await app.runs.waits() == []


@pytest.mark.parametrize(
    ("on_timeout", "status", "made"),
    [("continue", "completed", ["pay 5"]), ("reject", "completed", []), ("cancel", "canceled", []), ("fail", "failed", [])],
)
async def test_silence_is_what_the_agent_says_it_is(settings: Settings, on_timeout: Any, status: str, made: list[str]) -> None:
    approval = Approval(tools=("pay",), timeout_ms=50, on_timeout=on_timeout)
    ada, _ = payer(call("pay", amount=5), "fine", approval=approval)
    async with App(settings=settings, agents=[ada]) as app:
        over = await ended(app, (await app.runs.start("ada", "pay him")).id)
        assert (over.status, MADE) == (status, made)
        if status != "completed":
            assert "nobody decided in time" in str(over.error)


def unsure(confidence: float, *wanted: Any, text: str = "") -> Reply:
    return Reply(text, wanted, (Thinking("hm", confidence, "reported"),))


@pytest.mark.parametrize(("confidence", "pauses"), [(0.59, True), (0.60, False)])
async def test_under_its_threshold_a_step_is_a_checkpoint_and_a_pause(
    settings: Settings, confidence: float, pauses: bool
) -> None:
    ada, _ = payer(unsure(confidence, asked("pay", amount=1)), "done", approval=Approval(confidence_below=0.6))
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him")
        if pauses:
            (wait,) = await until_waiting(app)
            at = await until_status(app, run.id, "waiting_reply")
            assert MADE == []
            assert [mark.reason for mark in await checkpoints(app, at)] == ["low_confidence"]
            await app.runs.answer(wait.id, decision="continue")
        assert await run.result(20) == "done"
        assert MADE == ["pay 1"]


async def test_an_unsure_answer_is_given_when_a_person_lets_it(settings: Settings) -> None:
    ada, script = payer(unsure(0.1, text="Perhaps 42"), approval=Approval(confidence_below=0.6))
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "what is it?")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="continue")
        assert await run.result(20) == "Perhaps 42"
        assert len(script.asked) == 1


async def test_an_unsure_answer_is_replaced_by_what_the_person_says(settings: Settings) -> None:
    ada, _ = payer(unsure(0.1, text='{"n": 1}'), approval=Approval(confidence_below=0.6), output=dict[str, int])
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "what is it?")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="modify", text='{"n": 42}')
        assert await run.result(20) == {"n": 42}


async def test_what_replaces_an_answer_must_fit_what_the_agent_promised(settings: Settings) -> None:
    ada, script = payer(
        unsure(0.1, text='{"n": 1}'), unsure(0.9, text='{"n": 2}'), approval=Approval(confidence_below=0.6), output=dict[str, int]
    )
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "what is it?")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="modify", text="no number")
        assert await run.result(20) == {"n": 2}
        assert "will not do" in heard(script.asked[1])[-1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"decision": "retry", "reason": "too dear"}, "Think that over again. too dear"),
        ({"decision": "modify", "text": "look first"}, "Do not do that. Instead: look first"),
    ],
)
async def test_a_step_is_thought_over_again_without_its_calls(settings: Settings, given: dict[str, Any], told: str) -> None:
    ada, script = payer(unsure(0.1, asked("pay", amount=9)), call("look"), "done", approval=Approval(confidence_below=0.6))
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, **given)
        assert await run.result(20) == "done"
        assert MADE == ["look"]
        assert heard(script.asked[1])[-1] == told
        assert [each.status for each in await app.runs.calls(run.id)] == ["canceled", "success"]
        for step, request in enumerate(script.asked, 1):
            assert (await app.runs.prompt(run.id, step)).messages == request.messages


async def test_after_an_error_a_person_decides_when_the_agent_wants_it_so(settings: Settings) -> None:
    ada, script = payer(calls(asked("breaks"), asked("look")), "done", approval=Approval(on_error=True))
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "try")
        (wait,) = await until_waiting(app)
        at = await until_status(app, run.id, "waiting_reply")
        assert wait.question is not None
        assert "it broke" in wait.question
        assert [mark.reason for mark in await checkpoints(app, at)] == ["step_complete", "tool_error"]
        await app.runs.answer(wait.id, decision="retry")
        assert await run.result(20) == "done"
        assert heard(script.asked[1])[-1] == "Call breaks again."


async def test_after_an_error_a_person_may_end_it(settings: Settings) -> None:
    ada, _ = payer(call("breaks"), "never", approval=Approval(on_error=True))
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "try")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="cancel")
        assert (await ended(app, run.id)).status == "canceled"


async def test_the_pause_outlives_the_process(settings: Settings) -> None:
    ada, _ = payer(unsure(0.1, asked("pay", amount=1)), "done", approval=Approval(confidence_below=0.6))
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him")
        (wait,) = await until_waiting(app)
        await until_status(app, run.id, "waiting_reply")
    async with App(settings=settings, agents=[ada]) as app:
        assert MADE == []
        await app.runs.answer(wait.id, decision="continue")
        assert (await ended(app, run.id)).result == "done"
        assert MADE == ["pay 1"]


async def test_a_call_that_may_be_made_once_is_approved_and_made_once_across_a_restart(settings: Settings) -> None:
    ada, _ = payer(call("pay", amount=3), "done", require_approval=["pay"], approval=Approval(timeout_ms=60_000))
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him")
        (wait,) = await until_waiting(app)
        await until_status(app, run.id, "waiting_reply")
    async with App(settings=settings, agents=[ada]) as app:
        await app.runs.answer(wait.id, decision="approve")
        assert (await ended(app, run.id)).result == "done"
        assert MADE == ["pay 3"]


async def test_who_decides_while_the_step_is_at_work_does_not_break_what_the_run_waits_for_next(settings: Settings) -> None:
    decided = asyncio.Event()

    @tool
    async def hold() -> str:
        """At work until the person has decided."""
        await decided.wait()
        return "held"

    script = Steps(calls(asked("pay", amount=5), asked("hold")), call("pick"), "done")
    tools = [pay, hold, ToolSpec(name="pick", execution_type="client")]
    async with App(settings=settings, agents=[agent("ada", script, tools=tools, require_approval=["pay"])]) as app:
        run = await app.runs.start("ada", "pay him")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="approve")
        decided.set()
        (picked,) = await until_waiting(app)
        await until(lambda: _let_go(app))
        await app.runs.answer(picked.id, result="this")
        assert await run.result(20) == "done"
        assert (results(script.asked[2]), MADE) == (["paid 5", "held", "this"], ["pay 5"])


async def test_who_decides_while_the_step_is_at_work_is_heard_though_a_client_has_not_answered(settings: Settings) -> None:
    decided = asyncio.Event()

    @tool
    async def hold() -> str:
        """At work until the person has decided."""
        await decided.wait()
        return "held"

    script = Steps(calls(asked("pay", amount=5), asked("hold"), asked("pick")), "done")
    tools = [pay, hold, ToolSpec(name="pick", execution_type="client")]
    async with App(settings=settings, agents=[agent("ada", script, tools=tools, require_approval=["pay"])]) as app:
        run = await app.runs.start("ada", "pay him")
        waits = {wait.kind: wait for wait in await until_waiting(app, 2)}
        await app.runs.answer(waits["approval"].id, decision="approve")
        decided.set()
        await until(lambda: _made(1))
        await until(lambda: _let_go(app))
        await app.runs.answer(waits["tool"].id, result="this")
        assert await run.result(20) == "done"
        assert (results(script.asked[1]), len(script.asked)) == (["paid 5", "held", "this"], 2)


async def _let_go(app: App) -> bool | None:
    """Whether no worker has anything in hand or to take up."""
    return None if await app.database.read(lambda tx: tx.rows(READY)) else True


async def _made(count: int) -> bool | None:
    return len(MADE) >= count or None


PICK = ToolSpec(name="pick", execution_type="client")


async def test_what_a_person_agreed_to_may_wait_for_a_client(settings: Settings) -> None:
    script = Steps(call("pick"), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[PICK], require_approval=["pick"])]) as app:
        run = await app.runs.start("ada", "choose", owner_id="mia")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="approve")
        await until_status(app, run.id, "waiting_tool")
        state = (await app.runs.get(run.id)).wait_state
        assert state is not None
        assert [party["entityType"] for party in state["waitingFor"]] == ["client"]
        assert state["replies"] == []
        (picked,) = await app.runs.waits()
        await app.runs.answer(picked.id, result="this")
        assert await run.result(20) == "done"
        assert results(script.asked[1]) == ["this"]


async def test_what_a_person_agreed_to_may_ask_that_person(settings: Settings) -> None:
    script = Steps(call("ask_user", question="how much?"), "done")
    async with App(settings=settings, agents=[agent("ada", script, require_approval=["ask_user"])]) as app:
        run = await app.runs.start("ada", "pay him", owner_id="mia")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="approve")
        await until_question(app)
        (question,) = await app.runs.waits()
        await app.runs.answer(question.id, text="five")
        assert await run.result(20) == "done"
        (told,) = results(script.asked[1])
        assert [reply["text"] for reply in json.loads(told)["replies"]] == ["five"]


async def test_silence_after_what_a_person_agreed_to_is_the_silence_of_the_client_alone(settings: Settings) -> None:
    clock = ManualClock()
    script = Steps(call("pick"), "done")
    async with App(settings=settings, clock=clock, agents=[agent("ada", script, tools=[PICK], require_approval=["pick"])]) as app:
        run = await app.runs.start("ada", "choose", owner_id="mia")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="approve")
        await until_status(app, run.id, "waiting_tool")
        clock.advance(601)
        assert await run.result(20) == "done"
        assert "did not answer within 600 s" in results(script.asked[1])[0]


@pytest.mark.parametrize("first", ["require_approval", "before_tool"])
async def test_a_call_that_was_agreed_to_may_have_its_result_asked_about_too(settings: Settings, first: str) -> None:
    def before(asked: Any, run: Run) -> None:
        raise AskFirst("may it?")

    def after(outcome: Any, run: Run) -> None:
        raise AskFirst("may it see that?")

    hooks = Hooks(before_tool=(before,) if first == "before_tool" else (), after_tool=(after,))
    approved = ["pay"] if first == "require_approval" else []
    ada, script = payer(call("pay", amount=5), "done", hooks=hooks, require_approval=approved)
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "pay him")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="approve")
        await until_question(app)
        (held,) = await app.runs.waits()
        assert (held.question, MADE) == ("may it see that?", ["pay 5"])
        await app.runs.answer(held.id, decision="reject", reason="not for you")
        assert await run.result(20) == "done"
        assert (results(script.asked[1]), MADE) == (["error: not for you"], ["pay 5"])


async def until_question(app: App) -> None:
    """Until the run waits for the second thing."""

    async def asked_again() -> bool | None:
        (run,) = (await app.runs.list(agent="ada")).items
        assert run.status not in ENDED, run.error
        return (run.status == "waiting_reply" and bool(await app.runs.waits())) or None

    await until(asked_again)
