"""What closes the circle: the result of an agent or a handler, written as a breadcrumb; and the tools that an agent may use,
kept readable as one."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from stigmergy.breadcrumbs import commands
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Audience, Breadcrumb, Draft, JsonObject
from stigmergy.breadcrumbs.subscriptions import tags_shared
from stigmergy.kernel.journal import Change
from stigmergy.kernel.transaction import Transaction

CATALOG = "tool.catalog.v1"
# Who keeps the catalogues, whoever wrote into one meanwhile.
KEEPER = Reader("system", everything=True)


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a result goes. `same_tags` takes tags of the trigger along: `session:*`."""

    schema_name: str = "agent.response.v1"
    title: str = ""
    tags: tuple[str, ...] = ()
    same_tags: tuple[str, ...] = ()


async def write_output(
    tx: Transaction,
    output: Output,
    result: Any,
    *,
    trigger: Change | None = None,
    trigger_tags: Sequence[str] = (),
    audience: Audience = "public",
    space_id: str | None = None,
    owner_id: str | None = None,
) -> Breadcrumb:
    """The result as a breadcrumb of who acts, or of another owner. Its cause is the trigger, or what this unit is caused by when
    none is given."""
    tags = [*output.tags, *(tag for pattern in output.same_tags for tag in tags_shared(pattern, trigger_tags))]
    draft = Draft(
        schema_name=output.schema_name,
        title=output.title,
        tags=list(dict.fromkeys(tags)),
        context=as_context(result),
        audience=audience,
        space_id=space_id,
        owner_id=owner_id,
    )
    if trigger is None:
        return await commands.create(tx, draft)
    with tx.caused_by(trigger):
        return await commands.create(tx, draft)


def as_context(result: Any) -> JsonObject:
    """An object as it is, a text under `text`, anything else under `result`."""
    plain = msgspec.to_builtins(result)
    if isinstance(plain, dict):
        return cast(JsonObject, plain)
    return {"text": plain} if isinstance(plain, str) else {"result": plain}


async def keep_catalog(tx: Transaction, agent: str, tools: Iterable[Any]) -> Breadcrumb | None:
    """Make the catalogue of an agent say exactly these tools, each an object with at least a `name`; nothing is written when it
    does already. Of no tools there is no catalogue."""
    id = catalog_id(agent)
    listed = sorted((msgspec.to_builtins(tool) for tool in tools), key=lambda tool: tool["name"])
    if not listed:
        if await tx.get(Breadcrumb, id) is not None:
            await commands.delete(tx, KEEPER, id)
        return None
    context = {"agent": agent, "tools": listed}
    draft = Draft(schema_name=CATALOG, title=f"The tools of {agent}", tags=[f"agent:{agent}"[:128]], context=context)
    return await commands.replace(tx, KEEPER, id, draft)


def catalog_id(agent: str) -> str:
    return "tool.catalog:" + agent.replace("/", "_")[:180]
