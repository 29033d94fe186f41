"""How a program outside starts an agent: with a key that is for this agent alone.

A key's text is `stk.<tenant>.<id>.<secret>`. Only its hash is kept: who loses it asks for a new one.
"""

import hashlib
import hmac
import secrets
from typing import NamedTuple

import msgspec

from stigmergy.access.model import Unauthorized
from stigmergy.agents.store import named
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.idempotency import answer_key, claim_key
from stigmergy.kernel.ids import check_tenant
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.commands import Start, start_run
from stigmergy.runs.model import Cause, Run
from stigmergy.spaces.commands import ensure_space, name_for
from stigmergy.spaces.model import JsonObject, ServiceKey, check_plain_text
from stigmergy.spaces.run_metadata import check_run_metadata
from stigmergy.spaces.store import KEYS_OF

PREFIX = "stk"
LONGEST_INSTRUCTION = 100_000


class Started(msgspec.Struct, frozen=True):
    """A run that goes on, now that somebody set it off or answered it."""

    run_id: str
    agent: str
    status: str


def started(run: Run) -> Started:
    return Started(run.id, run.agent, run.status)


class NewKey(NamedTuple):
    """A key and its text, which is shown this once."""

    key: ServiceKey
    text: str


def new_secret() -> str:
    """Made outside the unit, so that a unit that is run again makes the same key."""
    return secrets.token_urlsafe(32)


async def create_key(tx: Transaction, agent: str, secret: str, *, note: str = "") -> NewKey:
    await named(tx, agent)
    check_plain_text(note, "note", 200, empty=True)
    key = await tx.insert(ServiceKey(id=tx.new_id(), agent=agent, owner_id=tx.actor, note=note, digest=_digest(secret)))
    return NewKey(_shown(key), f"{PREFIX}.{tx.tenant}.{key.id}.{secret}")


async def revoke_key(tx: Transaction, agent: str, id: str) -> ServiceKey:
    key = await tx.lock(ServiceKey, id)
    if key is None or key.agent != agent:
        raise NotFound(f"no key {id} of {agent}")
    return _shown(key if key.revoked_at is not None else await tx.update(key, revoked_at=tx.now))


async def keys_of(tx: Snapshot, agent: str) -> list[ServiceKey]:
    return [_shown(key) for key in await tx.find(KEYS_OF, agent=agent)]


def _shown(key: ServiceKey) -> ServiceKey:
    return msgspec.structs.replace(key, digest="")


class Presented(NamedTuple):
    """A key as somebody sends it; whether it is good is found out in its tenant."""

    tenant: str
    id: str
    secret: str


def parse_key(text: str) -> Presented:
    prefix, _, rest = text.partition(".")
    front, _, secret = rest.rpartition(".")
    tenant, _, id = front.rpartition(".")
    if prefix != PREFIX or not id or not secret:
        raise _no_good()
    try:
        check_tenant(tenant)
    except Invalid:
        raise _no_good() from None
    return Presented(tenant, id, secret)


async def trigger(
    tx: Transaction,
    agent: str,
    presented: Presented,
    instruction: str,
    *,
    metadata: JsonObject | None = None,
    idempotency_key: str | None = None,
) -> Run:
    """Start the agent's run for a program that has its key. The same idempotency key gives the same run."""
    key = await tx.get(ServiceKey, presented.id)
    good = key is not None and hmac.compare_digest(key.digest, _digest(presented.secret))
    if key is None or not good or key.agent != agent or key.revoked_at is not None:
        raise _no_good()
    check_plain_text(instruction, "instruction", LONGEST_INSTRUCTION)
    check_run_metadata(metadata or {})
    route = f"trigger:{key.id}"
    if idempotency_key is not None:
        first = await claim_key(tx, route, idempotency_key, msgspec.json.encode([instruction, metadata or {}]))
        if first is not None:
            run = await tx.get(Run, first.decode())
            assert run is not None
            return run
    space_id = tx.new_id()
    await ensure_space(tx, space_id, key.owner_id, name=name_for(agent, instruction))
    run = await start_run(
        tx,
        Start(
            agent=agent,
            instruction=instruction,
            owner_id=key.owner_id,
            space_id=space_id,
            cause=Cause("service"),
            metadata={**(metadata or {}), "service_key": key.id},
        ),
    )
    if idempotency_key is not None:
        await answer_key(tx, route, idempotency_key, run.id.encode())
    return run


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _no_good() -> Unauthorized:
    return Unauthorized("this key starts no agent here; make one with `POST /v1/agents/{name}/keys`")
