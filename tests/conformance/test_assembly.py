"""What an agent sees when it is triggered, on both engines."""

from typing import Any

import pytest

from stigmergy.breadcrumbs import commands
from stigmergy.breadcrumbs.assembly import Assembly, assemble, canonical, estimate_tokens
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb, Draft, Patch
from stigmergy.breadcrumbs.subscriptions import parse_subscriptions
from stigmergy.errors import Invalid
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope, Snapshot

TRIGGER = {"schema_name": "user.message.v1", "role": "trigger"}
AGENT = Reader("agent")


async def put(store: Database, schema_name: str, *, tenant: str = "main", **fields: Any) -> Breadcrumb:
    given: dict[str, Any] = {"schema_name": schema_name, "title": schema_name} | fields
    draft = Draft(**given)
    return await store.write(commands.create, draft, scope=Scope(tenant, "mia"))


async def seen(store: Database, sources: list[dict[str, Any]], trigger: Breadcrumb, **more: Any) -> Assembly:
    subscriptions = parse_subscriptions([TRIGGER, *sources])
    return await store.read(assemble, AGENT, subscriptions, trigger, scope=Scope(trigger.tenant), **more)


async def test_a_trigger_comes_with_the_latest_of_each_source_as_views(store: Database) -> None:
    for n in (1, 2):
        await put(store, "page.v1", context={"n": n, "secret": "s"}, llm_hints={"exclude": ["secret"]})
        await put(store, "note.v1", context={"n": n})
    trigger = await put(store, "user.message.v1", context={"text": "hi"})
    sources = [{"schema_name": "page.v1"}, {"schema_name": "note.v1", "fetch": {"method": "recent", "limit": 5}, "as": "notes"}]
    assembly = await seen(store, sources, trigger)
    assert assembly.context["trigger"]["context"] == {"text": "hi"}
    assert assembly.context["page"]["context"] == {"n": 2}
    assert [note["context"]["n"] for note in assembly.context["notes"]] == [2, 1]
    assert [source.as_ for source in assembly.provenance] == ["trigger", "page", "notes", "notes"]
    assert assembly.token_estimate == sum(source.tokens for source in assembly.provenance)


async def test_the_trigger_is_the_version_that_fired(store: Database) -> None:
    trigger = await put(store, "user.message.v1", context={"n": 3})
    await store.write(commands.patch, Reader("mia"), trigger.id, Patch(context={"n": 4}), scope=Scope("main", "mia"))
    assembly = await seen(store, [], trigger)
    assert assembly.context["trigger"]["context"] == {"n": 3}
    assert (assembly.provenance[0].id, assembly.provenance[0].version) == (trigger.id, 1)


async def test_sources_are_scoped_to_the_triggers_session_and_tenant(store: Database) -> None:
    for session in ("session:1", "session:2"):
        await put(store, "note.v1", tags=[session], context={"of": session})
    await put(store, "note.v1", tenant="other", tags=["session:1"], context={"of": "other tenant"})
    source = {"schema_name": "note.v1", "fetch": {"method": "recent"}, "same_tags": ["session:*"]}
    trigger = await put(store, "user.message.v1", tags=["session:1"])
    assembly = await seen(store, [source], trigger)
    assert [note["context"]["of"] for note in assembly.context["note"]] == ["session:1"]
    untagged = await put(store, "user.message.v1")
    assert (await seen(store, [source], untagged)).context["note"] == []


async def test_a_record_appears_once_and_the_trigger_is_no_source_of_itself(store: Database) -> None:
    note = await put(store, "note.v1", tags=["a"])
    trigger = await put(store, "user.message.v1", tags=["a"])
    sources = [
        {"all_tags": ["a"], "as": "tagged", "fetch": {"method": "recent"}},
        {"schema_name": "note.v1", "as": "important", "priority": 5},
    ]
    assembly = await seen(store, sources, trigger)
    assert assembly.context["tagged"] == []
    assert assembly.context["important"]["id"] == note.id
    assert assembly.missing == ["tagged"]


async def test_the_latest_beside_a_trigger_of_the_same_kind_is_the_one_before_it(store: Database) -> None:
    before = await put(store, "user.message.v1")
    trigger = await put(store, "user.message.v1")
    assembly = await seen(store, [{"schema_name": "user.message.v1", "as": "before", "role": "context"}], trigger)
    assert assembly.context["before"]["id"] == before.id


async def test_what_does_not_fit_is_dropped_by_priority_then_by_age_and_named(store: Database) -> None:
    for n in range(3):
        await put(store, "low.v1", context={"n": n, "text": "x" * 400})
    important = await put(store, "high.v1", context={"text": "y" * 400})
    trigger = await put(store, "user.message.v1", context={"text": "hi"})
    sources = [{"schema_name": "low.v1", "fetch": {"method": "recent"}}, {"schema_name": "high.v1", "priority": 1}]
    whole = await seen(store, sources, trigger)
    sizes = {source.as_: source.tokens for source in whole.provenance}
    budget = sizes["trigger"] + sizes["high"] + sizes["low"] + 10
    assembly = await seen(store, sources, trigger, budget=budget)
    assert assembly.token_estimate <= budget
    assert assembly.context["high"]["id"] == important.id
    assert [low["context"]["n"] for low in assembly.context["low"]] == [2]
    assert [(dropped.as_, dropped.why.split(",")[0]) for dropped in assembly.dropped] == [("low", f"{sizes['low']} tokens")] * 2
    assert canonical(assembly) == canonical(await seen(store, sources, trigger, budget=budget))


async def test_a_trigger_larger_than_the_budget_is_refused(store: Database) -> None:
    trigger = await put(store, "user.message.v1", context={"text": "x" * 1_000})
    with pytest.raises(Invalid, match="the trigger alone"):
        await seen(store, [], trigger, budget=100)


async def test_a_required_source_that_is_not_there_is_named(store: Database) -> None:
    trigger = await put(store, "user.message.v1")
    assembly = await seen(store, [{"schema_name": "page.v1", "required": True}, {"schema_name": "note.v1"}], trigger)
    assert (assembly.missing, assembly.required_missing) == (["page", "note"], ["page"])
    assert set(assembly.context) == {"trigger"}


async def test_an_assembly_is_of_one_moment(store: Database) -> None:
    trigger = await put(store, "user.message.v1")

    async def twice(tx: Snapshot) -> tuple[bytes, bytes]:
        subscriptions = parse_subscriptions([TRIGGER, {"schema_name": "note.v1", "fetch": {"method": "recent"}}])
        first = canonical(await assemble(tx, AGENT, subscriptions, trigger))
        return first, canonical(await assemble(tx, AGENT, subscriptions, trigger))

    first, second = await store.read(twice)
    assert first == second


async def test_private_sources_are_for_their_owner(store: Database) -> None:
    await put(store, "note.v1", audience="private")
    trigger = await put(store, "user.message.v1")
    assert (await seen(store, [{"schema_name": "note.v1"}], trigger)).missing == ["note"]


def test_the_estimate_is_four_bytes_a_token() -> None:
    assert [estimate_tokens(text) for text in ("", "abcd", "abcde", "éé")] == [0, 1, 2, 1]
