"""When a person is asked first, and what their word means.

Asked is about a call (before it is made, or before its result is seen), or about a whole step: before the model is asked, after
it answered, after a tool failed. While a step is in question no call of it is begun. What is to be done on silence is said by the
agent's definition.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from stigmergy.agents.model import Definition, JsonObject, ToolSpec
from stigmergy.agents.models.port import Reply
from stigmergy.engine.toolbox import check_value
from stigmergy.errors import Invalid
from stigmergy.runs.model import Run, Wait
from stigmergy.runs.steps import Ending
from stigmergy.runs.tools import Party, Waiting

What = Literal["approve", "reject", "modify", "retry", "continue", "cancel", "fail"]
WORDS: tuple[What, ...] = ("approve", "reject", "modify", "retry", "continue", "cancel")
ABOUT_A_CALL: tuple[What, ...] = ("approve", "reject", "modify", "cancel")
ABOUT_A_STEP: tuple[What, ...] = ("continue", "modify", "retry", "cancel")
ABOUT_AN_ERROR: tuple[What, ...] = ("continue", "retry", "cancel")
ABOUT_A_PROMPT: tuple[What, ...] = ("continue", "cancel")


class Decision(NamedTuple):
    """What was decided; `args` or `text` in place of what the agent wanted, when it was modified."""

    what: What
    reason: str | None = None
    args: JsonObject | None = None
    text: str | None = None

    @property
    def ending(self) -> Ending | None:
        """How the run ends by it, if it does."""
        if self.what == "cancel":
            return Ending("canceled", error=self.reason or "a person stopped it")
        return Ending("failed", error=f"approval: {self.reason}") if self.what == "fail" else None


def told_again(pause: Wait, decision: Decision) -> str:
    """What the model is told when a person wants something else."""
    if decision.what == "modify":
        return f"Do not do that. Instead: {decision.text}"
    tool = (pause.details or {}).get("tool")
    why = f" {decision.reason}" if decision.reason else ""
    return f"Call {tool} again.{why}" if tool is not None else f"Think that over again.{why}"


def decide(wait: Wait, definition: Definition) -> Decision:
    """The word of whoever was asked, or what the agent's definition says of silence."""
    if wait.status == "answered":
        given = wait.answer or {}
        return Decision(given.get("decision", "approve"), given.get("reason"), given.get("args"), given.get("text"))
    silence = definition.approval.on_timeout
    return Decision(silence, f"nobody decided in time; {silence} is what was set for that")


def asks_first(spec: ToolSpec, args: JsonObject, run: Run, definition: Definition) -> Waiting | None:
    """The question about a call whose tool is one to be approved."""
    if spec.name not in definition.approval.tools:
        return None
    return about_call(spec, args, run, definition, f"May {definition.name} call {spec.name}?")


def about_call(spec: ToolSpec, args: JsonObject, run: Run, definition: Definition, why: str) -> Waiting:
    details: JsonObject = {"tool": spec.name, "args": args, "parameters": spec.parameters}
    return _question(run, definition, why, details, ABOUT_A_CALL)


def about_result(spec: ToolSpec, args: JsonObject, shown: str, block: str, run: Run, definition: Definition, why: str) -> Waiting:
    """The call was made; what it gave is kept in a block until somebody has said that the agent may see it."""
    details: JsonObject = {"tool": spec.name, "args": args, "result": shown, "held": block}
    return _question(run, definition, why, details, ABOUT_A_CALL, under="result")


def confidence_of(reply: Reply) -> float | None:
    """What the model itself said of its confidence, last."""
    return next((each.confidence for each in reversed(reply.thinking) if each.confidence is not None), None)


def doubts(reply: Reply, run: Run, definition: Definition) -> Waiting | None:
    """A pause of the whole step, when the agent was less sure than it must be."""
    threshold = definition.approval.confidence_below
    confidence = confidence_of(reply)
    if threshold is None or confidence is None or confidence >= threshold:
        return None
    why = f"{definition.name} is only {confidence:.2f} sure; go on?"
    return about_reply(reply, run, definition, why, {"confidence": confidence, "threshold": threshold})


def about_reply(reply: Reply, run: Run, definition: Definition, why: str, details: JsonObject | None = None) -> Waiting:
    wanted = [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
    about: JsonObject = {**(details or {}), "text": reply.text, "calls": wanted}
    if not wanted and definition.output is not None and definition.output.json_schema is not None:
        about["json_schema"] = definition.output.json_schema
    return _question(run, definition, why, about, ABOUT_A_STEP)


def about_error(run: Run, definition: Definition, tool: str, error: str) -> Waiting:
    why = f"{tool} failed for {definition.name}: {error[:500]}. Go on?"
    return _question(run, definition, why, {"tool": tool, "error": error[:4_000]}, ABOUT_AN_ERROR)


def about_prompt(run: Run, definition: Definition, why: str) -> Waiting:
    return _question(run, definition, why, {}, ABOUT_A_PROMPT)


def _question(
    run: Run, definition: Definition, text: str, details: JsonObject, decisions: Iterable[What], under: str = "approval"
) -> Waiting:
    """It is put to whoever the run belongs to; any operator may answer. A call may be asked about twice, and then wait for what
    the same person replies: so each question has a key of its own."""
    return Waiting(
        kind="approval",
        parties=[Party(f"{under}:{run.owner_id}", run.owner_id, "human")],
        timeout_ms=definition.approval.timeout_ms,
        for_entity=run.owner_id,
        space_id=run.active_space_id or run.space_id,
        question=text,
        details={**details, "decisions": list(decisions)},
    )


def checked_decision(wait: Wait, given: JsonObject) -> JsonObject:
    """A decision as it came, refused when it is none that was asked for, or when what is put in the place of what the agent
    wanted does not fit."""
    details = wait.details or {}
    allowed = details.get("decisions", WORDS)
    if given.get("decision") not in allowed:
        raise Invalid(f"a decision is one of {', '.join(allowed)}", "decision")
    if given["decision"] != "modify":
        return given
    if "parameters" in details:
        if not isinstance(given.get("args"), dict):
            raise Invalid("to modify a call, give the `args` that it is to be made with", "args")
        check_value(details["parameters"], given["args"], "args")
    elif not isinstance(given.get("text"), str):
        raise Invalid("to modify this, give the `text` that is to stand in its place", "text")
    return given
