"""Spans by OpenTelemetry's conventions for generative AI: what they are called, whose child each is, and none when off."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from stigmergy import Agent, App, Reply, tool
from stigmergy.engine.spans import Spans
from stigmergy.runs.model import Run
from stigmergy.settings import Settings
from stigmergy.telemetry import Telemetry, of_providers
from support.agents import Steps, agent, asked, call, calls, ended, results, runs_of, until, until_status, until_waiting


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def breaks() -> str:
    """Never works."""
    raise ValueError("no")


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(exported: InMemorySpanExporter) -> Iterator[Telemetry]:
    tracers, meters = TracerProvider(), MeterProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exported))
    yield of_providers(tracers, meters)
    tracers.shutdown()
    meters.shutdown()


def of(exported: InMemorySpanExporter, operation: str) -> list[ReadableSpan]:
    return [span for span in exported.get_finished_spans() if (span.attributes or {}).get("gen_ai.operation.name") == operation]


async def worked_on(exported: InMemorySpanExporter, times: int = 1) -> list[ReadableSpan] | None:
    found = of(exported, "invoke_agent")
    return found if len(found) >= times else None


def over(span: ReadableSpan, exported: InMemorySpanExporter) -> list[ReadableSpan]:
    """The spans that a span is under, the nearest first."""
    known = {span_id(each): each for each in exported.get_finished_spans()}
    found: list[ReadableSpan] = []
    while span.parent is not None:
        span = known[span.parent.span_id]
        found.append(span)
    return found


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_run_is_a_span_with_its_model_calls_and_tool_calls_under_it(
    settings: Settings, telemetry: Telemetry, exported: InMemorySpanExporter
) -> None:
    first = Reply("", (asked("add", a=1, b=2), asked("breaks")), input_tokens=11, output_tokens=7, model="scripted-1")
    ada = agent("ada", Steps(first, "done"), tools=[add, breaks], settings={"temperature": 0.5})
    async with App(settings=settings, agents=[ada], telemetry=telemetry) as app:
        run = await app.runs.start("ada", "go")
        assert await run.result(20) == "done"
        await until(lambda: worked_on(exported))
    (whole,) = of(exported, "invoke_agent")
    chats, tools = of(exported, "chat"), of(exported, "execute_tool")
    assert (whole.name, [above.name for above in over(whole, exported)]) == ("invoke_agent ada", ["write start"])
    assert [span.name for span in chats] == ["chat ada"] * 2
    assert sorted(span.name for span in tools) == ["execute_tool add", "execute_tool breaks"]
    for span in (*chats, *tools):
        assert span.parent is not None
        assert span.parent.span_id == span_id(whole)
        assert span.attributes is not None
        assert (span.attributes["gen_ai.conversation.id"], span.attributes["gen_ai.agent.name"]) == (run.id, "ada")
    about = chats[0].attributes or {}
    assert chats[0].kind is SpanKind.CLIENT
    wanted = {
        "gen_ai.provider.name": "code",
        "gen_ai.request.model": "ada",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.model": "scripted-1",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
    }
    assert {name: about[name] for name in wanted} == wanted
    by_name = {str((span.attributes or {})["gen_ai.tool.name"]): span.attributes or {} for span in tools}
    assert by_name["add"]["gen_ai.tool.call.id"] == "call_1_1"
    assert (by_name["breaks"]["error.type"], "error.type" in by_name["add"]) == ("tool_error", False)
    assert (whole.attributes or {})["stigmergy.run.status"] == "completed"
    names = {name for span in (whole, *chats, *tools) for name in span.attributes or {}}
    assert not any("message" in name or "content" in name for name in names)


async def test_a_run_that_waited_is_a_span_for_each_time_it_was_worked_on(
    settings: Settings, telemetry: Telemetry, exported: InMemorySpanExporter
) -> None:
    ada = agent("ada", Steps(calls(asked("ask_user", question="?")), "done"))
    async with App(settings=settings, agents=[ada], telemetry=telemetry) as app:
        run = await app.runs.start("ada", "go")
        (wait,) = await until_waiting(app)
        await until_status(app, run.id, "waiting_reply")
        await app.runs.answer(wait.id, text="yes")
        await run.result(20)
        await until(lambda: worked_on(exported, 2))
    found = [(span.attributes or {})["stigmergy.run.status"] for span in of(exported, "invoke_agent")]
    assert found == ["waiting_reply", "completed"]


async def test_a_tree_of_runs_is_one_trace_also_when_another_process_goes_on_with_it(
    settings: Settings, telemetry: Telemetry, exported: InMemorySpanExporter
) -> None:
    def agents() -> list[Agent]:
        give = call("create_task", agent="child", instruction="look")
        look = call("add", a=1, b=2)
        child = agent("child", lambda seen: "seen" if results(seen) else look, tools=[add], require_approval=["add"])
        return [agent("lead", lambda request: "done" if results(request) else give, delegates=[child])]

    async with App(settings=settings, agents=agents(), telemetry=telemetry) as app:
        run = await app.runs.start("lead", "go")
        (wait,) = await until_waiting(app)
        (under,) = await runs_of(app, "child")
        await until_status(app, under.id, "waiting_reply")
    async with App(settings=settings, agents=agents(), telemetry=telemetry) as app:
        await app.runs.answer(wait.id, decision="approve")
        assert (await ended(app, run.id)).result == "done"

    def worked(id: str) -> list[list[str]]:
        found = [span for span in of(exported, "invoke_agent") if (span.attributes or {})["gen_ai.conversation.id"] == id]
        return [[above.name for above in over(span, exported)] for span in found]

    assert worked(run.id) == [["write start"]] * 2
    assert worked(under.id) == [["write call_builtin", "execute_tool create_task", "invoke_agent lead", "write start"]] * 2
    operations = ("invoke_agent", "chat", "execute_tool")
    assert len({span.context.trace_id for each in operations for span in of(exported, each) if span.context is not None}) == 1


async def test_a_model_that_fails_is_an_error_of_its_span(
    settings: Settings, telemetry: Telemetry, exported: InMemorySpanExporter
) -> None:
    def broken(request: object) -> str:
        raise ValueError("no")

    async with App(settings=settings, agents=[agent("ada", broken)], telemetry=telemetry) as app:
        await ended(app, (await app.runs.start("ada", "go")).id)
        await until(lambda: worked_on(exported))
    (chat,) = of(exported, "chat")
    assert (chat.status.status_code, (chat.attributes or {})["error.type"]) == (StatusCode.ERROR, "model_failed")
    (whole,) = of(exported, "invoke_agent")
    assert (whole.attributes or {})["error.type"] == "model"


async def test_off_there_is_no_span_and_nothing_is_called(settings: Settings, exported: InMemorySpanExporter) -> None:
    async with App(settings=settings, agents=[agent("ada", Steps(call("think", thought="hm"), "done"))]) as app:
        assert app.telemetry is None
        assert await app.ask("ada", "go", timeout=20) == "done"
    assert exported.get_finished_spans() == ()
    run = Run(id="r", owner_id="mia", space_id="s", agent="a", agent_version=1, entity_id="agent:a", root_id="r")
    with Spans(None).run(run) as span:
        assert span == {}
