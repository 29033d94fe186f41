"""`tool.catalog.v1`: the tools that each agent may use, readable as a breadcrumb that is kept true."""

from typing import Any

from stigmergy.agents.model import Definition, entity_of
from stigmergy.breadcrumbs import commands
from stigmergy.breadcrumbs.model import Breadcrumb, Draft
from stigmergy.breadcrumbs.queries import Reader
from stigmergy.kernel.transaction import Transaction

SCHEMA = "tool.catalog.v1"


async def write_catalog(tx: Transaction, definition: Definition) -> None:
    """Write it, or bring it up to date; an equal one is left as it is."""
    id = f"tool-catalog:{definition.name}"
    tools: list[dict[str, Any]] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in definition.tools
    ]
    draft = Draft(
        schema_name=SCHEMA,
        title=f"The tools of {definition.name}",
        owner_id=entity_of(definition.name),
        tags=[f"agent:{definition.name}"],
        context={"agent": definition.name, "tools": tools},
        id=id,
    )
    if await tx.get(Breadcrumb, id) is None:
        await commands.create(tx, draft)
    else:
        await commands.replace(tx, Reader(tx.actor, everything=True), id, draft)
