# Made from ../_async/agents.py by scripts/generate_client.py; `make fix` makes it again.
"""`stigmergy.agents`: what `App.agents` is in the program itself."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stigmergy.agents.model import AgentRecord, Definition, ToolSpec
from stigmergy.client import run_wire as wire
from stigmergy.client._sync.http import Http
from stigmergy.client.calls import Call, agent_path, read
from stigmergy.engine.defining import Declared, named_in
from stigmergy.kernel.ids import new_id


class SyncAgents:
    """Definitions that are data, of one tenant. Those of the program's code are listed too, and stay the code's."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def put(
        self, definition: Definition | Mapping[str, Any], *, name: str | None = None, if_match: int | None = None
    ) -> Declared:
        """Store a definition, or a config that is read as one. Its subscriptions hold from this moment on."""
        path = agent_path(name or named_in(definition))
        body: Any = msgspec.to_builtins(definition)
        key = new_id()  # an equal definition is left as it is
        return wire.declared(self._http.call(Call("PUT", path, body=body, if_match=if_match, key=key)))

    def get(self, name: str) -> AgentRecord:
        """The definition in force."""
        return wire.agent(self._http.call(read(agent_path(name))))

    def list(self, *, after: str = "", limit: int = 100) -> "list[AgentRecord]":
        """Those that runs can be started with, by name."""
        params = {"cursor": after or None, "limit": limit}
        return wire.agents(self._http.call(read("/v1/agents", params)))

    def versions(self, name: str, *, limit: int = 50) -> "list[AgentRecord]":
        """Every version of a definition, newest first."""
        return wire.agents(self._http.call(read(agent_path(name, "versions"), {"limit": limit})))

    def tools(self, name: str) -> "list[ToolSpec]":
        """Every tool that the agent may have in a run, the engine's among them; of its MCP servers those that were seen last."""
        return wire.tools(self._http.call(read(agent_path(name, "tools"))))

    def delete(self, name: str, *, if_match: int | None = None) -> None:
        """Take a definition away; runs that have begun go on with it."""
        self._http.call(Call("DELETE", agent_path(name), if_match=if_match))
