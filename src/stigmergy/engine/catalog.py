"""`tool.catalog.v1`: the tools that an agent may use, readable as a breadcrumb of each tenant that is kept true.

It is written when a tenant stores a definition and when a program is opened; and when a run of the agent is taken up in a tenant
that does not have it yet, or after a server of the agent has other tools than before.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stigmergy.agents.model import Definition, ToolSpec
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.output import catalog_id, keep_catalog
from stigmergy.engine.builtins import BUILTINS
from stigmergy.engine.direct import DIRECT
from stigmergy.engine.toolbox import Toolbox
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.runs.tools import Asking, Builtin


async def write_catalog(tx: Transaction, definition: Definition) -> None:
    """As far as it is known without asking anybody else: what its servers have is what they had when they were last asked."""
    tools = listed(definition, BUILTINS)
    stored = await tx.get(Breadcrumb, catalog_id(definition.name)) if definition.mcp_servers else None
    if stored is not None:
        known = {tool["name"] for tool in tools}
        tools += [tool for tool in stored.context["tools"] if tool["execution_type"] == "mcp" and tool["name"] not in known]
    await keep_catalog(tx, definition.name, tools)


class Catalogs:
    """What this process has seen to be written already is not written again."""

    def __init__(self, database: Database, builtins: Mapping[str, Builtin | Asking]) -> None:
        self._database = database
        self._builtins = builtins
        self._kept: dict[tuple[str, str], bytes] = {}

    async def keep(self, tenant: str, definition: Definition, served: Iterable[ToolSpec] = ()) -> None:
        """`served` is what the agent's servers have."""
        if definition.model == DIRECT:
            return
        tools = listed(definition, self._builtins, served)
        digest = hashlib.sha256(msgspec.json.encode(tools)).digest()
        key = tenant, definition.name
        if self._kept.get(key) != digest:
            await self._database.write(keep_catalog, definition.name, tools, scope=Scope(tenant))
            self._kept[key] = digest


def listed(
    definition: Definition, builtins: Mapping[str, Builtin | Asking], served: Iterable[ToolSpec] = ()
) -> list[dict[str, Any]]:
    """Every tool that the agent may have in a run, those for conversations among them."""
    box = Toolbox(definition, builtins, more=served, in_conversation=True)
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "execution_type": tool.execution_type,
        }
        for tool in box.specs.values()
    ]
