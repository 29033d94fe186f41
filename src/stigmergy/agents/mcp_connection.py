"""One connection to an MCP server, held open by a task of its own: the cancel scopes of the `mcp` package must be left in the
task that entered them, whoever calls and is cancelled meanwhile.

Imports the `mcp` package, and so is itself imported only with the first connection (mcp.py).
"""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Self, cast

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from stigmergy.agents.mcp_definition import McpFailed, McpResult, McpServer, filled
from stigmergy.agents.models.port import Image, JsonObject

# A list of tools is asked for again after this long, or when the server says that it changed.
FRESH = 60.0

# How long a server may take to end by itself.
FAREWELL = 5.0

# How long any answer but that of a call is waited for.
ANSWER = 30.0

log = logging.getLogger(__name__)


class Connection:
    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._forgotten = False
        self._scope = anyio.CancelScope()
        self._tools: tuple[types.Tool, ...] = ()
        self._asked = -FRESH
        self._holding = asyncio.create_task(self._hold(), name=f"holds {server.title}")

    @classmethod
    async def open(cls, server: McpServer, timeout: float) -> Self:
        """`McpFailed` when the server does not start, does not answer in time, or speaks something else."""
        connection = cls(server)
        try:
            await asyncio.wait_for(asyncio.shield(connection._opened), timeout)
        except TimeoutError:
            await connection._abandon()
            raise McpFailed(f"the MCP server {server.title} did not answer within {timeout:g} s") from None
        except asyncio.CancelledError:
            await connection._abandon()
            raise
        except McpFailed:
            raise
        except Exception as error:
            raise McpFailed(f"the MCP server {server.title} cannot be used: {_line(error)}") from error
        return connection

    @property
    def broken(self) -> bool:
        return self._ending.is_set() or self._holding.done()

    async def tools(self) -> tuple[types.Tool, ...]:
        if time.monotonic() - self._asked >= FRESH:
            asked = time.monotonic()
            self._tools = await self._list()
            self._asked = asked
        return self._tools

    async def call(self, tool: str, arguments: JsonObject, timeout: float) -> McpResult | None:
        """None when the connection has ended before the call: nothing was done, another connection can be asked."""
        if self.broken:
            return None
        try:
            result = await self._client.call_tool(tool, arguments, read_timeout_seconds=timeout)
        except MCPError as error:
            return self._failed(error, tool, timeout)
        except Exception as error:  # what comes over the wire must not end a run
            return McpResult(error=f"{self._server.title} answered what cannot be understood: {_line(error)}", unknown=True)
        return _result(result)

    def _failed(self, error: MCPError, tool: str, timeout: float) -> McpResult | None:
        if error.code == types.REQUEST_TIMEOUT:
            return McpResult(error=f"{tool} did not answer within {timeout:g} s", unknown=True)
        if self._forgotten:
            self._ending.set()
            return None
        if error.code == types.CONNECTION_CLOSED:
            self._ending.set()
            return McpResult(error=f"{self._server.title}: {error.message}", unknown=True)
        return McpResult(error=f"{self._server.title}: {error.message}")

    async def close(self) -> None:
        """Lets the server go as it should be; one that does not answer is left after `FAREWELL` seconds."""
        self._ending.set()
        _, still = await asyncio.wait([self._holding], timeout=FAREWELL)
        if still:
            await self._abandon()

    async def _abandon(self) -> None:
        self._scope.cancel()  # not the task: of that the package's own clean-up would suffer
        await asyncio.wait([self._holding])

    @property
    def _client(self) -> Client:
        return self._opened.result()

    async def _list(self) -> tuple[types.Tool, ...]:
        found: list[types.Tool] = []
        cursor: str | None = None
        try:
            while True:
                page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
                found += page.tools
                cursor = page.next_cursor
                if cursor is None or len(found) > 10_000:
                    return tuple(found)
        except Exception as error:
            if self._forgotten:
                self._ending.set()
            raise McpFailed(f"the MCP server {self._server.title} does not say what tools it has: {_line(error)}") from error

    async def _hold(self) -> None:
        try:
            transport = _watched(self._server, self._ending.set, self._answered)
            with self._scope:
                async with Client(transport, message_handler=self._heard, cache=None, read_timeout_seconds=ANSWER) as client:
                    self._opened.set_result(client)
                    await self._ending.wait()
        except Exception as error:
            if not self._opened.done():
                self._opened.set_exception(_first(error))
            else:
                log.warning("the connection to the MCP server %s broke: %s", self._server.title, _line(error))
        finally:
            self._ending.set()

    async def _answered(self, response: httpx2.Response) -> None:
        """A server over HTTP that was started anew does not know the session that it gave us."""
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            self._forgotten = True

    async def _heard(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._asked = -FRESH


@asynccontextmanager
async def _watched(server: McpServer, ended: Callable[[], None], answered: Callable[..., Any]) -> AsyncGenerator[Any]:
    """The transport, with `ended` called as soon as nothing more can be heard from the server, `answered` with each response."""
    async with AsyncExitStack() as stack:
        if server.command is not None:
            parameters = StdioServerParameters(
                command=server.command, args=list(server.args), env=filled(server.env) or None, cwd=server.cwd
            )
            read, write = await stack.enter_async_context(stdio_client(parameters))
        else:
            client = await stack.enter_async_context(create_mcp_http_client(filled(server.headers)))
            client.event_hooks = {**client.event_hooks, "response": [*client.event_hooks["response"], answered]}
            read, write = await stack.enter_async_context(streamable_http_client(server.url or "", http_client=client))
        yield _Heard(read, ended), write


class _Heard:
    """A read stream that says when it has ended."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        self._ended()
        return await self._stream.__aexit__(*error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._stream.__anext__()


def _first(error: BaseException) -> BaseException:
    """What went wrong, out of the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _line(error: BaseException) -> str:
    error = _first(error)
    return (str(error) or type(error).__name__).split("\n", 1)[0][:300]


def _result(result: types.CallToolResult) -> McpResult:
    texts: list[str] = []
    images: list[Image] = []
    for block in result.content:
        _read(block, texts, images)
    text = "\n".join(texts)
    if result.is_error:
        return McpResult(error=text or "the tool failed and does not say why", images=tuple(images))
    return McpResult(value=_value(result.structured_content, text), images=tuple(images))


def _value(structured: Any, text: str) -> Any:
    """Servers must send an object, so they put what is none into one, under `result`."""
    if isinstance(structured, dict):
        fields = cast(JsonObject, structured)
        return fields["result"] if set(fields) == {"result"} else fields
    return text if structured is None else structured


def _read(block: types.ContentBlock, texts: list[str], images: list[Image]) -> None:
    if isinstance(block, types.TextContent):
        texts.append(block.text)
    elif isinstance(block, types.ImageContent | types.AudioContent):
        _image(block.mime_type, block.data, None, images)
    elif isinstance(block, types.EmbeddedResource):
        if isinstance(block.resource, types.TextResourceContents):
            texts.append(block.resource.text)
        else:
            name = str(block.resource.uri)
            _image(block.resource.mime_type or "application/octet-stream", block.resource.blob, name, images)
    else:
        texts.append(f"[{block.name}]({block.uri})")


def _image(media_type: str, data: str, name: str | None, images: list[Image]) -> None:
    with suppress(ValueError):  # no base64: nothing that could be shown
        images.append(Image(media_type, base64.b64decode(data, validate=True), name))
