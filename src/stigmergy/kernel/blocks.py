"""Blocks: large bodies, stored once under the hash of their content.

Records refer to a block by its hash and stay small. Erasing a block keeps its row, so that what refers to it answers
`Erased` instead of being broken.
"""

import hashlib
import re
from typing import NamedTuple

from stigmergy.errors import Erased, NotFound
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot, Transaction

# the second write of a body changes nothing, unless it was erased in between
PUT = Statement(
    "blocks.put",
    """INSERT INTO blocks (tenant, hash, size, media_type, body, created_at)
       VALUES (:tenant, :hash, :size, :media_type, :body, :now)
       ON CONFLICT (tenant, hash) DO UPDATE SET body = excluded.body WHERE blocks.body IS NULL""",
)
GET = Statement("blocks.get", "SELECT hash, size, media_type, body FROM blocks WHERE tenant = :tenant AND hash = :hash")
HAS = Statement("blocks.has", "SELECT 1 FROM blocks WHERE tenant = :tenant AND hash = :hash AND body IS NOT NULL")
ERASE = Statement("blocks.erase", "UPDATE blocks SET body = NULL WHERE tenant = :tenant AND hash = :hash RETURNING hash")
_HASH = re.compile("[0-9a-f]{64}")


class Block(NamedTuple):
    hash: str
    size: int
    media_type: str
    body: bytes


async def put_block(tx: Transaction, body: bytes, media_type: str = "application/octet-stream") -> str:
    digest = hashlib.sha256(body).hexdigest()
    await tx.run(PUT, hash=digest, size=len(body), media_type=media_type, body=body, now=tx.now)
    return digest


async def get_block(tx: Snapshot, hash: str) -> Block:
    rows = await tx.rows(GET, hash=hash)
    if not rows:
        raise NotFound(f"no block {hash}")
    if rows[0][3] is None:
        raise Erased(f"the block {hash} was erased")
    return Block(*rows[0])


async def has_block(tx: Snapshot, hash: str) -> bool:
    return _HASH.fullmatch(hash) is not None and bool(await tx.rows(HAS, hash=hash))


async def erase_block(tx: Transaction, hash: str) -> None:
    if not await tx.rows(ERASE, hash=hash):
        raise NotFound(f"no block {hash}")
