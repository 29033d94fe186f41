"""What the others in a space see of an agent's tools: by each tool's visibility, as structured messages.

`visible`: the call, then its result. `result-only`: the result alone. `hidden`: nothing. The tool's `display` may only show
less: `showInput: false` leaves out the arguments, `showOutput: false` the result. Such a message names nobody, wakes nobody and
answers nobody. Call these before the run is locked: a space is locked before a run. What a client answers is shown by a timer
that is due at once, since its answer locks the run alone.
"""

import logging
from typing import Any, Literal, Protocol

import msgspec

from stigmergy.agents.model import ToolSpec
from stigmergy.agents.store import pinned
from stigmergy.errors import NotFound
from stigmergy.kernel.journal import Change
from stigmergy.kernel.timers import Timer, set_timer
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.model import TOOL_CALLS, JsonObject, Run, ToolCall
from stigmergy.spaces.commands import tell
from stigmergy.spaces.model import SpaceMessage
from stigmergy.spaces.store import roster_of

# Characters of a tool's arguments and of its result or error that a space shows; the whole is in the run.
LONGEST_SHOWN = 4_000
SHOW = "space.show"

log = logging.getLogger(__name__)


class Call(Protocol):
    """A call, opened or about to be."""

    @property
    def id(self) -> str: ...
    @property
    def tool_name(self) -> str: ...
    @property
    def args(self) -> Any: ...


async def show_call(tx: Transaction, run: Run, spec: ToolSpec, call: Call) -> SpaceMessage | None:
    """Show that a tool is being used."""
    if spec.visibility != "visible" or not await _somewhere(tx, run, spec):
        return None
    display = spec.display or {}
    about: JsonObject = {"args": _clipped(call.args)} if display.get("showInput", True) else {}
    return await _say(tx, run, spec, call, "call", f"{call.tool_name} is at work", about)


async def show_result(
    tx: Transaction, run: Run, spec: ToolSpec, call: Call, *, result: Any = None, error: str | None = None
) -> SpaceMessage | None:
    """Show what came of it."""
    if spec.visibility == "hidden" or not await _somewhere(tx, run, spec):
        return None
    shows = (spec.display or {}).get("showOutput", True)
    if error is not None:
        about: JsonObject = {"status": "failed", "error": _clipped(error)} if shows else {"status": "failed"}
        return await _say(tx, run, spec, call, "result", f"{call.tool_name} failed", about)
    about = {"status": "success", "result": _clipped(result)} if shows else {"status": "success"}
    return await _say(tx, run, spec, call, "result", f"{call.tool_name} is done", about)


async def _somewhere(tx: Transaction, run: Run, spec: ToolSpec) -> bool:
    """Whether there is a space to show it in. That there is none is worth a line in the log for a tool that wants to be seen."""
    if run.active_space_id is not None:
        try:
            if run.entity_id in (await roster_of(tx, run.active_space_id)).by_id:
                return True
        except NotFound:
            pass
    if spec.visibility == "visible":
        log.warning("run %s uses the visible tool %s in no space; nothing is shown", run.id, spec.name)
    return False


async def _say(
    tx: Transaction, run: Run, spec: ToolSpec, call: Call, what: Literal["call", "result"], text: str, about: JsonObject
) -> SpaceMessage:
    tool: JsonObject = {"type": what, "name": call.tool_name, "call_id": call.id, **about}
    if (custom := (spec.display or {}).get("customUI")) is not None:
        tool["customUI"] = custom
    return await tell(
        tx, run.active_space_id or "", text, run_id=run.id, role="tool", author=run.entity_id, metadata={"tool": tool}
    )


def _clipped(result: Any) -> Any:
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    return result if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} … ({len(text):,} characters in all)"


async def call_changed(tx: Transaction, change: Change) -> None:
    """A client's answer is there."""
    call, before = change.record, change.before
    if not isinstance(call, ToolCall) or call.execution_type != "client" or call.visibility == "hidden":
        return
    if call.settled_pos is not None and isinstance(before, ToolCall) and before.settled_pos is None:
        await set_timer(tx, SHOW, change.id, tx.now)


async def show_answer(tx: Transaction, timer: Timer) -> None:
    """The timer's effect."""
    run_id, _, call_id = timer.id.partition("/")
    run, call = await tx.get(Run, run_id), await tx.get(ToolCall, run_id, call_id)
    if run is None or call is None:
        return
    spec = (await pinned(tx, run.agent, run.agent_version, shared=run.agent_shared)).tool(call.tool_name)
    if spec is not None:
        await show_result(tx, run, spec, call, result=call.result, error=call.error)


TOOL_CALLS.derive = call_changed
