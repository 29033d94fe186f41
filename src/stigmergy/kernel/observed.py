"""A database that tells of its work: the same port, with every unit measured by its name."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from stigmergy.kernel.database import MAIN, Database, Finding, Progress
from stigmergy.kernel.record import Record, collection_of
from stigmergy.kernel.transaction import Scope
from stigmergy.telemetry import Telemetry

T = TypeVar("T")
R = TypeVar("R", bound=Record)


class ObservedDatabase:
    def __init__(self, database: Database, telemetry: Telemetry) -> None:
        self._database = database
        self._telemetry = telemetry
        self.bus = database.bus
        self.clock = database.clock
        self.rules = database.rules

    async def write(self, unit: Callable[..., Awaitable[T]], /, *args: Any, scope: Scope = MAIN, **kwargs: Any) -> T:
        with self._telemetry.timed("write", unit.__name__) as attributes:
            attributes["tenant"] = scope.tenant
            return await self._database.write(unit, *args, scope=scope, **kwargs)

    async def read(self, unit: Callable[..., Awaitable[T]], /, *args: Any, scope: Scope = MAIN, **kwargs: Any) -> T:
        with self._telemetry.timed("read", unit.__name__) as attributes:
            attributes["tenant"] = scope.tenant
            return await self._database.read(unit, *args, scope=scope, **kwargs)

    async def get(self, record: type[R], *key: str | int, scope: Scope = MAIN) -> R | None:
        with self._telemetry.timed("get", collection_of(record).name) as attributes:
            attributes["tenant"] = scope.tenant
            return await self._database.get(record, *key, scope=scope)

    async def tenants(self) -> list[str]:
        return await self._database.tenants()

    async def check(self) -> list[Finding]:
        return await self._database.check()

    async def backup(self, target: Path, *, progress: Progress | None = None) -> None:
        with self._telemetry.timed("backup", type(self._database).__name__):
            await self._database.backup(target, progress=progress)

    async def close(self) -> None:
        await self._database.close()
