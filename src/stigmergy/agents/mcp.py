"""MCP servers as toolsets: what tools a server has, and calls of them, over connections that a process keeps open.

A connection that breaks is opened again by the next call. A call that was under way when it broke is not repeated: nobody knows
whether the server did it. Light: the `mcp` package is imported with the first connection.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stigmergy.agents.mcp_definition import McpFailed, McpResult, McpServer
from stigmergy.agents.model import ToolSpec
from stigmergy.agents.models.port import JsonObject
from stigmergy.errors import Invalid

if TYPE_CHECKING:
    from stigmergy.agents.mcp_connection import Connection

OPENING = 30.0


class McpServers:
    """The connections of one process, in one event loop. `close` ends them, the last one first."""

    def __init__(self) -> None:
        self._connections: dict[str, asyncio.Task[Connection]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def tools(self, server: McpServer) -> tuple[ToolSpec, ...]:
        """The tools of a server as an agent has them; `execution` says where each is. `McpFailed` when it cannot be asked."""
        connection = await self._connected(server)
        try:
            listed = await connection.tools()
        except McpFailed:
            if not connection.broken:
                raise
            listed = await (await self._connected(server)).tools()
        found = [tool for tool in listed if server.tools is None or tool.name in server.tools]
        specs = tuple(_spec(server, tool.name, tool.description or "", tool.input_schema) for tool in found)
        names = {spec.name for spec in specs}
        if len(names) < len(specs):
            raise McpFailed(f"tools of the MCP server {server.title} cannot be told apart by name: {', '.join(sorted(names))}")
        return specs

    async def call(self, servers: Sequence[McpServer], spec: ToolSpec, arguments: JsonObject) -> McpResult:
        """Calls a tool that `tools` gave, on the one of an agent's servers that has it. What goes wrong is in the result."""
        said = spec.execution or {}
        server = next((server for server in servers if server.title == said.get("server")), None)
        if server is None:
            return McpResult(error=f"the agent has no MCP server {said.get('server')!r} any more")
        try:
            for _ in range(2):
                connection = await self._connected(server)
                result = await connection.call(said["tool"], arguments, spec.timeout_ms / 1000)
                if result is not None:
                    return result
        except (McpFailed, Invalid) as error:
            return McpResult(error=str(error))
        return McpResult(error=f"the MCP server {server.title} ends its connections at once")

    async def close(self) -> None:
        while self._connections:
            _, opening = self._connections.popitem()
            opening.cancel()
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
            else:
                await asyncio.wait([opening])
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _connected(self, server: McpServer) -> "Connection":
        opening = self._connections.get(server.key)
        if opening is not None and opening.done() and _useless(opening):
            self._let_go(opening)
            opening = None
        if opening is None:
            opening = self._connections[server.key] = asyncio.create_task(_opened(server), name=f"opens {server.title}")
        return await asyncio.shield(opening)

    def _let_go(self, opening: "asyncio.Task[Connection]") -> None:
        if not opening.cancelled() and opening.exception() is None:
            leaving = asyncio.create_task(opening.result().close())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)


def _useless(opening: "asyncio.Task[Connection]") -> bool:
    return opening.cancelled() or opening.exception() is not None or opening.result().broken


async def _opened(server: McpServer) -> "Connection":
    connection_class = await asyncio.to_thread(_imported)  # half a second of import
    return await connection_class.open(server, OPENING)


def _imported() -> "type[Connection]":
    try:
        from stigmergy.agents.mcp_connection import Connection
    except ImportError as error:
        message = f"MCP servers need packages that are not installed ({error}): pip install 'stigmergy[models]'"
        raise Invalid(message, "mcp_servers", "missing_package") from error
    return Connection


def _spec(server: McpServer, tool: str, description: str, parameters: JsonObject) -> ToolSpec:
    name = f"{server.prefix}_{tool}" if server.prefix else tool
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    name = name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"
    return ToolSpec(
        name=name[:64],
        description=description,
        parameters=parameters,
        execution_type="mcp",
        execution={"server": server.title, "tool": tool},
    )
