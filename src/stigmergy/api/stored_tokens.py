"""The rows of tokens, each read once for all requests that come in together.

What runs in one turn of the event loop had arrived before the turn began. So what is read for the first of them is not out of
date for the others: none was sent after a revocation that the row does not show. The next turn reads anew.
"""

import asyncio

from stigmergy.access.model import Claims, Token
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope


class StoredTokens:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn_of: asyncio.AbstractEventLoop | None = None
        self._read: dict[tuple[str, str], Token | None] = {}

    async def named_by(self, claims: Claims) -> Token | None:
        """The token that these claims name, as it is stored now."""
        loop = asyncio.get_running_loop()
        if self._turn_of is not loop:
            self._turn_of, self._read = loop, {}
            loop.call_soon(self._end_turn)
        read, key = self._read, (claims.tenant, claims.id)
        if key not in read:  # a store that has to be waited for answers into a turn that is over, and nobody looks there
            read[key] = await self._database.get(Token, claims.id, scope=Scope(claims.tenant))
        return read[key]

    def _end_turn(self) -> None:
        self._turn_of = None
