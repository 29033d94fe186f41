"""What a process runs so that runs go: the program's agents declared, a worker, what the timers of runs do; in one place."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from stigmergy.agents import store as agents
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.engine.catalog import write_catalog
from stigmergy.engine.code import Code
from stigmergy.engine.runtime import Runtime
from stigmergy.engine.starting import RULE_KIND, rules_of, start_for_change
from stigmergy.engine.worker import Worker
from stigmergy.kernel.database import Database
from stigmergy.kernel.rules import RuleBook, declare_rules
from stigmergy.kernel.timers import Effect
from stigmergy.kernel.transaction import SHARED, Scope, Transaction
from stigmergy.runs import commands, delegation, endings, external, settling, waits
from stigmergy.settings import Settings
from stigmergy.telemetry import Telemetry

EFFECTS: Mapping[str, Effect] = {
    commands.DEADLINE: endings.pass_deadline,
    delegation.TASK_DEADLINE: external.pass_task_deadline,
    settling.WAIT: waits.expire,
}


def register(rules: RuleBook) -> None:
    """What a change sets off that runs have to do with."""
    rules.start_with(RULE_KIND, start_for_change)


async def declare(database: Database, program: str, code: Code, scope: Scope) -> None:
    """Make the agents of a program's code exactly what they say now, for every process on the store."""
    definitions = code.definitions()
    await database.write(_declare, program, code, scope=Scope(SHARED, program))
    for definition in definitions:
        if not definition.name.startswith("tool."):
            await database.write(write_catalog, definition, scope=scope)


async def _declare(tx: Transaction, program: str, code: Code) -> None:
    definitions = code.definitions()
    await agents.declare_agents(tx, program, definitions)
    await declare_rules(tx, f"agents:{program}", rules_of(f"agents:{program}", definitions))


class Running:
    """A worker on an open store, as long as it is entered."""

    def __init__(
        self, database: Database, code: Code, settings: Settings, searcher: Searcher, telemetry: Telemetry | None = None
    ) -> None:
        self._stack = AsyncExitStack()
        self.runtime = Runtime(database, code, settings=settings, searcher=searcher, telemetry=telemetry)
        self.worker = Worker(
            self.runtime, concurrency=settings.concurrent_runs, lease_seconds=settings.lease_seconds, describes="runs"
        )

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.worker)
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._stack.aclose()
        await self.runtime.close()
