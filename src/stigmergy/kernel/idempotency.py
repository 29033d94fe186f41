"""Idempotency keys: the same request, sent again, gets the first answer and does nothing.

A key belongs to a tenant, an actor and a route, for a day. It is claimed before the work and answered in the same unit,
so that of two equal requests at once the second waits for the first.
"""

import hashlib

from stigmergy.errors import KeyReused
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Transaction

LIFETIME_MS = 24 * 3600 * 1000

_MINE = "tenant = :tenant AND actor = :actor AND route = :route AND key = :key"
EXPIRE = Statement("idempotency.expire", f"DELETE FROM idempotency WHERE {_MINE} AND created_at < :before")
CLAIM = Statement(
    "idempotency.claim",
    """INSERT INTO idempotency (tenant, actor, route, key, request, answer, created_at)
       VALUES (:tenant, :actor, :route, :key, :request, :answer, :now) ON CONFLICT DO NOTHING RETURNING key""",
)
READ = Statement("idempotency.read", f"SELECT request, answer FROM idempotency WHERE {_MINE}")
ANSWER = Statement("idempotency.answer", f"UPDATE idempotency SET answer = :answer WHERE {_MINE}")
SWEEP = Statement("idempotency.sweep", "DELETE FROM idempotency WHERE tenant = :tenant AND created_at < :before")


async def claim_key(tx: Transaction, route: str, key: str, request: bytes) -> bytes | None:
    """The first answer to this request, or None when this is the first: then do the work and `answer_key`."""
    mine = {"actor": tx.actor, "route": route, "key": key}
    digest = hashlib.sha256(request).digest()
    await tx.run(EXPIRE, **mine, before=tx.now - LIFETIME_MS)
    if await tx.rows(CLAIM, **mine, request=digest, answer=b"", now=tx.now):
        return None
    ((first, answer),) = await tx.rows(READ, **mine)
    if bytes(first) != digest:
        raise KeyReused(f"the idempotency key {key!r} was used with another body; use a new key for a new request")
    return bytes(answer)


async def answer_key(tx: Transaction, route: str, key: str, answer: bytes) -> None:
    await tx.run(ANSWER, actor=tx.actor, route=route, key=key, answer=answer)


async def sweep_keys(tx: Transaction) -> None:
    await tx.run(SWEEP, before=tx.now - LIFETIME_MS)
