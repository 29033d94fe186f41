"""Lanes: what is handed over in order. A lane is one trigger and one document, and an item of the kernel's `ready` queue.

Who holds a lane works on its deliveries one after the other; nobody else does meanwhile. `turn` gives back what is done with
and takes what is due; `open_lanes` reads what there is to hand over in them.

Rows of `ready` are taken before a tenant's head where they are claimed, and after it where a change makes them ready. So that
the two cannot wait for each other, nothing here that holds rows of `ready` writes a record, and giving back waits for nobody.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stigmergy.kernel.batches import finish_all, release_all
from stigmergy.kernel.leases import HELD as HELD_BY
from stigmergy.kernel.leases import NEVER, Claim, claim, enqueue
from stigmergy.kernel.query import as_each
from stigmergy.kernel.record import COLLECTIONS, Record
from stigmergy.kernel.rules import Rule
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.triggers.commands import TOPIC
from stigmergy.triggers.events import Happened
from stigmergy.triggers.model import DELIVERED, Delivery, Handler, Webhook, delivered_action, has_limits, queue_of
from stigmergy.triggers.pauses import LONGEST_MS
from stigmergy.triggers.store import (
    BODIES,
    HELD,
    LIMITED_DUE,
    LIMITS,
    NAMED,
    NEXT,
    NEXT_DUE,
    SPACE,
    TRIES,
    UNSTICK,
    at_seqs,
)

# How many of a lane's deliveries are read at once, and how many limited queues are looked at in a turn.
AT_ONCE = 8
LIMITED_AT_ONCE = 32
# How much of what a rate allows may be caught up on at once, after a rest.
BURST_US = 100_000


class Back(NamedTuple):
    """A lane that is given back: done with, or to be taken again at `due_at`, in `queue` where it belongs elsewhere now."""

    claim: Claim
    due_at: int | None = None
    queue: str | None = None


class Turn(NamedTuple):
    """What a turn gave back and took, and when there may be more that is not yet due."""

    settled: list[Claim]
    held: frozenset[Claim]  # of those that were to be given back, what is still in hand
    claims: list[Claim]
    next_at: int | None


async def turn(tx: Transaction, worker: str, rooms: Mapping[str, int], backs: Sequence[Back]) -> Turn:
    """Give back lanes, and take as many due ones of each base queue as there is room for."""
    settled = await _give_back(tx, worker, backs)
    held = (
        frozenset(Claim(*row) for row in await tx.rows(HELD_BY, worker=worker))
        if len(settled) < len(backs)
        else frozenset[Claim]()
    )
    claims: list[Claim] = []
    soonest: list[int] = []
    for base, room in rooms.items():
        if room > 0:
            taken = await claim(tx, base, worker, room)
            limited, next_at = await _claim_limited(tx, worker, base, room - len(taken))
            claims += taken + limited
            ((due_at,),) = await tx.rows(NEXT_DUE, base=base, now=tx.now)
            soonest += [moment for moment in (due_at, next_at) if moment is not None]
    return Turn(settled, held, claims, min(soonest, default=None))


async def _give_back(tx: Transaction, worker: str, backs: Sequence[Back]) -> list[Claim]:
    groups: defaultdict[tuple[str, str, int | None, str | None], list[Claim]] = defaultdict(list)
    for back in backs:
        groups[back.claim.tenant, back.claim.queue, back.due_at, back.queue].append(back.claim)
    settled: list[Claim] = []
    for (tenant, queue, due_at, elsewhere), claims in groups.items():
        ids = [each.id for each in claims]
        if due_at is None or elsewhere is not None:
            gone = await finish_all(tx, worker, tenant, queue, ids)
        else:
            gone = await release_all(tx, worker, tenant, queue, ids, due_at)
        settled += [each for each in claims if each.id in gone]
    return settled


async def _claim_limited(tx: Transaction, worker: str, base: str, room: int) -> tuple[list[Claim], int | None]:
    """Of the queues that have limits: what their limits allow now, and when the first of them allows more."""
    claims: list[Claim] = []
    soonest: list[int] = []
    for (queue,) in await tx.rows(LIMITED_DUE, base=base, now=tx.now, limit=LIMITED_AT_ONCE):
        if len(claims) >= room:
            break
        ((concurrency, spacing_us, next_us),) = await tx.rows(LIMITS, queue=queue)
        allowed = room - len(claims)
        if concurrency is not None:
            ((held,),) = await tx.rows(HELD, queue=queue)
            allowed = min(allowed, concurrency - held)
        now_us = tx.now * 1000
        if spacing_us is not None:
            first_us = _first_start(next_us, spacing_us, now_us)
            allowed = min(allowed, (now_us - first_us) // spacing_us + 1)
            next_us = first_us
        taken = await claim(tx, queue, worker, allowed) if allowed > 0 else []
        claims += taken
        if spacing_us is not None:
            next_us += len(taken) * spacing_us
            soonest += [-(-next_us // 1000)] if next_us > now_us else []
            await tx.run(SPACE, queue=queue, next_us=next_us)
    return claims, min(soonest, default=None)


def _first_start(next_us: int, spacing_us: int, now_us: int) -> int:
    """When the next may start: no earlier than a little while ago, and no later than one spacing from now, should the clock
    have been set back."""
    return min(max(next_us, now_us - max(0, BURST_US - spacing_us)), now_us + spacing_us)


async def unstick(tx: Transaction, queues: Iterable[str]) -> None:
    """Wake what would rest for longer than anything rests."""
    for queue in queues:
        await tx.run(UNSTICK, queue=queue, now=tx.now, beyond=tx.now + LONGEST_MS * 2)


async def move(tx: Transaction, worker: str, claims: Sequence[Claim], queue: str) -> None:
    """Lanes of a tenant that wait in another queue from now on. The tenant is the transaction's."""
    for old in {each.queue for each in claims}:
        ids = [each.id for each in claims if each.queue == old]
        for id in sorted(await finish_all(tx, worker, tx.tenant, old, ids)):
            await enqueue(tx, queue, id)
    tx.wake(TOPIC)


# ---- what is in a lane ----


class Waiting(NamedTuple):
    """A delivery that is to be handed over, with what it is about, and how often that was tried."""

    happened: Happened
    tries: int
    next_at: int

    @property
    def delivery(self) -> Delivery:
        return self.happened.delivery


class Lane(NamedTuple):
    """A lane in hand. `action` is what its trigger does now; None where the trigger is gone. `belongs` is where it waits now;
    `is_whole` says that there was no more in it."""

    claim: Claim
    action: Webhook | Handler | None
    belongs: str
    waiting: list[Waiting]
    is_whole: bool


async def open_lanes(tx: Snapshot, claims: Sequence[Claim]) -> list[Lane]:
    """What there is to hand over in these lanes of a tenant, the oldest first."""
    lanes = as_each([each.id for each in claims])
    found = await tx.find(NEXT, lanes=lanes, beyond=AT_ONCE, everything=NEVER)
    ids = as_each([each.id for each in found])
    tries = {id: (count, next_at) for id, count, next_at in await tx.rows(TRIES, ids=ids)}
    bodies = await _bodies(tx, found, ids)
    names = as_each(sorted({trigger_of_lane(each.id) for each in claims}))
    rules = {rule.id: rule for rule in await tx.find(NAMED, ids=names)}
    in_lane: defaultdict[str, list[Waiting]] = defaultdict(list)
    for each in found:
        in_lane[each.lane].append(Waiting(bodies[each.id], *tries.get(each.id, (0, 0))))
    actions = {id: _action(rule) for id, rule in rules.items()}
    return [_lane(tx.tenant, each, rules.get(trigger_of_lane(each.id)), actions, in_lane[each.id]) for each in claims]


def _action(rule: Rule) -> Webhook | Handler | None:
    """What a rule does now. One that was written past the definitions may make no sense."""
    try:
        return delivered_action(rule) if rule.kind in DELIVERED else None
    except msgspec.ValidationError:
        return None


def _lane(
    tenant: str, held: Claim, rule: Rule | None, actions: Mapping[str, Webhook | Handler | None], waiting: list[Waiting]
) -> Lane:
    action = actions.get(rule.id) if rule is not None else None
    if rule is None or action is None:
        return Lane(held, None, held.queue, waiting, len(waiting) < AT_ONCE)
    # what has limits is taken one by one, so that each is counted when it starts
    first = waiting[:1] if has_limits(rule.action) else waiting
    return Lane(held, action, queue_of(tenant, rule), first, len(waiting) < AT_ONCE and len(first) == len(waiting))


def trigger_of_lane(lane: str) -> str:
    return lane.partition(" ")[0]


def collection_of_lane(lane: str) -> str:
    return lane.partition(" ")[2].partition("/")[0]


async def _bodies(tx: Snapshot, found: Sequence[Delivery], ids: str) -> dict[str, Happened]:
    """The bodies of each: of the version that it is about, and of the one before it. What was erased is None."""
    current: dict[tuple[str, int], Record] = {}
    for collection in {each.collection for each in found if each.event != "delete"}:
        seqs = as_each([str(each.change_seq) for each in found if each.collection == collection])
        for record in await tx.find(at_seqs(collection), seqs=seqs):
            current[collection, record.seq] = record
    kept: dict[tuple[str, int], bytes | None] = {}
    if any(each.document_version > 1 or (each.collection, each.change_seq) not in current for each in found):
        kept = {(id, version): body for id, version, body in await tx.rows(BODIES, ids=ids)}
    made: dict[str, Happened] = {}
    for each in found:
        decode = COLLECTIONS[each.collection].decode_body
        earlier, own = kept.get((each.id, each.document_version - 1)), kept.get((each.id, each.document_version))
        before = decode(earlier) if earlier is not None and each.event != "create" else None
        record = current.get((each.collection, each.change_seq)) or (decode(own) if own is not None else None)
        made[each.id] = Happened(each, before if each.event == "delete" else record, before)
    return made


async def happened(tx: Snapshot, delivery: Delivery) -> Happened:
    """One delivery with its bodies."""
    return (await _bodies(tx, [delivery], as_each([delivery.id])))[delivery.id]
