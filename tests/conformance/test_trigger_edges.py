"""What a trigger takes for an edge, and that a change fires it once: in its own transaction, or not at all."""

from typing import Any

import pytest

from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Transaction
from stigmergy.net import Reach
from stigmergy.triggers import commands, queries
from stigmergy.triggers.commands import start_delivery
from stigmergy.triggers.definitions import Reading, parse_definition
from support.notes import Note
from support.units import add, remove, rewrite

READING = Reading("tester", reach=Reach(loopback=True))


async def put(store: Database, id: str, event: Any, condition: str | None = None, **fields: Any) -> None:
    store.rules.start_with("webhook", start_delivery)
    definition = {"id": id, "collection": "notes", "event": event, "condition": condition, "action": "POST http://127.0.0.1:9/"}
    await store.write(commands.put_trigger, parse_definition(definition | fields, READING))


async def fired(store: Database, id: str = "t") -> list[tuple[str, int]]:
    """The changes that set this trigger off, in their order."""
    found = await store.read(queries.deliveries, trigger_id=id, limit=1_000)
    return [(each.event, each.document_version) for each in sorted(found, key=lambda each: each.change_seq)]


async def test_a_creation_is_no_update_and_an_update_is_no_creation(store: Database) -> None:
    await put(store, "created", "create (text='done')")
    await put(store, "updated", "update (text='done')")
    await store.write(add, "born so", text="done")
    note = await store.write(add, "becomes so", text="open")
    await store.write(rewrite, note, text="done")
    assert await fired(store, "created") == [("create", 1)]
    assert await fired(store, "updated") == [("update", 2)]


async def test_what_was_deleted_and_comes_back_is_created(store: Database) -> None:
    await put(store, "created", "create")
    await put(store, "updated", "update (text='done')")
    await put(store, "deleted", "delete")
    await store.write(add, "n", text="open")
    await store.write(remove, "n")
    await store.write(add, "n", text="done")
    assert await fired(store, "created") == [("create", 1), ("create", 3)]
    assert await fired(store, "updated") == []
    assert await fired(store, "deleted") == [("delete", 2)]


async def test_what_is_missing_is_null_so_that_a_null_that_is_written_out_is_no_edge(store: Database) -> None:
    await put(store, "t", "update", "data.owner == null && before.data.owner != null")
    note = await store.write(add, data={})
    note = await store.write(rewrite, note, data={"owner": None})
    note = await store.write(rewrite, note, data={"owner": "mia"})
    note = await store.write(rewrite, note, data={})
    note = await store.write(rewrite, note, data={"owner": None})
    assert await fired(store) == [("update", 4)]


async def test_several_updates_in_one_unit_are_several_changes(store: Database) -> None:
    async def back_and_forth(tx: Transaction, note: Note) -> None:
        for text in ("done", "open", "done", "done"):
            note = await tx.update(note, text=text)

    await put(store, "t", "update (text='done')")
    note = await store.write(add, text="open")
    await store.write(back_and_forth, note)
    assert await fired(store) == [("update", 2), ("update", 4)]


async def test_what_is_rolled_back_fires_nothing(store: Database) -> None:
    async def fails(tx: Transaction) -> None:
        await add(tx, text="done")
        raise LookupError

    await put(store, "t", "create")
    with pytest.raises(LookupError):
        await store.write(fails)
    assert await fired(store) == []


async def test_one_that_is_disabled_or_taken_away_fires_no_more(store: Database) -> None:
    await put(store, "t", "create")
    await store.write(add)
    await put(store, "t", "create", enabled=False)
    await store.write(add)
    await put(store, "t", "create")
    await store.write(commands.delete_trigger, "t")
    await store.write(add)
    assert await fired(store) == [("create", 1)]


async def test_the_path_decides_by_its_segments(store: Database) -> None:
    await put(store, "mias", "create", collection="users/mia/notes")
    await put(store, "anybodys", "create", collection="users/*/notes")
    await put(store, "all", "create", collection="users/**")
    await store.write(add, owner_id="mia")
    await store.write(add, owner_id="tom")
    assert [len(await fired(store, id)) for id in ("mias", "anybodys", "all")] == [1, 2, 2]


async def test_a_condition_that_fails_is_one_diagnostic_for_each_version_of_its_trigger(store: Database) -> None:
    for conditions in ("data.n > 5", "data.n > 6"):
        await put(store, "t", "create", conditions)
        for _ in range(3):
            await store.write(add, data={"n": "many"})
    assert [each.kind for each in await store.read(queries.diagnostics, "t")] == ["condition_error"] * 2
    assert await fired(store) == []
