"""The calls of one step, made: each is known to be under way before it runs, and each result is a transaction of its own."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

import msgspec

from stigmergy.agents.gateway import call_gateway
from stigmergy.agents.model import JsonObject, ToolSpec
from stigmergy.agents.models.port import Asked
from stigmergy.agents.tools import ToolContext
from stigmergy.engine import showing
from stigmergy.engine.approvals import about_call, about_error, about_result, decide
from stigmergy.engine.calls import UNKNOWN_OUTCOME, Make, Outcome, attempt, plain
from stigmergy.engine.hooks import AskFirst, Did, HookFailed, Refuse, through
from stigmergy.engine.live import Live
from stigmergy.engine.prompt import arguments_text
from stigmergy.engine.runtime import Runtime
from stigmergy.engine.toolbox import Toolbox, parse_arguments
from stigmergy.errors import Invalid
from stigmergy.kernel.blocks import get_block
from stigmergy.kernel.faults import point
from stigmergy.kernel.transaction import Scope
from stigmergy.runs import steps
from stigmergy.runs.log import as_text
from stigmergy.runs.model import JsonObject as Details
from stigmergy.runs.model import ToolCall, Wait
from stigmergy.runs.steps import Ending, NewThought
from stigmergy.runs.texts import sound
from stigmergy.runs.tools import Acting, Asking, Builtin, Party, Waiting

T = TypeVar("T")
# How long a client has for its answer.
CLIENT_MS = 600_000
# How much of a result that is held back is shown to whoever is asked about it, in characters.
LONGEST_SHOWN = 16_000


class Writer(Protocol):
    """Writes as the worker that holds the run."""

    async def __call__(self, unit: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T: ...


class Performer:
    def __init__(
        self, runtime: Runtime, live: Live, box: Toolbox, write: Writer, mine: set[str], assembly: JsonObject | None = None
    ) -> None:
        self._runtime = runtime
        self._live = live
        self._box = box
        self._write = write
        self._mine = mine
        self._assembly = assembly
        self._hooks = runtime.code.hooks_of(live.run.agent)

    async def make_calls(self) -> Ending | None:
        """Make every call that waits for nobody, all at once; while the step is in question, only go on with those that were
        begun. Gives how the run ends, when somebody who was asked about a call wants it to end."""
        live = self._live
        ready = [call for call in live.open_calls if all(wait.status != "open" for wait in live.waits_of(call.id))]
        ready = [call for call in ready if call.status == "running" or not live.is_paused]
        for call in ready:
            if (asked := self._approval(call)) is not None and (ending := decide(asked, live.definition).ending) is not None:
                return ending
        if len(ready) == 1:
            await self._make(ready[0])
        elif ready:
            await _together(self._make(call) for call in ready)
        return None

    def _approval(self, call: ToolCall) -> Wait | None:
        """What was last asked about the call: whether it may be made, or whether what came of it may be seen."""
        asked = [wait for wait in self._live.waits_of(call.id) if wait.kind == "approval"]
        return next((wait for wait in asked if "held" in (wait.details or {})), asked[0] if asked else None)

    async def _make(self, call: ToolCall) -> None:
        """See one call through, from wherever it stands."""
        approval = self._approval(call)
        if approval is not None and (block := (approval.details or {}).get("held")) is not None:
            return await self._settle(call, await self._released(approval, block))
        if call.status == "running" and call.id not in self._mine and not self._may_be_repeated(call):
            return await self._settle(call, Outcome(error=UNKNOWN_OUTCOME))
        did: list[Did] = []
        try:
            spec, args = self._box.checked(Asked(call.id, call.tool_name, arguments_text(call.args)))
            if approval is not None:
                decision = decide(approval, self._live.definition)
                if decision.what == "reject":
                    return await self._settle(call, Outcome(error=decision.reason or "a person said no to this"))
                args = args if decision.args is None else self._box.check_arguments(spec, decision.args)
            if call.status == "pending":
                guarded = await self._guarded(call, spec, args, did, approved=approval is not None)
                if guarded is None:
                    return None
                args = guarded
        except (Invalid, HookFailed) as fault:
            return await self._settle(call, Outcome(error=str(fault)), did)
        except Refuse as refusal:
            return await self._settle(call, Outcome(error=f"refused: {refusal}"), did)
        if call.id not in self._mine:
            call = await self._begin(call, args)
        with self._runtime.spans.tool(self._live.run, spec, call.id) as span:
            await self._perform(call, spec, args, did, span)

    def _may_be_repeated(self, call: ToolCall) -> bool:
        """What only writes to our own store has written nothing yet, since its call would be settled or wait then."""
        spec = self._box.specs.get(call.tool_name)
        return spec is not None and (spec.repeatable or spec.execution_type == "client")

    async def _guarded(
        self, call: ToolCall, spec: ToolSpec, args: JsonObject, did: list[Did], *, approved: bool
    ) -> JsonObject | None:
        """The arguments after the hooks that look at a call before it is made. None when a person is asked first."""
        hooks = self._hooks.before_tool
        if not hooks:
            return args
        asked = Asked(call.id, spec.name, arguments_text(args))
        try:
            asked = await through(hooks, "before_tool", asked, self._live.run, did, approved=approved)
        except AskFirst as question:
            waiting = about_call(spec, args, self._live.run, self._live.definition, str(question))
            self._live.waits += await self._write(steps.ask, call.id, waiting, recorded(did))
            return None
        if asked.name != spec.name:
            raise HookFailed(f"a hook made a call of {asked.name} out of one of {spec.name}; it may change the arguments alone")
        return self._box.check_arguments(spec, parse_arguments(asked.arguments))

    async def _begin(self, call: ToolCall, args: Any) -> ToolCall:
        begun = await self._write(showing.start_call, call, args, self._live.run, self._box.specs.get(call.tool_name))
        self._mine.add(begun.id)
        self._live.changed(begun)
        return begun

    async def _perform(self, call: ToolCall, spec: ToolSpec, args: JsonObject, did: list[Did], span: JsonObject) -> None:
        if isinstance(self._box.builtins.get(spec.name), Builtin) or spec.execution_type == "client":
            return await self._unit(call, spec, args, did)
        try:
            point("tool.begun")
            outcome = await attempt(spec, call, self._maker(call, spec, args))
            point("tool.done")
        except Invalid as fault:
            outcome = Outcome(error=str(fault))
        if outcome.error is not None:
            span["error.type"] = "tool_error"
        try:
            if hooks := self._hooks.after_tool:
                outcome = await through(hooks, "after_tool", outcome, self._live.run, did)
                outcome = outcome._replace(result=plain(outcome.result))
        except Refuse as refusal:
            outcome = Outcome(None, f"refused: {refusal}", outcome.duration_ms)
        except (HookFailed, Invalid) as fault:
            outcome = Outcome(None, str(fault), outcome.duration_ms)
        except AskFirst as question:
            return await self._hold(call, spec, args, outcome, str(question), did)
        await self._settle(call, outcome, did)

    async def _hold(self, call: ToolCall, spec: ToolSpec, args: JsonObject, outcome: Outcome, why: str, did: list[Did]) -> None:
        """Have a person say whether the agent may see what came of a call. Pictures are not held: they are left out."""
        whole = msgspec.json.encode(outcome._replace(images=()))
        shown = (outcome.error or as_text(outcome.result))[:LONGEST_SHOWN]
        block = hashlib.sha256(whole).hexdigest()
        waiting = about_result(spec, args, shown, block, self._live.run, self._live.definition, why)
        self._live.waits += await self._write(steps.hold_result, call, whole, waiting, recorded(did))

    async def _released(self, approval: Wait, block: str) -> Outcome:
        """What came of a call that a person was asked about."""
        decision = decide(approval, self._live.definition)
        if decision.what == "reject":
            return Outcome(error=decision.reason or "a person said that this is not to be seen")
        if decision.text is not None:
            return Outcome(decision.text)
        read = self._runtime.database.read
        return msgspec.json.decode((await read(get_block, block, scope=Scope(self._live.run.tenant))).body, type=Outcome)

    def _maker(self, call: ToolCall, spec: ToolSpec, args: JsonObject) -> Make:
        runtime, definition = self._runtime, self._live.definition
        if spec.execution_type == "gateway":
            return lambda: call_gateway(spec, args, runtime.secrets, runtime.reach)
        if spec.execution_type == "mcp":
            return lambda: runtime.servers.call(definition, spec, args)
        ours = self._box.builtins.get(spec.name)
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
            assembly=self._assembly,
        )

    async def _unit(self, call: ToolCall, spec: ToolSpec, args: JsonObject, did: list[Did]) -> None:
        """A tool of ours, or a client's: both are what is written of them."""
        ours = self._box.builtins.get(spec.name)
        unit = ours.unit if isinstance(ours, Builtin) else _ask_client
        try:
            called = await self._write(steps.call_builtin, self._live.definition, call, unit, args, thoughts=recorded(did))
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

    async def _settle(self, call: ToolCall, outcome: Outcome, did: list[Did] | None = None) -> None:
        live = self._live
        if outcome.error is not None:
            outcome = outcome._replace(error=sound(outcome.error))
        pause = None
        if outcome.error is not None and live.definition.approval.on_error:
            pause = about_error(live.run, live.definition, call.tool_name, outcome.error)
        settled = await self._write(
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
            thoughts=recorded(did or []),
        )
        point("result.recorded")
        live.settled(settled)
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


def recorded(did: Iterable[Did]) -> list[NewThought]:
    """What hooks did, as thoughts of the run."""
    return [each.thought() for each in did]


async def _together(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All at once. When one breaks off, the others have too before it is told: nobody would look after them."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
