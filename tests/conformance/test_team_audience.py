"""A breadcrumb for a team is its space's members', from the moment they come in until the moment they leave."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.embeddings import NoEmbedder
from stigmergy.breadcrumbs.events import Event
from stigmergy.breadcrumbs.model import Draft
from stigmergy.breadcrumbs.namespace import Breadcrumbs
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.breadcrumbs.search_index import fill
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope
from stigmergy.spaces.commands import add_member, remove_member
from support.talk import space_of

WAYS = {"get", "history", "version", "retag", "list", "search", "assembly"}
ASKING = [{"schema_name": "ask.v1", "role": "trigger"}, {"schema_name": "plan.v1", "as": "plan"}]


def of(store: Database, entity: str) -> Breadcrumbs:
    return Breadcrumbs(store, Scope("main", entity), Reader(entity), Searcher(NoEmbedder()))


async def met(store: Database, entity: str, id: str) -> set[str]:
    """The ways on which somebody comes to a breadcrumb."""
    crumbs = of(store, entity)
    found: set[str] = set()
    for way, asking in (
        ("get", crumbs.get(id)),
        ("history", crumbs.history(id)),
        ("version", crumbs.at_version(id, 1)),
        ("retag", crumbs.retag(id, add=["x"])),
    ):
        with suppress(NotFound):
            await asking
            found.add(way)
    trigger = await crumbs.create("ask.v1")
    listed = await crumbs.find({"schema_name": "plan.v1"})
    hits = await crumbs.search("apple", method="text")
    seen = await crumbs.preview(ASKING, trigger.id)
    found |= {
        way for way, there in (("list", listed.items), ("search", hits.items), ("assembly", "plan" in seen.context)) if there
    }
    return found


async def test_members_come_to_it_on_every_way_and_who_left_on_none(store: Database) -> None:
    space = await store.write(space_of, "mia", "tom")
    mia = of(store, "mia")
    made = await mia.create("plan.v1", context={"text": "apple"}, audience="team", space_id=space.id)
    await fill(store, NoEmbedder(), "main")
    assert await met(store, "tom", made.id) == WAYS
    assert await met(store, "eve", made.id) == set()
    await store.write(add_member, "mia", space.id, "eve")
    await store.write(remove_member, "mia", space.id, "tom")
    assert await met(store, "eve", made.id) == WAYS
    assert await met(store, "tom", made.id) == set()
    assert await met(store, "mia", made.id) == WAYS


async def test_what_is_for_a_team_is_written_by_its_members(store: Database) -> None:
    space = await store.write(space_of, "mia", "tom")
    team: dict[str, Any] = {"audience": "team", "space_id": space.id}
    eve = of(store, "eve")
    own = await eve.create("plan.v1", id="own")
    draft = Draft(schema_name="plan.v1", **team)
    for writing in (
        eve.create("plan.v1", **team),
        eve.create_many([draft]),
        eve.replace("new", draft),
        eve.replace(own.id, draft),
        eve.patch(own.id, **team),
        eve.create("plan.v1", audience="team", space_id="nowhere"),
    ):
        with pytest.raises(Invalid, match="space_id"):
            await writing
    assert (await of(store, "tom").find({"schema_name": "plan.v1"})).items == [own]
    assert (await of(store, "tom").patch(own.id, **team)).space_id == space.id


async def test_a_follower_is_told_as_long_as_it_is_a_member(store: Database) -> None:
    space = await store.write(space_of, "mia", "tom")
    mia = of(store, "mia")
    told: list[Event] = []
    enough = asyncio.Event()

    async def follow() -> None:
        async for event in of(store, "tom").follow(after=0):
            told.append(event)
            if event.schema_name == "end":
                return
            enough.set()

    following = asyncio.create_task(follow())
    made = await mia.create("plan.v1", context={"n": 1}, audience="team", space_id=space.id)
    await asyncio.wait_for(enough.wait(), 10)
    await store.write(remove_member, "mia", space.id, "tom")
    await mia.patch(made.id, context={"n": 2})
    await mia.create("plan.v1", audience="team", space_id=space.id)
    await mia.create("end")
    await asyncio.wait_for(following, 10)
    assert [(event.schema_name, event.context) for event in told] == [("plan.v1", {"n": 1}), ("end", {})]
