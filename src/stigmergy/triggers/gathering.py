"""What a handler is given besides the change, and what becomes of its result: as it is for an agent."""

from collections.abc import Sequence
from typing import Any

import msgspec

from stigmergy.breadcrumbs.assembly import Assembly, gather
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.output import Output, as_wide_as, write_output
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.breadcrumbs.subscriptions import Subscription, parse_subscriptions
from stigmergy.breadcrumbs.waking import as_crumb
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.triggers.events import Fired


def parse_sources(given: Sequence[Any]) -> tuple[Subscription, ...]:
    """What `latest`, `recent` and `nearest` make, or the same as data."""
    found = parse_subscriptions([{"role": "context", **msgspec.to_builtins(each)} for each in given])
    if any(each.role == "trigger" for each in found):
        raise Invalid("a source wakes nobody; what wakes this handler is its first argument", "sources")
    return tuple(found)


def parse_output(given: Any) -> Output | None:
    if given is None:
        return None
    try:
        return msgspec.convert(given, Output)
    except msgspec.ValidationError as error:
        raise Invalid(str(error), "output") from error


async def gathered(
    database: Database, searcher: Searcher, sources: Sequence[Subscription], fired: Fired, scope: Scope
) -> Assembly:
    """The assembly for a change, with the version that fired. `NotFound` while a source that is required has nothing."""
    if fired.record is None:
        raise NotFound(f"what {fired.collection} {fired.id} said at version {fired.version} was erased")
    trigger = as_crumb(fired.change)
    assembly = await gather(database, searcher, Reader(scope.actor), sources, trigger, scope=scope)
    if assembly.required_missing:
        raise NotFound(f"nothing was found for {', '.join(assembly.required_missing)}")
    return assembly


async def write_result(tx: Transaction, output: Output, fired: Fired, result: Any) -> Breadcrumb:
    """A handler's result as a breadcrumb, caused by the change, for whoever may see that. It is one for each delivery, however
    often the handler was called: the first stands."""
    id = f"{output.schema_name}:{fired.delivery}"
    written = await tx.get(Breadcrumb, id)
    if written is not None:
        return written
    tags = as_crumb(fired.change).tags if fired.record is not None else []
    return await write_output(tx, output, result, id=id, trigger_tags=tags, wide=as_wide_as(fired.record))
