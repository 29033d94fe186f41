"""App: what a program declares and starts. It opens the store and runs what a store needs while somebody uses it."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

import msgspec

from stigmergy import settings as configuration
from stigmergy.agents.agent import Agent, Hooks
from stigmergy.agents.tools import Tool, as_tool
from stigmergy.breadcrumbs import commands as breadcrumb_commands
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.care import examine_breadcrumbs
from stigmergy.breadcrumbs.embeddings import open_embedder
from stigmergy.breadcrumbs.namespace import Breadcrumbs
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.breadcrumbs.search_index import index_stale
from stigmergy.engine import running
from stigmergy.engine.code import Code
from stigmergy.engine.namespace import Agents, Runs
from stigmergy.engine.outside import Tasks
from stigmergy.engine.running import Running
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
from stigmergy.net import reach_of
from stigmergy.settings import Settings
from stigmergy.spaces import effects as spaces_effects
from stigmergy.spaces.namespace import Spaces
from stigmergy.spaces.posting import POSTING, post_for_change
from stigmergy.telemetry import Telemetry, open_telemetry
from stigmergy.triggers.commands import start_delivery
from stigmergy.triggers.declaring import Declaring
from stigmergy.triggers.definitions import Reading
from stigmergy.triggers.events import Fired
from stigmergy.triggers.namespace import Deliveries, Triggers
from stigmergy.triggers.running import Delivering

# What a firing writes, by the kind of its rule.
STARTERS: dict[str, Starter] = {"webhook": start_delivery, "handler": start_delivery, POSTING: post_for_change}
# What the timers of each part do when they are due.
EFFECTS = {breadcrumb_commands.EXPIRY: breadcrumb_commands.expire, **running.EFFECTS, **spaces_effects.EFFECTS}
# What the doctor looks at besides what is everybody's.
EXAMINERS = (examine_breadcrumbs,)


def rule_book() -> RuleBook:
    """For every process that writes to a store, whatever it is for: its writes set off what any other's would."""
    rules = RuleBook()
    for kind, starter in STARTERS.items():
        rules.start_with(kind, starter)
    running.register(rules)
    return rules


# In a handler: on whose behalf it acts, and because of what.
_ACTING: ContextVar[tuple["App", Scope] | None] = ContextVar("acting", default=None)


class App(Declaring):
    """`async with App("agents.db") as app:` opens the store (a path or a postgresql:// URL) and closes it again."""

    def __init__(
        self,
        store: str | None = None,
        *,
        tenant: str = "main",
        entity: str = "app",
        agents: Iterable[Agent] = (),
        tools: Iterable[Callable[..., Any] | Tool] = (),
        hooks: Hooks | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        telemetry: Telemetry | None = None,
        greeting: str = "",
    ) -> None:
        """`greeting` is what `stigmergy serve` says when it is there; `{url}` in it is where, `{command}` how it was called."""
        super().__init__(entity)
        self.greeting = greeting
        self._at_start: list[Callable[[], Awaitable[Any]]] = []
        self.code = Code(agents, hooks, map(as_tool, tools))
        given = settings if settings is not None else configuration.load()
        self.settings = given if store is None else msgspec.structs.replace(given, store=store)
        self._scope = Scope(check_tenant(tenant), entity)
        self.rules = rule_book()
        self._searcher: Searcher | None = None
        self._given_telemetry = telemetry
        self.telemetry: Telemetry | None = None
        self._clock = clock
        self._database: Database | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._running: Running | None = None

    @property
    def scope(self) -> Scope:
        """On whose behalf the program acts. Inside a handler that is the tenant of the change, and the change is the cause."""
        acting = _ACTING.get()
        return acting[1] if acting is not None and acting[0] is self else self._scope

    @contextmanager
    def _acting_for(self, change: Fired) -> Generator[Scope]:
        scope = Scope(change.tenant, self._scope.actor, change.seq, change.depth + 1)
        token = _ACTING.set((self, scope))
        try:
            yield scope
        finally:
            _ACTING.reset(token)

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
        own = self.scope
        scope = Scope(check_tenant(tenant) if tenant is not None else own.tenant, entity, own.cause, own.depth)
        return Breadcrumbs(self.database, scope, Reader(entity), self.searcher)

    @property
    def triggers(self) -> Triggers:
        return Triggers(self.database, self.scope, self.reading_of(self.scope.actor))

    @property
    def deliveries(self) -> Deliveries:
        return Deliveries(self.database, self.scope)

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.database, self.scope)

    @property
    def runs(self) -> Runs:
        return Runs(self.database, self.scope, self.code.output_types)

    @property
    def agents(self) -> Agents:
        return Agents(self.database, self.scope)

    @property
    def spaces(self) -> Spaces:
        return Spaces(self.database, self.scope)

    def spaces_of(self, entity: str, *, tenant: str | None = None) -> Spaces:
        """The spaces as somebody else sees them, and speaks in them."""
        own = self.scope
        scope = Scope(check_tenant(tenant) if tenant is not None else own.tenant, entity, own.cause, own.depth)
        return Spaces(self.database, scope)

    async def ask(self, agent: Agent | str, question: str, *, timeout: float | None = None) -> Any:
        """Start a run and wait for its answer."""
        handle = await self.runs.start(agent, question)
        return await handle.result(timeout)

    def reading_of(self, entity: str) -> Reading:
        """How definitions of triggers are read that this entity gives."""
        return Reading(entity, self.settings.webhook_base, reach_of(self.settings))

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
        try:
            await self._open()
            for function in self._at_start:
                await function()
        except BaseException as error:  # what was opened by then is closed again
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _open(self) -> None:
        settings = self.settings
        self._database = database = await open_database(
            settings.store,
            owner_place=settings.owner_store,
            synchronous=settings.synchronous,
            busy_seconds=settings.busy_seconds,
            clock=self._clock,
            rules=self.rules,
        )
        self.telemetry = self._given_telemetry or open_telemetry(settings)
        if self.telemetry is not None:
            self._database = database = ObservedDatabase(database, self.telemetry)
        self._searcher = searcher = Searcher(open_embedder(settings))
        await running.declare(database, self._scope.actor, self.code, self._scope)
        await self.declare_triggers(database, settings.triggers, self._scope, self.reading_of(self._scope.actor))
        age = None if settings.keep_days is None else settings.keep_days * DAY_MS
        policy = Policy(max_age_ms=age, max_changes=settings.keep_changes)
        self._tasks = [
            asyncio.create_task(TimerLoop(database, EFFECTS).run(), name="timers"),
            asyncio.create_task(keep_swept(database, policy, settings.sweep_seconds), name="retention"),
            asyncio.create_task(index_stale(database, searcher.embedder), name="search index"),
        ]
        if settings.deliver:
            delivering = Delivering(database, settings, searcher, self.handlers, self._acting_for)
            self._tasks.append(asyncio.create_task(delivering.run(), name="deliveries"))
        if settings.work:
            self._running = await Running(database, self.code, settings, searcher, self.telemetry).__aenter__()

    def at_start(self, function: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """A decorator: call this when the app has been opened, before anybody uses it."""
        self._at_start.append(function)
        return function

    async def drain(self) -> None:
        """Begin no further step of any run, and wait for those that are under way. Other workers go on with the runs."""
        if self._running is not None:
            await self._running.worker.drain()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._running is not None:
            await self._running.__aexit__()
            self._running = None
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
