"""The deliveries' SQL: what is next in a lane, the bodies a delivery speaks of, tries, limits, lists."""

from functools import lru_cache
from typing import Any

from stigmergy.kernel.query import Query, Statement
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.rules import DIAGNOSTICS, RULES
from stigmergy.triggers.model import DELIVERIES

# The first so many of each lane, however long it is and however many others wait. CROSS JOIN: SQLite begins with the lanes.
NEXT = DELIVERIES.query(
    "next",
    """WHERE tenant = :tenant AND id IN (
           SELECT d.id FROM (
               SELECT value AS lane, COALESCE((SELECT n.change_seq FROM deliveries n
                          WHERE n.tenant = :tenant AND n.lane = value AND n.status = 'pending'
                          ORDER BY n.tenant, n.lane, n.change_seq LIMIT 1 OFFSET :beyond), :everything) AS below
               FROM {each:lanes}) wanted CROSS JOIN deliveries d
           WHERE d.tenant = :tenant AND d.lane = wanted.lane AND d.status = 'pending' AND d.change_seq < wanted.below)
       ORDER BY lane, change_seq""",
)
BODIES = Statement(
    "deliveries.bodies",
    """SELECT d.id, v.version, v.body FROM deliveries d
       JOIN versions v ON v.tenant = d.tenant AND v.collection = d.collection AND v.id = d.document_id
                      AND v.version IN (d.document_version, d.document_version - 1)
       WHERE d.tenant = :tenant AND d.id IN (SELECT value FROM {each:ids})""",
)
TRIES = Statement(
    "delivery_tries.read",
    """SELECT delivery_id, tries, next_at FROM delivery_tries
       WHERE tenant = :tenant AND delivery_id IN (SELECT value FROM {each:ids})""",
)
LAST_TRY = Statement(
    "delivery_tries.last", "SELECT tries, next_at, answer FROM delivery_tries WHERE tenant = :tenant AND delivery_id = :id"
)
NOTE_TRY = Statement(
    "delivery_tries.note",
    """INSERT INTO delivery_tries (tenant, delivery_id, tries, next_at, answer)
       VALUES (:tenant, :id, :tries, :next_at, :answer)
       ON CONFLICT (tenant, delivery_id) DO UPDATE
       SET tries = excluded.tries, next_at = excluded.next_at, answer = excluded.answer""",
)
FORGET_TRIES = Statement("delivery_tries.forget", "DELETE FROM delivery_tries WHERE tenant = :tenant AND delivery_id = :id")

LIMIT = Statement(
    "delivery_limits.put",
    """INSERT INTO delivery_limits (queue, base, concurrency, spacing_us, next_us)
       VALUES (:queue, :base, :concurrency, :spacing_us, 0)
       ON CONFLICT (queue) DO UPDATE SET concurrency = excluded.concurrency, spacing_us = excluded.spacing_us
       WHERE delivery_limits.concurrency IS DISTINCT FROM excluded.concurrency
          OR delivery_limits.spacing_us IS DISTINCT FROM excluded.spacing_us""",
)
LIMITED_DUE = Statement(
    "delivery_limits.due",
    """SELECT l.queue FROM delivery_limits l
       WHERE l.base = :base AND EXISTS (
           SELECT 1 FROM ready r WHERE r.queue = l.queue AND r.worker IS NULL AND r.due_at <= :now)
       ORDER BY l.next_us LIMIT :limit""",
)
LIMITS = Statement(
    "delivery_limits.lock", "SELECT concurrency, spacing_us, next_us FROM delivery_limits WHERE queue = :queue {for_update}"
)
SPACE = Statement("delivery_limits.space", "UPDATE delivery_limits SET next_us = :next_us WHERE queue = :queue")
# By worker, so that what waits is not counted through.
HELD = Statement("delivery_limits.held", "SELECT count(*) FROM ready WHERE worker IN (SELECT id FROM workers) AND queue = :queue")
NEXT_DUE = Statement(
    "deliveries.next_due",
    """SELECT min(due_at) FROM (
           SELECT min(due_at) AS due_at FROM ready WHERE queue = :base AND worker IS NULL AND due_at > :now
           UNION ALL
           SELECT min((SELECT min(r.due_at) FROM ready r WHERE r.queue = l.queue AND r.worker IS NULL AND r.due_at > :now))
           FROM delivery_limits l WHERE l.base = :base) AS soonest""",
)
# A rest that is longer than any rest: the clock was set back after it was written.
UNSTICK = Statement(
    "deliveries.unstick", "UPDATE ready SET due_at = :now WHERE queue = :queue AND worker IS NULL AND due_at > :beyond"
)
# Those in hand too: who has them is told at its next beat that it holds them in another queue now.
MOVE_LANES = Statement(
    "deliveries.move",
    """UPDATE ready SET queue = :queue WHERE tenant = :tenant AND queue <> :queue AND id IN (
           SELECT lane FROM deliveries WHERE tenant = :tenant AND trigger_id = :trigger_id AND status = 'pending')""",
)

# A tenant's own rule comes after a shared one of the same name, and counts.
NAMED = RULES.query("named", "WHERE tenant IN (:tenant, '*') AND id IN (SELECT value FROM {each:ids}) ORDER BY tenant, id")
TRIGGERS = RULES.query(
    "triggers",
    """WHERE tenant IN (:tenant, '*') AND kind IN ('webhook', 'handler', 'agent', 'space_message') AND id > :after
       ORDER BY id, tenant LIMIT :limit""",
)
DIAGNOSED = DIAGNOSTICS.query("of_rule", "WHERE tenant = :tenant AND rule = :rule ORDER BY tenant, seq DESC LIMIT :limit")

_NEWEST = "AND id < :below ORDER BY tenant, id DESC LIMIT :limit"
LIST = DELIVERIES.query(
    "list",
    f"""WHERE tenant = :tenant AND (CAST(:status AS TEXT) IS NULL OR status = :status)
          AND (CAST(:trigger_id AS TEXT) IS NULL OR trigger_id = :trigger_id) {_NEWEST}""",
)
LIST_DEAD = DELIVERIES.query(
    "list_dead",
    f"WHERE tenant = :tenant AND status = 'dead' AND (CAST(:trigger_id AS TEXT) IS NULL OR trigger_id = :trigger_id) {_NEWEST}",
)
COUNTS = Statement(
    "deliveries.counts", "SELECT status, count(*) FROM deliveries WHERE tenant = :tenant GROUP BY status ORDER BY status"
)


@lru_cache(maxsize=256)
def at_seqs(collection: str) -> Query[Any]:
    """The rows of a collection whose last change is one of these. The order has SQLite go by the index of it."""
    return COLLECTIONS[collection].query(
        "at_seqs",
        "WHERE tenant = :tenant AND seq IN (SELECT CAST(value AS BIGINT) FROM {each:seqs}) ORDER BY tenant, seq",
    )
