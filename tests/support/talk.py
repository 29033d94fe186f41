"""Spaces for the tests: entities, agents as records, and short ways to speak."""

from typing import Any

from stigmergy.agents.model import AgentRecord, Definition, queue_of
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.model import Run, ToolCall
from stigmergy.runs.queries import runs
from stigmergy.runs.store import ADD_HEAD
from stigmergy.runs.tools import Party, Waiting
from stigmergy.runs.waits import open_waits
from stigmergy.spaces import commands
from stigmergy.spaces.commands import Said
from stigmergy.spaces.model import Space, SpaceMessage


async def add_agents(tx: Transaction, *names: str, **fields: Any) -> None:
    """Agents that are there, whose runs nobody runs here."""
    for name in names:
        definition = Definition(name=name, model="scripted:nobody", **fields)
        await tx.insert(AgentRecord(name=name, owner="test", definition=definition, queue=queue_of(definition)))


async def space_of(tx: Transaction, *members: str, id: str | None = None, name: str = "talk") -> Space:
    """A space; the first one owns it. Agents that are not there yet are made."""
    for member in members:
        agent = member.removeprefix("agent:")
        if member.startswith("agent:") and await tx.get(AgentRecord, agent) is None:
            await add_agents(tx, agent)
    return await commands.create_space(tx, members[0], name=name, members=members[1:], id=id)


async def say(tx: Transaction, author: str, space_id: str, content: str, **fields: Any) -> SpaceMessage:
    return await commands.post(tx, author, space_id, Said(content=content, **fields))


async def runs_of(tx: Snapshot, agent: str) -> list[Run]:
    """Every run of an agent, the first one first."""
    return sorted((await runs(tx, agent=agent, limit=500)).items, key=lambda run: run.id)


async def client_call(
    tx: Transaction, run_id: str, owner: str, tool: str = "pick", space_id: str = "s", call_id: str = "c1"
) -> str:
    """A run that waits for a client of its owner, in a call of this tool. Gives the id of what waits."""
    run = Run(
        id=run_id,
        owner_id=owner,
        space_id=space_id,
        agent="ada",
        agent_version=1,
        entity_id="agent:ada",
        root_id=run_id,
        status="waiting_tool",
    )
    args = {"from": ["green", "blue"]}
    await tx.run(ADD_HEAD, run_id=run_id, pos=1, agent="ada", queue="q")
    await tx.insert(run)
    await tx.insert(
        ToolCall(
            run_id=run_id,
            id=call_id,
            owner_id=owner,
            space_id=space_id,
            opened_pos=1,
            step=1,
            tool_name=tool,
            args=args,
            execution_type="client",
            status="running",
        )
    )
    details = {"tool": tool, "args": args, "display": {"customUI": "ColourPicker"}}
    waiting = Waiting(
        kind="tool",
        parties=[Party(f"client:{owner}", owner, "client")],
        timeout_ms=60_000,
        for_entity=owner,
        space_id=space_id,
        details=details,
    )
    return (await open_waits(tx, run, call_id, waiting))[0].id
