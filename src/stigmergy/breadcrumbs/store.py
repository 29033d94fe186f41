"""The breadcrumbs' SQL: their tags beside their rows, and the ways they are listed."""

from typing import Any

from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import BREADCRUMBS, SCHEMAS, Breadcrumb, Schema, is_same
from stigmergy.kernel.journal import Change
from stigmergy.kernel.query import Statement, as_each
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

STALE = Statement(
    "search_stale.add",
    """INSERT INTO search_stale (tenant, id, seq) VALUES (:tenant, :id, :seq)
       ON CONFLICT (tenant, id) DO UPDATE SET seq = excluded.seq""",
)
STALE_OF_SCHEMA = Statement(
    "search_stale.add_schema",
    """INSERT INTO search_stale (tenant, id, seq) SELECT tenant, id, CAST(:seq AS BIGINT) FROM breadcrumbs
       WHERE tenant = :tenant AND schema_name = :schema_name AND llm_hints IS NULL
       ON CONFLICT (tenant, id) DO UPDATE SET seq = excluded.seq""",
)
# The mark first: whoever fills the index takes the mark before it writes.
FORGET = tuple(
    Statement(f"{table}.forget", f"DELETE FROM {table} WHERE tenant = :tenant AND id = :id")
    for table in ("search_stale", "search_entries", "search_vectors")
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
# Some of them by their ids, for search: what is marked stale is not among them, since its entry may tell what its hints now hide.
FOUND = BREADCRUMBS.query(
    "found",
    f"""WHERE breadcrumbs.tenant = :tenant AND breadcrumbs.id IN (SELECT value FROM {{each:ids}}) AND {_LIVE} AND {_SEEN}
          AND NOT EXISTS (SELECT 1 FROM search_stale s WHERE s.tenant = breadcrumbs.tenant AND s.id = breadcrumbs.id)""",
)
READ_SCHEMAS = SCHEMAS.query("all", "WHERE tenant = :tenant AND name > :after ORDER BY tenant, name LIMIT :limit")


def as_given(reader: Reader) -> dict[str, Any]:
    """What the statements above ask about a reader, whose spaces are known."""
    return {"entity": reader.entity, "spaces": as_each(sorted(reader.spaces or ())), "everything": reader.everything}


async def derive_tags(tx: Transaction, change: Change) -> None:
    """Keep `breadcrumb_tags` at what the rows say, under the position of their last change."""
    before, after = change.before, change.record
    if isinstance(before, Breadcrumb) and before.tags:
        await tx.run(UNTAG, tags=as_each(before.tags), seq=before.seq, id=before.id)
    if change.event != "delete" and isinstance(after, Breadcrumb) and after.tags:
        await tx.run(TAG, tags=as_each(after.tags), seq=change.seq, id=after.id, schema_name=after.schema_name)


async def mark_stale(tx: Transaction, change: Change) -> None:
    """What search keeps of a breadcrumb is made in the background; here it is said that it is out of date, and what was deleted
    is forgotten at once."""
    before, after = change.before, change.record
    if change.event == "delete":
        for statement in FORGET:
            await tx.run(statement, id=change.id)
    elif before is None or not all(is_same(getattr(before, name), getattr(after, name)) for name in SEARCHED):
        await tx.run(STALE, id=change.id, seq=change.seq)


# What an entry of the index is made of; a change of anything else (of tags, say) leaves it true.
SEARCHED = ("schema_name", "title", "description", "checksum", "llm_hints")


async def derive(tx: Transaction, change: Change) -> None:
    await derive_tags(tx, change)
    await mark_stale(tx, change)


async def derive_from_schema(tx: Transaction, change: Change) -> None:
    """Other hints of a schema hide and show other things in all breadcrumbs that have none of their own."""
    before = change.before if isinstance(change.before, Schema) else None
    after = change.record if isinstance(change.record, Schema) and change.event != "delete" else None
    if not is_same(before and before.llm_hints, after and after.llm_hints):
        await tx.run(STALE_OF_SCHEMA, schema_name=change.id, seq=change.seq)


BREADCRUMBS.derive = derive
SCHEMAS.derive = derive_from_schema
