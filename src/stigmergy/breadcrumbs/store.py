"""The breadcrumbs' SQL: their tags beside their rows, and the ways they are listed."""

import msgspec

from stigmergy.breadcrumbs.model import BREADCRUMBS, SCHEMAS, Breadcrumb
from stigmergy.kernel.journal import Change
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Transaction

TAG = Statement(
    "breadcrumb_tags.add",
    """INSERT INTO breadcrumb_tags (tenant, tag, seq, id, schema_name)
       SELECT CAST(:tenant AS TEXT), value, CAST(:seq AS BIGINT), CAST(:id AS TEXT), CAST(:schema_name AS TEXT)
       FROM {each:tags}""",
)
UNTAG = Statement(
    "breadcrumb_tags.remove",
    """DELETE FROM breadcrumb_tags
       WHERE tenant = :tenant AND tag IN (SELECT value FROM {each:tags}) AND seq = :seq AND id = :id""",
)

_LIVE = "(breadcrumbs.expires_at IS NULL OR breadcrumbs.expires_at > :now)"
_SEEN = """(CAST(:everything AS BOOLEAN) OR breadcrumbs.audience = 'public' OR breadcrumbs.owner_id = :entity
            OR (breadcrumbs.audience = 'team' AND breadcrumbs.space_id IN (SELECT value FROM {each:spaces})))"""
_PAGE = "ORDER BY breadcrumbs.tenant, breadcrumbs.seq DESC LIMIT :limit"

# Newest first, from below a position on; what a reader may see, without what has expired.
NEWEST = BREADCRUMBS.query(
    "newest", f"WHERE breadcrumbs.tenant = :tenant AND breadcrumbs.seq < :below AND {_LIVE} AND {_SEEN} {_PAGE}"
)
NEWEST_OF_SCHEMA = BREADCRUMBS.query(
    "newest_of_schema",
    f"""WHERE breadcrumbs.tenant = :tenant AND breadcrumbs.schema_name = :schema_name AND breadcrumbs.seq < :below
          AND {_LIVE} AND {_SEEN} ORDER BY breadcrumbs.tenant, breadcrumbs.schema_name, breadcrumbs.seq DESC LIMIT :limit""",
)
NEWEST_WITH_TAG = BREADCRUMBS.query(
    "newest_with_tag",
    f"""JOIN breadcrumb_tags t ON t.tenant = breadcrumbs.tenant AND t.id = breadcrumbs.id
        WHERE t.tenant = :tenant AND t.tag = :tag AND t.seq < :below
          AND (CAST(:schema_name AS TEXT) IS NULL OR t.schema_name = :schema_name) AND {_LIVE} AND {_SEEN}
        ORDER BY t.tenant, t.tag, t.seq DESC LIMIT :limit""",
)
READ_SCHEMAS = SCHEMAS.query("all", "WHERE tenant = :tenant AND name > :after ORDER BY tenant, name LIMIT :limit")


async def derive_tags(tx: Transaction, change: Change) -> None:
    """Keep `breadcrumb_tags` at what the rows say, under the position of their last change."""
    before, after = change.before, change.record
    if isinstance(before, Breadcrumb) and before.tags:
        await tx.run(UNTAG, tags=_json(before.tags), seq=before.seq, id=before.id)
    if change.event != "delete" and isinstance(after, Breadcrumb) and after.tags:
        await tx.run(TAG, tags=_json(after.tags), seq=change.seq, id=after.id, schema_name=after.schema_name)


BREADCRUMBS.derive = derive_tags


def _json(names: list[str]) -> str:
    return msgspec.json.encode(names).decode()
