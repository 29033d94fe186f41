"""When a person is asked first, and what their word means."""

from typing import Literal, NamedTuple

from stigmergy.agents.model import Definition, JsonObject, ToolSpec
from stigmergy.agents.models.port import Reply
from stigmergy.errors import Invalid
from stigmergy.runs.model import Run, Wait
from stigmergy.runs.tools import Party, Waiting

What = Literal["approve", "reject", "modify", "retry", "continue", "cancel"]
WORDS: tuple[What, ...] = ("approve", "reject", "modify", "retry", "continue", "cancel")


class Decision(NamedTuple):
    """What was decided; `args` or `text` in place of what the agent wanted, when it was modified."""

    what: What
    reason: str | None = None
    args: JsonObject | None = None
    text: str | None = None


def decide(wait: Wait, definition: Definition) -> Decision:
    """The word of whoever was asked, or what the agent's definition says of silence."""
    if wait.status == "answered":
        given = wait.answer or {}
        what = given.get("decision", "approve")
        return Decision(what, given.get("reason"), given.get("args"), given.get("text"))
    silence = definition.approval.on_timeout
    what: What = "reject" if silence == "fail" else silence
    return Decision(what, f"nobody decided in time; {silence} is what was set for that")


def asks_first(spec: ToolSpec, args: JsonObject, run: Run, definition: Definition, why: str | None = None) -> Waiting | None:
    """The question about a call, when its tool is one to be approved or a hook wants it so."""
    if spec.name not in definition.approval.tools and why is None:
        return None
    details: JsonObject = {"tool": spec.name, "args": args, "decisions": ["approve", "reject", "modify", "cancel"]}
    return question(run, definition, why or f"May {definition.name} call {spec.name}?", details)


def confidence_of(reply: Reply) -> float | None:
    """What the model itself said of its confidence, last."""
    return next((each.confidence for each in reversed(reply.thinking) if each.confidence is not None), None)


def doubts(reply: Reply, run: Run, definition: Definition) -> Waiting | None:
    """A pause of the whole step, when the agent was less sure than it must be."""
    threshold = definition.approval.confidence_below
    confidence = confidence_of(reply)
    if threshold is None or confidence is None or confidence >= threshold:
        return None
    details: JsonObject = {
        "confidence": confidence,
        "threshold": threshold,
        "text": reply.text,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls],
        "decisions": ["continue", "modify", "retry", "cancel"],
    }
    return question(run, definition, f"{definition.name} is only {confidence:.2f} sure; go on?", details)


def error_pause(run: Run, definition: Definition, tool: str, error: str) -> Waiting:
    details: JsonObject = {"tool": tool, "error": error, "decisions": ["continue", "retry", "cancel"]}
    return question(run, definition, f"{tool} failed for {definition.name}: {error}. Go on?", details)


def question(run: Run, definition: Definition, text: str, details: JsonObject) -> Waiting:
    """It is put to whoever the run belongs to; any operator may answer."""
    return Waiting(
        kind="approval",
        parties=[Party(run.owner_id, run.owner_id, "human")],
        timeout_ms=definition.approval.timeout_ms,
        for_entity=run.owner_id,
        space_id=run.active_space_id or run.space_id,
        question=text,
        details=details,
    )


def checked_decision(wait: Wait, given: JsonObject) -> JsonObject:
    """A decision as it came, refused when it is none that was asked for."""
    allowed = (wait.details or {}).get("decisions", WORDS)
    if given.get("decision") not in allowed:
        raise Invalid(f"a decision is one of {', '.join(allowed)}", "decision")
    return given
