"""`app.triggers` and `app.deliveries`: what a program may do and ask, for the tenant and entity that it acts for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stigmergy.kernel.database import Database
from stigmergy.kernel.namespace import Namespace
from stigmergy.kernel.rules import Diagnostic, Rule
from stigmergy.kernel.transaction import Scope
from stigmergy.triggers import commands, queries
from stigmergy.triggers.definitions import Reading, parse_definition, parse_definitions
from stigmergy.triggers.lint import Finding, lint
from stigmergy.triggers.loading import load_triggers
from stigmergy.triggers.model import Delivery, Status
from stigmergy.triggers.queries import Shown, Supposed, Told


class Triggers(Namespace):
    def __init__(self, database: Database, scope: Scope, reading: Reading) -> None:
        super().__init__(database, scope)
        self._reading = reading

    async def add(self, definition: Mapping[str, Any], *, if_match: int | None = None) -> Rule:
        """Add a trigger, or replace the one with its id."""
        rule = parse_definition(definition, self._reading)
        return await self._write(commands.put_trigger, rule, if_match=if_match)

    async def add_all(self, definitions: Any) -> list[Rule]:
        """All of a list, in one transaction, or none."""
        return await self.put(parse_definitions(definitions, self._reading))

    async def put(self, rules: Sequence[Rule]) -> list[Rule]:
        """The same with what was read before."""
        return await self._write(commands.put_triggers, rules)

    async def load(self, path: Path | str) -> list[Rule]:
        """The triggers of a `triggers.json` or `.toml`: all of them, or none."""
        return await self.put(load_triggers(Path(path), self._reading))

    async def get(self, id: str) -> Rule:
        return await self._read(queries.trigger, id)

    async def all(self) -> list[Rule]:
        """The triggers that hold here, by id: the tenant's own, and those of the program."""
        return await self._read(queries.all_triggers)

    async def delete(self, id: str, *, if_match: int | None = None) -> None:
        await self._write(commands.delete_trigger, id, if_match=if_match)

    async def check(self, definitions: Any) -> list[Finding]:
        """What looks wrong about definitions that are right; `Invalid` for those that are not. Nothing is stored."""
        return lint(parse_definitions(definitions, self._reading))

    async def test(self, change: Mapping[str, Any] | Supposed | int, triggers: Sequence[Rule] | None = None) -> list[Told]:
        """Which triggers a change would fire, and why not the others: one that is only supposed, or one of the journal. Of the
        triggers in force, or of these."""
        if isinstance(change, int):
            return await self._read(queries.would_fire_at, change, triggers)
        supposed = change if isinstance(change, Supposed) else Supposed(**change)
        return await self._read(queries.would_fire, supposed, triggers)

    async def diagnostics(self, id: str) -> list[Diagnostic]:
        """What went wrong while a trigger was matched, newest first."""
        return await self._read(queries.diagnostics, id)


class Deliveries(Namespace):
    async def find(
        self, *, status: Status | None = None, trigger: str | None = None, limit: int = 50, below: str = queries.NEWEST
    ) -> list[Delivery]:
        """Newest first; the id of the last one, as `below`, asks for what follows."""
        return await self._read(queries.deliveries, status=status, trigger_id=trigger, limit=limit, below=below)

    async def get(self, id: str) -> Shown:
        return await self._read(queries.delivery, id)

    async def event(self, id: str) -> dict[str, Any]:
        """What its receiver is told."""
        return await self._read(queries.event, id)

    async def retry(self, id: str) -> Delivery:
        """Hand a dead one over once more."""
        return await self._write(commands.retry, id)

    async def retry_all(self, trigger: str) -> int:
        """The same for every dead one of a trigger. Gives how many."""
        return await retry_all(self._database, self._scope, trigger)

    async def discard(self, id: str) -> Delivery:
        """Give one up."""
        return await self._write(commands.discard, id)


async def retry_all(database: Database, scope: Scope, trigger: str) -> int:
    """Every dead delivery of a trigger, unit by unit."""
    count, below = 0, queries.NEWEST
    while again := await database.write(commands.retry_all, trigger, below, scope=scope):
        count, below = count + len(again), again[-1].id
    return count
