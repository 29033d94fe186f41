"""What is wrong with a store, in sentences: the engine's own checks, the journal, orphans, stuck work, settings.

It reads and never repairs. A part that keeps more beside its rows has an examiner of its own, which is handed in.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from stigmergy.errors import StoreError
from stigmergy.kernel.database import Database, Finding
from stigmergy.kernel.feed import edges
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
LEFT_BEHIND = Statement(
    "doctor.followers", "SELECT count(*), min(name) FROM followers WHERE tenant = :tenant AND cursor < :oldest - 1"
)
BLOCKS = Statement(
    "doctor.blocks",
    """SELECT hash, body FROM blocks WHERE tenant = :tenant AND hash > :after AND body IS NOT NULL
       ORDER BY tenant, hash LIMIT 50""",
)

BESIDE = "somebody wrote to the table beside the engine; restore the last good backup"

# What a part looks at besides, in every tenant.
Examiner = Callable[[Snapshot], Awaitable[list[Finding]]]


def found(tx: Snapshot, what: str, count: int, example: str | None, wrong: str, right: str, advice: str = BESIDE) -> Finding:
    """What a count of faults says."""
    said = f"{count} {wrong}, such as {example}" if count else right
    return Finding(f"{tx.tenant}: {what}", not count, said, advice)


async def examine(database: Database, more: Sequence[Examiner] = ()) -> AsyncIterator[Finding]:
    """Look at everything, one finding at a time. What cannot be read is a finding too."""
    for finding in await database.check():
        yield finding
    try:
        for tenant in await database.tenants():
            for finding in await database.read(_examine_tenant, more, scope=Scope(tenant=tenant)):
                yield finding
    except StoreError as error:
        yield Finding("everything can be read", False, str(error), "restore the last good backup")


async def _examine_tenant(tx: Snapshot, more: Sequence[Examiner]) -> list[Finding]:
    tx.expect_work()
    findings = [await _journal(tx)]
    for collection in COLLECTIONS.values():
        findings.append(await _rows(tx, collection))
        if collection.keep_versions is None:
            findings.append(await _bodies(tx, collection))
        findings.append(await _versions(tx, collection))
        findings.append(await _tombstones(tx, collection))
        for column, parent in collection.belongs_to.items():
            findings.append(await _belonging(tx, collection, column, COLLECTIONS[parent]))
    findings += [await _blocks(tx), await _followers(tx), await _work(tx)]
    for examiner in more:
        findings += await examiner(tx)
    return findings


async def _journal(tx: Snapshot) -> Finding:
    ((head, count, first, last),) = await tx.rows(JOURNAL)
    whole = count == 0 or (last - first + 1 == count and last == head)
    detail = f"{count} changes" + (f", {first} to {last}" if count else "") + f", head at {head}"
    return Finding(f"{tx.tenant}: journal without gaps", whole, detail, "restore the last good backup and report this")


async def _rows(tx: Snapshot, collection: Collection[Record]) -> Finding:
    """Every row's last change is in the journal (if it still reaches back so far) and speaks of this row."""
    name, key = collection.name, _id("r", collection)
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
    what = f"{name} and their changes"
    return found(tx, what, count, example, "rows disagree with the journal", "every row is the last change of it")


async def _bodies(tx: Snapshot, collection: Collection[Record]) -> Finding:
    """What a change wrote is in its row, or in the versions if something came after it."""
    name = collection.name
    lost = Statement(
        f"doctor.{name}.bodies",
        f"""SELECT count(*), min(c.id) FROM changes c
            WHERE c.tenant = :tenant AND c.collection = '{name}' AND c.event <> 'delete'
              AND NOT EXISTS (SELECT 1 FROM {name} r WHERE r.tenant = c.tenant AND r.seq = c.seq)
              AND NOT EXISTS (SELECT 1 FROM versions v WHERE v.tenant = c.tenant AND v.collection = c.collection
                                                         AND v.id = c.id AND v.version = c.version)""",
    )
    ((count, example),) = await tx.rows(lost)
    what = f"{name} that the journal speaks of"
    return found(tx, what, count, example, "changes have no body any more", "every change has its row or its version")


async def _versions(tx: Snapshot, collection: Collection[Record]) -> Finding:
    """Every kept version belongs to a record that is there, or to a tombstone."""
    name = collection.name
    lost = Statement(
        f"doctor.{name}.versions",
        f"""SELECT count(*), min(id) FROM versions WHERE tenant = :tenant AND collection = '{name}'
            AND id NOT IN (SELECT {_id("r", collection)} FROM {name} r WHERE r.tenant = :tenant)
            AND id NOT IN (SELECT id FROM tombstones WHERE tenant = :tenant AND collection = '{name}')""",
    )
    ((count, example),) = await tx.rows(lost)
    right = "every version has its record or its tombstone"
    return found(tx, f"{name} and their versions", count, example, "versions belong to no record", right)


async def _tombstones(tx: Snapshot, collection: Collection[Record]) -> Finding:
    """A record is there, or it was deleted, not both."""
    name = collection.name
    both = Statement(
        f"doctor.{name}.tombstones",
        f"""SELECT count(*), min(id) FROM tombstones WHERE tenant = :tenant AND collection = '{name}'
            AND id IN (SELECT {_id("r", collection)} FROM {name} r WHERE r.tenant = :tenant)""",
    )
    ((count, example),) = await tx.rows(both)
    return found(tx, f"{name} and their tombstones", count, example, "records are deleted and there", "no record is both")


async def _belonging(tx: Snapshot, collection: Collection[Record], column: str, parent: Collection[Record]) -> Finding:
    name, (key,) = collection.name, parent.key
    orphans = Statement(
        f"doctor.{name}.{column}",
        f"""SELECT count(*), min({_id("r", collection)}) FROM {name} r WHERE r.tenant = :tenant
              AND NOT EXISTS (SELECT 1 FROM {parent.name} p WHERE p.tenant = r.tenant AND p.{key} = r.{column})""",
    )
    ((count, example),) = await tx.rows(orphans)
    wrong, right = f"belong to none of the {parent.name}", f"each belongs to one of the {parent.name}"
    return found(tx, f"{name} and their {parent.name}", count, example, wrong, right)


async def _blocks(tx: Snapshot) -> Finding:
    """Every body is the one that its hash says."""
    other: list[str] = []
    after = ""
    while rows := await tx.rows(BLOCKS, after=after):
        other += [hash for hash, body in rows if hashlib.sha256(bytes(body)).hexdigest() != hash]
        after = rows[-1][0]
    example = min(other, default=None)
    advice = "the disk or somebody else changed them; restore the last good backup"
    return found(tx, "blocks and their hashes", len(other), example, "bodies are not what they were", "all as written", advice)


async def _followers(tx: Snapshot) -> Finding:
    ((count, example),) = await tx.rows(LEFT_BEHIND, oldest=(await edges(tx)).oldest)
    advice = "they fell further behind than they had registered for; have them begin anew, or drop them"
    right = "the journal reaches back to every registered follower"
    return found(tx, "followers", count, example, "are behind the journal's beginning", right, advice)


async def _work(tx: Snapshot) -> Finding:
    ((stuck,),) = await tx.rows(HELD_BY_THE_DEAD)
    return Finding(
        f"{tx.tenant}: work in hand",
        not stuck,
        f"{stuck} items are held by workers that are gone" if stuck else "every item in hand has a living worker",
        "start a worker: it takes over what the dead ones held within its lease",
    )


def _id(alias: str, collection: Collection[Record]) -> str:
    """A row's id as changes and versions have it."""
    return " || '/' || ".join(f"CAST({alias}.{column} AS TEXT)" for column in collection.key)
