from types import TracebackType
from typing import Any, Self

from stigmergy.agents.agent import Agent
from stigmergy.client._async.agents import Agents
from stigmergy.client._async.breadcrumbs import Breadcrumbs
from stigmergy.client._async.http import Http
from stigmergy.client._async.runs import Runs
from stigmergy.client._async.spaces import Spaces
from stigmergy.client._async.tasks import Tasks
from stigmergy.client._async.triggers import Deliveries, Triggers
from stigmergy.client.calls import server_headers, server_url

TIMEOUT_SECONDS = 30.0


class Stigmergy:
    """`async with Stigmergy("http://127.0.0.1:8420", token) as stigmergy:` talks to a server. One may serve a whole program."""

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.url = server_url(url)
        self._http = Http(self.url, server_headers(token), timeout)
        self.breadcrumbs = Breadcrumbs(self._http)
        self.runs = Runs(self._http)
        self.agents = Agents(self._http)
        self.spaces = Spaces(self._http)
        self.triggers = Triggers(self._http)
        self.deliveries = Deliveries(self._http)
        self.tasks = Tasks(self._http)

    async def ask(self, agent: Agent | str, question: str, *, timeout: float | None = None) -> Any:
        """Start a run and wait for its answer."""
        handle = await self.runs.start(agent, question)
        return await handle.result(timeout)

    async def close(self) -> None:
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
