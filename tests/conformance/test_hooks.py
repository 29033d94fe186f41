"""Hooks change, refuse or ask for approval, around the model and around tools; and what they did is in the run's log."""

import re
from typing import Any

import msgspec
import pytest

from stigmergy import Agent, App, Hooks, Reply, Request, ScriptedModel, tool
from stigmergy.agents.models.port import Asked, Message
from stigmergy.engine.calls import Outcome
from stigmergy.engine.hooks import AskFirst, Refuse
from stigmergy.runs import queries
from stigmergy.runs.model import Run
from stigmergy.settings import Settings
from support.agents import Script, Steps, agent, asked, call, calls, ended, results, until_waiting

MADE: list[str] = []


@tool
async def send(text: str) -> str:
    """Send a text."""
    MADE.append(text)
    return f"sent {text}, password hunter2"


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


def hooked(script: Script, **moments: Any) -> Agent:
    hooks = Hooks(**{moment: (hook,) for moment, hook in moments.items()})
    return agent("ada", script, tools=[send], hooks=hooks)


async def done(app: App, id: str) -> list[tuple[str, str, str]]:
    """What hooks did: which, when, what."""
    thoughts = await app.read(queries.thoughts, id)
    found = [(thought.metadata or {}, thought.content) for thought in thoughts]
    return [(about["hook"], about["moment"], content) for about, content in found if "hook" in about]


def redact(request: Request, run: Run) -> Request:
    def cleaned(message: Message) -> Message:
        return msgspec.structs.replace(message, content=re.sub(r"hunter2", "***", message.content))

    return msgspec.structs.replace(request, messages=tuple(map(cleaned, request.messages)))


async def test_before_model_redacts_what_the_model_sees_and_the_log_keeps_what_was_said(settings: Settings) -> None:
    script = Steps(call("send", text="a"), "done")
    async with App(settings=settings, agents=[hooked(script, before_model=redact)]) as app:
        run = await app.runs.start("ada", "my password is hunter2")
        assert await run.result(20) == "done"
        assert not any("hunter2" in message.content for request in script.asked for message in request.messages)
        assert "hunter2" in (await app.runs.messages(run.id))[0].content
        assert await done(app, run.id) == [("redact", "before_model", "changed it")] * 2
        for step, request in enumerate(script.asked, 1):
            assert (await app.runs.prompt(run.id, step)).messages == request.messages


async def test_after_model_changes_the_reply_before_anything_of_it_is_kept_or_streamed(settings: Settings) -> None:
    async def polite(reply: Reply, run: Run) -> Reply:
        return msgspec.structs.replace(reply, text=reply.text.replace("damn", "dear"))

    slow = ScriptedModel(Steps("damn good"), pause=0.05)
    async with App(settings=settings, agents=[Agent("ada", slow, hooks=Hooks(after_model=(polite,)))]) as app:
        run = await app.runs.start("ada", "well?")
        texts = [event.text async for event in run.events() if event.kind in ("text", "message") and event.role != "user"]
        assert texts
        assert not any("damn" in str(text) for text in texts)
        assert await run.result(20) == "dear good"
        assert await done(app, run.id) == [("polite", "after_model", "changed it")]


async def test_before_tool_changes_the_arguments_and_the_call_has_them(settings: Settings) -> None:
    def short(asked: Asked, run: Run) -> Asked:
        return msgspec.structs.replace(asked, arguments='{"text":"short"}')

    script = Steps(call("send", text="a very long text"), "done")
    async with App(settings=settings, agents=[hooked(script, before_tool=short)]) as app:
        run = await app.runs.start("ada", "send")
        assert await run.result(20) == "done"
        (made,) = await app.runs.calls(run.id)
        assert (MADE, made.args, made.attempts) == (["short"], {"text": "short"}, 1)
        assert await done(app, run.id) == [("short", "before_tool", "changed it")]
        assert (await app.runs.prompt(run.id, 2)).messages == script.asked[1].messages


async def test_before_tool_refuses_and_the_agent_goes_on(settings: Settings) -> None:
    def no_secrets(asked: Asked, run: Run) -> None:
        if "secret" in asked.arguments:
            raise Refuse("secrets stay here")

    script = Steps(calls(asked("send", text="a secret"), asked("send", text="news")), "done")
    async with App(settings=settings, agents=[hooked(script, before_tool=no_secrets)]) as app:
        run = await app.runs.start("ada", "send")
        assert await run.result(20) == "done"
        assert MADE == ["news"]
        assert results(script.asked[1])[0] == "error: refused: secrets stay here"
        assert await done(app, run.id) == [("no_secrets", "before_tool", "refused: secrets stay here")]


async def test_before_tool_asks_a_person_and_what_they_allow_is_done_once(settings: Settings) -> None:
    def ask(asked: Asked, run: Run) -> None:
        raise AskFirst("May this be sent?")

    script = Steps(call("send", text="news"), "done")
    async with App(settings=settings, agents=[hooked(script, before_tool=ask)]) as app:
        run = await app.runs.start("ada", "send")
        (wait,) = await until_waiting(app)
        assert (wait.question, MADE) == ("May this be sent?", [])
        await app.runs.answer(wait.id, decision="approve")
        assert await run.result(20) == "done"
        (made,) = await app.runs.calls(run.id)
        assert (MADE, made.status, made.attempts) == (["news"], "success", 1)
        assert await done(app, run.id) == [("ask", "before_tool", "asked for approval: May this be sent?")]


async def test_a_hook_guards_the_engines_own_tools_too(settings: Settings) -> None:
    def ask(asked: Asked, run: Run) -> None:
        raise AskFirst("Note that?")

    script = Steps(call("think", thought="hm"), "done")
    ada = agent("ada", script, hooks=Hooks(before_tool=(ask,)), builtin_tools=("think",))
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "think")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, decision="approve")
        assert await run.result(20) == "done"
        assert results(script.asked[1]) == ["noted"]


async def test_after_tool_changes_what_the_agent_sees(settings: Settings) -> None:
    def hide(outcome: Outcome, run: Run) -> Outcome:
        return outcome._replace(result=str(outcome.result).replace("hunter2", "***"))

    script = Steps(call("send", text="x"), "done")
    async with App(settings=settings, agents=[hooked(script, after_tool=hide)]) as app:
        run = await app.runs.start("ada", "send")
        assert await run.result(20) == "done"
        assert results(script.asked[1]) == ["sent x, password ***"]
        assert (await app.runs.calls(run.id))[0].result == "sent x, password ***"


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"decision": "approve"}, "sent x, password hunter2"),
        ({"decision": "reject", "reason": "no"}, "error: no"),
        ({"decision": "modify", "text": "it was sent"}, "it was sent"),
    ],
)
async def test_after_tool_asks_whether_a_result_may_be_seen_and_the_tool_is_not_called_again(
    settings: Settings, given: dict[str, Any], seen: str
) -> None:
    def ask(outcome: Outcome, run: Run) -> None:
        raise AskFirst("May it see that?")

    script = Steps(call("send", text="x"), "done")
    ada = hooked(script, after_tool=ask)
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "send")
        (wait,) = await until_waiting(app)
        assert wait.details is not None
        assert wait.details["result"] == "sent x, password hunter2"
    async with App(settings=settings, agents=[ada]) as app:
        await app.runs.answer(wait.id, **given)
        assert (await ended(app, run.id)).result == "done"
        assert (MADE, results(script.asked[-1])) == (["x"], [seen])


async def test_model_hooks_refuse_and_the_run_fails_with_the_reason_in_its_log(settings: Settings) -> None:
    def never(request: Request, run: Run) -> None:
        raise Refuse("not today")

    script = Steps("never")
    async with App(settings=settings, agents=[hooked(script, before_model=never)]) as app:
        run = await ended(app, (await app.runs.start("ada", "hello")).id)
        assert (run.status, run.error, script.asked) == ("failed", "refused: not today", [])
        assert await done(app, run.id) == [("never", "before_model", "refused: not today")]


@pytest.mark.parametrize("decision", ["continue", "cancel"])
async def test_before_model_asks_a_person_before_anything_is_thought(settings: Settings, decision: str) -> None:
    def ask(request: Request, run: Run) -> None:
        raise AskFirst("May it think of this?")

    script = Steps("thought")
    async with App(settings=settings, agents=[hooked(script, before_model=ask)]) as app:
        run = await app.runs.start("ada", "something odd")
        (wait,) = await until_waiting(app)
        assert (wait.question, script.asked) == ("May it think of this?", [])
        await app.runs.answer(wait.id, decision=decision)
        over = await ended(app, run.id)
        assert (over.status, len(script.asked)) == (("completed", 1) if decision == "continue" else ("canceled", 0))
        assert await done(app, run.id) == [("ask", "before_model", "asked for approval: May it think of this?")]


async def test_after_model_asks_a_person_and_nothing_is_called_until_then(settings: Settings) -> None:
    def ask(reply: Reply, run: Run) -> None:
        if reply.tool_calls:
            raise AskFirst("May it do that?")

    script = Steps(call("send", text="x"), "done")
    async with App(settings=settings, agents=[hooked(script, after_model=ask)]) as app:
        run = await app.runs.start("ada", "send")
        (wait,) = await until_waiting(app)
        assert MADE == []
        await app.runs.answer(wait.id, decision="continue")
        assert await run.result(20) == "done"
        assert MADE == ["x"]


async def test_a_hook_that_breaks_lets_nothing_through(settings: Settings) -> None:
    def broken(asked: Asked, run: Run) -> None:
        raise RuntimeError("oh")

    def nonsense(request: Request, run: Run) -> Any:
        return "no request"

    script = Steps(call("send", text="x"), "done")
    async with App(settings=settings, agents=[hooked(script, before_tool=broken)]) as app:
        assert await app.ask("ada", "send", timeout=20) == "done"
        assert MADE == []
        assert "the hook broken failed at before_tool: RuntimeError: oh" in results(script.asked[1])[0]
    async with App(settings=settings, agents=[hooked(script, before_model=nonsense)]) as app:
        run = await ended(app, (await app.runs.start("ada", "send")).id)
        assert (run.status, run.error) == (
            "failed",
            "hook_failed: the hook nonsense gave a str at before_model; it is to give a Request",
        )


async def test_the_hooks_of_the_app_come_before_those_of_the_agent(settings: Settings) -> None:
    def first(reply: Reply, run: Run) -> Reply:
        return msgspec.structs.replace(reply, text=reply.text + " 1")

    def second(reply: Reply, run: Run) -> Reply:
        return msgspec.structs.replace(reply, text=reply.text + " 2")

    ada = hooked(Steps("said"), after_model=second)
    async with App(settings=settings, agents=[ada], hooks=Hooks(after_model=(first,))) as app:
        assert await app.ask("ada", "well?", timeout=20) == "said 1 2"
