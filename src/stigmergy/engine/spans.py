"""What the engine tells of its work: spans by OpenTelemetry's conventions for generative AI, where telemetry is on.

`invoke_agent` is a run in one worker's hands, from its claim until it waits or ends; in it `chat` is one call of the model with
its retries, `execute_tool` one tool call. It is under the span in which the run was started, which the run keeps: so a tree of
runs is one trace, in whichever processes and however often they are taken up. What is said and what tools are given is in the
store, and in no span. Off, it costs next to nothing.
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from stigmergy.agents.model import Definition, JsonObject, ToolSpec
from stigmergy.agents.models.port import Reply
from stigmergy.runs.model import Run
from stigmergy.telemetry import Telemetry

# Settings of a model that the conventions have a name for.
_SETTINGS = ("temperature", "top_p", "max_tokens", "seed")


class _Off:
    """A span of which nobody is told."""

    def __enter__(self) -> JsonObject:
        return {}

    def __exit__(self, *_: object) -> None:
        pass


_OFF = _Off()


class Spans:
    def __init__(self, telemetry: Telemetry | None) -> None:
        self._telemetry = telemetry

    def run(self, run: Run) -> AbstractContextManager[JsonObject]:
        return _OFF if self._telemetry is None else _run(self._telemetry, run)

    def chat(self, run: Run, definition: Definition) -> AbstractContextManager[JsonObject]:
        return _OFF if self._telemetry is None else _chat(self._telemetry, run, definition)

    def tool(self, run: Run, spec: ToolSpec, call_id: str) -> AbstractContextManager[JsonObject]:
        return _OFF if self._telemetry is None else _tool(self._telemetry, run, spec, call_id)


@contextmanager
def _run(telemetry: Telemetry, run: Run) -> Generator[JsonObject]:
    trace = run.cause.traceparent
    with telemetry.timed("invoke_agent", run.agent, carrier=None if trace is None else {"traceparent": trace}) as span:
        span |= _about(run, "invoke_agent")
        span["gen_ai.agent.id"] = run.entity_id
        span["gen_ai.agent.version"] = str(run.agent_version)
        span["stigmergy.tenant"] = run.tenant
        if run.parent_run_id is not None:
            span["stigmergy.parent_run.id"] = run.parent_run_id
        yield span


@contextmanager
def _chat(telemetry: Telemetry, run: Run, definition: Definition) -> Generator[JsonObject]:
    provider, _, model = definition.model.partition(":")
    with telemetry.timed("chat", model or provider, outgoing=True) as span:
        span |= _about(run, "chat")
        span["gen_ai.provider.name"] = provider
        span["gen_ai.request.model"] = model or provider
        given = {name: definition.settings.get(name) for name in _SETTINGS}
        span |= {f"gen_ai.request.{name}": value for name, value in given.items() if isinstance(value, int | float)}
        yield span


@contextmanager
def _tool(telemetry: Telemetry, run: Run, spec: ToolSpec, call_id: str) -> Generator[JsonObject]:
    with telemetry.timed("execute_tool", spec.name) as span:
        span |= _about(run, "execute_tool")
        span["gen_ai.tool.name"] = spec.name
        span["gen_ai.tool.call.id"] = call_id
        span["gen_ai.tool.type"] = "function" if spec.execution_type == "internal" else "extension"
        yield span


def _about(run: Run, operation: str) -> JsonObject:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": run.agent,
        "gen_ai.conversation.id": run.id,
    }


def told_of(span: JsonObject, reply: Reply) -> None:
    """What a reply cost, on its span."""
    if reply.input_tokens is not None:
        span["gen_ai.usage.input_tokens"] = reply.input_tokens
    if reply.output_tokens is not None:
        span["gen_ai.usage.output_tokens"] = reply.output_tokens
    if reply.model is not None:
        span["gen_ai.response.model"] = reply.model


def ended_as(span: JsonObject, run: Run) -> None:
    """What became of a run, on its span."""
    span["stigmergy.run.status"] = run.status
    span["stigmergy.run.step"] = run.step
    if run.status == "failed":
        span["error.type"] = (run.error or "failed").partition(":")[0]
