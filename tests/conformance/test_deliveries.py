"""What triggers set off is handed over at least once, in order per document, whatever its receiver does."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook as Official

from stigmergy.errors import Conflict, NotFound
from stigmergy.kernel.database import Database
from stigmergy.kernel.history import read_history
from stigmergy.kernel.leases import enlist
from stigmergy.kernel.retention import Policy, sweep
from stigmergy.kernel.transaction import Scope, Transaction
from stigmergy.net import Reach
from stigmergy.triggers import commands, queries
from stigmergy.triggers.commands import start_delivery
from stigmergy.triggers.definitions import parse_definition
from stigmergy.triggers.deliverer import Deliverer
from stigmergy.triggers.lanes import turn
from stigmergy.triggers.model import Delivery
from stigmergy.triggers.namespace import retry_all
from stigmergy.triggers.posting import Poster
from stigmergy.triggers.webhooks import Caller
from support.delivering import READING, SECRET, Delivering, every, notes, put, settled
from support.notes import NOTES, Note
from support.receiver import CLOSE, CUT, HANG, Receiver, answer
from support.stores import OpenStore
from support.units import add, rewrite, until


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


async def test_a_change_is_delivered_once_with_what_it_was(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, event="update", headers={"X-Team": "a b"})
    async with Delivering(store):
        note = await store.write(add, "n1", text="one", scope=Scope("main", "mia"))
        await store.write(rewrite, note, text="two", scope=Scope("main", "tom"))
        (call,) = await receiver.got(1)
        (delivery,) = await settled(store, 1)
        event = call.body["event"]
        assert (call.path, call.headers["x-team"], call.headers["content-type"]) == ("/hook", "a b", "application/json")
        assert (call.body["id"], call.id, call.body["trigger"]) == (delivery.id, delivery.id, "t")
        assert (event["type"], event["actor"], event["depth"], event["seq"]) == ("update", "tom", 0, delivery.change_seq)
        document = call.document
        assert (document["id"], document["collection"], document["version"]) == ("n1", "notes", 2)
        assert document["path"] == "users/someone/notes"
        assert (document["data"]["text"], document["before"]["text"]) == ("two", "one")
        assert call.headers["stigmergy-cause"] == f"{delivery.change_seq}:1"
        assert (delivery.tries, delivery.answer and delivery.answer.status) == (1, 204)
        assert "webhook-signature" not in call.headers
    assert len(receiver.received) == 1


async def test_a_creation_an_edge_and_a_deletion_tell_what_was_before(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, event="create|update|delete")

    async def remove(tx: Transaction, note: Note) -> None:
        await tx.delete(note)

    async with Delivering(store):
        note = await notes(store, "n1", 2)
        await store.write(remove, note)
        calls = await receiver.got(3)
    told = [
        (call.body["event"]["type"], call.document["version"], call.document["data"], call.document["before"]) for call in calls
    ]
    assert [(event, version) for event, version, _, _ in told] == [("create", 1), ("update", 2), ("delete", 3)]
    assert [(data["text"], before and before["text"]) for _, _, data, before in told] == [("0", None), ("1", "0"), ("1", "1")]


async def test_the_official_library_verifies_what_is_signed_and_nothing_else(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, secret=SECRET)
    await put(store, receiver, "other")
    async with Delivering(store, secret="whsec_" + "QUJD" * 10):
        await store.write(add)
        calls = await receiver.got(2)
    by_trigger = {call.body["trigger"]: call for call in calls}
    for trigger, secret in (("t", SECRET), ("other", "whsec_" + "QUJD" * 10)):
        call = by_trigger[trigger]
        assert Official(secret).verify(call.raw, call.headers)["trigger"] == trigger
        with pytest.raises(Exception, match="No matching signature"):
            Official(secret).verify(call.raw.replace(b'"create"', b'"delete"'), call.headers)


async def test_a_failing_document_holds_back_itself_and_no_other(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, event="create|update")
    failing = True
    receiver.decide = lambda call: answer(500) if failing and call.document["id"] == "bad" else None
    async with Delivering(store):
        await asyncio.gather(notes(store, "bad", 3), notes(store, "good", 3))
        await until(lambda: sum(call.document["id"] == "good" for call in receiver.received) == 3)
        assert {call.document["version"] for call in receiver.received if call.document["id"] == "bad"} == {1}
        failing = False
        await settled(store, 6)
    for id in ("bad", "good"):
        calls = [call for call in receiver.received if call.document["id"] == id and call.answered == "204"]
        assert [call.document["version"] for call in calls] == [1, 2, 3]


TROUBLES = [HANG, CLOSE, CUT, answer(500), answer(503), answer(408), answer(429), b"HTTP/1.1 nonsense\r\n\r\n"]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: str(trouble)[:20])
async def test_trouble_on_the_way_is_tried_again(store: Database, receiver: Receiver, trouble: bytes | str) -> None:
    await put(store, receiver, secret=SECRET, timeout_ms=100)
    receiver.script.extend([trouble, trouble])
    async with Delivering(store):
        await store.write(add)
        (delivery,) = await settled(store, 1)
    assert len(receiver.received) == 3
    assert {call.id for call in receiver.received} == {delivery.id}
    assert delivery.tries == 3
    for call in receiver.received:
        Official(SECRET).verify(call.raw, call.headers)


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 403, 404, 410, 422])
async def test_a_refusal_or_a_redirect_is_one_dead_letter_at_once(store: Database, receiver: Receiver, status: int) -> None:
    async with Receiver() as elsewhere:
        await put(store, receiver)
        receiver.always = answer(status, "go away", Location=elsewhere.url)
        async with Delivering(store):
            await store.write(add)
            (dead,) = await settled(store, 1, "dead")
        assert (len(receiver.received), dead.tries, elsewhere.received) == (1, 1, [])
        assert dead.answer is not None
        assert (dead.answer.status, dead.answer.body) == (status, "go away")


async def test_eight_failures_are_one_dead_letter_and_a_retry_delivers_it_once(store: Database, receiver: Receiver) -> None:
    await put(store, receiver)
    receiver.always = answer(500, "broken")
    async with Delivering(store):
        note = await store.write(add, "n1", text="before")
        (dead,) = await settled(store, 1, "dead")
        assert (len(receiver.received), dead.tries) == (8, 8)
        await store.write(rewrite, note, text="after")
        event = await store.read(queries.event, dead.id)
        assert event == receiver.received[0].body
        receiver.always = answer(200)
        await store.write(commands.retry, dead.id, scope=Scope("main", "operator"))
        (delivered,) = await settled(store, 1)
        assert (len(receiver.received), delivered.id, delivered.tries) == (9, dead.id, 1)
        assert receiver.received[8].raw == receiver.received[0].raw
        with pytest.raises(Conflict, match="is delivered"):
            await store.write(commands.retry, dead.id)
        with pytest.raises(NotFound):
            await store.write(commands.retry, "none")


async def test_two_workers_never_hand_the_same_delivery_over_at_the_same_time(open_store: OpenStore) -> None:
    here, there = await open_store(), await open_store()
    async with Receiver(delay=0.002) as receiver:
        there.rules.start_with("webhook", start_delivery)
        await put(here, receiver, event="create|update")
        async with Delivering(here), Delivering(there):
            await asyncio.gather(*(notes(store, f"{n} of {store is here}", 5) for n in range(10) for store in (here, there)))
            await settled(here, 100)
        assert len(receiver.received) == 100
        assert len({call.id for call in receiver.received}) == 100
        lanes = {call.document["id"] for call in receiver.received}
        for id in lanes:
            assert [call.document["version"] for call in receiver.received if call.document["id"] == id] == [1, 2, 3, 4, 5]
    await here.close()
    await there.close()


async def test_what_a_dead_worker_had_in_hand_is_taken_over(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, event="create|update")
    note = await store.write(add, "n1", text="0")
    silent = await store.write(enlist, "one that never beats")
    assert len((await store.write(turn, silent, {"webhooks": 10}, [])).claims) == 1
    async with Delivering(store, lease_seconds=0.2):
        await store.write(rewrite, note, text="1")
        await settled(store, 2)
    assert [call.document["version"] for call in receiver.received] == [1, 2]


async def test_what_is_on_its_way_when_a_worker_ends_in_good_order_arrives(store: Database) -> None:
    async with Receiver(delay=0.2) as receiver:
        await put(store, receiver)
        async with Delivering(store):
            await store.write(add)
            await until(lambda: receiver.open == 1)
        assert len(await every(store, "delivered")) == 1


async def test_a_discarded_delivery_lets_those_behind_it_go(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, event="create|update", retry={"first_ms": 3_600_000})
    receiver.script.append(answer(500))
    async with Delivering(store):
        await notes(store, "n1", 2)
        await pending_first_try(store)
        first, _ = await every(store)
        await store.write(commands.discard, first.id, scope=Scope("main", "operator"))
        (delivered,) = await settled(store, 1)
    assert delivered.document_version == 2
    changes = await store.read(read_history, Delivery, first.id)
    assert [(each.status, each.version) for each in changes] == [("discarded", 2), ("pending", 1)]
    with pytest.raises(Conflict, match="is discarded"):
        await store.write(commands.retry, first.id)


async def pending_first_try(store: Database) -> None:
    async with asyncio.timeout(30):
        while (await store.read(queries.delivery, (await every(store))[0].id)).next_at is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_all_dead_ones_of_a_trigger_are_retried_at_once(store: Database, receiver: Receiver) -> None:
    await put(store, receiver)
    await put(store, receiver, "other")
    receiver.always = answer(404)
    async with Delivering(store):
        for n in range(commands.CHUNK // 2 + 5):
            await store.write(add, f"n{n}")
        dead = await settled(store, commands.CHUNK + 10, "dead")
        receiver.always = answer(200)
        assert await retry_all(store, Scope("main", "operator"), "t") == len(dead) // 2
        assert {each.trigger_id for each in await settled(store, len(dead) // 2)} == {"t"}
    assert len(await every(store, "dead")) == len(dead) // 2
    with pytest.raises(NotFound):
        await retry_all(store, Scope(), "none")


async def test_a_trigger_that_is_gone_leaves_dead_letters_that_wait_for_it(store: Database, receiver: Receiver) -> None:
    rule = await put(store, receiver)
    await store.write(add)
    await store.write(commands.delete_trigger, rule.id)
    async with Delivering(store):
        (dead,) = await settled(store, 1, "dead")
        assert dead.answer is not None
        assert "is gone" in str(dead.answer.error)
        with pytest.raises(Conflict, match="add it again"):
            await store.write(commands.retry, dead.id)
        await put(store, receiver)
        await store.write(commands.retry, dead.id)
        await settled(store, 1)
    assert len(receiver.received) == 1


async def test_a_trigger_that_was_put_right_delivers_what_it_set_off_before(store: Database, receiver: Receiver) -> None:
    async with Receiver() as wrong:
        wrong.always = answer(500)
        await put(store, wrong)
        async with Delivering(store):
            await store.write(add)
            await wrong.got(2)
            await put(store, receiver)
            await settled(store, 1)
    assert len(receiver.received) == 1


async def test_limits_of_concurrency_hold_over_all_workers(open_store: OpenStore) -> None:
    here, there = await open_store(), await open_store()
    async with Receiver(delay=0.01) as receiver:
        await put(here, receiver, concurrency=2)
        async with Delivering(here), Delivering(there):
            await asyncio.gather(*(here.write(add, f"n{n}") for n in range(30)))
            await settled(here, 30)
    assert receiver.most_open <= 2
    assert len({call.id for call in receiver.received}) == 30
    await here.close()
    await there.close()


async def test_limits_of_rate_space_the_calls(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, per_second=50)
    async with Delivering(store):
        started = time.monotonic()  # the first calls are made while the others are still written
        await asyncio.gather(*(store.write(add, f"n{n}") for n in range(25)))
        await settled(store, 25)
    assert time.monotonic() - started > 0.35  # 24 spaces of 20 ms, less what may be caught up on
    assert len(receiver.received) == 25


async def test_limits_may_change_while_deliveries_wait(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, concurrency=1)
    await asyncio.gather(*(store.write(add, f"n{n}") for n in range(10)))
    await put(store, receiver)
    await asyncio.gather(*(store.write(add, f"m{n}") for n in range(10)))
    await put(store, receiver, per_second=1000)
    async with Delivering(store):
        await settled(store, 20)
    assert len({call.id for call in receiver.received}) == len(receiver.received) == 20


@pytest.mark.parametrize("limits", [{"concurrency": 1}, {"per_second": 1000}])
@pytest.mark.parametrize("how", ["declared", "added again"])
async def test_limits_that_come_while_deliveries_wait_leave_none_of_them_behind(
    store: Database, receiver: Receiver, how: str, limits: dict[str, Any]
) -> None:
    rule = await put(store, receiver)
    await store.write(commands.declare_triggers, rule.owner, [rule])
    await asyncio.gather(*(store.write(add, f"n{n}") for n in range(3)))
    if how == "declared":
        limited = msgspec.structs.replace(rule, action=rule.action | limits)
        await store.write(commands.declare_triggers, rule.owner, [limited])
    else:
        await store.write(commands.delete_trigger, rule.id)
        await put(store, receiver, **limits)
    async with Delivering(store):
        await settled(store, 3)
    assert len(receiver.received) == 3


async def test_a_limit_that_is_raised_holds_for_what_waits_already(store: Database, receiver: Receiver) -> None:
    await put(store, receiver, per_second=0.01)
    async with Delivering(store):
        await asyncio.gather(*(store.write(add, f"n{n}") for n in range(5)))
        await settled(store, 1)
        await put(store, receiver, per_second=1000)
        await settled(store, 5)
    assert len(receiver.received) == 5


async def test_a_large_document_is_sent_by_reference(store: Database, receiver: Receiver) -> None:
    await put(store, receiver)
    async with Delivering(store):
        await store.write(add, "n1", text="x" * 300_000)
        (call,) = await receiver.got(1)
        assert len(call.raw) < 2_000
        assert (call.document["data"], call.document["reference"]) == (None, f"/v1/deliveries/{call.id}/event")
        assert call.document["bytes"] > 300_000
        whole = await store.read(queries.event, call.id)
        assert whole["event"]["document"]["data"]["text"] == "x" * 300_000


async def test_an_answer_without_end_and_one_with_huge_headers_do_no_harm(store: Database, receiver: Receiver) -> None:
    await put(store, receiver)
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    receiver.script.append(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 8)
    async with Delivering(store):
        await store.write(add)
        (delivery,) = await settled(store, 1)
        assert delivery.answer is not None
        assert len(delivery.answer.body or "") == 4096
        receiver.script.append(b"HTTP/1.1 200 OK\r\nX-Large: " + b"x" * 100_000 + b"\r\n\r\n")
        await store.write(add)
        await settled(store, 2)
    assert len(receiver.received) == 3


async def test_an_address_that_is_not_allowed_is_never_called(store: Database, receiver: Receiver) -> None:
    await put(store, receiver)
    poster = Poster(Reach())
    deliverer = Deliverer(store, webhooks=Caller(poster, store.clock).hand_over)
    task = asyncio.create_task(deliverer.run())
    await store.write(add)
    (dead,) = await settled(store, 1, "dead")
    assert dead.answer is not None
    assert "is not a public address" in str(dead.answer.error)
    assert receiver.connections == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_retention_keeps_what_an_undelivered_delivery_needs(store: Database, receiver: Receiver) -> None:
    kept, NOTES.keep_versions = NOTES.keep_versions, 1
    try:
        await put(store, receiver, event="update (text='2')")
        note = await store.write(add, "n1", text="1")
        for text in ("2", "3", "4"):
            note = await store.write(rewrite, note, text=text)
        await sweep(store, Policy(max_changes=0))
        assert [each.text for each in await store.read(read_history, Note, "n1")] == ["4", "2", "1"]
        async with Delivering(store):
            (call,) = await receiver.got(1)
            await settled(store, 1)
        assert (call.document["data"]["text"], call.document["before"]["text"]) == ("2", "1")
        await sweep(store, Policy(max_changes=0))
        assert [each.text for each in await store.read(read_history, Note, "n1")] == ["4"]
    finally:
        NOTES.keep_versions = kept


async def test_tenants_deliveries_are_their_own(store: Database, receiver: Receiver) -> None:
    store.rules.start_with("webhook", start_delivery)
    for tenant in ("acme", "zed"):
        definition = {"id": "t", "collection": "notes", "event": "create", "action": f"POST {receiver.url}/{tenant}"}
        await store.write(commands.put_trigger, parse_definition(definition, READING), scope=Scope(tenant))
    async with Delivering(store):
        await store.write(add, "a", scope=Scope("acme"))
        await store.write(add, "z", scope=Scope("zed"))
        calls = await receiver.got(2)
    assert sorted((call.path, call.document["id"]) for call in calls) == [("/acme", "a"), ("/zed", "z")]
    assert [each.document_id for each in await every(store, tenant="acme")] == ["a"]
    (mine,) = await every(store, tenant="zed")
    with pytest.raises(NotFound):
        await store.write(commands.discard, mine.id, scope=Scope("acme"))


async def test_a_receiver_that_hangs_holds_up_no_other_trigger(store: Database, receiver: Receiver) -> None:
    async with Receiver() as hanging:
        hanging.always = HANG
        await put(store, hanging, "hangs", timeout_ms=60_000, collection="notes")
        await put(store, receiver, "good", event="create (text='good')")
        await asyncio.gather(*(store.write(add, f"n{n}") for n in range(100)))
        async with Delivering(store, in_hand=8, poll_seconds=0.05):
            await until(lambda: len(hanging.received) >= 8)
            started = time.monotonic()
            await store.write(add, text="good")
            await receiver.got(1)
            assert time.monotonic() - started < 10
            assert len(hanging.received) <= 32
