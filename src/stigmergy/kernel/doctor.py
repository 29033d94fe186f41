"""What is wrong with a store, in sentences: the engine's own checks, the journal, orphans, stuck work, settings.

It reads and never repairs.
"""

from collections.abc import AsyncIterator

from stigmergy.kernel.database import Database, Finding
from stigmergy.kernel.query import Statement
from stigmergy.kernel.record import COLLECTIONS, Collection, Record
from stigmergy.kernel.transaction import Scope, Snapshot

JOURNAL = Statement(
    "doctor.journal",
    """SELECT (SELECT seq FROM heads WHERE tenant = :tenant), count(*), min(seq), max(seq) FROM changes WHERE tenant = :tenant""",
)
HELD_BY_THE_DEAD = Statement(
    "doctor.held",
    """SELECT count(*) FROM ready WHERE tenant = :tenant AND worker IS NOT NULL
       AND worker NOT IN (SELECT id FROM workers WHERE alive)""",
)


async def examine(database: Database) -> AsyncIterator[Finding]:
    """Look at everything, one finding at a time."""
    for finding in await database.check():
        yield finding
    for tenant in await database.tenants():
        for finding in await database.read(_examine_tenant, scope=Scope(tenant=tenant)):
            yield finding


async def _examine_tenant(tx: Snapshot) -> list[Finding]:
    findings = [await _journal(tx)]
    for collection in COLLECTIONS.values():
        findings.append(await _rows(tx, collection))
        findings.append(await _versions(tx, collection))
    ((stuck,),) = await tx.rows(HELD_BY_THE_DEAD)
    findings.append(
        Finding(
            f"{tx.tenant}: work in hand",
            not stuck,
            f"{stuck} items are held by workers that are gone" if stuck else "every item in hand has a living worker",
            "start a worker: it takes over what the dead ones held within its lease",
        )
    )
    return findings


async def _journal(tx: Snapshot) -> Finding:
    ((head, count, first, last),) = await tx.rows(JOURNAL)
    whole = count == 0 or (last - first + 1 == count and last == head)
    detail = f"{count} changes" + (f", {first} to {last}" if count else "") + f", head at {head}"
    return Finding(f"{tx.tenant}: journal without gaps", whole, detail, "restore the last good backup and report this")


async def _rows(tx: Snapshot, collection: Collection[Record]) -> Finding:
    """Every row's last change is in the journal (if it still reaches back so far) and speaks of this row."""
    name = collection.name
    key = " || '/' || ".join(f"CAST(r.{column} AS TEXT)" for column in collection.key)
    orphans = Statement(
        f"doctor.{name}",
        f"""SELECT count(*), min({key}) FROM {name} r
            LEFT JOIN changes c ON c.tenant = r.tenant AND c.seq = r.seq
            WHERE r.tenant = :tenant
              AND r.seq >= (SELECT COALESCE(min(seq), (SELECT seq + 1 FROM heads WHERE tenant = :tenant))
                            FROM changes WHERE tenant = :tenant)
              AND (c.seq IS NULL OR c.collection <> '{name}' OR c.id <> {key} OR c.version <> r.version)""",
    )
    ((count, example),) = await tx.rows(orphans)
    return Finding(
        f"{tx.tenant}: {name} and their changes",
        not count,
        f"{count} rows disagree with the journal, such as {example}" if count else "every row is the last change of it",
        "somebody wrote to the table beside the engine; restore the last good backup",
    )


async def _versions(tx: Snapshot, collection: Collection[Record]) -> Finding:
    """Every kept version belongs to a record that is there, or to a tombstone."""
    name = collection.name
    key = " || '/' || ".join(f"CAST({column} AS TEXT)" for column in collection.key)
    lost = Statement(
        f"doctor.{name}.versions",
        f"""SELECT count(*), min(id) FROM versions WHERE tenant = :tenant AND collection = '{name}'
            AND id NOT IN (SELECT {key} FROM {name} WHERE tenant = :tenant)
            AND id NOT IN (SELECT id FROM tombstones WHERE tenant = :tenant AND collection = '{name}')""",
    )
    ((count, example),) = await tx.rows(lost)
    return Finding(
        f"{tx.tenant}: {name} and their versions",
        not count,
        f"{count} versions belong to no record, such as {example}" if count else "every version has its record or its tombstone",
        "somebody wrote to the table beside the engine; restore the last good backup",
    )
