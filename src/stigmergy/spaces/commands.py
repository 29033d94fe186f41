"""What may be done in spaces: make one, come and go, speak, change what one said. Each function is (part of) one unit of work.

Only members speak and read; who is none is told that there is no such space. The owner of a space may come in at any time.
Whoever changes a space takes its lock first, so that its messages are numbered without gaps and in one order for everybody.
"""

from collections.abc import Iterable

import msgspec

from stigmergy.agents.store import named
from stigmergy.errors import AlreadyExists, Conflict, Invalid, NotFound, VersionConflict
from stigmergy.kernel.blocks import has_block
from stigmergy.kernel.history import read_history
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.model import Part
from stigmergy.runs.waits import answer_reply
from stigmergy.spaces.mentions import find_mentions
from stigmergy.spaces.model import (
    AGENT,
    LONGEST_SPACE_NAME,
    MOST_MEMBERS,
    SYSTEM,
    Entity,
    JsonObject,
    Member,
    Membership,
    Role,
    Roster,
    Space,
    SpaceMessage,
    check_content,
    check_entity_name,
    check_id,
    check_metadata,
    check_plain_text,
)
from stigmergy.spaces.store import MARK_ALL_OF, MEMBERSHIPS_OF_SPACE, NEXT_POS, lock_space, mark_roster
from stigmergy.spaces.waking import woken


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody says. With an `id` of the speaker's own it is one message, however often it is sent. `mentions` given are
    those of the message, whatever its text names."""

    content: str = ""
    id: str | None = None
    mentions: list[str] | None = None
    reply_to: str | None = None
    parts: list[Part] | None = None
    metadata: JsonObject | None = None
    stream_id: str | None = None


# ---- entities ----


async def ensure_entity(tx: Transaction, id: str) -> Entity:
    """The entity with this id, made when it is met for the first time. An agent is called as its definition says now."""
    stored = await tx.get(Entity, id)
    if id.startswith(AGENT):
        name = id.removeprefix(AGENT)
        shown = (await named(tx, name)).definition.display_name or name
        if stored is None:
            return await _new_entity(tx, Entity(id=id, type="agent", name=check_entity_name(shown), agent=name))
        return stored if stored.name == shown else await rename(tx, id, shown)
    return stored or await _new_entity(tx, Entity(id=check_id(id, "entity_id"), type="human", name=id.replace("@", " at ")[:120]))


async def _new_entity(tx: Transaction, entity: Entity) -> Entity:
    made = await tx.insert_new(entity)
    return made if made is not None else await tx.get(Entity, entity.id) or entity


async def rename(tx: Transaction, id: str, name: str) -> Entity:
    """Call an entity something else, in every space that it is in, from now on."""
    stored = await tx.lock(Entity, id)
    if stored is None:
        raise NotFound(f"no entity {id}")
    name = check_entity_name(name)
    if stored.name == name:
        return stored
    await tx.run(MARK_ALL_OF, entity_id=id, roster=tx.new_id())
    return await tx.update(stored, name=name)


# ---- spaces and their members ----


async def create_space(
    tx: Transaction,
    owner_id: str,
    *,
    name: str = "",
    about: str = "",
    members: Iterable[str] = (),
    id: str | None = None,
    metadata: JsonObject | None = None,
) -> Space:
    """A new space, with its owner and these in it."""
    made = await ensure_space(tx, id or tx.new_id(), owner_id, name=name, about=about, metadata=metadata)
    if made is None:
        raise AlreadyExists(f"there is a space {id} already; choose another id")
    await lock_space(tx, made.id)
    everybody = list(dict.fromkeys((owner_id, *members)))
    if len(everybody) > MOST_MEMBERS:
        raise Invalid(f"a space has at most {MOST_MEMBERS:,} members", "members")
    for entity_id in everybody:
        await _add(tx, made.id, entity_id, 0)
    await mark_roster(tx, made.id)
    return made


async def ensure_space(
    tx: Transaction,
    id: str,
    owner_id: str,
    *,
    name: str = "",
    about: str = "",
    metadata: JsonObject | None = None,
) -> Space | None:
    """Make a space with nobody in it, in which its owner can speak: one row. None when it is there already. The id of one that
    was deleted is not given to another: what was said there was not said to those who are in this one."""
    check_plain_text(name, "name", LONGEST_SPACE_NAME, empty=True)
    check_plain_text(about, "about", empty=True)
    metadata = check_metadata(metadata) or {}
    made = await tx.insert_new(Space(id=check_id(id, "id"), owner_id=owner_id, name=name, about=about, metadata=metadata))
    if made is not None and made.version > 1:
        raise AlreadyExists(f"there was a space {id}, which was deleted; choose another id")
    return made


def name_for(agent: str, text: str) -> str:
    """What the space of a run is called that no message started."""
    return f"{agent}: {text[:80]}".replace("\n", " ")[:LONGEST_SPACE_NAME]


async def change_space(tx: Transaction, by: str, id: str, fields: JsonObject, *, if_match: int | None = None) -> Space:
    """Change its name, what it is about or its metadata."""
    await locked(tx, by, id)
    stored = await tx.lock(Space, id)
    assert stored is not None
    if if_match is not None and stored.version != if_match:
        raise VersionConflict(f"space {id} is at version {stored.version}, not {if_match}; read it again and repeat")
    check_plain_text(fields.get("name", ""), "name", LONGEST_SPACE_NAME, empty=True)
    check_plain_text(fields.get("about", ""), "about", empty=True)
    if "metadata" in fields:
        fields["metadata"] = check_metadata(fields["metadata"]) or {}
    changed = {name: value for name, value in fields.items() if value != getattr(stored, name)}
    if not changed:
        return stored
    await mark_roster(tx, id)
    return await tx.update(stored, **changed)


async def add_member(tx: Transaction, by: str, space_id: str, entity_id: str) -> Membership:
    """Let somebody in. Who is in already stays as they are."""
    pos, roster = await locked(tx, by, space_id)
    if entity_id in roster.by_id:
        there = await tx.get(Membership, space_id, entity_id)
        assert there is not None
        return there
    if len(roster.members) >= MOST_MEMBERS:
        raise Conflict(f"a space has at most {MOST_MEMBERS:,} members")
    made = await _add(tx, space_id, entity_id, pos)
    await mark_roster(tx, space_id)
    return made


async def remove_member(tx: Transaction, by: str, space_id: str, entity_id: str) -> None:
    """Let somebody go."""
    await locked(tx, by, space_id)
    membership = await tx.lock(Membership, space_id, entity_id)
    if membership is None:
        raise NotFound(f"{entity_id} is not in this space")
    await tx.delete(membership)
    await mark_roster(tx, space_id)


async def delete_space(tx: Transaction, by: str, id: str) -> None:
    """Close a space. What was said in it stays in the journal and in the history."""
    _, roster = await locked(tx, by, id)
    if roster.space.owner_id != by:
        raise Conflict(f"space {id} is its owner's to delete; leave it instead")
    for membership in await tx.find(MEMBERSHIPS_OF_SPACE, space_id=id):
        await tx.delete(membership)
    await tx.delete(roster.space)
    await mark_roster(tx, id)


async def _add(tx: Transaction, space_id: str, entity_id: str, pos: int) -> Membership:
    """Who comes back goes on where they were: how far they have read never goes back."""
    await ensure_entity(tx, entity_id)
    there = Membership(space_id=space_id, entity_id=entity_id, joined_pos=pos)
    for earlier in await read_history(tx, Membership, space_id, entity_id, limit=1) if pos else ():
        read = {"last_processed_message_id": earlier.last_processed_message_id, "last_processed_pos": earlier.last_processed_pos}
        there = msgspec.structs.replace(there, **read)
    return await tx.insert(there)


async def locked(tx: Transaction, by: str, space_id: str) -> tuple[int, Roster]:
    """The space, locked, for somebody who may be in it."""
    pos, roster = await lock_space(tx, space_id)
    check_member(roster, by)
    return pos, roster


def check_member(roster: Roster, entity_id: str) -> None:
    if entity_id not in roster.by_id and roster.space.owner_id != entity_id:
        raise not_there(roster.space.id, entity_id)


def not_there(space_id: str, entity_id: str) -> NotFound:
    return NotFound(f"no space {space_id}, or {entity_id} is not a member of it; a member can let them in")


# ---- speaking ----


async def post(tx: Transaction, author: str, space_id: str, said: Said, *, run_id: str | None = None) -> SpaceMessage:
    """Say something in a space: numbered under its lock, and durable with all that it sets off. Who waited for the speaker has
    its answer; whom the message is for is woken. What is refused has written nothing."""
    pos, roster = await lock_space(tx, space_id)
    check_member(roster, author)
    if said.id is not None:
        known = await tx.get(SpaceMessage, check_id(said.id, "id"))
        if known is not None:
            return await _the_same(tx, known, author, space_id, said)
    content = check_content(said.content, said.parts)
    await _check_parts(tx, said.parts or ())
    metadata = check_metadata(said.metadata)
    mentions = _mentions(said, roster)
    reply_to = await _replied_to(tx, space_id, said.reply_to)
    if author not in roster.by_id:
        roster = await _with_owner(tx, roster, pos)
    speaker = roster.by_id[author]
    id = said.id or tx.new_id()
    answered = await answer_reply(tx, space_id=space_id, entity_id=author, entity_name=speaker.name, text=content, message_id=id)
    message = SpaceMessage(
        id=id,
        space_id=space_id,
        pos=pos + 1,
        owner_id=roster.space.owner_id,
        role=speaker.type,
        author=author,
        author_name=speaker.name,
        content=content,
        parts=said.parts,
        metadata=metadata,
        mentions=mentions,
        run_id=run_id,
        reply_to=reply_to,
        stream_id=said.stream_id,
    )
    wakes = await woken(tx, roster, message, answered)
    await tx.run(NEXT_POS, space_id=space_id)
    return await tx.insert(msgspec.structs.replace(message, wakes=wakes) if wakes else message)


async def _check_parts(tx: Transaction, parts: Iterable[Part]) -> None:
    for number, part in enumerate(parts):
        if not await has_block(tx, part.block):
            raise Invalid(f"there is no block {part.block!r}; store it first", f"parts[{number}].block", code="not_found")


async def tell(
    tx: Transaction,
    space_id: str,
    text: str,
    *,
    run_id: str | None = None,
    role: Role = "system",
    author: str = SYSTEM,
    metadata: JsonObject | None = None,
) -> SpaceMessage:
    """Say something that wakes nobody and answers nobody: a failure, the use of a tool."""
    content, metadata = check_content(text, None), check_metadata(metadata)
    pos, roster = await lock_space(tx, space_id)
    member = roster.by_id.get(author)
    await tx.run(NEXT_POS, space_id=space_id)
    return await tx.insert(
        SpaceMessage(
            id=tx.new_id(),
            space_id=space_id,
            pos=pos + 1,
            owner_id=roster.space.owner_id,
            role=role,
            author=author,
            author_name=member.name if member is not None else author.removeprefix(AGENT),
            content=content,
            metadata=metadata,
            run_id=run_id,
        )
    )


async def edit(tx: Transaction, by: str, space_id: str, id: str, content: str, *, if_match: int | None = None) -> SpaceMessage:
    """Say it differently. The earlier words stay in its history; an edit starts no run."""
    message, roster = await _mine(tx, by, space_id, id, if_match)
    content = check_content(content, message.parts)
    if content == message.content:
        return message
    return await tx.update(message, content=content, mentions=find_mentions(content, roster))


async def delete(tx: Transaction, by: str, space_id: str, id: str, *, if_match: int | None = None) -> SpaceMessage:
    """Take back what one said. Its number stays, and that it was taken back; the words are in the history alone."""
    message, _ = await _mine(tx, by, space_id, id, if_match)
    return await tx.update(message, content="", parts=None, metadata=None, mentions=[], wakes=[], deleted=True)


async def mark_processed(tx: Transaction, entity_id: str, space_id: str, message_id: str) -> Membership:
    """Move an entity's cursor to a message it has dealt with. It never goes back."""
    message = await tx.get(SpaceMessage, message_id)
    membership = await tx.lock(Membership, space_id, entity_id)
    if membership is None:
        raise not_there(space_id, entity_id)
    if message is None or message.space_id != space_id:
        raise NotFound(f"no message {message_id} in this space")
    if message.pos <= membership.last_processed_pos:
        return membership
    return await tx.update(membership, last_processed_message_id=message.id, last_processed_pos=message.pos)


async def _the_same(tx: Transaction, known: SpaceMessage, author: str, space_id: str, said: Said) -> SpaceMessage:
    """A message that came again, as it is now. It is the same if it says what that said first, as far as this is still known."""
    first = known if known.version == 1 else next(iter(await read_history(tx, SpaceMessage, known.id, below=2)), None)
    words = said.content if first is None else first.content
    if (known.author, known.space_id) != (author, space_id) or words != said.content:
        raise AlreadyExists(f"there is another message {known.id}; a message of your own needs an id of its own")
    return known


async def _with_owner(tx: Transaction, roster: Roster, pos: int) -> Roster:
    """The owner of a space speaks in it without having been there: so it is a member from now on."""
    space = roster.space
    await _add(tx, space.id, space.owner_id, pos)
    await mark_roster(tx, space.id)
    entity = await tx.get(Entity, space.owner_id)
    assert entity is not None
    return Roster(space, (*roster.members, Member(entity.id, entity.type, entity.name, entity.agent)))


def _mentions(said: Said, roster: Roster) -> list[str]:
    if said.mentions is None:
        return find_mentions(said.content, roster)
    if strangers := [id for id in said.mentions if id not in roster.by_id]:
        raise Invalid(f"{strangers[0]} is not in this space", "mentions", code="unknown_name")
    return list(dict.fromkeys(said.mentions))


async def _replied_to(tx: Transaction, space_id: str, id: str | None) -> str | None:
    if id is None:
        return None
    message = await tx.get(SpaceMessage, id)
    if message is None or message.space_id != space_id:
        raise Invalid(f"there is no message {id} in this space", "reply_to", code="not_found")
    return id


async def _mine(tx: Transaction, by: str, space_id: str, id: str, if_match: int | None) -> tuple[SpaceMessage, Roster]:
    _, roster = await locked(tx, by, space_id)
    message = await tx.lock(SpaceMessage, id)
    if message is None or message.space_id != space_id or message.deleted:
        raise NotFound(f"no message {id} in this space, or it was deleted")
    if message.author != by:
        raise Conflict(f"message {id} is its author's to change")
    if if_match is not None and message.version != if_match:
        raise VersionConflict(f"message {id} is at version {message.version}, not {if_match}; read it again and repeat")
    return message, roster
