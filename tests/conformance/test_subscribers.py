"""Subscriptions matched while a change is written, what they start, and the result that closes the circle."""

from typing import Any

import pytest

from stigmergy.breadcrumbs import commands, queries
from stigmergy.breadcrumbs.assembly import Assembly, assemble
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.breadcrumbs.model import Breadcrumb, Draft, Patch
from stigmergy.breadcrumbs.output import CATALOG, KEEPER, Output, as_context, catalog_id, keep_catalog, write_output
from stigmergy.breadcrumbs.subscriptions import parse_subscriptions
from stigmergy.breadcrumbs.waking import is_own, sees_change, subscription_rules
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.journal import Change
from stigmergy.kernel.rules import DIAGNOSTICS, Diagnostic, Rule, declare_rules
from stigmergy.kernel.transaction import Scope, Transaction
from support.notes import Entry, Note

ALL_DIAGNOSTICS = DIAGNOSTICS.query("all_of_test", "WHERE tenant = :tenant ORDER BY id")


async def start(tx: Transaction, rule: Rule, change: Change) -> None:
    """What a part above does: one record for each firing, which holds the trigger as it was."""
    entity = rule.action["entity"]
    if not is_own(rule, change, entity) and await sees_change(tx, Reader(entity), change):
        given = {"seq": change.seq, "id": change.id, "version": change.version, "collection": change.collection}
        await tx.insert_new(Note(id=f"{entity}@{change.seq}", owner_id=entity, text=rule.id, data=given))


async def subscribe(
    store: Database, entity: str, subscriptions: list[dict[str, Any]], action: dict[str, Any] | None = None, **more: Any
) -> None:
    more["action"] = {"entity": entity, **(action or {})}
    rules = subscription_rules(f"agent:{entity}", parse_subscriptions(subscriptions), kind="test", entity=entity, **more)
    await store.write(declare_rules, f"agent:{entity}", rules)


async def put(store: Database, schema_name: str, entity: str = "mia", **fields: Any) -> Breadcrumb:
    return await store.write(commands.create, Draft(schema_name=schema_name, **fields), scope=Scope("main", entity))


async def journal(store: Database) -> list[Change]:
    changes: list[Change] = []
    while page := await store.read(read_page, changes[-1].seq if changes else 0):
        changes += page
    return changes


async def started(store: Database) -> list[Note]:
    return [change.record for change in await journal(store) if isinstance(change.record, Note)]


async def diagnostics(store: Database) -> list[Diagnostic]:
    async def read(tx: Any) -> list[Diagnostic]:
        return await tx.find(ALL_DIAGNOSTICS)

    return await store.read(read)


async def seen_by(store: Database, firing: Note, subscriptions: list[dict[str, Any]]) -> Assembly:
    """The assembly of a firing, with the version that fired."""
    reader = Reader(firing.owner_id)

    async def read(tx: Any) -> Assembly:
        trigger = await queries.at_version(tx, reader, firing.data["id"], firing.data["version"])
        return await assemble(tx, reader, parse_subscriptions(subscriptions), trigger)

    return await store.read(read)


SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"schema_name": "user.message.v1", "role": "trigger"},
    {"schema_name": "page.v1", "as": "page"},
    {"schema_name": "cart.v1", "as": "cart"},
]


async def test_one_trigger_starts_one_run_with_the_latest_of_its_sources_and_a_source_alone_starts_none(store: Database) -> None:
    store.rules.start_with("test", start)
    await subscribe(store, "helper", SUBSCRIPTIONS)
    for n in (1, 2):
        await put(store, "page.v1", context={"n": n, "secret": "s"}, llm_hints={"exclude": ["secret"]})
        await put(store, "cart.v1", context={"n": n})
    assert await started(store) == []
    asked = await put(store, "user.message.v1", context={"text": "hi"})
    (firing,) = await started(store)
    assert (firing.data["id"], firing.data["version"]) == (asked.id, 1)
    change = (await journal(store))[-1]
    assert (change.collection, change.cause, change.depth) == ("notes", asked.seq, 1)
    assembly = await seen_by(store, firing, SUBSCRIPTIONS)
    assert assembly.context["page"]["context"] == {"n": 2}
    assert assembly.context["cart"]["context"] == {"n": 2}
    await put(store, "page.v1", context={"n": 3})
    assert len(await started(store)) == 1


async def test_a_run_sees_the_version_that_fired_though_another_came_before_it_read(store: Database) -> None:
    store.rules.start_with("test", start)
    await subscribe(store, "helper", SUBSCRIPTIONS)
    page = await put(store, "page.v1", context={"n": 1})
    asked = await put(store, "user.message.v1", context={"n": 1})
    for n in (2, 3, 4):
        await store.write(commands.patch, Reader("mia"), asked.id, Patch(context={"n": n}), scope=Scope("main", "mia"))
    firings = {firing.data["version"]: firing for firing in await started(store)}
    assert sorted(firings) == [1, 2, 3, 4]
    assembly = await seen_by(store, firings[3], SUBSCRIPTIONS)
    assert assembly.context["trigger"]["context"] == {"n": 3}
    assert [(source.as_, source.id, source.version) for source in assembly.provenance] == [
        ("trigger", asked.id, 3),
        ("page", page.id, 1),
    ]


async def test_two_agents_that_answer_each_other_stop_at_the_depth_limit_and_stay_usable(store: Database) -> None:
    async def answer(tx: Transaction, rule: Rule, change: Change) -> None:
        tx.actor = rule.action["entity"]
        await write_output(tx, Output(schema_name=rule.action["says"]), {"to": change.id})

    store.rules.start_with("test", answer)
    for entity, hears, says in (("a", "ping.v1", "pong.v1"), ("b", "pong.v1", "ping.v1")):
        await subscribe(store, entity, [{"schema_name": hears}], action={"says": says}, max_depth=8)
    for chains in (1, 2):
        await put(store, "ping.v1")
        assert len(await diagnostics(store)) == chains
        spoken = [change for change in await journal(store) if change.collection == "breadcrumbs"]
        assert len(spoken) == chains * 9
        assert [change.depth for change in spoken[-9:]] == list(range(9))
    assert {found.kind for found in await diagnostics(store)} == {"depth_limit"}


async def test_what_an_agent_wrote_itself_wakes_it_only_if_it_says_so(store: Database) -> None:
    store.rules.start_with("test", start)
    await subscribe(store, "helper", [{"schema_name": "memo.v1"}])
    await subscribe(store, "mirror", [{"schema_name": "memo.v1"}], on_own_writes=True)
    for entity in ("helper", "mirror", "mia"):
        await put(store, "memo.v1", entity)
    assert sorted((firing.owner_id, firing.data["seq"]) for firing in await started(store)) == sorted(
        (who, change.seq)
        for change in await journal(store)
        if change.collection == "breadcrumbs"
        for who in ("helper", "mirror")
        if (who, change.actor) != ("helper", "helper")
    )


async def test_several_subscriptions_that_match_one_change_start_one_run(store: Database) -> None:
    store.rules.start_with("test", start)
    sources = [
        {"schema_name": "memo.*", "as": "some", "role": "trigger"},
        {"any_tags": ["hot"], "as": "hot", "role": "trigger", "priority": 5},
        {"schema_name": "memo.v1", "where": "context.n > 1", "role": "trigger"},
    ]
    await subscribe(store, "helper", sources)
    await put(store, "memo.v1", tags=["hot"], context={"n": 2})
    await put(store, "other.v1", tags=["hot"])
    await put(store, "other.v1", context={"n": 2})
    assert [firing.text for firing in await started(store)] == ["subscription:helper:1"] * 2


async def test_what_an_agent_may_not_see_does_not_wake_it(store: Database) -> None:
    store.rules.start_with("test", start)
    await subscribe(store, "helper", [{"schema_name": "memo.v1"}])
    await put(store, "memo.v1", audience="private")
    assert await started(store) == []
    await put(store, "memo.v1")
    assert len(await started(store)) == 1


async def test_records_of_other_collections_wake_by_the_schema_they_show(store: Database) -> None:
    store.rules.start_with("test", start)
    await subscribe(store, "helper", [{"schema_name": "entry.v1"}])

    async def add(tx: Transaction) -> None:
        await tx.insert(Note(id="n"))
        await tx.insert(Entry(note_id="n", pos=1, text="x"))

    await store.write(add, scope=Scope("main", "mia"))
    assert [firing.data["collection"] for firing in await started(store) if firing.id != "n"] == ["entries"]


async def test_a_deletion_wakes_nobody(store: Database) -> None:
    store.rules.start_with("test", start)
    made = await put(store, "memo.v1")
    await subscribe(store, "helper", [{"schema_name": "memo.v1"}])
    await store.write(commands.delete, Reader("mia"), made.id)
    assert await started(store) == []


# ---- output ----


@pytest.mark.parametrize(
    ("result", "context"),
    [({"a": 1}, {"a": 1}), ("done", {"text": "done"}), ([1, 2], {"result": [1, 2]}), (None, {"result": None})],
)
def test_any_result_is_a_context(result: Any, context: dict[str, Any]) -> None:
    assert as_context(result) == context


async def test_a_result_names_the_trigger_as_its_cause(store: Database) -> None:
    asked = await put(store, "user.message.v1", tags=["session:1", "urgent"])
    trigger = next(change for change in await journal(store) if change.id == asked.id)
    output = Output(tags=("answer",), same_tags=("session:*",))
    scope = Scope("main", "helper", trigger.seq, trigger.depth + 1)
    made = await store.write(write_output, output, "42", trigger_tags=asked.tags, scope=scope)
    assert (made.schema_name, made.owner_id, made.tags) == ("agent.response.v1", "helper", ["answer", "session:1"])
    assert made.context == {"text": "42"}
    last = (await journal(store))[-1]
    assert (last.id, last.cause, last.depth, last.actor) == (made.id, asked.seq, 1, "helper")


async def test_a_catalogue_is_written_when_the_tools_change_and_only_then(store: Database) -> None:
    tools = [{"name": "search", "description": "finds"}, {"name": "price", "parameters": {"type": "object"}}]
    first = await store.write(keep_catalog, "helper", tools)
    again = await store.write(keep_catalog, "helper", list(reversed(tools)))
    assert first is not None
    assert (first.schema_name, first.version, first) == (CATALOG, 1, again)
    assert [tool["name"] for tool in first.context["tools"]] == ["price", "search"]
    changed = await store.write(keep_catalog, "helper", tools[:1])
    assert changed is not None
    assert (changed.id, changed.version) == (catalog_id("helper"), 2)
    sources = parse_subscriptions([{"schema_name": "user.message.v1", "role": "trigger"}, {"schema_name": CATALOG}])
    trigger = await put(store, "user.message.v1")
    assembly = await store.read(assemble, Reader("helper"), sources, trigger)
    assert assembly.context["tool_catalog"]["context"] == {"agent": "helper", "tools": tools[:1]}
    assert await store.write(keep_catalog, "helper", []) is None
    assert await store.write(keep_catalog, "helper", []) is None
    assert (await store.read(queries.history, KEEPER, changed.id))[0].version == 2
