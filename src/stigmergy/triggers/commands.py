"""What may be done to triggers and deliveries. Each function is (part of) one unit of work.

`start_delivery` is what a firing writes, in the transaction of its change. A delivery in hand is settled by whoever handed it
over, guarded by its version; a person may retry what is dead and discard what is not delivered. Each is a change of its own.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from stigmergy.errors import Conflict, Invalid, NotFound, VersionConflict
from stigmergy.kernel.journal import Change
from stigmergy.kernel.leases import enqueue
from stigmergy.kernel.query import as_each
from stigmergy.kernel.record import COLLECTIONS
from stigmergy.kernel.retention import pin, unpin
from stigmergy.kernel.rules import Rule, declare_rules, put_rule
from stigmergy.kernel.transaction import SHARED, Transaction
from stigmergy.triggers.model import DELIVERED, KINDS, Answer, Delivery, Status, has_limits, lane_of, may_become, queue_of
from stigmergy.triggers.store import FORGET_TRIES, LIMIT, LIST_DEAD, MOVE_LANES, NAMED, NOTE_TRY

# Woken when there may be something to hand over.
TOPIC = "deliveries"
# How many deliveries of a trigger are retried in one unit.
CHUNK = 200


# ---- triggers ----


async def put_trigger(tx: Transaction, rule: Rule, *, if_match: int | None = None) -> Rule:
    """Add a trigger, or replace the one with its id. It holds for every write that is committed after it."""
    stored = await _own(tx, rule.id)
    if if_match is not None and (stored is None or stored.version != if_match):
        there = "is not there" if stored is None else f"is at version {stored.version}, not {if_match}"
        raise VersionConflict(f"trigger {rule.id} {there}; read it again and repeat")
    put = await put_rule(tx, rule)
    await _have_what_waits_follow(tx, stored, put)
    return put


async def _have_what_waits_follow(tx: Transaction, stored: Rule | None, put: Rule) -> None:
    """What a trigger set off before it was changed goes by its limits of now, and waits where what has such limits does."""
    if put.kind not in DELIVERED or (stored is not None and (stored.kind, stored.action) == (put.kind, put.action)):
        return
    queue = queue_of(tx.tenant, put)
    if has_limits(put.action):
        await _limit(tx, queue, put)
        tx.wake(TOPIC)
    if stored is not None and stored.kind in DELIVERED and queue != queue_of(tx.tenant, stored):
        await tx.run(MOVE_LANES, queue=queue, trigger_id=put.id)
        tx.wake(TOPIC)


async def put_triggers(tx: Transaction, rules: Sequence[Rule]) -> list[Rule]:
    """All of them or none."""
    return [await put_trigger(tx, rule) for rule in rules]


async def delete_trigger(tx: Transaction, id: str, *, if_match: int | None = None) -> None:
    """Take a trigger away. What it has set off and is not handed over yet becomes dead letters when its turn comes."""
    stored = await _own(tx, id)
    if stored is None:
        raise NotFound(f"no trigger {id}")
    if if_match is not None and stored.version != if_match:
        raise VersionConflict(f"trigger {id} is at version {stored.version}, not {if_match}; read it again and repeat")
    await tx.delete(stored)


async def declare_triggers(tx: Transaction, owner: str, rules: list[Rule]) -> None:
    """Make an owner's triggers exactly these: what its code or its file says now."""
    found = await tx.find(NAMED, ids=as_each([rule.id for rule in rules]))
    stored = {rule.id: rule for rule in found if rule.tenant == tx.tenant}
    await declare_rules(tx, owner, rules)
    for rule in rules:
        await _have_what_waits_follow(tx, stored.get(rule.id), rule)


async def _own(tx: Transaction, id: str) -> Rule | None:
    """The trigger of this id that is the tenant's own to change. `Invalid` where the name is taken."""
    found = {rule.tenant: rule for rule in await tx.find(NAMED, ids=as_each([id]))}
    if tx.tenant != SHARED and SHARED in found:
        raise Invalid(f"{id} is declared by the program {found[SHARED].owner}; choose another id", "id", "reserved_id")
    own = found.get(tx.tenant)
    if own is not None and own.kind not in KINDS:
        raise Invalid(f"{id} is a rule of another part; choose another id", "id", "reserved_id")
    return own


# ---- firing ----


async def start_delivery(tx: Transaction, rule: Rule, change: Change) -> None:
    """The starter of webhooks and handlers: one delivery for this trigger and change, ready to be handed over."""
    queue = queue_of(tx.tenant, rule)
    lane = lane_of(rule, change)
    delivery = Delivery(
        id=tx.new_id(),
        trigger_id=rule.id,
        trigger_version=rule.version,
        kind=rule.kind,
        lane=lane,
        queue=queue,
        collection=change.collection,
        document_id=change.id,
        document_version=change.version,
        event=change.event,
        change_seq=change.seq,
        actor=change.actor,
        at=change.at,
        cause=change.cause,
        depth=change.depth,
    )
    await tx.insert(delivery)
    if has_limits(rule.action):
        await _limit(tx, queue, rule)
    if COLLECTIONS[change.collection].keep_versions is not None:
        for version in (change.version, change.version - 1):
            await pin(tx, change.collection, change.id, version, _holder(delivery))
    await enqueue(tx, queue, lane)
    tx.wake(TOPIC)


async def _limit(tx: Transaction, queue: str, rule: Rule) -> None:
    per_second = rule.action.get("per_second")
    spacing = None if per_second is None else max(1, round(1_000_000 / per_second))
    base = queue.removesuffix(f"/{tx.tenant}/{rule.id}")
    await tx.run(LIMIT, queue=queue, base=base, concurrency=rule.action.get("concurrency"), spacing_us=spacing)


def _holder(delivery: Delivery) -> str:
    return f"delivery/{delivery.id}"


# ---- settling ----


class Settled(NamedTuple):
    """What came of a delivery in hand: its end, or, as pending, another try at `next_at`."""

    delivery: Delivery
    status: Status
    tries: int
    answer: Answer | None
    next_at: int = 0


async def settle(tx: Transaction, outcomes: Iterable[Settled]) -> list[str]:
    """Write down what came of deliveries. One that was changed meanwhile (discarded, or settled by another worker that took
    it over) is left as it is. Gives the ids that were."""
    written: list[str] = []
    for outcome in outcomes:
        delivery = outcome.delivery
        if outcome.status == "pending":
            answer = None if outcome.answer is None else msgspec.json.encode(outcome.answer).decode()
            await tx.run(NOTE_TRY, id=delivery.id, tries=outcome.tries, next_at=outcome.next_at, answer=answer)
            continue
        try:
            fields: dict[str, Any] = {"status": outcome.status, "tries": outcome.tries, "answer": outcome.answer}
            await tx.update(delivery, **fields, settled_at=tx.now)
        except VersionConflict:
            continue
        if outcome.tries > 1:
            await tx.run(FORGET_TRIES, id=delivery.id)
        if outcome.status != "dead":
            await _unpin(tx, delivery)
        written.append(delivery.id)
    return written


async def retry(tx: Transaction, id: str) -> Delivery:
    """Hand a dead delivery over once more, from its first try on."""
    stored = await _changeable(tx, id, "pending")
    (rule,) = await tx.find(NAMED, ids=as_each([stored.trigger_id])) or [None]
    if rule is None or rule.kind not in DELIVERED:
        raise Conflict(f"the trigger {stored.trigger_id} of delivery {id} is gone; add it again, or discard the delivery")
    return await _again(tx, stored, rule)


async def retry_all(tx: Transaction, trigger_id: str, below: str = "~") -> list[Delivery]:
    """The same for the dead deliveries of a trigger, the newest first, some at a time: repeat below the last one's id."""
    rules = await tx.find(NAMED, ids=as_each([trigger_id]))
    if not rules or rules[-1].kind not in DELIVERED:
        raise NotFound(f"no trigger {trigger_id} that makes deliveries")
    dead = await tx.find(LIST_DEAD, trigger_id=trigger_id, below=below, limit=CHUNK)
    return [await _again(tx, delivery, rules[-1]) for delivery in dead]


async def _again(tx: Transaction, stored: Delivery, rule: Rule) -> Delivery:
    queue = queue_of(tx.tenant, rule)
    if has_limits(rule.action):
        await _limit(tx, queue, rule)
    after = await tx.update(stored, status="pending", tries=0, answer=None, settled_at=None, queue=queue)
    await tx.run(FORGET_TRIES, id=stored.id)
    await enqueue(tx, queue, stored.lane)
    tx.wake(TOPIC)
    return after


async def discard(tx: Transaction, id: str) -> Delivery:
    """Give a delivery up, so that those behind it in its lane can go."""
    stored = await _changeable(tx, id, "discarded")
    after = await tx.update(stored, status="discarded", settled_at=tx.now)
    await tx.run(FORGET_TRIES, id=id)
    await _unpin(tx, stored)
    if stored.status == "pending":
        rules = await tx.find(NAMED, ids=as_each([stored.trigger_id]))
        delivered = rules and rules[-1].kind in DELIVERED
        await enqueue(tx, queue_of(tx.tenant, rules[-1]) if delivered else stored.queue, stored.lane)
        tx.wake(TOPIC)
    return after


async def _changeable(tx: Transaction, id: str, status: Status) -> Delivery:
    stored = await tx.lock(Delivery, id)
    if stored is None:
        raise NotFound(f"no delivery {id}")
    if not may_become(stored, status):
        wanted = "retried" if status == "pending" else "discarded"
        raise Conflict(f"delivery {id} is {stored.status}; it cannot be {wanted}")
    return stored


async def _unpin(tx: Transaction, delivery: Delivery) -> None:
    if COLLECTIONS[delivery.collection].keep_versions is not None:
        await unpin(tx, _holder(delivery))
