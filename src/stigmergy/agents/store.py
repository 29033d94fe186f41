"""Definitions in the store: the program's own under the shared tenant, a tenant's own under its name."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from stigmergy.agents.checking import check_definition
from stigmergy.agents.model import AGENTS, AgentRecord, Definition, queue_of
from stigmergy.errors import Invalid, NotFound
from stigmergy.kernel.query import Statement, as_each
from stigmergy.kernel.transaction import SHARED, Snapshot, Transaction

# A tenant's own definition comes before the program's: `*` sorts before every name that a tenant can have.
NAMED = AGENTS.query("named", "WHERE tenant IN (:tenant, '*') AND name = :name ORDER BY tenant DESC LIMIT 1")
ALL = AGENTS.query("all", "WHERE tenant IN (:tenant, '*') ORDER BY name, tenant LIMIT :limit")
# Those that runs can be started with: of a tenant's own and a program's of one name the tenant's.
IN_FORCE = AGENTS.query(
    "in_force",
    """WHERE tenant IN (:tenant, '*') AND name > :after AND name NOT LIKE 'tool.%' AND enabled
         AND (tenant = :tenant OR name NOT IN (SELECT own.name FROM agents own WHERE own.tenant = :tenant))
       ORDER BY name LIMIT :limit""",
)
OWNED = AGENTS.query("owned", "WHERE tenant = :tenant AND owner = :owner ORDER BY name {for_update}")
CURRENT = AGENTS.query("current", "WHERE tenant = :of AND name = :name AND version = :version")
SUPERSEDED = Statement(
    "agents.superseded",
    "SELECT body FROM versions WHERE tenant = :of AND collection = 'agents' AND id = :name AND version = :version",
)
OLDER = Statement(
    "agents.older",
    """SELECT body FROM versions WHERE tenant = :of AND collection = 'agents' AND id = :name AND version < :below
       ORDER BY version DESC LIMIT :limit""",
)


IN_FORCE_NOW = Statement(
    "agents.in_force_now",
    """SELECT name, definition, version, tenant, queue, enabled FROM agents
       WHERE tenant IN (:tenant, '*') AND name IN (SELECT value FROM {each:names}) ORDER BY tenant""",
)


class Pinned(NamedTuple):
    """The definition that a run is started with, and where its runs are claimed."""

    definition: Definition
    version: int
    shared: bool
    queue: str


class UnknownAgent(NotFound):
    """There is no agent of this name, or it is not enabled."""

    code = "unknown_agent"


async def named(tx: Snapshot, name: str) -> AgentRecord:
    """The definition in force."""
    found = await tx.find(NAMED, name=name)
    if not found or not found[0].enabled:
        known = ", ".join(record.name for record in await listed(tx, limit=20))
        raise UnknownAgent(f"there is no agent {name!r}; there are: {known or 'none yet'}")
    return found[0]


async def in_force(tx: Snapshot, names: Iterable[str]) -> dict[str, Pinned]:
    """The definitions in force of these agents, in one statement; who is unknown or not enabled is left out."""
    rows = await tx.rows(IN_FORCE_NOW, names=as_each(names))
    # of two of one name the later one is the tenant's own
    found = {name: (Pinned(_decoded(text), version, of != tx.tenant, queue), on) for name, text, version, of, queue, on in rows}
    return {name: pinned for name, (pinned, is_enabled) in found.items() if is_enabled}


@lru_cache(1_000)
def _decoded(text: str | bytes) -> Definition:
    return msgspec.json.decode(text, type=Definition)


async def listed(tx: Snapshot, *, after: str = "", limit: int = 100) -> list[AgentRecord]:
    """By name, those in force."""
    return await tx.find(IN_FORCE, after=after, limit=limit)


async def pinned(tx: Snapshot, name: str, version: int, *, shared: bool) -> Definition:
    """A definition as it was when a run was started with it."""
    of = SHARED if shared else tx.tenant
    found = await tx.find(CURRENT, name=name, version=version, of=of)
    if found:
        return found[0].definition
    bodies = await tx.rows(SUPERSEDED, of=of, name=name, version=version)
    if bodies and bodies[0][0] is not None:
        return AGENTS.decode_body(bodies[0][0]).definition
    raise UnknownAgent(f"version {version} of the agent {name!r} is not kept any more")


async def put_agent(tx: Transaction, definition: Definition, owner: str) -> AgentRecord:
    """Store a definition; an equal one is left as it is, another makes a new version."""
    check_definition(definition)
    stored = await tx.lock(AgentRecord, definition.name)
    queue = queue_of(definition)
    if stored is None:
        return await tx.insert(AgentRecord(name=definition.name, owner=owner, definition=definition, queue=queue))
    if stored.owner != owner:
        raise Invalid(f"the agent {definition.name!r} belongs to {stored.owner}; give yours another name", "name", "name_taken")
    if stored.definition == definition and stored.enabled:
        return stored
    return await tx.update(stored, definition=definition, queue=queue, enabled=True)


async def declare_agents(tx: Transaction, owner: str, definitions: Iterable[Definition]) -> list[AgentRecord]:
    """Make an owner's definitions exactly these. One that is gone stays for the runs that use it, and starts no more."""
    wanted = {definition.name: definition for definition in definitions}
    for stored in await tx.find(OWNED, owner=owner):
        if stored.name not in wanted and stored.enabled:
            await tx.update(stored, enabled=False)
    return [await put_agent(tx, definition, owner) for definition in wanted.values()]


async def versions(tx: Snapshot, current: AgentRecord, *, below: int, limit: int) -> list[AgentRecord]:
    """A definition's versions, newest first, from below a number on; those that are not kept any more are left out."""
    found = [current] if current.version < below else []
    for (body,) in await tx.rows(OLDER, of=current.tenant, name=current.name, below=below, limit=limit):
        if body is not None:
            found.append(AGENTS.decode_body(body))
    return found[:limit]
