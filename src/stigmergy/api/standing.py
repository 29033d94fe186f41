"""Whether the token that opened a stream still stands: asked now and then, and at once when there is a doubt."""

import math
import time

from stigmergy.access.model import Claims, Token
from stigmergy.api.auth import unit_scope
from stigmergy.kernel.database import Database


class Standing:
    def __init__(self, database: Database, claims: Claims, seconds: float) -> None:
        self._database = database
        self._claims = claims
        self._seconds = seconds
        self._checked = time.monotonic()

    def doubt(self) -> None:
        """Something was said of the token: it is looked at before anything more is sent."""
        self._checked = -math.inf

    @property
    def in_doubt(self) -> bool:
        return self._checked == -math.inf

    async def is_good(self) -> bool:
        if self._claims.id in ("", "local") or time.monotonic() - self._checked < self._seconds:
            return True
        self._checked = time.monotonic()
        token = await self._database.get(Token, self._claims.id, scope=unit_scope(self._claims))
        expired = token is not None and token.expires_at is not None and token.expires_at <= self._database.clock.now()
        return token is not None and token.revoked_at is None and not expired
