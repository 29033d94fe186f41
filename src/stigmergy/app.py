"""App: what a program declares and starts. It opens the store and runs what a store needs while somebody uses it."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from stigmergy import settings as configuration
from stigmergy.breadcrumbs import commands as breadcrumb_commands
from stigmergy.breadcrumbs.embeddings import open_embedder
from stigmergy.breadcrumbs.namespace import Breadcrumbs
from stigmergy.breadcrumbs.queries import Reader
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.breadcrumbs.search_index import index_stale
from stigmergy.errors import StoreClosed
from stigmergy.kernel.clock import Clock
from stigmergy.kernel.database import Database
from stigmergy.kernel.ids import check_tenant
from stigmergy.kernel.observed import ObservedDatabase
from stigmergy.kernel.opening import open_database
from stigmergy.kernel.retention import DAY_MS, Policy, keep_swept
from stigmergy.kernel.rules import Rule, RuleBook, Starter, put_rule
from stigmergy.kernel.timers import TimerLoop
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import Settings
from stigmergy.telemetry import Telemetry, open_telemetry

# What the timers of each part do when they are due.
EFFECTS = {breadcrumb_commands.EXPIRY: breadcrumb_commands.expire}


class App:
    """`async with App("agents.db") as app:` opens the store (a path or a postgresql:// URL) and closes it again."""

    def __init__(
        self,
        store: str | None = None,
        *,
        tenant: str = "main",
        entity: str = "app",
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        given = settings if settings is not None else configuration.load()
        self.settings = given if store is None else msgspec.structs.replace(given, store=store)
        self.scope = Scope(check_tenant(tenant), entity)
        self.rules = RuleBook()
        self._searcher: Searcher | None = None
        self.telemetry: Telemetry | None = None
        self._clock = clock
        self._database: Database | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def database(self) -> Database:
        if self._database is None:
            raise StoreClosed("the app is not open; use it inside `async with App(…) as app:`")
        return self._database

    @property
    def searcher(self) -> Searcher:
        if self._searcher is None:
            raise StoreClosed("the app is not open; use it inside `async with App(…) as app:`")
        return self._searcher

    @property
    def breadcrumbs(self) -> Breadcrumbs:
        return self.breadcrumbs_of(self.scope.actor)

    def breadcrumbs_of(self, entity: str, *, tenant: str | None = None) -> Breadcrumbs:
        """The breadcrumbs as somebody else sees and writes them."""
        scope = Scope(check_tenant(tenant) if tenant is not None else self.scope.tenant, entity)
        return Breadcrumbs(self.database, scope, Reader(entity), self.searcher)

    async def add_rule(self, rule: Rule) -> Rule:
        """When this kind of write happens, do that: `rule.kind` names a starter."""
        return await self.database.write(put_rule, rule, scope=self.scope)

    def start_with(self, kind: str, starter: Starter) -> None:
        """What a firing of rules of this kind writes."""
        self.rules.start_with(kind, starter)

    async def write(self, unit: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """A unit of work of the program's own."""
        return await self.database.write(unit, *args, scope=self.scope, **kwargs)

    async def read(self, unit: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        return await self.database.read(unit, *args, scope=self.scope, **kwargs)

    async def __aenter__(self) -> Self:
        settings = self.settings
        database = await open_database(
            settings.store,
            owner_place=settings.owner_store,
            synchronous=settings.synchronous,
            busy_seconds=settings.busy_seconds,
            clock=self._clock,
            rules=self.rules,
        )
        self.telemetry = open_telemetry(settings)
        if self.telemetry is not None:
            database = ObservedDatabase(database, self.telemetry)
        self._database = database
        self._searcher = searcher = Searcher(open_embedder(settings))
        age = None if settings.keep_days is None else settings.keep_days * DAY_MS
        policy = Policy(max_age_ms=age, max_changes=settings.keep_changes)
        self._tasks = [
            asyncio.create_task(TimerLoop(database, EFFECTS).run(), name="timers"),
            asyncio.create_task(keep_swept(database, policy, settings.sweep_seconds), name="retention"),
            asyncio.create_task(index_stale(database, searcher.embedder), name="search index"),
        ]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._searcher is not None:
            self._searcher.close()
            self._searcher = None
        if self._database is not None:
            await self._database.close()
            self._database = None
        if self.telemetry is not None:
            self.telemetry.close()
