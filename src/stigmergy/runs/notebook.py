"""What an agent writes down for itself in its run: thoughts, with what it is sure of, and variables."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import store
from stigmergy.runs.model import Alternative, JsonObject, Thought, Variable
from stigmergy.runs.tools import Acting, Builtin, Done, Outcome, Refused, builtin


class Think(msgspec.Struct, forbid_unknown_fields=True):
    thought: Annotated[str, Meta(description="The plan, the reflection or the decision.", min_length=1)]
    type: Literal["planning", "reasoning", "reflection", "decision"] = "reasoning"
    confidence: Annotated[float, Meta(ge=0, le=1, description="How sure you are.")] | None = None
    alternatives: list[Alternative] = []


class SetVariable(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, Meta(min_length=1, max_length=200)]
    value: Annotated[Any, Meta(description="Anything that JSON can say; null removes the variable.")]


class GetVariables(msgspec.Struct, forbid_unknown_fields=True):
    keys: Annotated[list[str], Meta(description="Which ones; all when left out.")] = []


async def _think(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    given = msgspec.convert(args, Think)
    pos = await store.advance(tx, acting.run.id, 1)
    await tx.insert(
        Thought(
            run_id=acting.run.id,
            pos=pos,
            step=acting.run.step,
            type=given.type,
            content=given.thought,
            confidence=given.confidence,
            alternatives=given.alternatives or None,
            metadata={"confidence_source": "reported"} if given.confidence is not None else None,
        )
    )
    return Done("noted")


async def _set_variable(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    removed = args["value"] is None
    if len(msgspec.json.encode(args["value"])) > 64 * 1024:
        return Refused("a variable has at most 64 KiB; write a breadcrumb for what is larger")
    pos = await store.advance(tx, acting.run.id, 1)
    await tx.insert(
        Variable(run_id=acting.run.id, pos=pos, step=acting.run.step, key=args["key"], value=args["value"], removed=removed)
    )
    return Done("removed" if removed else "set")


async def _get_variables(tx: Transaction, acting: Acting, args: JsonObject) -> Outcome:
    held = variables(await tx.find(store.VARIABLES_OF, run_id=acting.run.id))
    wanted = args.get("keys") or list(held)
    return Done({key: held.get(key) for key in wanted})


def variables(changes: list[Variable]) -> JsonObject:
    """What holds after these changes, which are in the order of the log."""
    held: JsonObject = {}
    for change in changes:
        if change.removed:
            held.pop(change.key, None)
        else:
            held[change.key] = change.value
    return held


TOOLS: tuple[Builtin, ...] = (
    builtin("think", "Write down a plan, a reflection or a decision, and how sure you are of it.", Think, _think),
    builtin("set_variable", "Keep a value for the rest of this run.", SetVariable, _set_variable),
    builtin("get_variables", "The values that were kept in this run.", GetVariables, _get_variables),
)
