"""Spaces: who is in, what is said, in which order, and what nobody may do."""

import asyncio
from typing import Any

import pytest

from stigmergy.errors import AlreadyExists, Conflict, Invalid, NotFound, VersionConflict
from stigmergy.kernel.blocks import erase_block, put_block
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Follower
from stigmergy.kernel.history import read_history
from stigmergy.kernel.transaction import Scope
from stigmergy.runs.model import Part
from stigmergy.spaces import commands, queries
from stigmergy.spaces.commands import Said
from stigmergy.spaces.model import LONGEST_MESSAGE, Entity, Membership, Space, SpaceMessage
from support.talk import add_agents, say, space_of
from support.units import take, whole_journal


async def talk(store: Database, *members: str) -> Space:
    return await store.write(space_of, *(members or ("mia", "tom", "agent:designer")))


async def said(store: Database, reader: str, space: Space) -> list[SpaceMessage]:
    return (await store.read(queries.messages, reader, space.id, limit=500))[::-1]


# ---- members ----


async def test_a_space_has_its_owner_and_its_members_in_it(store: Database) -> None:
    space = await talk(store)
    found = await store.read(queries.members, "tom", space.id)
    assert [(each.entity_id, each.type, each.name) for each in found] == [
        ("mia", "human", "mia"),
        ("tom", "human", "tom"),
        ("agent:designer", "agent", "designer"),
    ]
    assert [each.id for each in await store.read(queries.spaces, "tom")] == [space.id]
    assert await store.read(queries.space_ids_of, "tom") == {space.id}
    assert await store.read(queries.spaces, "eve") == []


async def test_an_agent_is_called_as_its_definition_says(store: Database) -> None:
    await store.write(add_agents, "reviewer", display_name="Code Reviewer")
    space = await talk(store, "mia", "agent:reviewer")
    assert (await store.read(queries.member, "mia", space.id, "agent:reviewer")).name == "Code Reviewer"


async def test_who_is_no_member_is_told_that_there_is_no_such_space(store: Database) -> None:
    space = await talk(store)
    said_here = await store.write(say, "mia", space.id, "hello")
    questions: tuple[tuple[Any, ...], ...] = (
        (queries.space, "eve", space.id),
        (queries.members, "eve", space.id),
        (queries.messages, "eve", space.id),
        (queries.message, "eve", space.id, said_here.id),
        (queries.space, "mia", "nowhere"),
    )
    for question in questions:
        with pytest.raises(NotFound):
            await store.read(question[0], *question[1:])
    before = len(await whole_journal(store))
    units: tuple[tuple[Any, ...], ...] = (
        (say, "eve", space.id, "let me in"),
        (commands.add_member, "eve", space.id, "eve"),
        (commands.remove_member, "eve", space.id, "tom"),
        (commands.edit, "eve", space.id, said_here.id, "I was here"),
        (say, "mia", "nowhere", "hello?"),
        (commands.mark_processed, "eve", space.id, said_here.id),
        (commands.add_member, "mia", space.id, "agent:nobody"),
    )
    for unit in units:
        with pytest.raises(NotFound):
            await store.write(unit[0], *unit[1:])
    assert len(await whole_journal(store)) == before


async def test_an_owner_comes_in_by_speaking(store: Database) -> None:
    space = await store.write(commands.ensure_space, "s1", "mia")
    assert space is not None
    assert await store.write(commands.ensure_space, "s1", "mia") is None
    message = await store.write(say, "mia", "s1", "is anybody here?")
    assert (message.pos, message.author_name) == (1, "mia")
    assert [each.entity_id for each in await store.read(queries.members, "mia", "s1")] == ["mia"]


async def test_who_leaves_speaks_no_more_and_may_come_back(store: Database) -> None:
    space = await talk(store)
    await store.write(commands.remove_member, "tom", space.id, "tom")
    with pytest.raises(NotFound):
        await store.write(say, "tom", space.id, "bye")
    await store.write(say, "mia", space.id, "he is gone")
    back = await store.write(commands.add_member, "mia", space.id, "tom")
    assert (back.version, back.joined_pos) == (3, 1)
    assert (await store.write(say, "tom", space.id, "I am back")).pos == 2


async def test_who_comes_back_has_read_what_they_had_read(store: Database) -> None:
    space = await talk(store)
    first = await store.write(say, "mia", space.id, "one")
    await store.write(commands.mark_processed, "tom", space.id, first.id)
    for _ in range(2):
        await store.write(commands.remove_member, "tom", space.id, "tom")
        await store.write(say, "mia", space.id, "meanwhile")
        await store.write(commands.add_member, "mia", space.id, "tom")
    back = await store.read(queries.member, "tom", space.id, "tom")
    assert (back.last_processed_message_id, back.last_processed_seq) == (first.id, 1)


async def test_a_name_that_changes_is_the_new_one_everywhere(store: Database) -> None:
    space = await talk(store)
    await store.write(say, "tom", space.id, "I am tom")
    await store.write(commands.rename, "tom", "Tom Riddle")
    message = await store.write(say, "mia", space.id, "hello @Tom Riddle, and @designer")
    assert message.mentions == ["tom", "agent:designer"]
    assert [each.author_name for each in await said(store, "mia", space)] == ["tom", "mia"]


async def test_a_deleted_space_is_gone_for_its_members(store: Database) -> None:
    space = await talk(store)
    with pytest.raises(Conflict):
        await store.write(commands.delete_space, "tom", space.id)
    await store.write(commands.delete_space, "mia", space.id)
    with pytest.raises(NotFound):
        await store.write(say, "tom", space.id, "hello?")
    with pytest.raises(NotFound):
        await store.read(queries.space, "mia", space.id)


async def test_a_space_is_changed_by_a_member_who_has_seen_its_last_version(store: Database) -> None:
    space = await talk(store)
    renamed = await store.write(commands.change_space, "tom", space.id, {"name": "new", "metadata": {"a": 1}}, if_match=1)
    assert (renamed.version, renamed.name, renamed.metadata) == (2, "new", {"a": 1})
    with pytest.raises(VersionConflict):
        await store.write(commands.change_space, "mia", space.id, {"name": "newer"}, if_match=1)


# ---- messages ----


async def test_messages_are_numbered_and_shown_with_their_names(store: Database) -> None:
    space = await talk(store)
    one = await store.write(say, "mia", space.id, "What do you think, @designer?")
    two = await store.write(say, "agent:designer", space.id, "Green.", reply_to=one.id)
    assert [(m.pos, m.role, m.author_name, m.mentions, m.reply_to) for m in (one, two)] == [
        (1, "human", "mia", ["agent:designer"], None),
        (2, "agent", "designer", [], one.id),
    ]
    assert [each.id for each in await said(store, "tom", space)] == [one.id, two.id]
    assert [each.id for each in await store.read(queries.messages, "tom", space.id, after=1)] == [two.id]
    assert queries.shown(two).seq == 2


async def test_the_same_message_sent_again_is_one_message(store: Database) -> None:
    space = await talk(store)
    first = await store.write(say, "mia", space.id, "hello", id="mine")
    assert await store.write(say, "mia", space.id, "hello", id="mine") == first
    with pytest.raises(AlreadyExists):
        await store.write(say, "mia", space.id, "something else", id="mine")
    with pytest.raises(AlreadyExists):
        await store.write(say, "tom", space.id, "hello", id="mine")
    assert (await store.write(say, "mia", space.id, "next")).pos == 2
    changed = await store.write(commands.edit, "mia", space.id, "mine", "hello!")
    assert await store.write(say, "mia", space.id, "hello", id="mine") == changed
    taken_back = await store.write(commands.delete, "mia", space.id, "mine")
    assert await store.write(say, "mia", space.id, "hello", id="mine") == taken_back
    for other in ("hello!", "", "something else"):
        with pytest.raises(AlreadyExists):
            await store.write(say, "mia", space.id, other, id="mine")


async def test_a_message_has_the_parts_that_are_stored(store: Database) -> None:
    space = await talk(store)
    block = await store.write(put_block, b"a picture", "image/png")
    picture = Part(kind="image", block=block, media_type="image/png", size=9)
    await store.write(say, "mia", space.id, "", parts=[picture])
    assert (await said(store, "tom", space))[0].parts == [picture]
    await store.write(erase_block, block)
    with pytest.raises(Invalid, match="store it first"):
        await store.write(say, "mia", space.id, "once more", parts=[picture])


async def test_an_edit_and_a_deletion_are_versions(store: Database) -> None:
    space = await talk(store)
    message = await store.write(say, "mia", space.id, "helo @tom")
    edited = await store.write(commands.edit, "mia", space.id, message.id, "hello @designer", if_match=1)
    assert (edited.version, edited.pos, edited.mentions) == (2, 1, ["agent:designer"])
    with pytest.raises(VersionConflict):
        await store.write(commands.edit, "mia", space.id, message.id, "hi", if_match=1)
    with pytest.raises(Conflict):
        await store.write(commands.delete, "tom", space.id, message.id)
    gone = await store.write(commands.delete, "mia", space.id, message.id)
    assert (gone.deleted, gone.content, gone.pos) == (True, "", 1)
    with pytest.raises(NotFound):
        await store.write(commands.edit, "mia", space.id, message.id, "again")
    assert [each.content for each in await store.read(read_history, SpaceMessage, message.id)] == [
        "",
        "hello @designer",
        "helo @tom",
    ]
    assert (await store.write(say, "tom", space.id, "next")).pos == 2


async def test_a_cursor_goes_forward_only(store: Database) -> None:
    space = await talk(store)
    one, two = [await store.write(say, "mia", space.id, text) for text in ("one", "two")]
    await store.write(commands.mark_processed, "tom", space.id, two.id)
    await store.write(commands.mark_processed, "tom", space.id, one.id)
    member = await store.read(queries.member, "mia", space.id, "tom")
    assert (member.last_processed_message_id, member.last_processed_seq) == (two.id, 2)


async def test_something_that_is_told_names_nobody(store: Database) -> None:
    space = await talk(store)
    told = await store.write(commands.tell, space.id, "the run of @designer failed", run_id="r1")
    assert (told.role, told.author, told.mentions, told.wakes, told.run_id) == ("system", "system", [], [], "r1")


async def test_two_tenants_do_not_meet(store: Database) -> None:
    space = await talk(store)
    with pytest.raises(NotFound):
        await store.write(say, "mia", space.id, "hello?", scope=Scope("acme"))
    assert await store.get(Entity, "mia", scope=Scope("acme")) is None


# ---- what is refused ----


async def test_bad_messages_are_refused_and_leave_no_gap(store: Database) -> None:
    space = await talk(store)
    other = await talk(store, "mia", "tom")
    elsewhere = await store.write(say, "mia", other.id, "elsewhere")
    await store.write(commands.rename, "tom", "Designer")
    bad: list[tuple[dict[str, object], str]] = [
        ({"content": "hello @nobody"}, "unknown_name"),
        ({"content": "hello @designer"}, "ambiguous_name"),
        ({"content": "x" * (LONGEST_MESSAGE + 1)}, "too_large"),
        ({"content": "ä" * (LONGEST_MESSAGE // 2 + 1)}, "too_large"),
        ({"content": "  \n"}, "invalid"),
        ({"content": "a\0b"}, "invalid"),
        ({"content": "x", "metadata": {"a": "\0"}}, "invalid"),
        ({"content": "x", "metadata": {"a": "x" * (1 << 20)}}, "too_large"),
        ({"content": "x", "reply_to": "nothing"}, "not_found"),
        ({"content": "x", "reply_to": elsewhere.id}, "not_found"),
        ({"content": "x", "mentions": ["eve"]}, "unknown_name"),
        ({"parts": [Part(kind="image", block="0" * 64)]}, "not_found"),
        ({"parts": [Part(kind="image", block="\0")]}, "not_found"),
        ({"content": "x", "id": "a/b"}, "invalid"),
    ]
    for fields, code in bad:
        with pytest.raises(Invalid) as refused:
            await store.write(commands.post, "mia", space.id, Said(**fields))  # type: ignore[arg-type]
        assert refused.value.code == code
    assert (await store.write(say, "mia", space.id, "hello @agent:designer")).pos == 1


# ---- many at once ----


@pytest.mark.parametrize("writers", [50])
async def test_fifty_writers_are_numbered_without_gaps_in_one_order_for_all(store: Database, writers: int) -> None:
    names = [f"w{number}" for number in range(writers)]
    space = await talk(store, *names)
    each = 6

    async def write(name: str) -> list[SpaceMessage]:
        return [await store.write(say, name, space.id, f"{name} {number}") for number in range(each)]

    async def follow() -> list[str]:
        follower = Follower(store, after=0, collections=("space_messages",))
        return [change.record.id for change in await take(follower, writers * each) if isinstance(change.record, SpaceMessage)]

    followers = [asyncio.create_task(follow()) for _ in range(3)]
    written = [message for made in await asyncio.gather(*map(write, names)) for message in made]
    stored = await said(store, names[0], space)
    assert [message.pos for message in stored] == list(range(1, writers * each + 1))
    assert {message.id for message in written} == {message.id for message in stored}
    orders = await asyncio.gather(*followers)
    assert all(order == [message.id for message in stored] for order in orders)


async def test_people_who_come_and_go_and_speak_at_once_break_nothing(store: Database) -> None:
    space = await talk(store, "mia", "tom")

    async def come_and_go(name: str) -> None:
        for _ in range(5):
            await store.write(commands.add_member, "mia", space.id, name)
            await store.write(say, name, space.id, f"hello @mia, I am {name}")
            await store.write(commands.remove_member, name, space.id, name)

    await asyncio.gather(*(come_and_go(f"guest{number}") for number in range(6)))
    assert [message.pos for message in await said(store, "mia", space)] == list(range(1, 31))
    assert await store.get(Membership, space.id, "guest1") is None
    assert [each.entity_id for each in await store.read(queries.members, "mia", space.id)] == ["mia", "tom"]
