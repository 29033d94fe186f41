"""The MCP servers of a process: which of their tools an agent has now, and calls of them.

A server that cannot be asked takes nothing else from its agent: the run goes on without its tools, and the prompt says which
server is missing and why. It is not asked again for a while, so that one that hangs does not hold up every step.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from stigmergy.agents.mcp import McpServers
from stigmergy.agents.mcp_definition import McpFailed, McpServer, mcp_server
from stigmergy.agents.model import Definition, JsonObject, ToolSpec
from stigmergy.engine.calls import UNTOLD, Pictured
from stigmergy.errors import Invalid, StigmergyError
from stigmergy.kernel.clock import Clock

# How long a server that could not be asked is left alone.
PAUSE_SECONDS = 15.0


class ToolFailed(StigmergyError):
    """What a server says of a call that brought no result."""

    code = "tool_failed"
    status = 502


class Toolset(NamedTuple):
    """What an agent's servers have, and what is to be said of those that cannot be asked."""

    tools: Sequence[ToolSpec] = ()
    missing: Sequence[str] = ()


class Servers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._servers = McpServers()
        self._failed: dict[str, tuple[float, str]] = {}

    async def close(self) -> None:
        await self._servers.close()

    async def toolset(self, definition: Definition) -> Toolset:
        """All servers are asked at once."""
        if not definition.mcp_servers:
            return Toolset()
        servers = [mcp_server(each, f"mcp_servers[{place}]") for place, each in enumerate(definition.mcp_servers)]
        found = await asyncio.gather(*(self._tools(server) for server in servers))
        tools = [tool for listed in found if not isinstance(listed, str) for tool in listed]
        return Toolset(tools, [why for why in found if isinstance(why, str)])

    async def _tools(self, server: McpServer) -> Sequence[ToolSpec] | str:
        """A server's tools, or why they are not there."""
        when, why = self._failed.get(server.key, (float("-inf"), ""))
        if self._clock.monotonic() - when < PAUSE_SECONDS:
            return why
        try:
            tools = await self._servers.tools(server)
        except (McpFailed, Invalid) as error:
            self._failed[server.key] = self._clock.monotonic(), str(error)
            return str(error)
        self._failed.pop(server.key, None)
        return tools

    async def call(self, definition: Definition, spec: ToolSpec, args: JsonObject) -> Any:
        """The result of a call. `ToolFailed` with what went wrong, which says so when nobody can tell whether it happened."""
        servers = [mcp_server(each) for each in definition.mcp_servers]
        result = await self._servers.call(servers, spec, args)
        if result.error is not None:
            raise ToolFailed(f"{result.error}; {UNTOLD}" if result.unknown else result.error)
        return Pictured(result.value, result.images) if result.images else result.value
