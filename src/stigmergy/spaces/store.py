"""The spaces' SQL, and the memory of who is in them.

The head of a space is its lock: whoever speaks, joins or leaves takes it first. It also carries a mark that is new whenever the
members or their names change; what was read under a mark is true for that mark for ever, so it may be kept.
"""

from collections import OrderedDict

from stigmergy.errors import NotFound
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.spaces.model import (
    CLIENTS,
    ENTITIES,
    GOALS,
    MEMBERSHIPS,
    MEMORIES,
    PLANS,
    SERVICE_KEYS,
    SPACE_MESSAGES,
    SPACES,
    Member,
    Roster,
    Space,
)

# Rosters kept in memory.
ROSTERS = 10_000
# A number beyond every message's.
AFTER_ALL = 2**62

_MINE = "tenant = :tenant AND space_id = :space_id"
NEXT_POS = Statement("space_heads.next", f"UPDATE space_heads SET pos = pos + 1 WHERE {_MINE}")
ADD_HEAD = Statement(
    "space_heads.add",
    "INSERT INTO space_heads (tenant, space_id, pos, roster) VALUES (:tenant, :space_id, 0, '') ON CONFLICT DO NOTHING",
)
LOCK_HEAD = Statement("space_heads.lock", f"SELECT pos, roster FROM space_heads WHERE {_MINE} {{for_update}}")
READ_HEAD = Statement("space_heads.read", f"SELECT pos, roster FROM space_heads WHERE {_MINE}")
MARK_ROSTER = Statement(
    "space_heads.mark",
    """INSERT INTO space_heads (tenant, space_id, pos, roster) VALUES (:tenant, :space_id, 0, :roster)
       ON CONFLICT (tenant, space_id) DO UPDATE SET roster = excluded.roster""",
)
MARK_ALL_OF = Statement(
    "space_heads.mark_all_of",
    """UPDATE space_heads SET roster = :roster WHERE tenant = :tenant AND space_id IN (
           SELECT space_id FROM memberships {by:memberships_entity} WHERE tenant = :tenant AND entity_id = :entity_id)""",
)
READ_MEMBERS = Statement(
    "memberships.members",
    """SELECT e.id, e.type, e.name, e.agent FROM memberships m
       JOIN entities e ON e.tenant = m.tenant AND e.id = m.entity_id
       WHERE m.tenant = :tenant AND m.space_id = :space_id ORDER BY m.created_at, m.seq, m.entity_id""",
)
SPACE_IDS_OF = Statement(
    "memberships.spaces_of",
    "SELECT space_id FROM memberships {by:memberships_entity} WHERE tenant = :tenant AND entity_id = :entity_id",
)
SPACES_OF = SPACES.query(
    "of",
    """WHERE tenant = :tenant AND id > :after AND id IN (
           SELECT space_id FROM memberships {by:memberships_entity} WHERE tenant = :tenant AND entity_id = :entity_id
           UNION SELECT id FROM spaces {by:spaces_owner} WHERE tenant = :tenant AND owner_id = :entity_id)
       ORDER BY tenant, id LIMIT :limit""",
)
JOINED = SPACES.query(
    "joined",
    """JOIN memberships m {by:memberships_entity} ON m.tenant = spaces.tenant AND m.space_id = spaces.id
       WHERE m.tenant = :tenant AND m.entity_id = :entity_id ORDER BY m.created_at, m.space_id LIMIT :limit""",
)
MEMBERSHIPS_OF_SPACE = MEMBERSHIPS.query("of_space", f"WHERE {_MINE} ORDER BY created_at, seq, entity_id")
MESSAGES_BELOW = SPACE_MESSAGES.query("below", f"WHERE {_MINE} AND pos < :below ORDER BY tenant, space_id, pos DESC LIMIT :limit")
MESSAGES_UPTO = SPACE_MESSAGES.query("upto", f"WHERE {_MINE} AND pos <= :upto ORDER BY tenant, space_id, pos DESC LIMIT :limit")
MESSAGES_AFTER = SPACE_MESSAGES.query("after", f"WHERE {_MINE} AND pos > :after ORDER BY tenant, space_id, pos LIMIT :limit")
ENTITIES_NAMED = ENTITIES.query("named", "WHERE tenant = :tenant AND id IN (SELECT value FROM {each:ids})")
ENTITIES_AFTER = ENTITIES.query("after", "WHERE tenant = :tenant AND id > :after ORDER BY tenant, id LIMIT :limit")
CLIENTS_OF = CLIENTS.query(
    "of", "{by:clients_entity} WHERE tenant = :tenant AND entity_id = :entity_id AND expires_at > :now ORDER BY tenant, id"
)
MEMORIES_OF = MEMORIES.query("of", "WHERE tenant = :tenant AND entity_id = :entity_id ORDER BY importance DESC, key LIMIT :limit")
GOALS_OF = GOALS.query(
    "of",
    """{by:goals_entity} WHERE tenant = :tenant AND entity_id = :entity_id AND (CAST(:status AS TEXT) IS NULL OR status = :status)
       ORDER BY priority DESC, id LIMIT :limit""",
)
PLANS_OF = PLANS.query("of", "{by:plans_entity} WHERE tenant = :tenant AND entity_id = :entity_id ORDER BY id LIMIT :limit")
KEYS_OF = SERVICE_KEYS.query("of", "{by:service_keys_agent} WHERE tenant = :tenant AND agent = :agent ORDER BY tenant, id")


async def lock_space(tx: Transaction, space_id: str) -> tuple[int, Roster]:
    """Take the space's lock: the last number given out, and who is there."""
    rows = await tx.rows(LOCK_HEAD, space_id=space_id)
    if not rows:
        await tx.run(ADD_HEAD, space_id=space_id)
        rows = await tx.rows(LOCK_HEAD, space_id=space_id)
    return rows[0][0], await _roster(tx, space_id, rows[0][1])


async def roster_of(tx: Snapshot, space_id: str) -> Roster:
    rows = await tx.rows(READ_HEAD, space_id=space_id)
    return await _roster(tx, space_id, rows[0][1] if rows else "")


async def last_pos(tx: Snapshot, space_id: str) -> int:
    rows = await tx.rows(READ_HEAD, space_id=space_id)
    return rows[0][0] if rows else 0


async def mark_roster(tx: Transaction, space_id: str) -> None:
    """Say that the members changed."""
    await tx.run(MARK_ROSTER, space_id=space_id, roster=tx.new_id())


_rosters: "OrderedDict[tuple[str, str, str], Roster]" = OrderedDict()


async def _roster(tx: Snapshot, space_id: str, mark: str) -> Roster:
    known = _rosters.get((tx.tenant, space_id, mark)) if mark else None
    if known is not None:
        return known
    space = await tx.get(Space, space_id)
    if space is None:
        raise NotFound(f"no space {space_id}")
    roster = Roster(space, [Member(*row) for row in await tx.rows(READ_MEMBERS, space_id=space_id)])
    if mark:
        _rosters[tx.tenant, space_id, mark] = roster
        if len(_rosters) > ROSTERS:
            _rosters.popitem(last=False)
    return roster
