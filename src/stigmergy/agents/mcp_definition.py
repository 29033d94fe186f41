"""An MCP server as an agent's definition has it. Pure, but for the variables that are read when a connection opens.

`{"command": "uvx", "args": ["some-server"]}` runs a server here and speaks with it over its input and output;
`{"url": "https://host/mcp"}` reaches one over HTTP. Also: `name`, `cwd`, `env` or `headers`, `prefix` (put before the tools'
names) and `tools` (only these). `${MCP_TOKEN}` in `env` and `headers` is taken from the environment when the connection opens, so
that no secret is in a definition; only variables that begin with MCP_ can be named so, since a definition may come from anyone.
"""

import hashlib
import os
import re
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

import msgspec

from stigmergy.agents.models.port import Image, JsonObject
from stigmergy.errors import Invalid, StigmergyError

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class McpFailed(StigmergyError):
    """A server that cannot be reached, or does not say what tools it has."""

    code = "mcp_failed"
    status = 502
    retryable = True


class McpServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A definition, read."""

    name: str = ""
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    prefix: str | None = None
    tools: tuple[str, ...] | None = None

    @property
    def title(self) -> str:
        """What it is called where its definition gives no name."""
        if self.name:
            return self.name
        return PurePath(self.command).name if self.command else urlsplit(self.url or "").hostname or ""

    @property
    def key(self) -> str:
        """Two definitions of one server share its connection."""
        where = (self.command, self.args, self.env, self.cwd, self.url, self.headers)
        return hashlib.sha256(msgspec.json.encode(where, order="sorted")).hexdigest()


class McpResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call gave: `value` can be JSON. With `unknown` nobody can tell whether the tool ran."""

    value: Any = None
    images: tuple[Image, ...] = ()
    error: str | None = None
    unknown: bool = False


def mcp_server(definition: JsonObject, where: str = "mcp_servers") -> McpServer:
    """`Invalid` with the place of what is wrong."""
    try:
        server = msgspec.convert(definition, McpServer)
    except msgspec.ValidationError as error:
        raise Invalid(str(error), where) from None
    if (server.command is None) == (server.url is None):
        raise Invalid("a server has a `command` to run or a `url` to reach, one of them", where)
    if server.url is not None and urlsplit(server.url).scheme not in ("http", "https"):
        raise Invalid("a server's `url` begins with https://", f"{where}.url")
    for field, values in (("env", server.env), ("headers", server.headers)):
        for name in _VARIABLE.findall(" ".join(values.values())):
            if not name.startswith("MCP_"):
                raise Invalid(f"only variables that begin with MCP_ can be named here, not {name}", f"{where}.{field}")
    return server


def filled(values: dict[str, str]) -> dict[str, str]:
    """With the variables' values. `McpFailed` for one that is not set."""
    return {name: _VARIABLE.sub(_variable, value) for name, value in values.items()}


def _variable(found: re.Match[str]) -> str:
    try:
        return os.environ[found[1]]
    except KeyError:
        raise McpFailed(f"set {found[1]} in the worker's environment; an MCP server's definition names it") from None
