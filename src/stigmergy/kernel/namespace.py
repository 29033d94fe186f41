"""What a part offers a program, for the tenant and entity that somebody acts for: every unit runs in their scope."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope

T = TypeVar("T")


class Namespace:
    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def _write(self, unit: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        return await self._database.write(unit, *args, scope=self._scope, **kwargs)

    async def _read(self, unit: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
        return await self._database.read(unit, *args, scope=self._scope, **kwargs)
