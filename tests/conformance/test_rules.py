"""Rules are matched in the writing transaction, and what they start is part of it."""

import asyncio

import pytest

from stigmergy.kernel import rules
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import read_page
from stigmergy.kernel.journal import Change
from stigmergy.kernel.rules import Diagnostic, Rule, declare_rules, put_rule
from stigmergy.kernel.transaction import SHARED, Scope, Transaction
from support.notes import Entry, Note
from support.stores import OpenStore


async def add(tx: Transaction, text: str = "", tags: list[str] | None = None) -> Note:
    return await tx.insert(Note(id=tx.new_id(), text=text, tags=tags or []))


async def change_text(tx: Transaction, note: Note, text: str) -> Note:
    return await tx.update(note, text=text)


async def log_it(tx: Transaction, rule: Rule, change: Change) -> None:
    await tx.insert(Entry(note_id=f"{rule.id}:{change.id}", pos=change.version, text=rule.id))


async def answer_it(tx: Transaction, rule: Rule, change: Change) -> None:
    await add(tx, "answer", rule.action.get("tags"))


def rule(id: str, **fields: object) -> Rule:
    return Rule(**({"id": id, "owner": "test", "kind": "log", "collection": "notes", "events": ["create"]} | fields))  # type: ignore[arg-type]


async def changes(store: Database, tenant: str = "main") -> list[Change]:
    return await store.read(read_page, 0, scope=Scope(tenant))


async def test_a_matching_change_starts_its_rule_in_the_same_transaction_and_names_the_cause(store: Database) -> None:
    store.rules.start_with("log", log_it)
    await store.write(put_rule, rule("r", selector={"all_tags": ["hot"]}))
    await store.write(add, "cold")
    note = await store.write(add, "hot", ["hot"])
    journal = await changes(store)
    assert [(c.collection, c.event) for c in journal] == [
        ("rules", "create"),
        ("notes", "create"),
        ("notes", "create"),
        ("entries", "create"),
    ]
    fired = journal[-1]
    assert (fired.cause, fired.depth, fired.id) == (note.seq, 1, f"r:{note.id}/1")


async def test_an_update_shorthand_fires_on_the_edge_only(store: Database) -> None:
    store.rules.start_with("log", log_it)
    await store.write(put_rule, rule("r", events=["update (text='done')"]))
    note = await store.write(add, "done")
    for text in ("open", "done", "done", "open", "done"):
        note = await store.write(change_text, note, text)
    assert [c.id for c in await changes(store) if c.collection == "entries"] == [f"r:{note.id}/3", f"r:{note.id}/6"]


async def test_a_rule_that_raises_fails_its_unit_alone_and_leaves_nothing(store: Database) -> None:
    async def fails(tx: Transaction, rule: Rule, change: Change) -> None:
        raise LookupError("starter")

    store.rules.start_with("log", fails)
    await store.write(put_rule, rule("r", condition="text == 'bad'"))
    results = await asyncio.gather(*(store.write(add, text) for text in ("good", "bad", "good")), return_exceptions=True)
    assert [isinstance(result, LookupError) for result in results] == [False, True, False]
    assert [c.seq for c in await changes(store)] == [1, 2, 3]


async def test_a_loop_of_rules_stops_at_the_depth_limit_with_one_diagnostic(store: Database) -> None:
    store.rules.start_with("answer", answer_it)
    await store.write(put_rule, rule("ping", kind="answer", selector={"all_tags": ["a"]}, action={"tags": ["b"]}))
    await store.write(put_rule, rule("pong", kind="answer", selector={"all_tags": ["b"]}, action={"tags": ["a"]}))
    await store.write(add, "start", ["a"])
    journal = await changes(store)
    assert max(c.depth for c in journal if c.collection == "notes") == 32
    diagnostics = [c.record for c in journal if c.collection == "diagnostics"]
    assert [d.kind for d in diagnostics if isinstance(d, Diagnostic)] == ["depth_limit"]
    assert [c.seq for c in journal] == list(range(1, len(journal) + 1))
    await store.write(add, "again", ["a"])
    assert len(await changes(store)) > len(journal) + 30


async def test_rules_that_multiply_stop_at_a_bound_with_one_diagnostic_each(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MOST_FIRINGS", 50)
    store.rules.start_with("answer", answer_it)
    for id in ("a", "b"):
        await store.write(put_rule, rule(id, kind="answer"))
    await store.write(add)
    journal = await changes(store)
    assert sum(change.collection == "notes" for change in journal) == 1 + 2 + 50
    found = [change.record for change in journal if isinstance(change.record, Diagnostic)]
    assert sorted((each.kind, each.rule) for each in found) == [("firing_limit", "a"), ("firing_limit", "b")]


async def test_a_condition_that_cannot_answer_is_one_diagnostic_and_no_firing(store: Database) -> None:
    store.rules.start_with("log", log_it)
    await store.write(put_rule, rule("r", condition="data.n + 1 > 2"))
    for _ in range(3):
        await store.write(add, "x")
    journal = await changes(store)
    assert [c.record.kind for c in journal if isinstance(c.record, Diagnostic)] == ["condition_error"]
    assert not [c for c in journal if c.collection == "entries"]


async def test_a_kind_nobody_can_start_is_one_diagnostic(store: Database) -> None:
    await store.write(put_rule, rule("r", kind="unheard of"))
    for _ in range(2):
        await store.write(add, "x")
    assert [c.record.kind for c in await changes(store) if isinstance(c.record, Diagnostic)] == ["no_starter"]


async def test_shared_rules_hold_for_every_tenant_and_own_ones_for_their_own(store: Database) -> None:
    store.rules.start_with("log", log_it)
    await store.write(put_rule, rule("own"), scope=Scope("acme"))
    await store.write(declare_rules, "app", [rule("shared", owner="app")], scope=Scope(SHARED))
    for tenant in ("acme", "other"):
        await store.write(add, "x", scope=Scope(tenant))
    assert [c.record.text for c in await changes(store, "acme") if isinstance(c.record, Entry)] == ["own", "shared"]
    assert [c.record.text for c in await changes(store, "other") if isinstance(c.record, Entry)] == ["shared"]
    assert await store.tenants() == ["acme", "other"]


async def test_declared_rules_are_exactly_what_the_code_says_now(store: Database) -> None:
    store.rules.start_with("log", log_it)
    await store.write(declare_rules, "app", [rule("a", owner="app"), rule("b", owner="app")])
    await store.write(declare_rules, "app", [rule("b", owner="app"), rule("c", owner="app", condition="text == 'never'")])
    assert [(c.id, c.event) for c in await changes(store)] == [("a", "create"), ("b", "create"), ("a", "delete"), ("c", "create")]
    note = await store.write(add, "x")
    assert [c.id for c in await changes(store) if c.collection == "entries"] == [f"b:{note.id}/1"]


async def test_a_rule_changed_by_another_process_holds_for_the_next_write_here(open_store: OpenStore) -> None:
    here, there = await open_store(), await open_store()
    for store in (here, there):
        store.rules.start_with("log", log_it)
    await there.write(put_rule, rule("r"))
    await here.write(add, "x")
    await there.write(put_rule, rule("r", enabled=False))
    await here.write(add, "x")
    assert len([c for c in await changes(here) if c.collection == "entries"]) == 1
    await here.close()
    await there.close()


async def test_a_rolled_back_rule_is_not_remembered(store: Database) -> None:
    store.rules.start_with("log", log_it)

    async def rule_and_fail(tx: Transaction) -> None:
        await put_rule(tx, rule("r"))
        await add(tx, "x")
        raise LookupError("no")

    async def other_rule(tx: Transaction) -> None:
        await put_rule(tx, rule("other", condition="text == 'y'"))

    await asyncio.gather(store.write(rule_and_fail), store.write(other_rule), store.write(add, "x"), return_exceptions=True)
    await store.write(add, "x")
    assert not [c for c in await changes(store) if c.collection == "entries"]


async def test_a_unit_that_fails_does_not_have_every_rule_compiled_again(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def counted(tx: Transaction, *args: object, **kwargs: object) -> list[object]:
        nonlocal asked
        asked += 1
        return await find(tx, *args, **kwargs)  # type: ignore[arg-type]

    async def fails(tx: Transaction) -> None:
        await add(tx)
        raise LookupError("no")

    await store.write(put_rule, rule("r", condition="text == 'never'"))
    await store.write(add)
    find = Transaction.find
    monkeypatch.setattr(Transaction, "find", counted)
    for _ in range(5):
        with pytest.raises(LookupError):
            await store.write(fails)
        await store.write(add)
    assert asked == 0
