"""The same request, sent again: the first answer, and nothing done."""

import asyncio

import pytest

from stigmergy.errors import KeyReused
from stigmergy.kernel.clock import ManualClock
from stigmergy.kernel.database import MAIN, Database
from stigmergy.kernel.idempotency import LIFETIME_MS, answer_key, claim_key, sweep_keys
from stigmergy.kernel.transaction import Scope, Transaction
from support.stores import OpenStore
from support.units import add, whole_journal

ROUTE = "POST /notes"


async def request(tx: Transaction, key: str, body: bytes = b"{}", route: str = ROUTE, fails: bool = False) -> bytes:
    """What a command does: claim, work, answer."""
    first = await claim_key(tx, route, key, body)
    if first is not None:
        return first
    note = await add(tx)
    if fails:
        raise LookupError("no")
    await answer_key(tx, route, key, note.id.encode())
    return note.id.encode()


async def work_done(store: Database, scope: Scope = MAIN) -> int:
    return len(await whole_journal(store, scope))


async def test_a_repeated_request_gets_the_first_answer_and_does_nothing(store: Database) -> None:
    answers = [await store.write(request, "k") for _ in range(3)]
    assert len(set(answers)) == 1
    assert await work_done(store) == 1


async def test_of_twenty_equal_requests_at_once_one_does_the_work(store: Database) -> None:
    answers = await asyncio.gather(*(store.write(request, "k") for _ in range(20)))
    assert len(set(answers)) == 1
    assert answers[0]
    assert await work_done(store) == 1


async def test_a_key_with_another_body_is_refused_and_the_first_answer_stays(store: Database) -> None:
    first = await store.write(request, "k", b"one")
    for body in (b"two", b""):
        with pytest.raises(KeyReused, match="'k'"):
            await store.write(request, "k", body)
    assert await store.write(request, "k", b"one") == first
    assert await work_done(store) == 1


async def test_of_different_bodies_under_one_key_at_once_one_wins(store: Database) -> None:
    results = await asyncio.gather(*(store.write(request, "k", b"%d" % n) for n in range(10)), return_exceptions=True)
    assert sum(isinstance(result, bytes) for result in results) == 1
    assert sum(isinstance(result, KeyReused) for result in results) == 9
    assert await work_done(store) == 1


async def test_a_request_that_failed_may_be_sent_again(store: Database) -> None:
    with pytest.raises(LookupError):
        await store.write(request, "k", fails=True)
    assert await store.write(request, "k", b"another body, since nothing was remembered")
    assert await work_done(store) == 1


async def test_while_the_first_fails_the_second_at_the_same_time_does_the_work(store: Database) -> None:
    for n in range(10):
        failed, answer = await asyncio.gather(
            store.write(request, f"k{n}", fails=True), store.write(request, f"k{n}"), return_exceptions=True
        )
        # whichever was first: a second that finds an answer does not come to the failure
        assert isinstance(answer, bytes)
        assert isinstance(failed, LookupError) or failed == answer
    assert await work_done(store) == 10


async def test_a_key_belongs_to_its_tenant_actor_and_route(store: Database) -> None:
    scopes = [Scope("acme", "mia"), Scope("acme", "tom"), Scope("other", "mia")]
    answers = [await store.write(request, "k", scope=scope) for scope in scopes]
    answers.append(await store.write(request, "k", route="PUT /notes", scope=scopes[0]))
    assert len(set(answers)) == 4
    for scope, answer in zip(scopes, answers, strict=False):
        assert await store.write(request, "k", scope=scope) == answer
    assert (await work_done(store, scopes[0]), await work_done(store, scopes[2])) == (3, 1)


@pytest.mark.parametrize("swept", [False, True])
async def test_a_key_is_kept_for_a_day(open_store: OpenStore, swept: bool) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    first = await store.write(request, "k")
    clock.advance(LIFETIME_MS / 1000)
    if swept:
        await store.write(sweep_keys)
    assert await store.write(request, "k") == first
    clock.advance(0.001)
    if swept:
        await store.write(sweep_keys)
    assert await store.write(request, "k", b"a new day, a new request") != first
    await store.close()


async def test_sweeping_one_tenant_leaves_the_keys_of_others(open_store: OpenStore) -> None:
    clock = ManualClock()
    store = await open_store(clock=clock)
    await store.write(request, "k", scope=Scope("old"))
    clock.advance(2 * LIFETIME_MS / 1000)
    fresh = await store.write(request, "k", scope=Scope("fresh"))
    for tenant in ("old", "fresh"):
        await store.write(sweep_keys, scope=Scope(tenant))
    assert await store.write(request, "k", scope=Scope("fresh")) == fresh
    await store.close()


async def test_an_answer_may_be_any_bytes(store: Database) -> None:
    answer = bytes(range(256)) * 300

    async def unit(tx: Transaction) -> bytes | None:
        first = await claim_key(tx, ROUTE, "ключ \U0001f511 '\"", b"")
        if first is None:
            await answer_key(tx, ROUTE, "ключ \U0001f511 '\"", answer)
        return first

    assert await store.write(unit) is None
    assert await store.write(unit) == answer
