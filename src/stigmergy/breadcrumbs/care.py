"""What must be true of what is kept beside the breadcrumbs: their tags, their entries for search, the timers of their ends."""

from stigmergy.kernel.database import Finding
from stigmergy.kernel.doctor import BESIDE, found
from stigmergy.kernel.query import Statement, either
from stigmergy.kernel.transaction import Snapshot

STRAY_TAGS = Statement(
    "doctor.breadcrumb_tags.stray",
    """SELECT count(*), min(t.id) FROM breadcrumb_tags t WHERE t.tenant = :tenant
         AND NOT EXISTS (SELECT 1 FROM breadcrumbs b WHERE b.tenant = t.tenant AND b.id = t.id AND b.seq = t.seq)""",
)
_UNFILED = """SELECT count(*), min(b.id) FROM breadcrumbs b {each_tag} WHERE b.tenant = :tenant
                AND NOT EXISTS (SELECT 1 FROM breadcrumb_tags t WHERE t.tenant = b.tenant AND t.tag = e.value
                                                                  AND t.seq = b.seq AND t.id = b.id)"""
UNFILED_TAGS = Statement(
    "doctor.breadcrumb_tags.unfiled",
    either(
        _UNFILED.replace("{each_tag}", "CROSS JOIN json_each(b.tags) e"),
        _UNFILED.replace("{each_tag}", "CROSS JOIN LATERAL json_array_elements_text(b.tags) AS e(value)"),
    ),
)
STRAY_ENTRIES = Statement(
    "doctor.search.stray",
    """SELECT count(*), min(id) FROM (
           SELECT tenant, id FROM search_entries WHERE tenant = :tenant
           UNION ALL SELECT tenant, id FROM search_vectors WHERE tenant = :tenant) kept
       WHERE NOT EXISTS (SELECT 1 FROM breadcrumbs b WHERE b.tenant = kept.tenant AND b.id = kept.id)""",
)
ENDLESS = Statement(
    "doctor.breadcrumbs.endless",
    """SELECT count(*), min(b.id) FROM breadcrumbs b WHERE b.tenant = :tenant AND b.expires_at IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM timers t WHERE t.tenant = b.tenant AND t.kind = 'breadcrumb.expiry' AND t.id = b.id)""",
)


async def examine_breadcrumbs(tx: Snapshot) -> list[Finding]:
    plans = (
        (STRAY_TAGS, "tags", "tags belong to no breadcrumb as it is now", "every tag has its breadcrumb"),
        (UNFILED_TAGS, "breadcrumbs by their tags", "tags are not in the index", "every breadcrumb is found by its tags"),
        (STRAY_ENTRIES, "search", "entries belong to no breadcrumb", "every entry has its breadcrumb"),
        (ENDLESS, "breadcrumbs that expire", "have no timer and will not be taken away", "each has its timer"),
    )
    findings: list[Finding] = []
    for statement, what, wrong, right in plans:
        ((count, example),) = await tx.rows(statement)
        findings.append(found(tx, what, count, example, wrong, right, BESIDE))
    return findings
