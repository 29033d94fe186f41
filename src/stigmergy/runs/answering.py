"""The answer of a run as a breadcrumb, where its agent makes one of its answers: what closes the circle.

It is written with the end of the run, by the agent, and names as its cause what set the run off. Nobody can read it who could not
read that: the answer to something private is its owner's, the answer to what was said in a space is that space's.
"""

from stigmergy.agents.model import OutputSpec
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.output import EVERYBODY, Output, Width, as_wide_as, write_output
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.journal import Change
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.model import Run


async def write_answer(tx: Transaction, run: Run, spec: OutputSpec, result: object) -> Breadcrumb | None:
    """None for an agent whose answers stay in their runs."""
    if spec.schema_name is None:
        return None
    output = Output(schema_name=spec.schema_name, title=f"The answer of {run.agent}", tags=spec.tags)
    return await write_output(tx, output, result, wide=await _width(tx, run))


async def _width(tx: Transaction, run: Run) -> Width:
    """As wide as the trigger. Of one that is gone nobody knows how wide it was."""
    if run.active_space_id is not None:
        return Width("team", run.active_space_id)
    if run.cause.change_seq is None:
        return EVERYBODY
    trigger = await trigger_of(tx, run)
    if trigger is None or trigger.record is None:
        return Width("private", None, run.owner_id)
    return as_wide_as(trigger.record)


async def trigger_of(tx: Snapshot, run: Run) -> Change | None:
    """The change that set a run off, while the journal has it."""
    if run.cause.change_seq is None:
        return None
    found = await read_page(tx, run.cause.change_seq - 1, 1)
    return found[0] if found and found[0].seq == run.cause.change_seq else None
