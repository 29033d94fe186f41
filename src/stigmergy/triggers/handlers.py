"""Handlers: Python functions that are called with the changes that fired, like webhooks, but in this process."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from msgspec import structs

from stigmergy.errors import Invalid
from stigmergy.kernel.clock import Clock
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.rules import Rule
from stigmergy.triggers.definitions import check_rule
from stigmergy.triggers.events import Fired, Happened, fired
from stigmergy.triggers.model import Answer, Handler, Retry, check_id
from stigmergy.triggers.webhooks import Outcome

log = logging.getLogger(__name__)

Function = Callable[[Fired], Awaitable[Any] | Any]
# What surrounds a call: whatever is written inside is caused by the change.
Acting = Callable[[Fired], AbstractContextManager[Any]]


def on_rule(what: str, when: str | None, event: str | Iterable[str], selector: Mapping[str, Any]) -> Rule:
    """What `@app.on` is about, still without an action: a collection, a path, or the schema name of breadcrumbs."""
    events = [event] if isinstance(event, str) else list(event)
    if "/" in what or "*" in what.rstrip("*") or what in COLLECTIONS or what == "*":
        return Rule(
            id="", owner="", kind="handler", collection=what, events=events, condition=when, selector=dict(selector) or None
        )
    if "." not in what:
        known = ", ".join(sorted(COLLECTIONS))
        raise Invalid(f"{what!r} is no collection and no schema name; there are {known}", "collection", "unknown_collection")
    selected = {"schema_name": what, **selector}
    return Rule(id="", owner="", kind="handler", collection="breadcrumbs", events=events, condition=when, selector=selected)


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
        self._functions: dict[str, Function] = {}

    @property
    def names(self) -> list[str]:
        return list(self._functions)

    def add(self, name: str, function: Function) -> None:
        if self._functions.setdefault(name, function) is not function:
            raise Invalid(f"two handlers are called {name!r}; give one another name", "name")

    def function(self, name: str) -> Function | None:
        return self._functions.get(name)


class Runner:
    """Hands deliveries to handlers. One that raises or takes too long is called again, like a webhook that answers 500."""

    def __init__(self, handlers: Handlers, clock: Clock, acting: Acting) -> None:
        self._handlers = handlers
        self._clock = clock
        self._acting = acting

    async def hand_over(self, handler: Handler, happened: Happened) -> Outcome:
        at, started = self._clock.now(), self._clock.monotonic()
        error: str | None = None
        function = self._handlers.function(handler.name)
        if function is None:
            error = f"there is no handler {handler.name!r} in this process"
        else:
            try:
                async with asyncio.timeout(handler.timeout_ms / 1000):
                    await self._call(function, fired(happened))
            except TimeoutError:
                error = f"not done within {handler.timeout_ms} ms"
            except Exception as raised:
                # it is somebody's code: whatever it raises must not hold up the others
                log.warning("the handler %s failed on delivery %s", handler.name, happened.delivery.id, exc_info=raised)
                error = f"{type(raised).__name__}: {raised}"[:1000]
        took = round((self._clock.monotonic() - started) * 1000)
        return Outcome("delivered" if error is None else "again", Answer(error=error, at=at, took_ms=took))

    async def _call(self, function: Function, change: Fired) -> None:
        with self._acting(change):
            if inspect.iscoroutinefunction(function):
                await function(change)
            else:
                await asyncio.to_thread(function, change)
