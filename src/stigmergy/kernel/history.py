"""A record's versions: the current one is its row, the older ones are in `versions`.

What was erased keeps its number and answers `Erased`.
"""

from typing import Any, TypeVar

from stigmergy.errors import Erased, NotFound
from stigmergy.kernel.query import Statement
from stigmergy.kernel.record import Collection, Record, collection_of
from stigmergy.kernel.transaction import Snapshot, Transaction

R = TypeVar("R", bound=Record)

READ_VERSIONS = Statement(
    "versions.read",
    """SELECT version, body FROM versions
       WHERE tenant = :tenant AND collection = :collection AND id = :id AND version < :below
       ORDER BY tenant, collection, id, version DESC LIMIT :limit""",
)
ERASE = Statement(
    "versions.erase",
    "UPDATE versions SET body = NULL WHERE tenant = :tenant AND collection = :collection AND id = :id AND version < :below",
)
EVERYTHING = 2**62


async def read_history(tx: Snapshot, record: type[R], *key: str | int, below: int = EVERYTHING, limit: int = 100) -> list[R]:
    """The versions of a record, newest first, from below a number on. Erased ones are left out."""
    collection = collection_of(record)
    id = _id(collection, key)
    current = await tx.get(record, *key)
    found = [current] if current is not None and current.version < below else []
    for _, body in await tx.rows(READ_VERSIONS, collection=collection.name, id=id, below=below, limit=limit):
        if body is not None:
            found.append(collection.decode_body(body))
    return found[:limit]


async def read_version(tx: Snapshot, record: type[R], *key: str | int, version: int) -> R:
    collection = collection_of(record)
    current = await tx.get(record, *key)
    if current is not None and current.version == version:
        return current
    rows = await tx.rows(READ_VERSIONS, collection=collection.name, id=_id(collection, key), below=version + 1, limit=1)
    if not rows or rows[0][0] != version:
        raise NotFound(f"{collection.name} {_id(collection, key)} has no version {version}")
    if rows[0][1] is None:
        raise Erased(f"{collection.name} {_id(collection, key)}: version {version} was erased")
    return collection.decode_body(rows[0][1])


async def purge(tx: Transaction, record: type[R], *key: str | int) -> None:
    """Erase every body of a record, the current one with it. Its numbers stay, and its deletion is a change.
    (What is written once and made again under the same key starts at version 1: its only body is erased.)"""
    collection = collection_of(record)
    current = await tx.get(record, *key)
    if current is not None:
        await tx.delete(current)
    tx.erase(collection, _id(collection, key))
    await tx.run(ERASE, collection=collection.name, id=_id(collection, key), below=EVERYTHING)


def _id(collection: Collection[Any], key: tuple[str | int, ...]) -> str:
    return "/".join(str(part) for part in key)
