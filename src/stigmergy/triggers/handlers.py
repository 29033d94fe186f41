"""Handlers: Python functions that are called with the changes that fired, like webhooks, but in this process."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from stigmergy.breadcrumbs.output import Output
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.breadcrumbs.subscriptions import Subscription
from stigmergy.errors import Invalid
from stigmergy.kernel.database import Database
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.transaction import Scope
from stigmergy.triggers.definitions import check_rule
from stigmergy.triggers.events import Fired, Happened, fired
from stigmergy.triggers.gathering import gathered, write_result
from stigmergy.triggers.model import Answer, Handler, Retry, check_id
from stigmergy.triggers.webhooks import Outcome

log = logging.getLogger(__name__)

Function = Callable[[Fired], Awaitable[Any] | Any]
# What surrounds a call: whatever is written inside is caused by the change. It gives the scope of that.
Acting = Callable[[Fired], AbstractContextManager[Scope]]


class Handling(NamedTuple):
    """A function, what is gathered for it, and where its result goes."""

    function: Function
    sources: tuple[Subscription, ...] = ()
    output: Output | None = None


def on_rule(what: str, when: str | None, event: str | Iterable[str], selector: Mapping[str, Any]) -> Rule:
    """What `@app.on` is about, still without an action: a collection, a path, or a schema name, whatever has it."""
    events = [event] if isinstance(event, str) else list(event)
    if "/" in what or "*" in what.rstrip("*") or what in COLLECTIONS or what == "*":
        return Rule(
            id="", owner="", kind="handler", collection=what, events=events, condition=when, selector=dict(selector) or None
        )
    if "." not in what:
        known = ", ".join(sorted(COLLECTIONS))
        raise Invalid(f"{what!r} is no collection and no schema name; there are {known}", "collection", "unknown_collection")
    selected = {"schema_name": what, **selector}
    return Rule(id="", owner="", kind="handler", collection="*", events=events, condition=when, selector=selected)


def handler_rule(rule: Rule, program: str, name: str, timeout: float, retry: Retry | None) -> Rule:
    """The rule of a program's handler. Its id has the program's name and a colon before it, which no trigger of a tenant has."""
    check_id(name, "name")
    action = Handler(name=name, timeout_ms=round(timeout * 1000), retry=retry or Retry())
    made = structs.replace(
        rule, id=f"{program}:{name}".replace(" ", "_"), owner=f"program:{program}", action=msgspec.to_builtins(action)
    )
    check_rule(made)
    return made


class Handlers:
    """The functions of this process, by name."""

    def __init__(self) -> None:
        self._named: dict[str, Handling] = {}

    @property
    def names(self) -> list[str]:
        return list(self._named)

    def add(self, name: str, handling: Handling) -> None:
        if self._named.setdefault(name, handling) is not handling:
            raise Invalid(f"two handlers are called {name!r}; give one another name", "name")

    def named(self, name: str) -> Handling | None:
        return self._named.get(name)


class Runner:
    """Hands deliveries to handlers. One that raises or takes too long is called again, like a webhook that answers 500."""

    def __init__(self, handlers: Handlers, database: Database, searcher: Searcher, acting: Acting) -> None:
        self._handlers = handlers
        self._database = database
        self._searcher = searcher
        self._clock = database.clock
        self._acting = acting

    async def hand_over(self, handler: Handler, happened: Happened) -> Outcome:
        at, started = self._clock.now(), self._clock.monotonic()
        error: str | None = None
        handling = self._handlers.named(handler.name)
        if handling is None:
            error = f"there is no handler {handler.name!r} in this process"
        else:
            try:
                async with asyncio.timeout(handler.timeout_ms / 1000):
                    await self._call(handling, fired(happened))
            except TimeoutError:
                error = f"not done within {handler.timeout_ms} ms"
            except Exception as raised:
                # it is somebody's code: whatever it raises must not hold up the others
                log.warning("the handler %s failed on delivery %s", handler.name, happened.delivery.id, exc_info=raised)
                error = f"{type(raised).__name__}: {raised}"[:1000]
        took = round((self._clock.monotonic() - started) * 1000)
        return Outcome("delivered" if error is None else "again", Answer(error=error, at=at, took_ms=took))

    async def _call(self, handling: Handling, change: Fired) -> None:
        with self._acting(change) as scope:
            if handling.sources:
                assembly = await gathered(self._database, self._searcher, handling.sources, change, scope)
                change = change._replace(assembly=assembly)
            if inspect.iscoroutinefunction(handling.function):
                result = await handling.function(change)
            else:
                result = await asyncio.to_thread(handling.function, change)
            if handling.output is not None and result is not None:
                await self._database.write(write_result, handling.output, change, result, scope=scope)
