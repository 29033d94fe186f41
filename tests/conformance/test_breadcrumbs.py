"""Breadcrumbs in process, on both engines."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from stigmergy.access.model import Forbidden
from stigmergy.breadcrumbs import commands, queries
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import LARGEST_CONTEXT, Breadcrumb, Draft, Patch, Schema
from stigmergy.breadcrumbs.waking import as_crumb
from stigmergy.errors import AlreadyExists, Invalid, NotFound, VersionConflict
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.journal import Change
from stigmergy.kernel.rules import Diagnostic
from stigmergy.kernel.selectors import Selector, parse_selector
from stigmergy.kernel.timers import fire, next_timers
from stigmergy.kernel.transaction import Scope, Snapshot
from support.stores import OpenStore

MIA = Scope("main", "mia")
TOM = Scope("main", "tom")
AS_MIA = Reader("mia")
AS_TOM = Reader("tom")


async def create(store: Database, scope: Scope = MIA, **fields: Any) -> Breadcrumb:
    given: dict[str, Any] = {"schema_name": "note.v1", "title": "a note"} | fields
    return await store.write(commands.create, Draft(**given), scope=scope)


async def names(store: Database, selector: dict[str, Any], reader: Reader = AS_MIA, **more: Any) -> list[str]:
    page = await store.read(queries.find, reader, parse_selector(selector), **more)
    return [crumb.title for crumb in page.crumbs]


@pytest.fixture
async def clocked(open_store: OpenStore) -> AsyncIterator[tuple[Database, ManualClock]]:
    clock = ManualClock()
    store = await open_store(clock=clock)
    yield store, clock
    await store.close()


async def test_a_breadcrumb_is_read_as_it_was_written(store: Database) -> None:
    made = await create(store, tags=["b", "a", "b"], context={"deep": {"x": [1, None, "é"]}}, description="why")
    assert (made.version, made.owner_id, made.created_by, made.tags) == (1, "mia", "mia", ["b", "a"])
    assert await store.read(queries.get, AS_TOM, made.id) == made


async def test_a_patch_merges_the_context_and_keeps_the_rest(store: Database) -> None:
    made = await create(store, context={"a": 1, "b": {"c": 2, "d": 3}})
    change = Patch(title="other", context={"a": None, "b": {"c": 5}, "e": [1]})
    after = await store.write(commands.patch, AS_TOM, made.id, change, scope=TOM)
    assert after.context == {"b": {"c": 5, "d": 3}, "e": [1]}
    assert (after.title, after.version, after.updated_by, after.created_by) == ("other", 2, "tom", "mia")
    assert after.checksum != made.checksum


async def test_a_patch_that_changes_nothing_writes_nothing(store: Database) -> None:
    made = await create(store, context={"a": 1})
    after = await store.write(commands.patch, AS_MIA, made.id, Patch(context={"a": 1}), scope=MIA)
    assert after == made
    assert len(await store.read(read_page, 0)) == 1


@pytest.mark.parametrize(("old", "new"), [(1, True), (True, 1), (0, False), (1, 1.0), ([0, {"a": 1}], [0, {"a": True}])])
async def test_what_python_holds_to_be_equal_and_json_does_not_is_a_change(store: Database, old: Any, new: Any) -> None:
    made = await create(store, context={"done": old}, llm_hints={"mode": "merge", "transform": {"t": literal(old)}})
    change = Patch(context={"done": new}, llm_hints={"mode": "merge", "transform": {"t": literal(new)}})
    after = await store.write(commands.patch, AS_MIA, made.id, change, scope=MIA)
    stored = await store.read(queries.get, AS_MIA, made.id)
    assert (after.version, json.encode(stored.context)) == (2, json.encode({"done": new}))
    (shown,) = await store.read(queries.shown, [stored])
    assert json.encode(shown.context) == json.encode({"done": new, "t": new})


def literal(value: Any) -> dict[str, Any]:
    return {"type": "literal", "literal": value}


async def test_of_fifty_patches_of_version_one_one_wins(store: Database) -> None:
    made = await create(store)
    change = Patch(context={"n": 1})
    results = await asyncio.gather(
        *(store.write(commands.patch, AS_MIA, made.id, Patch(context={"n": n}), if_match=1, scope=MIA) for n in range(1, 51)),
        return_exceptions=True,
    )
    assert change
    assert sum(isinstance(result, VersionConflict) for result in results) == 49
    versions = await store.read(queries.history, AS_MIA, made.id)
    assert [version.version for version in versions] == [2, 1]


async def test_what_was_deleted_is_gone_but_for_its_history_and_comes_back_by_replacing(store: Database) -> None:
    made = await create(store, context={"n": 1})
    await store.write(commands.delete, AS_MIA, made.id, scope=MIA)
    with pytest.raises(NotFound):
        await store.read(queries.get, AS_MIA, made.id)
    assert await names(store, {}) == []
    draft = Draft(schema_name="note.v1", title="again", context={"n": 2})
    again = await store.write(commands.replace, AS_MIA, made.id, draft, scope=MIA)
    assert (again.version, again.context) == (3, {"n": 2})
    versions = await store.read(queries.history, AS_MIA, made.id)
    assert [(version.version, version.context) for version in versions] == [(3, {"n": 2}), (1, {"n": 1})]
    assert (await store.read(queries.at_version, AS_MIA, made.id, 1)).context == {"n": 1}


async def test_many_are_made_in_one_transaction_or_none(store: Database) -> None:
    good = [Draft(schema_name="note.v1", title=str(n)) for n in range(3)]
    made = await store.write(commands.create_many, good, scope=MIA)
    assert [crumb.seq for crumb in made] == [1, 2, 3]
    with pytest.raises(Invalid, match=r"\[1\]\.tags\[0\]"):
        await store.write(commands.create_many, [*good[:1], Draft(schema_name="note.v1", tags=["x" * 129])], scope=MIA)
    assert len(await store.read(read_page, 0)) == 3


async def test_tags_are_added_and_removed_without_a_race(store: Database) -> None:
    made = await create(store, tags=["keep", "drop"])
    await asyncio.gather(
        *(store.write(commands.retag, AS_MIA, made.id, add=[f"t{n}"], scope=MIA) for n in range(10)),
        store.write(commands.retag, AS_MIA, made.id, remove=["drop"], scope=MIA),
    )
    after = await store.read(queries.get, AS_MIA, made.id)
    assert set(after.tags) == {"keep", *(f"t{n}" for n in range(10))}
    assert await names(store, {"all_tags": ["t3", "keep"]}) == ["a note"]
    assert await names(store, {"any_tags": ["drop"]}) == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, ["d", "c", "b", "a"]),
        ({"schema_name": "x.v1"}, ["d", "a"]),
        ({"schema_name": "x.*"}, ["d", "c", "a"]),
        ({"all_tags": ["red"]}, ["c", "a"]),
        ({"any_tags": ["red", "blue"]}, ["c", "b", "a"]),
        ({"any_tags": []}, []),
        ({"none_tags": ["red"]}, ["d", "b"]),
        ({"all_tags": ["red"], "context_match": [{"path": "n", "op": "gt", "value": 1}]}, ["c"]),
        ({"where": "context.n == 2 || context.n == 4"}, ["d", "b"]),
    ],
)
async def test_a_selector_lists_what_it_matches_newest_first(
    store: Database, selector: dict[str, Any], expected: list[str]
) -> None:
    await create(store, title="a", schema_name="x.v1", tags=["red"], context={"n": 1})
    await create(store, title="b", schema_name="y.v1", tags=["blue"], context={"n": 2})
    await create(store, title="c", schema_name="x.v2", tags=["red", "blue"], context={"n": 3})
    await create(store, title="d", schema_name="x.v1", context={"n": 4})
    assert await names(store, selector) == expected


async def test_a_list_is_read_page_by_page(store: Database) -> None:
    for n in range(25):
        await create(store, title=str(n), tags=["t"], context={"n": n % 2})
    selector = Selector(all_tags=("t",), where="context.n == 1")
    seen: list[str] = []
    below: int | None = queries.EVERYTHING
    while below is not None:
        page = await store.read(queries.find, AS_MIA, selector, below=below, limit=5)
        seen += [crumb.title for crumb in page.crumbs]
        below = page.next
    assert seen == [str(n) for n in range(23, 0, -2)]


async def test_a_page_looks_at_a_bounded_number_of_rows(store: Database) -> None:
    for n in range(30):
        await create(store, title=str(n), context={"n": n})
    selector = Selector(where="context.n == 1")
    page = await store.read(queries.find, AS_MIA, selector, limit=5, scan=10)
    assert page.crumbs == []
    assert page.next is not None


async def test_private_is_its_owners_and_team_its_members(store: Database) -> None:
    await create(store, title="mine", audience="private")
    await create(store, title="ours", audience="team", space_id="s1")
    await create(store, title="all")
    assert await names(store, {}) == ["all", "ours", "mine"]
    assert await names(store, {}, AS_TOM) == ["all"]
    assert await names(store, {}, Reader("tom", frozenset({"s1"}))) == ["all", "ours"]
    assert await names(store, {}, Reader("root", everything=True)) == ["all", "ours", "mine"]


async def test_what_a_reader_may_not_see_is_not_there_for_them(store: Database) -> None:
    made = await create(store, audience="private")
    with pytest.raises(NotFound):
        await store.read(queries.get, AS_TOM, made.id)
    with pytest.raises(NotFound):
        await store.read(queries.history, AS_TOM, made.id)
    for command in (
        store.write(commands.patch, AS_TOM, made.id, Patch(title="x"), scope=TOM),
        store.write(commands.delete, AS_TOM, made.id, scope=TOM),
        store.write(commands.replace, AS_TOM, made.id, Draft(schema_name="x.v1"), scope=TOM),
        store.write(commands.retag, AS_TOM, made.id, add=["x"], scope=TOM),
    ):
        with pytest.raises(NotFound):
            await command
    with pytest.raises(AlreadyExists):
        await create(store, TOM, id=made.id)


async def test_an_expired_breadcrumb_is_gone_at_once_and_its_deletion_is_a_change(
    clocked: tuple[Database, ManualClock],
) -> None:
    store, clock = clocked
    made = await create(store, expires_at=clock.now() + 5_000, tags=["t"])
    clock.advance(5)
    with pytest.raises(NotFound):
        await store.read(queries.get, AS_MIA, made.id)
    assert await names(store, {"all_tags": ["t"]}) == []
    (timer,) = await store.read(next_timers, [commands.EXPIRY])
    assert await store.write(fire, timer, commands.expire)
    assert [(change.event, change.version) for change in await store.read(read_page, 0)] == [("create", 1), ("delete", 2)]


@pytest.mark.parametrize("how", ["create", "replace"])
async def test_the_id_of_what_has_expired_is_free_before_it_is_swept(clocked: tuple[Database, ManualClock], how: str) -> None:
    store, clock = clocked
    made = await create(store, expires_at=clock.now() + 5_000, tags=["t"])
    clock.advance(5)
    draft = Draft(schema_name="note.v1", title="again", id=made.id, tags=["t"])
    if how == "create":
        await store.write(commands.create, draft, scope=TOM)
    else:
        with pytest.raises(VersionConflict):
            await store.write(commands.replace, AS_TOM, made.id, draft, if_match=1, scope=TOM)
        await store.write(commands.replace, AS_TOM, made.id, draft, scope=TOM)
    again = await store.read(queries.get, AS_MIA, made.id)
    assert (again.version, again.owner_id, again.expires_at) == (3, "tom", None)
    assert await names(store, {"all_tags": ["t"]}) == ["again"]
    assert await store.read(next_timers, [commands.EXPIRY]) == []
    assert [change.event for change in await store.read(read_page, 0)] == ["create", "delete", "create"]


async def test_what_is_replaced_lives_as_long_as_its_schema_says(clocked: tuple[Database, ManualClock]) -> None:
    store, clock = clocked
    await store.write(commands.put_schema, Schema(name="note.v1", ttl_ms=10_000))
    made = await create(store)
    clock.advance(5)
    draft = Draft(schema_name="note.v1", context={"n": 2})
    after = await store.write(commands.replace, AS_MIA, made.id, draft, scope=MIA)
    assert after.expires_at == clock.now() + 10_000
    (timer,) = await store.read(next_timers, [commands.EXPIRY])
    assert timer.due_at == after.expires_at


async def test_a_schema_checks_what_is_written_and_says_how_long_it_lives(clocked: tuple[Database, ManualClock]) -> None:
    store, clock = clocked
    rules = {"type": "object", "properties": {"a": {"properties": {"n": {"type": "integer"}}}}, "required": ["a"]}
    await store.write(commands.put_schema, Schema(name="note.v1", json_schema=rules, ttl_ms=1_000))
    with pytest.raises(Invalid, match=r"context\.a\.n") as refused:
        await create(store, context={"a": {"n": "x"}})
    assert refused.value.code == "schema_violation"
    assert (await create(store, context={"a": {"n": 1}})).expires_at == clock.now() + 1_000
    assert (await create(store, schema_name="other.v1")).expires_at is None


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "https://example.invalid/x"}, {"pattern": "("}])
async def test_a_schema_that_is_none_is_refused(store: Database, schema: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="json_schema"):
        await store.write(commands.put_schema, Schema(name="x.v1", json_schema=schema))


async def test_a_schema_has_nothing_else_read(store: Database, tmp_path: Path) -> None:
    """Neither a file nor a host that this machine can reach: a stranger would choose what is read, and how long it takes."""
    asked: list[str] = []
    here = tmp_path / "here.json"
    await asyncio.to_thread(here.write_text, '{"type": "object"}')
    async with await asyncio.start_server(lambda *_: asked.append("asked"), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for place in (f"http://127.0.0.1:{port}/x.json", here.as_uri()):
            for schema in ({"$ref": place}, {"$schema": place}, {"properties": {"a": {"$ref": f"{place}#/$defs/b"}}}):
                with pytest.raises(Invalid, match="json_schema") as refused:
                    await store.write(commands.put_schema, Schema(name="x.v1", json_schema=schema))
                assert refused.value.code == "invalid_schema"
                assert "\n" not in str(refused.value)
    assert asked == []


async def test_what_hints_exclude_is_in_no_view_and_full_keeps_it(store: Database) -> None:
    await store.write(commands.put_schema, Schema(name="note.v1", llm_hints={"exclude": ["metadata.secret"]}))
    made = await create(store, context={"metadata": {"secret": "s3cr3t", "ok": 1}})
    own = await create(store, context={"a": 1, "b": 2}, llm_hints={"include": ["a"]})

    async def shown(tx: Snapshot, kind: queries.ViewKind) -> list[dict[str, Any]]:
        page = await queries.find(tx, AS_MIA, Selector())
        return [view.context for view in await queries.shown(tx, page.crumbs, kind)]

    assert await store.read(shown, "context") == [{"a": 1}, {"metadata": {"ok": 1}}]
    assert await store.read(shown, "full") == [own.context, made.context]


async def test_a_view_is_worked_out_once_for_a_version_and_its_hints(
    store: Database, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[Any] = []
    apply = queries.apply_hints
    monkeypatch.setattr(queries, "apply_hints", lambda hints, context: (worked.append(hints), apply(hints, context))[1])
    made = await create(store, context={"on": engine, "once": [1, {"a": 2}], "b": 3}, llm_hints={"exclude": ["b"]})

    async def shown(tx: Snapshot) -> queries.View:
        return (await queries.shown(tx, [await queries.get(tx, AS_MIA, made.id)]))[0]

    first = await store.read(shown)
    first.context["once"].append("mine")  # who has a view may do with it what they like
    first.context["more"] = True
    assert (await store.read(shown)).context == {"on": engine, "once": [1, {"a": 2}]}
    assert len(worked) == 1
    await store.write(commands.patch, AS_MIA, made.id, Patch(context={"once": [4]}), scope=MIA)
    assert (await store.read(shown)).context == {"on": engine, "once": [4]}
    assert len(worked) == 2


@pytest.mark.parametrize("whose", ["own", "schema"])
@pytest.mark.parametrize("change", [Patch(llm_hints=None), Patch(llm_hints={}), Patch(context={"llm_hints": {}})])
async def test_who_may_not_see_all_of_it_cannot_take_its_hints_away(store: Database, whose: str, change: Patch) -> None:
    hints = {"exclude": ["secret"]}
    if whose == "schema":
        await store.write(commands.put_schema, Schema(name="note.v1", llm_hints=hints))
        if change.llm_hints is None:
            change = Patch(llm_hints={"mode": "merge"})
    made = await create(store, context={"secret": 1, "a": 2}, llm_hints=hints if whose == "own" else None)
    with pytest.raises(Forbidden):
        await store.write(commands.patch, AS_TOM, made.id, change, scope=TOM)
    assert await store.read(queries.get, AS_MIA, made.id) == made
    assert (await store.write(commands.patch, AS_TOM, made.id, Patch(context={"a": 3}), scope=TOM)).version == 2
    assert (await store.write(commands.patch, AS_MIA, made.id, change, scope=MIA)).llm_hints in (None, {}, {"mode": "merge"})


async def test_a_refusal_tells_nobody_what_hints_hide(store: Database) -> None:
    made = await create(store, context={"secret": "s3cr3t"}, llm_hints={"exclude": ["secret"]})
    rules = {"properties": {"secret": {"type": "integer"}}}
    await store.write(commands.put_schema, Schema(name="note.v1", json_schema=rules))
    for reader, is_told in ((AS_MIA, True), (AS_TOM, False)):
        with pytest.raises(Invalid, match=r"context\.secret") as refused:
            await store.write(commands.patch, reader, made.id, Patch(context={"a": 1}))
        assert ("s3cr3t" in str(refused.value), refused.value.code) == (is_told, "schema_violation")


async def test_what_is_put_in_a_place_has_no_other_id(store: Database) -> None:
    with pytest.raises(Invalid, match="id"):
        await store.write(commands.replace, AS_MIA, "a", Draft(schema_name="note.v1", id="b"))
    assert await store.read(read_page, 0) == []


async def test_hints_inside_a_patch_are_the_new_hints(store: Database) -> None:
    made = await create(store, context={"a": 1, "b": 2}, llm_hints={"exclude": ["a"]})
    inside = Patch(context={"b": 3, "llm_hints": {"include": ["a"]}})
    after = await store.write(commands.patch, AS_MIA, made.id, inside, scope=MIA)
    assert (after.context, after.llm_hints) == ({"a": 1, "b": 3}, {"include": ["a"]})
    after = await store.write(commands.patch, AS_MIA, made.id, Patch(context={"llm_hints": None}), scope=MIA)
    assert (after.context, after.llm_hints) == ({"a": 1, "b": 3}, None)


async def test_records_that_are_no_breadcrumbs_have_each_their_own_view(store: Database) -> None:
    """What is said in a space is seen as a breadcrumb, by the hints of its schema."""
    await store.write(commands.put_schema, Schema(name="diagnostic.v1", llm_hints={"include": ["message"]}))
    said: list[Any] = []
    for word in ("one", "two"):
        record = Diagnostic(id=word, kind="k", rule=None, message=word, change_seq=1)
        change = Change("main", 1, "diagnostics", word, 1, "create", "mia", 0, None, 0, record)
        said += await store.read(queries.shown, [as_crumb(change)])
    assert [view.context for view in said] == [{"message": "one"}, {"message": "two"}]


def test_the_views_that_are_kept_are_few_enough_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "VIEWS_BYTES", 2_500)
    kept = queries._Views()  # pyright: ignore[reportPrivateUsage]
    for name in ("a", "b", "a", "c"):
        kept.keep((name, b"", b""), b"x" * 1_000)
    assert [kept.get((name, b"", b"")) is not None for name in "abc"] == [True, False, True]
    kept.keep(("large", b"", b""), b"x" * 5_000)
    assert kept.get(("large", b"", b"")) is None


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_of_nothing_is_refused(store: Database, limit: int) -> None:
    made = await create(store)
    for unit, asked in ((queries.find, Selector()), (queries.history, made.id)):
        with pytest.raises(Invalid, match="limit"):
            await store.read(unit, AS_MIA, asked, limit=limit)


async def test_hints_inside_the_context_are_moved_beside_it(store: Database) -> None:
    made = await create(store, context={"a": 1, "llm_hints": {"exclude": ["a"]}})
    assert (made.context, made.llm_hints) == ({"a": 1}, {"exclude": ["a"]})


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"context": {"x": math.nan}}, "context"),
        ({"context": {"x": [-math.inf]}}, "context"),
        ({"context": {"x": "a\0b"}}, "context"),
        ({"context": {"x\0": 1}}, "context"),
        ({"context": {"x": "\ud800"}}, "context"),
        ({"context": {"x": "y" * LARGEST_CONTEXT}}, "context"),
        ({"context": {"x": object()}}, "context"),
        ({"context": {"x": nested(100)}}, "context"),
        ({"context": {"x": nested(3_000)}}, "context"),
        ({"context": [1]}, "context"),
        ({"expires_at": 10**18}, "expires_at"),
        ({"expires_at": -1}, "expires_at"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"title": "a\0"}, "title"),
        ({"tags": [""]}, "tags[0]"),
        ({"tags": [str(n) for n in range(65)]}, "tags"),
        ({"schema_name": ""}, "schema_name"),
        ({"schema_name": "x.*"}, "schema_name"),
        ({"audience": "team"}, "space_id"),
        ({"id": "a/b"}, "id"),
        ({"llm_hints": {"mode": "other"}}, "mode"),
    ],
)
async def test_what_cannot_be_stored_is_refused_with_its_place_and_nothing_is_written(
    store: Database, fields: dict[str, Any], where: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await create(store, **fields)
    assert where in str(refused.value.where)
    assert await store.read(read_page, 0) == []
