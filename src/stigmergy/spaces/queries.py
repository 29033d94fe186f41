"""What may be asked of spaces: which there are, who is in them, what was said; and what is new for whom.

Members see all of a space, from its beginning. Who is none is told that there is no such space.
"""

from typing import Any, Literal

import msgspec

from stigmergy.breadcrumbs.audience import ask_for_spaces
from stigmergy.errors import NotFound
from stigmergy.kernel.history import read_history
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs.model import Part
from stigmergy.spaces.commands import check_member
from stigmergy.spaces.model import Entity, JsonObject, Membership, Role, Roster, Space, SpaceMessage
from stigmergy.spaces.store import (
    AFTER_ALL,
    ENTITIES_AFTER,
    MEMBERSHIPS_OF_SPACE,
    MESSAGES_AFTER,
    MESSAGES_BELOW,
    SPACE_IDS_OF,
    SPACES_OF,
    roster_of,
)

Mark = Literal["SEEN", "NEW"]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as it is shown. `seq` is its number in the space."""

    id: str
    space_id: str
    seq: int
    role: Role
    author: str
    author_name: str
    content: str
    version: int
    created_at: int
    updated_at: int
    mentions: list[str] = msgspec.field(default_factory=list[str])
    parts: list[Part] | None = None
    metadata: JsonObject | None = None
    run_id: str | None = None
    reply_to: str | None = None
    stream_id: str | None = None
    deleted: bool = False


class MemberView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody in a space, and how far they have dealt with what was said there."""

    entity_id: str
    type: str
    name: str
    joined_at: int
    last_processed_message_id: str | None = None
    last_processed_seq: int = 0


def shown(message: SpaceMessage) -> Message:
    fields: dict[str, Any] = {name: getattr(message, name) for name in Message.__struct_fields__ if name != "seq"}
    return Message(seq=message.pos, **fields)


async def space(tx: Snapshot, reader: str, id: str) -> Space:
    return (await roster(tx, reader, id)).space


async def roster(tx: Snapshot, reader: str, id: str) -> Roster:
    """Who is in a space, for somebody who may know."""
    found = await roster_of(tx, id)
    check_member(found, reader)
    return found


async def spaces(tx: Snapshot, reader: str, *, after: str = "", limit: int = 50) -> list[Space]:
    """The spaces that somebody is in or owns, oldest first."""
    return await tx.find(SPACES_OF, entity_id=reader, after=after, limit=limit)


async def space_ids_of(tx: Snapshot, entity_id: str) -> frozenset[str]:
    """The spaces that an entity is a member of: whose team it belongs to."""
    return frozenset(row[0] for row in await tx.rows(SPACE_IDS_OF, entity_id=entity_id))


ask_for_spaces(space_ids_of)


async def members(tx: Snapshot, reader: str, space_id: str) -> list[MemberView]:
    there = await roster(tx, reader, space_id)
    known = {each.entity_id: each for each in await tx.find(MEMBERSHIPS_OF_SPACE, space_id=space_id)}
    return [_member_view(known[member.id], member.type, member.name) for member in there.members if member.id in known]


async def member(tx: Snapshot, reader: str, space_id: str, entity_id: str) -> MemberView:
    found = (await roster(tx, reader, space_id)).by_id.get(entity_id)
    membership = await tx.get(Membership, space_id, entity_id)
    if found is None or membership is None:
        raise NotFound(f"{entity_id} is not in this space")
    return _member_view(membership, found.type, found.name)


def _member_view(membership: Membership, type: str, name: str) -> MemberView:
    return MemberView(
        entity_id=membership.entity_id,
        type=type,
        name=name,
        joined_at=membership.created_at,
        last_processed_message_id=membership.last_processed_message_id,
        last_processed_seq=membership.last_processed_pos,
    )


async def seen_by(tx: Snapshot, reader: str, space_id: str, id: str) -> list[MemberView]:
    """Those who have dealt with a message: whose cursor is at it or beyond. Its author knows it."""
    said = await message(tx, reader, space_id, id)
    found = await members(tx, reader, space_id)
    return [each for each in found if each.last_processed_seq >= said.pos or each.entity_id == said.author]


async def message(tx: Snapshot, reader: str, space_id: str, id: str) -> SpaceMessage:
    await roster(tx, reader, space_id)
    found = await tx.get(SpaceMessage, id)
    if found is None or found.space_id != space_id:
        raise NotFound(f"no message {id} in this space")
    return found


async def message_history(tx: Snapshot, reader: str, space_id: str, id: str, *, limit: int = 50) -> list[SpaceMessage]:
    """Its versions, newest first."""
    await message(tx, reader, space_id, id)
    return await read_history(tx, SpaceMessage, id, limit=limit)


async def messages(
    tx: Snapshot, reader: str, space_id: str, *, below: int = AFTER_ALL, after: int | None = None, limit: int = 50
) -> list[SpaceMessage]:
    """A page of what was said: newest first, or, with `after`, from there on in order."""
    await roster(tx, reader, space_id)
    if after is not None:
        return await tx.find(MESSAGES_AFTER, space_id=space_id, after=after, limit=limit)
    return await tx.find(MESSAGES_BELOW, space_id=space_id, below=below, limit=limit)


async def entities(tx: Snapshot, *, after: str = "", limit: int = 50) -> list[Entity]:
    return await tx.find(ENTITIES_AFTER, after=after, limit=limit)


async def entity(tx: Snapshot, id: str) -> Entity:
    found = await tx.get(Entity, id)
    if found is None:
        raise NotFound(f"no entity {id}")
    return found
