"""What a program says of changes in its code: `@app.on(…)` and `@app.on_change(…)`. `App` is one of these."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from stigmergy.kernel.database import Database
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.transaction import SHARED, Scope
from stigmergy.triggers.commands import declare_triggers
from stigmergy.triggers.definitions import Reading
from stigmergy.triggers.gathering import parse_output, parse_sources
from stigmergy.triggers.handlers import Function, Handlers, Handling, handler_rule, on_rule
from stigmergy.triggers.loading import load_triggers
from stigmergy.triggers.model import Retry

EVERY_WRITE = ("create", "update")
EVERY_CHANGE = ("create", "update", "delete")


class Declaring:
    """Handlers in code, declared for every tenant when the program starts, under its own name."""

    def __init__(self, program: str) -> None:
        self.handlers = Handlers()
        self._program = program
        self._handler_rules: list[Rule] = []

    def on(
        self,
        what: str,
        *,
        when: str | None = None,
        event: str | Iterable[str] = EVERY_WRITE,
        name: str | None = None,
        timeout: float = 60.0,
        retry: Retry | None = None,
        sources: Sequence[Any] = (),
        output: Any = None,
        **selector: Any,
    ) -> Callable[[Function], Function]:
        """`@app.on("tasks", when="status == 'failed'")`, `@app.on("user.message.v1", any_tags=["urgent"])`: call this function
        with every such change, at least once. It is a delivery like a webhook: durable, in order per document, tried again.

        `sources` (`latest`, `recent`, `nearest`) are gathered for it as for an agent, and are the change's `assembly`. With
        `output={"schema_name": …, "tags": […]}` what it returns becomes a breadcrumb, once, unless that is None."""
        about = parse_sources(sources), parse_output(output)
        rule = on_rule(what, when, event, selector)
        return lambda function: self._handle(Handling(function, *about), rule, name, timeout, retry)

    def on_change(
        self,
        collection: str,
        event: str | Iterable[str] = EVERY_CHANGE,
        *,
        condition: str | None = None,
        name: str | None = None,
        timeout: float = 60.0,
        retry: Retry | None = None,
    ) -> Callable[[Function], Function]:
        """The same in the words of a trigger: `@app.on_change("users/*/orch-chats/*/tasks", "update (status='failed')")`."""
        rule = on_rule(collection, condition, event, {})
        return lambda function: self._handle(Handling(function), rule, name, timeout, retry)

    def _handle(self, handling: Handling, rule: Rule, name: str | None, timeout: float, retry: Retry | None) -> Function:
        made = handler_rule(rule, self._program, name or getattr(handling.function, "__name__", "handler"), timeout, retry)
        self.handlers.add(made.action["name"], handling)
        self._handler_rules.append(made)
        return handling.function

    async def declare_triggers(self, database: Database, file: str | None, scope: Scope, reading: Reading) -> None:
        """Make the triggers of the program's code, and those of its file, exactly what they say now."""
        if self._handler_rules:
            owner = self._handler_rules[0].owner
            await database.write(declare_triggers, owner, self._handler_rules, scope=Scope(SHARED, self._program))
        if file is not None:
            owner = f"file:{Path(file).name}"
            rules = load_triggers(Path(file), reading._replace(owner=owner))
            await database.write(declare_triggers, owner, rules, scope=scope)
