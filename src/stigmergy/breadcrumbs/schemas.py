"""What is said of schema names, for one unit of work: read once, however many breadcrumbs of a name it writes and shows."""

from stigmergy.breadcrumbs.model import Schema
from stigmergy.kernel.transaction import Snapshot


class Schemas:
    """A unit that writes schemas too makes one after that."""

    def __init__(self, tx: Snapshot) -> None:
        self._tx = tx
        self._known: dict[str, Schema | None] = {}

    async def of(self, name: str) -> Schema | None:
        if name not in self._known:
            self._known[name] = await self._tx.get(Schema, name)
        return self._known[name]
