"""What leaves the store: old changes, old versions, used-up keys. Never what somebody still needs.

A follower that is registered keeps the journal from its cursor on, up to the lag it registered for. Parts above name what
else must stay with a keeper: the position up to which the journal may go. Pinned versions stay, whatever the policy says.
A sweep works in small units, so that it never holds up a writer.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from stigmergy.errors import StigmergyError
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import edges
from stigmergy.kernel.idempotency import sweep_keys
from stigmergy.kernel.query import Row, Statement
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.transaction import Scope, Snapshot, Transaction

log = logging.getLogger(__name__)

CHUNK = 1_000
DAY_MS = 24 * 3600 * 1000

OLDEST = Statement("changes.oldest", "SELECT seq, at FROM changes WHERE tenant = :tenant ORDER BY tenant, seq LIMIT :limit")
DROP = Statement("changes.drop", "DELETE FROM changes WHERE tenant = :tenant AND seq <= :upto")
FOLLOWERS = Statement("followers.floor", "SELECT cursor, max_lag FROM followers WHERE tenant = :tenant")
SUPERSEDED = Statement(
    "versions.superseded",
    """SELECT v.id, v.version, v.seq,
              (SELECT max(w.version) FROM versions w WHERE w.tenant = v.tenant AND w.collection = v.collection AND w.id = v.id),
              (SELECT count(*) FROM pins p WHERE p.tenant = v.tenant AND p.collection = v.collection
                                             AND p.id = v.id AND p.version = v.version)
       FROM versions v
       WHERE v.tenant = :tenant AND v.collection = :collection AND (v.id, v.version) > (:id, :version)
       ORDER BY v.tenant, v.collection, v.id, v.version LIMIT :limit""",
)
DROP_VERSION = Statement(
    "versions.drop",
    "DELETE FROM versions WHERE tenant = :tenant AND collection = :collection AND id = :id AND version = :version",
)
PIN = Statement(
    "pins.pin",
    """INSERT INTO pins (tenant, collection, id, version, holder) VALUES (:tenant, :collection, :id, :version, :holder)
       ON CONFLICT DO NOTHING""",
)
UNPIN = Statement("pins.unpin", "DELETE FROM pins WHERE tenant = :tenant AND holder = :holder")


class Policy(NamedTuple):
    """Changes may go when they are older than `max_age_ms` or when more than `max_changes` are kept; None is no bound."""

    max_age_ms: int | None = None
    max_changes: int | None = None


class Swept(NamedTuple):
    changes: int
    versions: int


# The last position that a part no longer needs, or None when it needs nothing of this tenant.
Keeper = Callable[[Snapshot], Awaitable[int | None]]


async def pin(tx: Transaction, collection: str, id: str, version: int, holder: str) -> None:
    """Keep a version as long as this holder shows it."""
    await tx.run(PIN, collection=collection, id=id, version=version, holder=holder)


async def unpin(tx: Transaction, holder: str) -> None:
    await tx.run(UNPIN, holder=holder)


async def needed_after(tx: Snapshot, keepers: Sequence[Keeper] = ()) -> int:
    """The position up to which nobody needs the journal any more."""
    last = (await edges(tx)).last
    floors = [last, *(max(cursor, last - max_lag) for cursor, max_lag in await tx.rows(FOLLOWERS))]
    floors += [floor for keeper in keepers if (floor := await keeper(tx)) is not None]
    return min(floors)


async def drop_changes(tx: Transaction, policy: Policy, keepers: Sequence[Keeper] = ()) -> int:
    """Drop the oldest changes that may go, a bounded number. Gives how many; 0 when there are none left."""
    last = (await edges(tx)).last
    needed = await needed_after(tx, keepers)
    upto = 0
    gone = 0
    for seq, at in await tx.rows(OLDEST, limit=CHUNK):
        old = policy.max_age_ms is not None and at < tx.now - policy.max_age_ms
        many = policy.max_changes is not None and seq <= last - policy.max_changes
        if seq > needed or not (old or many):
            break
        upto, gone = seq, gone + 1
    if gone:
        await tx.run(DROP, upto=upto)
    return gone


async def drop_versions(
    tx: Transaction, collection: str, keep: int, start: tuple[str, int], keepers: Sequence[Keeper] = ()
) -> tuple[int, tuple[str, int] | None]:
    """Look at some superseded versions from a place on and drop those beyond the last `keep` (the current one counted).
    Gives how many went and where to go on, None at the end."""
    needed = await needed_after(tx, keepers)
    rows = await tx.rows(SUPERSEDED, collection=collection, id=start[0], version=start[1], limit=CHUNK)
    gone = [row for row in rows if _may_go(row, keep, needed)]
    for id, version, *_ in gone:
        await tx.run(DROP_VERSION, collection=collection, id=id, version=version)
    return len(gone), (rows[-1][0], rows[-1][1]) if len(rows) == CHUNK else None


def _may_go(row: Row, keep: int, needed: int) -> bool:
    _, version, seq, newest, pins = row
    # `newest` is superseded itself: one more version, or a tombstone, came after it
    return version <= newest + 1 - keep and seq < needed and not pins


async def sweep(database: Database, policy: Policy, keepers: Sequence[Keeper] = ()) -> Swept:
    """Go through all tenants once, unit by unit."""
    changes = versions = 0
    for tenant in await database.tenants():
        scope = Scope(tenant=tenant, actor="retention")
        if policy != Policy():
            while gone := await database.write(drop_changes, policy, keepers, scope=scope):
                changes += gone
        for collection in COLLECTIONS.values():
            place: tuple[str, int] | None = ("", 0)
            while collection.keep_versions is not None and place is not None:
                gone, place = await database.write(
                    drop_versions, collection.name, collection.keep_versions, place, keepers, scope=scope
                )
                versions += gone
        await database.write(sweep_keys, scope=scope)
    return Swept(changes, versions)


async def keep_swept(database: Database, policy: Policy, seconds: float, keepers: Sequence[Keeper] = ()) -> None:
    """Sweep again and again, until cancelled. A failed sweep is logged and tried again at the next turn."""
    while True:
        await database.clock.sleep(seconds)
        try:
            swept = await sweep(database, policy, keepers)
            log.debug("retention dropped %s changes and %s versions", *swept)
        except StigmergyError as error:
            log.warning("a retention sweep failed: %s", error)
