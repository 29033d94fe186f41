"""What is wrong with what agents, tools and models are given or give: each has its outcome, and none stops anybody else."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from stigmergy import Agent, App, Asked, AskFirst, Hooks, Refuse, Reply, Request, Thinking, tool
from stigmergy.agents.agent import on
from stigmergy.agents.checking import LONGEST_INSTRUCTIONS
from stigmergy.agents.model import Approval, Definition, Limits, OutputSpec, ToolSpec
from stigmergy.agents.store import UnknownAgent
from stigmergy.errors import Invalid, KeyReused, NotFound
from stigmergy.kernel.blocks import get_block
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs.model import Run, Wait
from stigmergy.runs.store import WAITS_OF_CALL
from stigmergy.settings import Settings
from support.agents import Steps, agent, asked, call, calls, ended, results, system, until_waiting

FIVE_MB = 5 << 20
SPACES = Statement("test.spaces_there_are", "SELECT id FROM spaces WHERE tenant = :tenant")


@tool
async def much() -> str:
    """Five megabytes."""
    return "0123456789abcdef" * (FIVE_MB // 16)


@tool
async def rows() -> list[dict[str, Any]]:
    """Many rows."""
    return [{"n": n, "text": "x" * 100} for n in range(50_000)]


@tool
async def odd(kind: str) -> Any:
    """What JSON cannot say."""
    return {
        "object": object(),
        "nested": {"a": [object()]},
        "number": 2**80,
        "set": {3},
        "bytes": b"\x00\xff",
        "nul": "a\x00b",
        "half": "a\ud800b",
        "key": {"a\x00": 1},
        "nan": float("nan"),
        "function": print,
    }[kind]


async def test_an_unknown_agent_is_named_with_those_that_there_are(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps("x"))]) as app:
        starts = (app.runs.start("nobody", "go"), app.runs.give_task("agent:nobody", "go"), app.runs.give_task("tool:no", ""))
        for start in starts:
            with pytest.raises(UnknownAgent, match="there are: ada"):
                await start
        with pytest.raises(Invalid, match="agent:NAME or tool:NAME"):
            await app.runs.give_task("nobody", "go")
        assert (await app.runs.list()).items == []


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ("nowhere:model", "unknown_model"),
        ("scripted:/nowhere/at/all", "unknown_model"),
        ("recorded:/nowhere/at/all", "unknown_model"),
        ("code:gone", "unknown_model"),
        ("openai:gpt-5-mini", "model"),
    ],
)
async def test_a_model_that_cannot_be_asked_fails_the_run_and_says_how_to_help(
    settings: Settings, model: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with App(settings=settings, agents=[Agent("ada", model), agent("bob", Steps("fine"))]) as app:
        run = await ended(app, (await app.runs.start("ada", "go")).id)
        assert run.status == "failed"
        assert str(run.error).startswith(f"{code}: ")
        if code == "model":
            assert "OPENAI_API_KEY" in str(run.error)
        assert await app.ask("bob", "go", timeout=20) == "fine"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"name": "a b"}, "name"),
        ({"model": ""}, "model"),
        ({"tools": (ToolSpec(name="t", parameters={"type": "nothing"}),)}, "tools[0].parameters"),
        ({"tools": (ToolSpec(name="a b"),)}, "tools[0].name"),
        ({"tools": (ToolSpec(name="t"), ToolSpec(name="t"))}, "tools[1].name"),
        ({"tools": (ToolSpec(name="t", execution_type="gateway"),)}, "tools[0].execution"),
        ({"tools": (ToolSpec(name="t", timeout_ms=0),)}, "tools[0]"),
        ({"mcp_servers": ({"command": "x", "url": "https://y"},)}, "mcp_servers[0]"),
        ({"subscriptions": ({"schema_name": "x.v1", "rolle": "trigger"},)}, "subscriptions[0]"),
        ({"output": OutputSpec(json_schema={"type": 3})}, "output.json_schema"),
        ({"output": OutputSpec(schema_name="a*")}, "output.schema_name"),
        ({"limits": Limits(max_steps=0)}, "limits.max_steps"),
        ({"window": 0}, "window"),
        ({"delegates": ("",)}, "delegates"),
        ({"limits": Limits(deadline_ms=10**13)}, "limits.deadline_ms"),
        ({"limits": Limits(max_steps=2**70)}, "limits.max_steps"),
        ({"approval": Approval(timeout_ms=10**13)}, "approval.timeout_ms"),
        ({"window": 2**70}, "window"),
        ({"instructions": "é" * 33_000}, "instructions"),
        ({"tools": (ToolSpec(name="f", execution_type="client", timeout_ms=2**70),)}, "tools[0].timeout_ms"),
    ],
)
async def test_a_definition_that_no_run_could_use_is_refused_with_the_place(
    settings: Settings, fields: dict[str, Any], where: str
) -> None:
    async with App(settings=settings) as app:
        definition = Definition(**{"name": "ada", "model": "scripted:x", **fields})
        with pytest.raises(Invalid) as refused:
            await app.agents.put(definition)
        assert refused.value.where == where
        assert await app.agents.list() == []


async def test_a_built_in_tool_that_is_none_is_refused_where_the_agent_is_declared(settings: Settings) -> None:
    with pytest.raises(Invalid, match="there is no built-in tool 'fly'"):
        async with App(settings=settings, agents=[agent("ada", Steps("x"), builtin_tools=("fly",))]):
            pass
    async with App(settings=settings) as app:
        with pytest.raises(Invalid, match="there is no built-in tool 'fly'"):
            await app.agents.put(Definition(name="ada", model="scripted:x", builtin_tools=("fly",)))
        assert await app.agents.list() == []


def test_a_function_that_no_model_could_call_is_refused_where_it_is_declared() -> None:
    def without_type(a) -> str:  # type: ignore[no-untyped-def] # pyright: ignore
        """No type."""
        return str(a)

    def unsayable(a: complex) -> str:
        """No JSON."""
        return str(a)

    def positional(*a: int) -> str:
        """No names."""
        return str(a)

    for function in (without_type, unsayable, positional):
        with pytest.raises(Invalid):
            tool(function)
    with pytest.raises(Invalid, match="no such setting"):
        agent("ada", Steps("x"), colour="blue")
    with pytest.raises(Invalid, match="schema_name and tags"):
        agent("ada", Steps("x"), output={"schema": "x"})


@pytest.mark.parametrize("kind", ["object", "nested", "half", "function"])
async def test_a_result_that_cannot_be_said_in_json_is_an_error_result(settings: Settings, kind: str) -> None:
    script = Steps(call("odd", kind=kind), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[odd])]) as app:
        run = await app.runs.start("ada", "go")
        assert await run.result(20) == "done"
        (called,) = await app.runs.calls(run.id)
        assert (called.status, results(script.asked[1])[0].startswith("error: ")) == ("failed", True)
        assert "cannot be said in JSON" in str(called.error)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("set", [3]), ("bytes", "AP8="), ("nul", "a\ufffdb"), ("key", {"a\ufffd": 1}), ("nan", None), ("number", float(2**80))],
)
async def test_a_result_that_json_has_another_form_for_is_kept_in_that(settings: Settings, kind: str, value: Any) -> None:
    script = Steps(call("odd", kind=kind), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[odd])]) as app:
        run = await app.runs.start("ada", "go")
        assert await run.result(20) == "done"
        (called,) = await app.runs.calls(run.id)
        assert (called.status, called.result) == ("success", value)
        assert (await app.runs.prompt(run.id, 2)).messages == script.asked[1].messages


async def test_five_megabytes_are_kept_by_reference_and_clipped_for_the_model_with_a_note(settings: Settings) -> None:
    script = Steps(calls(asked("much"), asked("rows"), asked("much")), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[much, rows])]) as app:
        run = await app.runs.start("ada", "go")
        assert await run.result(20) == "done"
        seen = results(script.asked[1])
        assert all(len(text) < 20_000 and "[clipped: " in text for text in seen)
        first, table, again = await app.runs.calls(run.id)
        assert first.result == again.result == {"block": first.result["block"], "size": FIVE_MB, "clipped": True}
        assert len(msgspec.json.encode(first)) < 2_000
        assert (await app.read(get_block, first.result["block"])).body.decode() == "0123456789abcdef" * (FIVE_MB // 16)
        whole = json.loads((await app.read(get_block, table.result["block"])).body)
        assert len(whole) == 50_000
        assert (await app.runs.prompt(run.id, 2)).messages == script.asked[1].messages


async def test_five_megabytes_from_a_client_or_a_child_are_kept_by_reference(settings: Settings) -> None:
    large = "0123456789abcdef" * (FIVE_MB // 16)
    script = Steps(calls(asked("pick"), asked("create_task", agent="eve", instruction="much")), "done")
    pick = ToolSpec(name="pick", execution_type="client")
    ada = agent("ada", script, tools=[pick], delegates=[agent("eve", Steps(large))])
    async with App(settings=settings, agents=[ada]) as app:
        run = await app.runs.start("ada", "go")
        (wait,) = await until_waiting(app)
        await app.runs.answer(wait.id, result=large)
        assert await run.result(20) == "done"
        assert all("[clipped: 5,24" in said for said in results(script.asked[1]))
        waits = [wait for call in await app.runs.calls(run.id) for wait in await app.read(_waits, run.id, call.id)]
        kept = [(wait.answer or {})["result"] for wait in waits]
        assert [each["clipped"] for each in kept] == [True, True]
        blocks = [(await app.read(get_block, each["block"])).body.decode() for each in kept]
        assert blocks == [large, large]
        client, _ = await app.runs.calls(run.id)
        assert client.result == kept[0]


async def _waits(tx: Snapshot, run_id: str, call_id: str) -> list[Wait]:
    return await tx.find(WAITS_OF_CALL, run_id=run_id, call_id=call_id)


async def test_the_longest_instructions_are_seen_whole(settings: Settings) -> None:
    longest = "x" * LONGEST_INSTRUCTIONS
    async with App(settings=settings, agents=[agent("ada", script := Steps("fine"), instructions=longest)]) as app:
        assert await app.ask("ada", "go", timeout=20) == "fine"
        assert system(script.asked[0]) == longest


async def test_a_large_answer_and_a_large_instruction_are_kept_whole(settings: Settings) -> None:
    large = "word " * 40_000

    def script(request: Request) -> str:
        return large if "[clipped" in request.messages[-1].content else "not clipped"

    async with App(settings=settings, agents=[agent("ada", script)]) as app:
        assert await app.ask("ada", large, timeout=20) == large
        with pytest.raises(Invalid, match="at most"):
            await app.runs.start("ada", "x" * (2 << 20))


ODD: list[Any] = [None, 42, {"text": "x"}, Reply(cast(Any, 3)), Reply("", (Asked("x", cast(Any, None), "{}"),))]
ODD += [
    Reply("x", **cast(Any, {name: odd}))
    for name in ("input_tokens", "output_tokens", "cached_tokens")
    for odd in (1.5, -1, "1", 2**70)
]
ODD += [Reply("x", cost=cast(Any, odd)) for odd in (-1.0, float("nan"), float("inf"), "1")]
ODD += [Reply("x", thinking=(Thinking("t", cast(Any, odd)),)) for odd in (7, -0.1, float("nan"), "high")]


async def test_a_space_that_is_not_there_odd_metadata_and_a_key_of_another_agents_run_start_nothing(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps("fine")), agent("eve", Steps("fine"))]) as app:
        first = await app.runs.start("ada", "go", key="k")
        assert (await app.runs.start("ada", "go", key="k")).id == first.id
        with pytest.raises(NotFound, match="no space nowhere"):
            await app.runs.start("ada", "go", space_id="nowhere")
        with pytest.raises(Invalid, match="metadata is an object"):
            await app.runs.start("ada", "go", metadata=cast(Any, [1]))
        with pytest.raises(KeyReused, match="of ada; take another key"):
            await app.runs.start("eve", "go", key="k")
        assert [run.id for run in (await app.runs.list()).items] == [first.id]
        assert await app.read(_spaces) == [(first.id,)]


async def _spaces(tx: Snapshot) -> Any:
    return await tx.rows(SPACES)


@pytest.mark.parametrize("reply", ODD)
async def test_what_is_no_reply_fails_the_run_with_a_reason(settings: Settings, reply: Any) -> None:
    class Odd:
        async def request(self, request: Request, on_text: Any = None) -> Any:
            return reply

    async with App(settings=settings, agents=[Agent("ada", Odd())]) as app:
        run = await ended(app, (await app.runs.start("ada", "go")).id)
        assert run.status == "failed"
        assert str(run.error).startswith("model: ")


async def test_a_model_that_says_nothing_is_asked_again_and_then_given_up(settings: Settings) -> None:
    script = Steps("", "  \n", "")
    async with App(settings=settings, agents=[agent("ada", script)]) as app:
        run = await ended(app, (await app.runs.start("ada", "go")).id)
        assert (run.status, run.error) == ("failed", "answer: it is empty (3 tries)")
        assert len(script.asked) == 3


async def test_text_that_a_store_cannot_hold_is_made_one_that_it_can(settings: Settings) -> None:
    bad = "a\x00b \ud800 c"
    reply = Reply(bad, (Asked("x", "odd\x00", '{"kind": "a\\u0000"}'),), (Thinking(bad),), model="m")
    script = Steps(reply, Reply(bad))
    async with App(settings=settings, agents=[agent("ada", script, tools=[odd])]) as app:
        run = await app.runs.start("ada", "go")
        assert await run.result(20) == "a\ufffdb \ufffd c"
        assert (await app.runs.prompt(run.id, 2)).messages == script.asked[1].messages
        for text in ("a\x00b", "a\ud800b"):
            with pytest.raises(Invalid):
                await app.runs.start("ada", text)
            with pytest.raises(Invalid):
                await app.runs.hear(run.id, text)


@pytest.mark.parametrize("moment", ["before_model", "after_model", "before_tool", "after_tool"])
async def test_what_a_hook_says_is_made_text_that_a_store_can_hold(settings: Settings, moment: str) -> None:
    def hook(value: Any, run: Run) -> None:
        raise Refuse("no \x00 and \ud800")

    script = Steps(call("odd", kind="set"), "done")
    hooks = Hooks(**{moment: (hook,)})
    async with App(settings=settings, agents=[agent("ada", script, tools=[odd], hooks=hooks)]) as app:
        run = await ended(app, (await app.runs.start("ada", "go")).id)
        said = [run.error, *(each.error for each in await app.runs.calls(run.id))]
        assert "refused: no \ufffd and \ufffd" in said
        (thought,) = await app.runs.thoughts(run.id)
        assert thought.content == "refused: no \ufffd and \ufffd"


async def test_what_a_model_or_a_hook_fails_with_is_the_reason_in_text_that_a_store_can_hold(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "stigmergy.engine.thinking")  # xdist cannot hand over a log that has half a surrogate pair

    def hook(value: Any, run: Run) -> None:
        raise AskFirst("may \ud800 it?")

    def broken(request: Request) -> str:
        raise LookupError("gone \x00 \ud800")

    asks = agent("eve", Steps("fine"), hooks=Hooks(before_model=(hook,)))
    async with App(settings=settings, agents=[agent("ada", broken), asks]) as app:
        run = await ended(app, (await app.runs.start("ada", "go")).id)
        assert run.error == "model: code:ada raised LookupError: gone \ufffd \ufffd"
        await app.runs.start("eve", "go")
        (wait,) = await until_waiting(app)
        assert wait.question == "may \ufffd it?"
        stopped = await app.runs.cancel(wait.run_id, "enough \x00 \ud800")
        assert stopped.error == "enough \ufffd \ufffd"


async def test_a_crowd_of_bad_runs_holds_up_nobody(settings: Settings) -> None:
    def broken(request: Request) -> str:
        raise RuntimeError("broken")

    async with App(settings=settings, agents=[agent("bad", broken, concurrent_runs=50), agent("good", Steps("fine"))]) as app:
        bad = [await app.runs.start("bad", "go") for _ in range(20)]
        assert await app.ask("good", "go", timeout=20) == "fine"
        found = await asyncio.gather(*(ended(app, run.id) for run in bad))
        assert {run.error for run in found} == {"model: code:bad raised RuntimeError: broken"}


async def test_a_subscription_to_something_large_or_odd_never_fails_the_write_that_fires_it(settings: Settings) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps("done"), subscriptions=[on("note.v1")])]) as app:
        for context in ({"text": "x" * 900_000}, {"deep": [[[[{}]]]]}, {}, {"text": ""}):
            crumb = await app.breadcrumbs.create("note.v1", context=context)
            assert crumb.version == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_visible_tool_takes_and_gives_is_clipped_in_its_space_however_large(settings: Settings, fails: bool) -> None:
    @tool(visibility="visible")
    async def turn(text: str) -> str:
        """The other way round."""
        if fails:
            raise ValueError(text * 2)
        return text[::-1]

    steps = Steps(call("turn", text="x" * 900_000), "done")
    async with App(settings=settings, agents=[agent("ada", steps, tools=[turn])]) as app:
        mia = app.spaces_of("mia")
        space = await mia.create("us", members=["agent:ada"])
        await mia.post(space.id, "go")
        (run,) = (await app.runs.list(agent="ada")).items
        assert (await ended(app, run.id)).status == "completed"
        shown = [(message.metadata or {})["tool"] for message in await mia.messages(space.id) if message.role == "tool"]
        assert [each["type"] for each in shown] == ["call", "result"]
        assert shown[1]["status"] == ("failed" if fails else "success")
        assert all(len(json.dumps(each)) < 5_000 for each in shown)


def exits() -> None:
    sys.exit(3)


def is_cancelled() -> None:
    raise asyncio.CancelledError


ENDS = [(exits, "it called exit(3)"), (is_cancelled, "it was cancelled, and not by its run")]


@pytest.mark.parametrize(("end", "said"), ENDS)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_wants_to_exit_ends_its_call_and_nothing_else(
    settings: Settings, end: Callable[[], None], said: str, is_async: bool
) -> None:
    def sync() -> str:
        """Wants to exit."""
        end()
        return "never"

    async def not_sync() -> str:
        """Wants to exit."""
        return sync()

    leave = tool(name="leave")(not_sync if is_async else sync)
    script = Steps(call("leave"), "done")
    async with App(settings=settings, agents=[agent("ada", script, tools=[leave])]) as app:
        assert await app.ask("ada", "go", timeout=20) == "done"
        assert results(script.asked[1]) == [f"error: {said}"]


@pytest.mark.parametrize(("end", "said"), ENDS)
async def test_a_model_or_a_hook_that_wants_to_exit_ends_its_run_and_nothing_else(
    settings: Settings, end: Callable[[], None], said: str
) -> None:
    def script(request: Request) -> str:
        end()
        return "never"

    def hook(value: Any, run: Run) -> None:
        end()

    hooked = agent("eve", Steps("fine"), hooks=Hooks(after_model=(hook,)))
    async with App(settings=settings, agents=[agent("ada", script), hooked, agent("good", Steps("fine"))]) as app:
        for name in ("ada", "eve"):
            run = await ended(app, (await app.runs.start(name, "go")).id)
            assert run.status == "failed"
            assert said in str(run.error)
        assert await app.ask("good", "go", timeout=20) == "fine"
