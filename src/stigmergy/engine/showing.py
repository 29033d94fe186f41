"""What a worker writes of tools that are shown in a space: the message there and the run's own rows, in one transaction.

A space is locked before a run, so the message is written first.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stigmergy.agents.model import ToolSpec
from stigmergy.kernel.leases import Claim
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs import steps
from stigmergy.runs.model import CallStatus, Run, ToolCall
from stigmergy.runs.settling import Settled
from stigmergy.runs.steps import Step, Written
from stigmergy.spaces.visibility import show_call, show_result


async def write_step(
    tx: Transaction, worker: str, claim: Claim, run: Run, step: Step, known: int, specs: Mapping[str, ToolSpec]
) -> Written:
    for call in step.calls:
        if call.begun and call.visibility == "visible" and (spec := specs.get(call.tool_name)) is not None:
            await show_call(tx, run, spec, call)
    return await steps.write_step(tx, worker, claim, run, step, known)


async def start_call(
    tx: Transaction, worker: str, claim: Claim, call: ToolCall, args: Any, run: Run, spec: ToolSpec | None
) -> ToolCall:
    """A call that is made after a person agreed to it is shown when it begins; one that is tried again was shown already."""
    if call.status == "pending" and call.visibility == "visible" and spec is not None:
        await show_call(tx, run, spec, msgspec.structs.replace(call, args=args))
    return await steps.start_call(tx, worker, claim, call, args)


async def record_result(
    tx: Transaction,
    worker: str,
    claim: Claim,
    run: Run,
    call: ToolCall,
    status: CallStatus,
    spec: ToolSpec | None,
    *,
    result: Any = None,
    error: str | None = None,
    **more: Any,
) -> Settled:
    if call.visibility != "hidden" and spec is not None:
        await show_result(tx, run, spec, call, result=result, error=error)
    return await steps.record_result(tx, worker, claim, run, call, status, result=result, error=error, **more)
