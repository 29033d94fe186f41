"""The calls of one step, made: each is known to be under way before it runs, and each result is a transaction of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from stigmergy.agents.gateway import call_gateway
from stigmergy.agents.model import JsonObject, ToolSpec
from stigmergy.agents.models.port import Asked
from stigmergy.agents.tools import ToolContext
from stigmergy.engine import showing
from stigmergy.engine.approvals import asks_first, decide, error_pause
from stigmergy.engine.calls import UNKNOWN_OUTCOME, Make, Outcome, attempt
from stigmergy.engine.hooks import AskFirst, Did, Refuse, through
from stigmergy.engine.live import Live
from stigmergy.engine.prompt import arguments_text
from stigmergy.engine.runtime import Runtime
from stigmergy.engine.toolbox import Toolbox
from stigmergy.errors import Invalid
from stigmergy.kernel.faults import point
from stigmergy.runs import steps
from stigmergy.runs.model import JsonObject as Details
from stigmergy.runs.model import ToolCall
from stigmergy.runs.steps import NewThought
from stigmergy.runs.tools import Acting, Asking, Builtin, Party, Refused, Waiting

T = TypeVar("T")
# How long a client has for its answer.
CLIENT_MS = 600_000


class Writer(Protocol):
    """Writes as the worker that holds the run."""

    async def __call__(self, unit: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T: ...


class Performer:
    def __init__(self, runtime: Runtime, live: Live, box: Toolbox, write: Writer, mine: set[str]) -> None:
        self._runtime = runtime
        self._live = live
        self._box = box
        self._write = write
        self._mine = mine
        self._hooks = runtime.code.hooks_of(live.run.agent)

    async def make_calls(self) -> None:
        """Make every call that waits for nobody, all at once."""
        live = self._live
        ready = [call for call in live.open_calls if all(wait.status != "open" for wait in live.waits_of(call.id))]
        if len(ready) == 1:
            await self._make(ready[0])
        elif ready:
            await asyncio.gather(*(self._make(call) for call in ready))

    async def _make(self, call: ToolCall) -> None:
        """See one call through, from wherever it stands."""
        try:
            spec, args = self._box.checked(Asked(call.id, call.tool_name, arguments_text(call.args)))
        except Invalid as fault:
            return await self._settle(call, Outcome(error=str(fault)))
        approval = next((wait for wait in self._live.waits_of(call.id) if wait.kind == "approval"), None)
        if approval is not None:
            decision = decide(approval, self._live.definition)
            if decision.what in ("reject", "cancel"):
                return await self._settle(call, Outcome(error=decision.reason or "a person said no to this"))
            args = args if decision.args is None else decision.args
        if call.status == "pending":
            call = await self._begin(call, args)
        elif call.id not in self._mine:
            if not spec.repeatable and spec.execution_type != "client":  # a client was not asked yet: the wait would be there
                return await self._settle(call, Outcome(error=UNKNOWN_OUTCOME))
            call = await self._begin(call, args)
        await self._perform(call, spec, args, approved=approval is not None)

    async def _begin(self, call: ToolCall, args: Any) -> ToolCall:
        begun = await self._write(showing.start_call, call, args, self._live.run, self._box.specs.get(call.tool_name))
        self._mine.add(begun.id)
        self._live.changed(begun)
        return begun

    async def _perform(self, call: ToolCall, spec: ToolSpec, args: JsonObject, *, approved: bool) -> None:
        hooks = self._hooks
        did: list[Did] = []
        try:
            if hooks.before_tool:
                asked = Asked(call.id, spec.name, arguments_text(args))
                asked = await through(hooks.before_tool, "before_tool", asked, self._live.run, did)
                spec, args = self._box.checked(asked)
            if isinstance(self._runtime.builtins.get(spec.name), Builtin) or spec.execution_type == "client":
                return await self._unit(call, spec, args, did)
            with self._runtime.calling(self._live.run, spec, call.id):
                point("tool.begun")
                outcome = await attempt(spec, call, self._maker(call, spec, args))
                point("tool.done")
            if hooks.after_tool:
                outcome = await through(hooks.after_tool, "after_tool", outcome, self._live.run, did)
        except Refuse as refusal:
            outcome = Outcome(error=f"refused: {refusal}")
        except Invalid as fault:
            outcome = Outcome(error=str(fault))
        except AskFirst as question:
            if not approved:
                return await self._ask(call, spec, args, str(question), did)
            outcome = await attempt(spec, call, self._maker(call, spec, args))
        await self._settle(call, outcome, did)

    def _maker(self, call: ToolCall, spec: ToolSpec, args: JsonObject) -> Make:
        runtime, definition = self._runtime, self._live.definition
        if spec.execution_type == "gateway":
            return lambda: call_gateway(spec, args, runtime.secrets, runtime.reach)
        if spec.execution_type == "mcp":
            return lambda: runtime.servers.call(definition, spec, args)
        ours = runtime.builtins.get(spec.name)
        if isinstance(ours, Asking):
            return lambda: ours.ask(runtime.outside, Acting(self._live.run, definition, call), args)
        tool = self._box.functions[spec.name]
        if tool is None:
            raise Invalid(f"the function of {spec.name} is not in this process; start a worker that has it", code="unknown_tool")
        return lambda: tool.call(args, self._context(call))

    def _context(self, call: ToolCall) -> ToolContext:
        run = self._live.run
        return ToolContext(
            tenant=run.tenant,
            owner_id=run.owner_id,
            entity_id=run.entity_id,
            space_id=run.active_space_id or run.space_id,
            agent=run.agent,
            run_id=run.id,
            call_id=call.id,
            attempt=call.attempts,
        )

    async def _unit(self, call: ToolCall, spec: ToolSpec, args: JsonObject, did: list[Did]) -> None:
        """A tool of ours, or a client's: both are what is written of them."""
        ours = self._runtime.builtins.get(spec.name)
        unit = ours.unit if isinstance(ours, Builtin) else _ask_client
        try:
            called = await self._write(steps.call_builtin, self._live.definition, call, unit, args, thoughts=_recorded(did))
        except Invalid as fault:
            return await self._settle(call, Outcome(error=str(fault)), did)
        point("result.recorded")
        # in another space the prompt says other things
        self._live.stale = self._live.stale or called.run.active_space_id != self._live.run.active_space_id
        self._live.run = called.run
        if called.settled is not None:
            self._live.settled(called.settled)
        else:
            self._live.waits += called.waits

    async def _ask(self, call: ToolCall, spec: ToolSpec, args: JsonObject, why: str, did: list[Did]) -> None:
        live = self._live
        waiting = asks_first(spec, args, live.run, live.definition, why)

        async def ask(tx: Any, acting: Acting, args: Details) -> Waiting | Refused:
            return waiting if waiting is not None else Refused(why)

        called = await self._write(steps.call_builtin, live.definition, call, ask, args, thoughts=_recorded(did))
        live.waits += called.waits

    async def _settle(self, call: ToolCall, outcome: Outcome, did: list[Did] | None = None) -> None:
        live = self._live
        pause = None
        if outcome.error is not None and live.definition.approval.on_error:
            pause = error_pause(live.run, live.definition, call.tool_name, outcome.error)
        recorded = await self._write(
            showing.record_result,
            live.run,
            call,
            "success" if outcome.error is None else "failed",
            self._box.specs.get(call.tool_name),
            result=outcome.result,
            error=outcome.error,
            duration_ms=outcome.duration_ms,
            images=outcome.images,
            model=live.definition.model,
            mark_error=live.definition.checkpoints in ("every_step", "tool_error"),
            pause=pause,
            thoughts=_recorded(did or []),
        )
        point("result.recorded")
        live.settled(recorded)
        if pause is not None or did or outcome.images:
            live.stale = True


async def _ask_client(tx: Any, acting: Acting, args: Details) -> Waiting:
    """A tool that a client answers: it waits in the inbox until somebody posts its result."""
    spec = acting.definition.tool(acting.call.tool_name)
    details: Details = {"tool": acting.call.tool_name, "args": args}
    if spec is not None and spec.display is not None:
        details["display"] = spec.display
    party = Party(f"client:{acting.run.owner_id}", acting.run.owner_id, "client")
    return Waiting(
        kind="tool",
        parties=[party],
        timeout_ms=CLIENT_MS,
        for_entity=acting.run.owner_id,
        space_id=acting.run.active_space_id or acting.run.space_id,
        details=details,
    )


def _recorded(did: list[Did]) -> list[NewThought]:
    """What hooks did, as thoughts of the run."""
    return [recorded(each) for each in did]


def recorded(did: Did) -> NewThought:
    return NewThought(type="reflection", content=did.what, metadata={"hook": did.hook, "moment": did.moment})
