"""From every earlier schema to this one: nothing is lost or changed, and the store goes on.

`data/` has, for each of the kernel's migrations, a file with its name: rows for the tables that it made, written for the
schema as it was then. A new migration brings its own.
"""

from collections.abc import Awaitable, Callable

import pytest

from stigmergy.errors import Erased
from stigmergy.kernel import migrate
from stigmergy.kernel.blocks import get_block
from stigmergy.kernel.database import Database
from stigmergy.kernel.feed import Edges, edges, read_cursor, read_page
from stigmergy.kernel.history import read_history, read_version
from stigmergy.kernel.leases import Claim, claim, enlist
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.timers import Timer, next_timers
from stigmergy.kernel.transaction import Scope, Transaction
from support.old_stores import DATA, KERNEL, NOW, OldStore, Rows, build
from support.units import add, whole_journal


async def content(old: OldStore, columns: dict[str, list[str]]) -> dict[str, Rows]:
    return {table: sorted(await old.run(f"SELECT {', '.join(names)} FROM {table}"), key=repr) for table, names in columns.items()}


def test_every_migration_has_its_data() -> None:
    assert {file.name for file in DATA.iterdir()} == {migration.name for migration in KERNEL}, (
        "a migration needs a file of its name in tests/migrations/data, with rows for the tables that it makes"
    )


async def test_the_data_fills_every_table(old: OldStore) -> None:
    await build(old, len(KERNEL))
    empty = [table for table in await old.columns() if not await old.run(f"SELECT 1 FROM {table} LIMIT 1")]
    assert not empty


@pytest.mark.parametrize("schema", range(1, len(KERNEL) + 1))
async def test_a_store_of_an_earlier_schema_keeps_its_data_and_goes_on(old: OldStore, schema: int) -> None:
    await build(old, schema)
    columns = await old.columns()
    del columns["schema_migrations"]
    before = await content(old, columns)
    store = await old.open_store()
    assert await content(old, columns) == before
    applied = await old.run("SELECT source, number FROM schema_migrations WHERE source = 'stigmergy.kernel' ORDER BY number")
    assert applied == [(migrate.KERNEL, number) for number in range(1, len(KERNEL) + 1)]
    for check in CHECKS[:schema]:
        await check(store)
    await store.close()
    again = await old.open_store()
    note = await again.write(add, "after all", scope=Scope("new"))
    assert note.seq == 1
    await again.close()


async def the_journal_goes_on(store: Database) -> None:
    async def change(tx: Transaction) -> Rule:
        rule = await tx.get(Rule, "kept")
        assert rule is not None
        assert (rule.version, rule.action, rule.enabled) == (2, {"url": "é"}, False)
        return await tx.update(rule, position=9)

    async def come_back(tx: Transaction) -> Rule:
        return await tx.insert(Rule(id="gone", owner="mia", kind="test", collection="notes", events=["create"], enabled=False))

    assert await store.tenants() == sorted({"main", "acme", *await store.tenants()})
    assert (await store.read(edges), await store.read(edges, scope=Scope("acme"))) == (Edges(5, 1), Edges(1, 1))
    changed = await store.write(change)
    assert (changed.version, changed.seq) == (3, 6)
    assert (await store.write(come_back)).version == 3
    assert [rule.version for rule in await store.read(read_history, Rule, "kept")] == [3, 2, 1]
    with pytest.raises(Erased):
        await store.read(read_version, Rule, "gone", version=1)
    changes = await whole_journal(store)
    assert [change.seq for change in changes] == [1, 2, 3, 4, 5, 6, 7]
    assert [type(change.record).__name__ for change in changes] == [
        "Rule",
        "Rule",
        "NoneType",
        "NoneType",
        "Diagnostic",
        "Rule",
        "Rule",
    ]
    (other,) = await store.read(read_page, 0, scope=Scope("acme"))
    assert (other.actor, other.at) == ("system", 1_700_000_000_006)


async def the_queues_go_on(store: Database) -> None:
    assert await store.read(read_cursor, "mirror") == 3
    assert (await store.read(next_timers, ["bell"]))[0] == Timer("main", "bell", "t1", NOW)
    assert await store.write(claim, "runs", await store.write(enlist)) == [Claim("acme", "runs", "r2", 1)]
    kept, erased = (
        "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9",
    )
    assert (await store.read(get_block, kept)).body == b"foo"
    with pytest.raises(Erased):
        await store.read(get_block, erased)


# For the first migrations, what the parts that they belong to can still do.
CHECKS: list[Callable[[Database], Awaitable[None]]] = [the_journal_goes_on, the_queues_go_on]
