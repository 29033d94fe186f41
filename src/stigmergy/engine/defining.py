"""Definitions that are data, of one tenant: put, taken away, and what is told of them. One unit of work each.

A definition's subscriptions are rules and its tools a breadcrumb, and these are written with it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stigmergy.agents import store
from stigmergy.agents.config import parse_config
from stigmergy.agents.model import AgentRecord, Definition, ToolSpec
from stigmergy.breadcrumbs.output import keep_catalog
from stigmergy.engine import catalog
from stigmergy.engine.code import tool_agent
from stigmergy.engine.starting import rules_of
from stigmergy.errors import Conflict, Invalid, VersionConflict
from stigmergy.kernel.rules import declare_rules
from stigmergy.kernel.transaction import Snapshot, Transaction


class Declared(NamedTuple):
    """A definition as it is stored, and what had to be changed of a config to make it one."""

    record: AgentRecord
    notices: list[str]


class OfProgram(Conflict):
    """An agent that a program's code declares."""

    code = "of_program"


def read_definition(given: Definition | Mapping[str, Any], name: str | None = None) -> tuple[Definition, list[str]]:
    """A definition, or a config that is read as one. `name` is the agent's where it has none, and must be where it has."""
    if isinstance(given, Definition):
        definition, notices = given, []
    else:
        definition, notices = parse_config(given, name=name or named_in(given))
    if name is not None and definition.name != name:
        raise Invalid(f"this is the definition of {definition.name!r}, and not of {name!r}", "name")
    if definition.code:
        raise Invalid("`code` is what a program's own agents have; a definition that is data has none", "code")
    return definition, notices


def named_in(given: Definition | Mapping[str, Any]) -> str:
    """The name of the agent, where the definition itself has to say it."""
    name = given.name if isinstance(given, Definition) else given.get("name")
    if not isinstance(name, str):
        raise Invalid("say the agent's name, here or in its definition", "name")
    return name


async def put_agent(
    tx: Transaction, definition: Definition, *, if_match: int | None = None, as_operator: bool = False
) -> AgentRecord:
    """A tenant's own definition, with its rules and its catalogue. It is changed by whoever put it, and by operators."""
    rules = rules_of(f"agent:{definition.name}", [definition])
    stored = await tx.lock(AgentRecord, definition.name)
    check_version(definition.name, stored, if_match)
    owner = stored.owner if stored is not None and as_operator else tx.actor
    record = await store.put_agent(tx, definition, owner)
    await declare_rules(tx, f"agent:{definition.name}", rules)
    await catalog.write_catalog(tx, definition)
    await _put_tools(tx, definition, owner)
    return record


async def _put_tools(tx: Transaction, definition: Definition, owner: str) -> None:
    """Each tool as something that a task can name. Of two with one name that another put first stays."""
    for tool in definition.tools:
        alone = tool_agent(tool)
        stored = await tx.get(AgentRecord, alone.name)
        if stored is None or stored.owner == owner:
            await store.put_agent(tx, alone, owner)


async def delete_agent(tx: Transaction, name: str, *, if_match: int | None = None, as_operator: bool = False) -> None:
    """Take a tenant's own definition away. Runs that have begun go on with the version that they have."""
    stored = await tx.lock(AgentRecord, name)
    if stored is None:
        found = await store.named(tx, name)
        raise OfProgram(f"the agent {name!r} is declared by the program {found.owner}; take it out of its code")
    check_version(name, stored, if_match)
    if not as_operator and stored.owner != tx.actor:
        raise Invalid(f"the agent {name!r} belongs to {stored.owner}", "name", "name_taken")
    await tx.delete(stored)
    await declare_rules(tx, f"agent:{name}", [])
    await keep_catalog(tx, name, ())


def check_version(name: str, stored: AgentRecord | None, if_match: int | None) -> None:
    if if_match is not None and (stored is None or stored.version != if_match):
        there = "not there" if stored is None else f"at version {stored.version}"
        raise VersionConflict(f"the agent {name!r} is {there}, and not at version {if_match}")


async def tools_of(tx: Snapshot, name: str) -> list[ToolSpec]:
    """Every tool that the agent may have in a run, the engine's among them."""
    return await catalog.tools_of(tx, (await store.named(tx, name)).definition)


async def versions_of(tx: Snapshot, name: str, *, below: int, limit: int) -> list[AgentRecord]:
    """Every version of the definition in force, newest first."""
    return await store.versions(tx, await store.named(tx, name), below=below, limit=limit)
