"""What `breadcrumbs` promises, behind every door."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from stigmergy.breadcrumbs.assembly import canonical
from stigmergy.breadcrumbs.events import Event
from stigmergy.breadcrumbs.model import Draft, Schema
from stigmergy.breadcrumbs.search_index import fill
from stigmergy.errors import AlreadyExists, CursorExpired, Invalid, NotFound, StigmergyError, VersionConflict
from stigmergy.kernel.selectors import Selector
from support.loopback import AsEntity

LATER = 4_000_000_000_123
HINTS = {"exclude": ["secret"]}


async def first(events: Any, count: int) -> list[Event]:
    async with asyncio.timeout(20), aclosing(events):
        return [await anext(events) for _ in range(count)]


# ---- writing and reading one ----


async def test_what_was_written_is_read(crumbs: Any) -> None:
    made = await crumbs.create(
        "note.v1",
        "one",
        context={"n": 1, "secret": "s"},
        tags=["b", "a", "b"],
        id="mine-1",
        description="why",
        llm_hints=HINTS,
        audience="private",
        expires_at=LATER,
    )
    assert (made.id, made.owner_id, made.schema_name, made.title, made.tags) == ("mine-1", "mia", "note.v1", "one", ["b", "a"])
    assert (made.context, made.llm_hints, made.description) == ({"n": 1}, None, "why")
    assert (made.audience, made.expires_at, made.version, made.created_by) == ("private", LATER, 1, "mia")
    assert made.created_at == made.updated_at > 1_700_000_000_000
    assert await crumbs.get(made.id) == made
    full = await crumbs.get(made.id, view="full")
    assert (full.context, full.llm_hints) == ({"n": 1, "secret": "s"}, HINTS)


async def test_a_rule_that_fails_while_reading_is_told(crumbs: Any) -> None:
    hints = {"transform": {"best": {"type": "template", "template": "{{ 1 // context.n }}"}}}
    made = await crumbs.create("note.v1", context={"n": 0}, llm_hints=hints)
    assert made.context == {}
    assert [error["key"] for error in made.hint_errors] == ["best"]


async def test_texts_of_any_kind_come_back(crumbs: Any) -> None:
    texts = {"line": "a\u2028b\x85c\r\nd", "sign": "ä😀", "quote": '"%2F\\'}
    made = await crumbs.create("note.v1", "ä/b?c#d", context=texts, tags=["a b&c=d", "ä"], id="ä b?c#d%25")
    assert await crumbs.get(made.id) == made
    assert made.context == texts
    assert [view.id for view in (await crumbs.find({"all_tags": ["a b&c=d", "ä"]})).items] == [made.id]
    events = await first(crumbs.follow(after=0), 1)
    assert (events[0].context, events[0].tags) == (texts, made.tags)


async def test_many_are_written_together_or_not_at_all(crumbs: Any) -> None:
    assert await crumbs.create_many([]) == []
    made = await crumbs.create_many([Draft(schema_name="note.v1", title=title) for title in ("one", "two")])
    assert [view.title for view in made] == ["one", "two"]
    with pytest.raises(Invalid) as refused:
        await crumbs.create_many([Draft(schema_name="note.v1"), Draft(schema_name="note.v1", tags=[""])])
    assert refused.value.where == "[1].tags[0]"
    assert len((await crumbs.find()).items) == 2


@pytest.mark.parametrize("id", ["nothing", "", "..", "a/b", "a\0b"])
async def test_what_is_not_there_is_not_found(crumbs: Any, id: str) -> None:
    for asked in (
        crumbs.get(id),
        crumbs.get(id, view="full"),
        crumbs.history(id),
        crumbs.at_version(id, 1),
        crumbs.patch(id, title="x"),
        crumbs.retag(id, add=["x"]),
        crumbs.delete(id),
        crumbs.preview([], id),
    ):
        with pytest.raises(NotFound):
            await asked


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "name": ({"schema_name": "a*"}, "invalid", "schema_name"),
    "title": ({"schema_name": "a.v1", "title": "t" * 10_001}, "invalid", "title"),
    "tags": ({"schema_name": "a.v1", "tags": [str(n) for n in range(65)]}, "invalid", "tags"),
    "nan": ({"schema_name": "a.v1", "context": {"n": float("nan")}}, "invalid", "context"),
    "no JSON": ({"schema_name": "a.v1", "context": {"n": object()}}, "invalid", "context"),
    "size": ({"schema_name": "a.v1", "context": {"n": "x" * (1 << 20)}}, "too_large", "context"),
    "hints": ({"schema_name": "a.v1", "llm_hints": {"transform": {"a": {"type": "nothing"}}}}, "invalid_hints", "llm_hints"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_refused_names_its_place(crumbs: Any, name: str) -> None:
    fields, code, where = REFUSED[name]
    with pytest.raises(Invalid) as refused:
        await crumbs.create(**fields)
    assert refused.value.code == code
    assert str(refused.value.where).startswith(where)
    assert str(refused.value) == f"{refused.value.where}: {refused.value.message}"
    assert (await crumbs.find()).items == []


async def test_an_id_is_taken_once(crumbs: Any) -> None:
    await crumbs.create("note.v1", id="one")
    with pytest.raises(AlreadyExists):
        await crumbs.create("note.v1", id="one")


async def test_others_see_what_they_may(as_entity: AsEntity) -> None:
    mia, tom = await as_entity("mia", "read", "write"), await as_entity("tom", "read", "write")
    secret = await mia.create("note.v1", audience="private")
    shared = await mia.create("note.v1")
    with pytest.raises(NotFound):
        await tom.get(secret.id)
    assert [view.id for view in (await tom.find()).items] == [shared.id]
    assert [view.id for view in (await mia.find()).items] == [shared.id, secret.id]
    await mia.patch(shared.id, audience="private")
    events = await first(tom.follow(after=0), 2)
    # of what is no longer for him he learns that it is gone
    assert [(event.event, event.id, event.context) for event in events] == [("delete", shared.id, None)] * 2


# ---- changing ----


async def test_a_patch_merges(crumbs: Any) -> None:
    made = await crumbs.create("note.v1", "one", context={"a": {"x": 1, "y": 2}}, description="why", expires_at=LATER)
    patched = await crumbs.patch(made.id, context={"a": {"y": None, "z": 3}}, description=None, expires_at=LATER + 1)
    assert (patched.context, patched.title, patched.description) == ({"a": {"x": 1, "z": 3}}, "one", None)
    assert (patched.expires_at, patched.version) == (LATER + 1, 2)
    assert (await crumbs.patch(made.id, expires_at=None)).expires_at is None
    with pytest.raises(TypeError):
        await crumbs.patch(made.id, colour="red")


async def test_a_condition_that_does_not_hold_writes_nothing(crumbs: Any) -> None:
    made = await crumbs.create("note.v1", "one")
    await crumbs.patch(made.id, title="two", if_match=1)
    for attempt in (
        crumbs.patch(made.id, title="three", if_match=1),
        crumbs.replace(made.id, Draft(schema_name="note.v1"), if_match=1),
        crumbs.delete(made.id, if_match=1),
    ):
        with pytest.raises(VersionConflict):
            await attempt
    assert [view.title for view in await crumbs.history(made.id)] == ["two", "one"]


async def test_of_many_with_the_same_condition_one_wins(crumbs: Any) -> None:
    made = await crumbs.create("note.v1")
    patches = [crumbs.patch(made.id, title=str(n), if_match=1) for n in range(20)]
    answers = await asyncio.gather(*patches, return_exceptions=True)
    assert sum(isinstance(answer, VersionConflict) for answer in answers) == 19
    assert len(await crumbs.history(made.id)) == 2


async def test_replacing_brings_back_what_was_deleted(crumbs: Any) -> None:
    made = await crumbs.create("note.v1", "one", context={"n": 1}, tags=["a"])
    replaced = await crumbs.replace(made.id, Draft(schema_name="page.v1", title="two", expires_at=LATER), if_match=1)
    assert (replaced.schema_name, replaced.context, replaced.tags, replaced.expires_at) == ("page.v1", {}, [], LATER)
    assert await crumbs.delete(made.id, if_match=2) is None
    with pytest.raises(NotFound):
        await crumbs.get(made.id)
    with pytest.raises(VersionConflict):
        await crumbs.replace(made.id, Draft(schema_name="note.v1"), if_match=3)
    again = await crumbs.replace(made.id, Draft(schema_name="note.v1", title="again"))
    assert (again.version, again.title) == (4, "again")


async def test_tags_are_added_and_removed_without_a_race(crumbs: Any) -> None:
    made = await crumbs.create("note.v1", tags=["a", "b"])
    await asyncio.gather(*(crumbs.retag(made.id, add=[f"t{n}"], remove=["b"]) for n in range(10)))
    assert sorted((await crumbs.get(made.id)).tags) == sorted(["a", *(f"t{n}" for n in range(10))])


# ---- lists and history ----


async def test_a_list_is_read_page_by_page(crumbs: Any) -> None:
    await crumbs.create_many([Draft(schema_name="note.v1", title=str(n), tags=["even"] * (1 - n % 2)) for n in range(7)])
    titles: list[str] = []
    cursor = None
    while True:
        page = await crumbs.find(limit=3, cursor=cursor)
        titles += [view.title for view in page.items]
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.items) == 3
    assert titles == [str(n) for n in reversed(range(7))]
    even = await crumbs.find(Selector(schema_name="note.*", all_tags=("even",)), limit=10)
    assert ([view.title for view in even.items], even.cursor) == (["6", "4", "2", "0"], None)
    assert (await crumbs.find({"any_tags": []})).items == []


async def test_a_selector_is_checked(crumbs: Any) -> None:
    bad = {"context_match": [{"path": "a", "op": "almost", "value": 1}]}
    with pytest.raises(Invalid) as refused:
        await crumbs.find(bad)
    assert (refused.value.code, refused.value.where) == ("invalid_selector", "context_match[0].op")
    with pytest.raises(Invalid) as refused:
        await first(crumbs.follow(bad), 1)
    assert refused.value.where == "context_match[0].op"


async def test_every_version_can_be_read(crumbs: Any) -> None:
    made = await crumbs.create("note.v1", context={"n": 1})
    for n in (2, 3):
        await crumbs.patch(made.id, context={"n": n})
    assert [(view.version, view.context) for view in await crumbs.history(made.id)] == [(n, {"n": n}) for n in (3, 2, 1)]
    assert [view.version for view in await crumbs.history(made.id, limit=2)] == [3, 2]
    assert await crumbs.at_version(made.id, 1) == made
    with pytest.raises(NotFound):
        await crumbs.at_version(made.id, 4)
    await crumbs.delete(made.id)
    assert [view.version for view in await crumbs.history(made.id)] == [3, 2, 1]


# ---- search ----


@pytest.mark.parametrize("method", ["text", "vector", "hybrid"])
async def test_a_text_finds_by_words_and_by_meaning(crumbs: Any, app: Any, method: Any) -> None:
    price = await crumbs.create("note.v1", "the price of bitcoin", context={"n": 1, "secret": "rain"}, llm_hints=HINTS)
    weather = await crumbs.create("page.v1", "rain and wind in Paris", tags=["a"])
    await fill(app.database, app.searcher.embedder, "main")
    found = await crumbs.search("bitcoin price", method=method, limit=1)
    assert [(each.breadcrumb, found.stale, found.cut) for each in found.items] == [(price, 0, False)]
    assert [each.breadcrumb for each in (await crumbs.search("rain", method="text")).items] == [weather]
    assert [each.breadcrumb.id for each in (await crumbs.search("bitcoin price", {"any_tags": ["a"]}, method=method)).items] in (
        [weather.id],
        [],
    )
    with pytest.raises(Invalid):
        await crumbs.search(" ", method=method)


async def test_sources_of_an_assembly_are_searched(crumbs: Any, app: Any) -> None:
    await crumbs.create("note.v1", "the price of bitcoin")
    await crumbs.create("note.v1", "rain in Paris")
    asked = await crumbs.create("user.message.v1", "What does a bitcoin cost?")
    await fill(app.database, app.searcher.embedder, "main")
    for method in ("text", "vector", "hybrid"):
        sources = [
            {"schema_name": "user.message.v1", "role": "trigger"},
            {"schema_name": "note.v1", "fetch": {"method": method, "limit": 1}},
        ]
        seen = await crumbs.preview(sources, asked.id)
        assert seen.context["note"]["title"] == "the price of bitcoin"


# ---- schemas and assembly ----


async def test_a_schema_checks_and_shapes(crumbs: Any) -> None:
    wanted = {"type": "object", "properties": {"n": {"type": "integer"}}}
    put = await crumbs.put_schema(Schema(name="note.v1", json_schema=wanted, llm_hints=HINTS, ttl_ms=10**9))
    assert (put.name, put.json_schema, put.llm_hints, put.ttl_ms, put.version) == ("note.v1", wanted, HINTS, 10**9, 1)
    assert put.updated_at > 1_700_000_000_000
    assert await crumbs.schema("note.v1") == put
    other = await crumbs.put_schema(Schema(name="page.v1"))
    assert await crumbs.schemas() == [put, other]
    assert await crumbs.schemas(after="note.v1") == await crumbs.schemas(after="note.v1", limit=1) == [other]
    await crumbs.delete_schema("page.v1")
    for gone in (crumbs.schema("page.v1"), crumbs.delete_schema("page.v1")):
        with pytest.raises(NotFound):
            await gone
    made = await crumbs.create("note.v1", context={"n": 1, "secret": "s"})
    assert made.context == {"n": 1}
    assert made.expires_at == made.created_at + 10**9
    with pytest.raises(Invalid) as refused:
        await crumbs.create("note.v1", context={"n": "one"})
    assert refused.value.where == "context.n"
    with pytest.raises(Invalid):
        await crumbs.put_schema(Schema(name="note.v1", json_schema={"type": "nothing"}))
    with pytest.raises(Invalid) as refused:
        await crumbs.put_schema(Schema(name=""))
    assert refused.value.where == "name"


async def test_an_assembly_is_the_same_everywhere(as_entity: AsEntity, app: Any) -> None:
    crumbs = await as_entity("mia")
    await crumbs.create("page.v1", "page", context={"url": "u", "secret": "s"}, llm_hints=HINTS, tags=["session:1"])
    await crumbs.create("page.v1", "other", tags=["session:2"])
    asked = await crumbs.create("user.message.v1", context={"text": "What?"}, tags=["session:1"])
    subscriptions = [
        {"schema_name": "user.message.v1", "role": "trigger"},
        {"schema_name": "page.v1", "as": "page", "same_tags": ["session:*"]},
        {"schema_name": "nothing.v1", "required": True},
    ]
    seen = await crumbs.preview(subscriptions, asked.id, budget=1_000)
    assert seen.context["page"]["context"] == {"url": "u"}
    assert (seen.missing, seen.required_missing) == (["nothing"], ["nothing"])
    assert canonical(seen) == canonical(await app.breadcrumbs_of("mia").preview(subscriptions, asked.id, budget=1_000))
    with pytest.raises(Invalid) as refused:
        await crumbs.preview(subscriptions, asked.id, budget=1)
    assert refused.value.where == "budget"


# ---- following ----


async def test_every_change_is_followed_once_in_order(crumbs: Any) -> None:
    made = await crumbs.create("note.v1", context={"n": 1, "secret": "s"}, llm_hints=HINTS, tags=["a"])
    await crumbs.create("other.v1")
    await crumbs.patch(made.id, context={"n": 2})
    await crumbs.delete(made.id)
    events = await first(crumbs.follow({"schema_name": "note.*"}, after=0), 3)
    begin = events[0].seq  # a token is a change too, where one is needed to come here
    assert [(event.seq - begin, event.event, event.version) for event in events] == [
        (0, "create", 1),
        (2, "update", 2),
        (3, "delete", 3),
    ]
    assert [event.context for event in events] == [{"n": 1}, {"n": 2}, None]
    assert {(event.id, event.schema_name, event.owner_id, event.actor) for event in events} == {
        (made.id, "note.v1", "mia", "mia")
    }
    assert (events[0].updated_at, events[0].tags) == (made.updated_at, ["a"])
    assert await first(crumbs.follow({"schema_name": "note.*"}, after=begin), 2) == events[1:]


async def test_without_a_position_it_is_followed_from_now_on(crumbs: Any) -> None:
    old = await crumbs.create("note.v1")
    async with asyncio.timeout(20), aclosing(crumbs.follow()) as events:
        coming = asyncio.create_task(anext(events))
        while not coming.done():
            await crumbs.create("note.v1")
            await asyncio.sleep(0.05)
        assert (await coming).id != old.id


async def test_a_position_that_the_journal_does_not_have_is_told(crumbs: Any) -> None:
    await crumbs.create("note.v1")
    with pytest.raises(CursorExpired) as expired:
        await first(crumbs.follow(after=1_000), 1)
    assert expired.value.oldest == 1


# ---- on PostgreSQL ----


@pytest.mark.parametrize("engine", [pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_the_same_holds_on_postgres(crumbs: Any, engine: str) -> None:
    following = asyncio.create_task(first(crumbs.follow({"any_tags": ["a"]}, after=0), 4))
    made = await crumbs.create("note.v1", "one", context={"n": 1}, tags=["a"])
    assert await crumbs.get(made.id) == made
    assert (await crumbs.patch(made.id, context={"n": 2}, if_match=1)).version == 2
    with pytest.raises(VersionConflict):
        await crumbs.patch(made.id, context={"n": 3}, if_match=1)
    await crumbs.retag(made.id, add=["b"])
    await crumbs.delete(made.id)
    assert [event.version for event in await following] == [1, 2, 3, 4]
    with pytest.raises(StigmergyError):
        await crumbs.get(made.id)
    assert [view.version for view in await crumbs.history(made.id)] == [3, 2, 1]
    assert (await crumbs.find()).items == []
