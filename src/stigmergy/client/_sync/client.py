# Made from ../_async/client.py by scripts/generate_client.py; `make fix` makes it again.
from types import TracebackType
from typing import Any, Self

from stigmergy.agents.agent import Agent
from stigmergy.client._sync.agents import SyncAgents
from stigmergy.client._sync.breadcrumbs import SyncBreadcrumbs
from stigmergy.client._sync.http import Http
from stigmergy.client._sync.runs import SyncRuns
from stigmergy.client._sync.spaces import SyncSpaces
from stigmergy.client._sync.tasks import SyncTasks
from stigmergy.client._sync.triggers import SyncDeliveries, SyncTriggers
from stigmergy.client.calls import server_headers, server_url

TIMEOUT_SECONDS = 30.0


class SyncStigmergy:
    """`with SyncStigmergy("http://127.0.0.1:8420", token) as stigmergy:` talks to a server. One may serve a whole program."""

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.url = server_url(url)
        self._http = Http(self.url, server_headers(token), timeout)
        self.breadcrumbs = SyncBreadcrumbs(self._http)
        self.runs = SyncRuns(self._http)
        self.agents = SyncAgents(self._http)
        self.spaces = SyncSpaces(self._http)
        self.triggers = SyncTriggers(self._http)
        self.deliveries = SyncDeliveries(self._http)
        self.tasks = SyncTasks(self._http)

    def ask(self, agent: Agent | str, question: str, *, timeout: float | None = None) -> Any:
        """Start a run and wait for its answer."""
        handle = self.runs.start(agent, question)
        return handle.result(timeout)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
