"""A token is looked up once for all requests that come in together, and never for one that comes later."""

import asyncio
from typing import Any

from stigmergy.access.commands import create_token, revoke_token
from stigmergy.access.model import Claims
from stigmergy.api.stored_tokens import StoredTokens
from stigmergy.kernel.database import Database

CALLERS = 16


class Counting:
    """The database, and how often it was asked for a record."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.gets = 0

    async def get(self, *args: Any, **kwargs: Any) -> Any:
        self.gets += 1
        return await self._database.get(*args, **kwargs)


async def test_who_comes_after_a_revocation_is_told_of_it(store: Database) -> None:
    claims: Claims = await store.write(create_token, "mia", ["read"])
    stored = StoredTokens(store)
    is_revoked = False

    async def come_often() -> None:
        late = 0
        while late < 10:
            comes_after = is_revoked
            token = await stored.named_by(claims)
            assert token is not None
            if comes_after:
                assert token.revoked_at is not None
                late += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as callers:
        for _ in range(CALLERS):
            callers.create_task(come_often())
        await asyncio.sleep(0)
        await store.write(revoke_token, claims.id)
        is_revoked = True


async def test_those_who_come_together_share_a_look_at_a_store_that_need_not_be_waited_for(store: Database, engine: str) -> None:
    claims: Claims = await store.write(create_token, "mia", ["read"])
    counting = Counting(store)
    database: Any = counting
    stored = StoredTokens(database)
    found = await asyncio.gather(*(stored.named_by(claims) for _ in range(CALLERS)))
    assert {token.id for token in found if token is not None} == {claims.id}
    together = 1 if engine == "sqlite" else CALLERS
    assert counting.gets == together
    await stored.named_by(claims)
    assert counting.gets == together + 1


async def test_a_token_of_another_tenant_is_another_token(store: Database) -> None:
    claims: Claims = await store.write(create_token, "mia", ["read"])
    stored = StoredTokens(store)
    elsewhere = Claims(claims.id, "other", "mia", ("read",))
    ours, theirs = await asyncio.gather(stored.named_by(claims), stored.named_by(elsewhere))
    assert ours is not None
    assert theirs is None
