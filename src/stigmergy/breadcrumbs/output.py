"""What closes the circle: the result of an agent or a handler, written as a breadcrumb; and the tools that an agent may use,
kept readable as one."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from stigmergy.breadcrumbs import commands
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Audience, Breadcrumb, Draft, JsonObject
from stigmergy.breadcrumbs.subscriptions import tags_shared
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


class Width(NamedTuple):
    """Who may see a result, and whose it is: who acts, where no owner is said."""

    audience: Audience = "public"
    space_id: str | None = None
    owner_id: str | None = None


EVERYBODY = Width()


def as_wide_as(record: object) -> Width:
    """As wide as what set it off: nobody can read an answer who could not read the question."""
    if isinstance(record, Breadcrumb):
        return EVERYBODY if record.audience == "public" else Width(record.audience, record.space_id, record.owner_id)
    space_id = getattr(record, "space_id", None)
    return EVERYBODY if space_id is None else Width("team", space_id)


async def write_output(
    tx: Transaction,
    output: Output,
    result: Any,
    *,
    id: str | None = None,
    trigger_tags: Sequence[str] = (),
    wide: Width = EVERYBODY,
) -> Breadcrumb:
    """The result as a breadcrumb. Its cause is what this unit is caused by."""
    tags = [*output.tags, *(tag for pattern in output.same_tags for tag in tags_shared(pattern, trigger_tags))]
    draft = Draft(
        id=id,
        schema_name=output.schema_name,
        title=output.title,
        tags=list(dict.fromkeys(tags)),
        context=as_context(result),
        audience=wide.audience,
        space_id=wide.space_id,
        owner_id=wide.owner_id,
    )
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
