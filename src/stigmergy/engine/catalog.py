"""`tool.catalog.v1`: the tools that an agent may use, readable as a breadcrumb of each tenant that is kept true.

It is written when a tenant stores a definition and when a program is opened; and when a run of the agent is taken up in a tenant
that does not have it yet, or after a server of the agent has other tools than before.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stigmergy.agents.model import Definition, ToolSpec
from stigmergy.agents.store import UnknownAgent, named
from stigmergy.breadcrumbs.model import Breadcrumb
from stigmergy.breadcrumbs.output import catalog_id, keep_catalog
from stigmergy.engine.builtins import BUILTINS
from stigmergy.engine.direct import DIRECT
from stigmergy.engine.toolbox import Toolbox
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction
from stigmergy.runs.model import Run
from stigmergy.runs.tools import Asking, Builtin


async def write_catalog(tx: Transaction, definition: Definition) -> None:
    """As far as it is known without asking anybody else: what its servers have is what they had when they were last asked."""
    await keep_catalog(tx, definition.name, listed(definition, BUILTINS, await served_before(tx, definition)))


async def served_before(tx: Snapshot, definition: Definition) -> list[ToolSpec]:
    """The tools that the agent's servers had when they were last asked."""
    stored = await tx.get(Breadcrumb, catalog_id(definition.name)) if definition.mcp_servers else None
    told = () if stored is None else stored.context["tools"]
    return [msgspec.convert(tool, ToolSpec) for tool in told if tool["execution_type"] == "mcp"]


async def tools_of(tx: Snapshot, definition: Definition) -> list[ToolSpec]:
    """Every tool that the agent may have in a run, as far as it is known without asking its servers."""
    return _tools(definition, BUILTINS, await served_before(tx, definition))


class Catalogs:
    """What this process has seen to be written already is not written again."""

    def __init__(self, database: Database, builtins: Mapping[str, Builtin | Asking]) -> None:
        self._database = database
        self._builtins = builtins
        self._kept: dict[tuple[str, str], tuple[Definition, tuple[ToolSpec, ...]]] = {}

    async def keep(self, run: Run, definition: Definition, served: Sequence[ToolSpec] = ()) -> None:
        """`served` is what the agent's servers have. A run of an earlier definition says nothing of the one in force."""
        key, now = (run.tenant, definition.name), (definition, tuple(served))
        if definition.model == DIRECT or self._kept.get(key) == now:
            return
        tools = listed(definition, self._builtins, served)
        await self._database.write(_keep, run.agent, run.agent_version, tools, scope=Scope(run.tenant))
        self._kept[key] = now


async def _keep(tx: Transaction, agent: str, version: int, tools: list[dict[str, Any]]) -> None:
    try:
        in_force = (await named(tx, agent)).version
    except UnknownAgent:
        return
    if in_force == version:
        await keep_catalog(tx, agent, tools)


def listed(
    definition: Definition, builtins: Mapping[str, Builtin | Asking], served: Iterable[ToolSpec] = ()
) -> list[dict[str, Any]]:
    """Every tool that the agent may have in a run, those for conversations among them."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "execution_type": tool.execution_type,
        }
        for tool in _tools(definition, builtins, served)
    ]


def _tools(definition: Definition, builtins: Mapping[str, Builtin | Asking], served: Iterable[ToolSpec]) -> list[ToolSpec]:
    return list(Toolbox(definition, builtins, more=served, in_conversation=True).specs.values())
