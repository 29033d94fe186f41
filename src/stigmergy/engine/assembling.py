"""What an agent asked to see when it wakes, gathered once for each run, from one snapshot, when the run begins.

The trigger is the version that fired. What was gathered is kept as a block; the run names it, and every version in it is pinned.
"""

from functools import partial

import msgspec

from stigmergy.agents.model import Definition, entity_of
from stigmergy.agents.tokens import count_tokens
from stigmergy.breadcrumbs.assembly import Assembly, assemble, gather
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb, JsonObject
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.breadcrumbs.subscriptions import parse_subscriptions
from stigmergy.engine.starting import as_trigger
from stigmergy.errors import StigmergyError
from stigmergy.kernel.blocks import get_block, put_block
from stigmergy.kernel.database import Database
from stigmergy.kernel.leases import Claim, hold
from stigmergy.kernel.retention import pin
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from stigmergy.runs import store
from stigmergy.runs.answering import trigger_of
from stigmergy.runs.model import Run
from stigmergy.spaces.queries import space_ids_of


class RequiredMissing(StigmergyError):
    """A source without which the agent does not want to begin has nothing."""

    code = "required_missing"
    status = 409


async def gather_for(
    database: Database, searcher: Searcher | None, run: Run, definition: Definition, worker: str, claim: Claim, scope: Scope
) -> Run:
    """The run with its assembly, gathered now if it was not before."""
    subscriptions = parse_subscriptions(list(definition.subscriptions))
    if run.assembly is not None or run.cause.change_seq is None or not any(each.role == "context" for each in subscriptions):
        return run
    found = await database.read(_trigger, run, scope=scope)
    if found is None:
        return run
    trigger, reader = found
    count = partial(count_tokens, model=definition.model)
    if searcher is None:
        assembly = await database.read(
            assemble, reader, subscriptions, trigger, budget=definition.budget, count=count, scope=scope
        )
    else:
        asked = (database, searcher, reader, subscriptions, trigger)
        assembly = await gather(*asked, scope=scope, budget=definition.budget, count=count)
    if assembly.required_missing:
        raise RequiredMissing(f"nothing was found for {', '.join(assembly.required_missing)}, which {run.agent} needs")
    return await database.write(_keep, worker, claim, run, assembly, scope=scope)


async def _trigger(tx: Snapshot, run: Run) -> tuple[Breadcrumb, Reader] | None:
    """The version that fired. None when its body was erased since."""
    change = await trigger_of(tx, run)
    entity = entity_of(run.agent)
    trigger = None if change is None or change.record is None else await as_trigger(tx, run.agent, change)
    return None if trigger is None else (trigger.crumb, Reader(entity, await space_ids_of(tx, entity)))


async def _keep(tx: Transaction, worker: str, claim: Claim, run: Run, assembly: Assembly) -> Run:
    await store.lock_head(tx, run.id)
    await hold(tx, worker, claim)
    block = await put_block(tx, as_block(assembly), "application/json")
    for source in assembly.provenance:
        await pin(tx, "breadcrumbs", source.id, source.version, run.id)
    provenance = msgspec.to_builtins(assembly.provenance)
    return await tx.update(run, assembly=block, metadata=run.metadata | {"provenance": provenance})


TITLE = b"What you asked to see:\n"


async def assembled(tx: Snapshot, run: Run) -> JsonObject | None:
    """What was gathered for a run: the trigger, and each source under its name."""
    if run.assembly is None:
        return None
    body = (await get_block(tx, run.assembly)).body
    return msgspec.json.decode(body.removeprefix(TITLE))["context"]


def as_block(assembly: Assembly) -> bytes:
    """The assembly as the prompt has it: what was gathered, then where it is from."""
    parts = ("context", "provenance", "dropped", "missing")
    return TITLE + msgspec.json.encode({part: getattr(assembly, part) for part in parts}, order="sorted")
