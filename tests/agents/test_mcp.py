"""MCP servers as toolsets, against a real server in a process of its own, and the same over HTTP."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
import uvicorn

from stigmergy.agents.mcp import McpServers
from stigmergy.agents.mcp_definition import McpFailed, McpResult, McpServer, mcp_server
from stigmergy.agents.model import ToolSpec
from stigmergy.errors import Invalid
from support import mcp_server as small
from support.loopback import Uvicorn

PROGRAM = str(Path(small.__file__))
LOCAL: dict[str, Any] = {"command": sys.executable, "args": [PROGRAM], "name": "small"}

Call = Callable[..., Coroutine[Any, Any, McpResult]]


@pytest.fixture
async def servers() -> AsyncIterator[McpServers]:
    servers = McpServers()
    yield servers
    await servers.close()


@pytest.fixture
def call(servers: McpServers) -> Call:
    async def call(tool: str, server: McpServer | None = None, timeout_ms: int = 10_000, **arguments: Any) -> McpResult:
        spec = ToolSpec(name=tool, execution_type="mcp", execution={"server": "small", "tool": tool}, timeout_ms=timeout_ms)
        return await servers.call([server or mcp_server(LOCAL)], spec, arguments)

    return call


class OverHttp:
    """The small server behind a port, which it keeps when it is started again. An old one knows only sessions."""

    def __init__(self, *, old: bool = False) -> None:
        self._listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", 0))
        self._old = old
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/mcp"

    async def __aenter__(self) -> Self:
        app = small.build().streamable_http_app()
        config = uvicorn.Config(
            _without_discovery(app) if self._old else app, interface="asgi3", log_config=None, timeout_graceful_shutdown=1
        )
        self._uvicorn = Uvicorn(config)
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[self._listening.dup()]))
        await self._uvicorn.ready.wait()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._uvicorn.should_exit = True
        await self._task

    def close(self) -> None:
        self._listening.close()


def _without_discovery(app: Any) -> Any:
    async def old(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await app(scope, receive, send)
        message = await receive()
        if b"server/discover" not in message["body"]:
            return await app(scope, _again(message, receive), send)
        error = {"jsonrpc": "2.0", "id": json.loads(message["body"])["id"], "error": {"code": -32601, "message": "what?"}}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(error).encode()})
        return None

    return old


def _again(message: Any, receive: Any) -> Any:
    told = [message]

    async def again() -> Any:
        return told.pop() if told else await receive()

    return again


@pytest.fixture(params=[False, True], ids=["new", "old"])
def http(request: pytest.FixtureRequest) -> Iterator[OverHttp]:
    http = OverHttp(old=request.param)
    yield http
    http.close()


async def test_the_tools_of_a_server_are_tools_of_the_agent(servers: McpServers) -> None:
    specs = {spec.name: spec for spec in await servers.tools(mcp_server(LOCAL))}
    add = specs["add"]
    assert (add.description, add.execution_type) == ("The sum of two numbers.", "mcp")
    assert add.parameters["required"] == ["a", "b"]
    assert add.execution == {"server": "small", "tool": "add"}


async def test_tools_can_be_chosen_and_have_a_prefix(servers: McpServers) -> None:
    chosen = mcp_server({**LOCAL, "prefix": "my/small", "tools": ["add", "say"]})
    specs = await servers.tools(chosen)
    assert [spec.name for spec in specs] == ["my_small_add", "my_small_say"]
    assert await servers.call([chosen], specs[0], {"a": 1, "b": 2}) == McpResult(value=3)


async def test_a_call_gives_what_the_tool_gave(call: Call) -> None:
    assert (await call("add", a=1, b=2)).value == 3
    assert (await call("say", text="ü" * 100_000)).value == "ü" * 100_000
    [image] = (await call("picture")).images
    assert (image.media_type, image.data) == ("image/png", b"\x89PNG")


async def test_what_goes_wrong_is_in_the_result(call: Call) -> None:
    assert "oh no" in ((await call("fail", why="oh no")).error or "")
    wrong = await call("add", a="one", b=2)
    assert "valid integer" in (wrong.error or "")
    assert not wrong.unknown
    assert "nothing" in ((await call("nothing")).error or "").lower()


async def test_an_agent_that_lost_its_server_is_told(servers: McpServers) -> None:
    spec = ToolSpec(name="add", execution_type="mcp", execution={"server": "gone", "tool": "add"})
    result = await servers.call([mcp_server(LOCAL)], spec, {})
    assert result.error == "the agent has no MCP server 'gone' any more"


async def test_a_slow_tool_ends_at_its_time_and_the_connection_goes_on(call: Call) -> None:
    await call("say", text="warm")
    result = await call("slow", timeout_ms=200, seconds=1)
    assert (result.error, result.unknown) == ("slow did not answer within 0.2 s", True)
    assert (await call("say", text="on")).value == "on"


async def test_many_calls_share_one_connection(call: Call) -> None:
    results = await asyncio.gather(*(call("add", a=n, b=n) for n in range(50)), call("process"), call("process"))
    assert [result.value for result in results[:50]] == [2 * n for n in range(50)]
    assert results[50] == results[51]


async def test_a_call_during_which_the_server_ends_is_not_repeated(call: Call, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    result = await call("end", touch=str(trace))
    assert result.unknown
    assert result.error == "small: Connection closed"
    assert trace.exists()
    trace.unlink()
    assert (await call("say", text="again")).value == "again"
    assert not trace.exists()


async def test_a_server_that_was_killed_is_started_again(call: Call) -> None:
    process = (await call("process")).value
    os.kill(process, signal.SIGKILL)
    await _ended(process)
    await asyncio.sleep(0.1)
    other = await call("process")
    assert other.error is None
    assert other.value != process


async def test_who_is_cancelled_leaves_the_connection_to_the_others(call: Call) -> None:
    first = asyncio.create_task(call("process"))
    await asyncio.sleep(0.05)
    first.cancel()
    process = (await call("process")).value
    slow = asyncio.create_task(call("slow", seconds=1))
    await asyncio.sleep(0.1)
    slow.cancel()
    with suppress(asyncio.CancelledError):
        await slow
    assert (await call("process")).value == process


async def test_closing_ends_the_servers(servers: McpServers, call: Call) -> None:
    process = (await call("process")).value
    await servers.close()
    await _ended(process)


async def test_closing_while_one_opens_leaves_no_process(servers: McpServers, call: Call, tmp_path: Path) -> None:
    born = tmp_path / "born"
    opening = asyncio.create_task(call("process", mcp_server({**LOCAL, "args": [PROGRAM, str(born)]})))
    while not born.exists() or not born.read_text():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    await servers.close()
    with suppress(asyncio.CancelledError):
        await opening
    await _ended(int(born.read_text()))


async def test_secrets_come_from_the_environment(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "secret")
    monkeypatch.setenv("OTHER", "not handed on")
    server = mcp_server({**LOCAL, "env": {"TOKEN": "Bearer ${MCP_TOKEN}"}})
    assert (await call("environment", server, name="TOKEN")).value == "Bearer secret"
    assert (await call("environment", server, name="OTHER")).value == ""
    unset = mcp_server({**LOCAL, "env": {"TOKEN": "${MCP_NOT_SET}"}})
    assert "set MCP_NOT_SET" in ((await call("say", unset, text="x")).error or "")


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({"command": "no-such-program-anywhere"}, "cannot be used"),
        ({"command": sys.executable, "args": ["-c", "print('no protocol')"]}, "cannot be used"),
        ({"url": "http://127.0.0.1:9/mcp"}, "cannot be used"),
    ],
)
async def test_a_server_that_cannot_be_used_says_so(servers: McpServers, definition: dict[str, Any], says: str) -> None:
    server = mcp_server(definition)
    with pytest.raises(McpFailed, match=says):
        await servers.tools(server)
    spec = ToolSpec(name="x", execution_type="mcp", execution={"server": server.title, "tool": "x"})
    assert says in ((await servers.call([server], spec, {})).error or "")


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({}, "one of them"),
        ({"command": "a", "url": "https://b"}, "one of them"),
        ({"url": "file:///etc"}, "begins with https"),
        ({"command": "a", "argv": []}, "argv"),
        ({"command": "a", "env": {"A": "${OPENAI_API_KEY}"}}, "begin with MCP_"),
        ({"url": "https://b", "headers": {"A": "${HOME}"}}, r"mcp_servers\[2\]\.headers"),
    ],
)
def test_a_definition_that_means_nothing_is_refused(definition: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says):
        mcp_server(definition, "mcp_servers[2]")


async def test_a_server_over_http(servers: McpServers, call: Call, http: OverHttp) -> None:
    server = mcp_server({"url": http.url, "name": "small"})
    async with http:
        assert {"add", "say"} <= {spec.name for spec in await servers.tools(server)}
        assert (await call("add", server, a=1, b=2)).value == 3
        assert "oh" in ((await call("fail", server, why="oh")).error or "")
        await servers.close()


async def test_a_server_over_http_that_was_started_anew_is_asked_again(servers: McpServers, call: Call, http: OverHttp) -> None:
    server = mcp_server({"url": http.url, "name": "small"})
    async with http:
        assert (await call("add", server, a=1, b=2)).value == 3
    async with http:
        assert (await call("add", server, a=1, b=2)).value == 3
        await servers.close()


async def test_tools_are_listed_anew_by_a_server_that_was_started_anew(
    servers: McpServers, http: OverHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stigmergy.agents.mcp_connection.FRESH", 0)
    monkeypatch.setattr("stigmergy.agents.mcp_connection.FAREWELL", 0.2)
    server = mcp_server({"url": http.url, "name": "small"})
    for _ in range(2):
        async with http:
            assert "add" in {spec.name for spec in await servers.tools(server)}


async def test_closing_does_not_wait_for_a_server_that_says_nothing(
    servers: McpServers, call: Call, http: OverHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stigmergy.agents.mcp_connection.FAREWELL", 0.2)
    async with http:
        await call("add", mcp_server({"url": http.url, "name": "small"}), a=1, b=2)
    await asyncio.wait_for(servers.close(), 5)  # its port still takes connections


async def _ended(process: int) -> None:
    for _ in range(500):
        if not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"process {process} lives")
