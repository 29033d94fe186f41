"""Connected user interfaces, and the client tools that they answer for their entity.

A client says which tools it has, and that it is still there; one that was silent for too long is forgotten. What waits for it is
in the inbox, for as long as the run waits: a client that comes back finds it.
"""

from typing import Any

import msgspec

from stigmergy.errors import Conflict, Invalid, NotFound
from stigmergy.kernel.timers import Timer, cancel_timer, set_timer
from stigmergy.kernel.transaction import Snapshot, Transaction
from stigmergy.runs.model import WAITS, JsonObject, Run, ToolCall, Wait
from stigmergy.runs.waits import answer_tool
from stigmergy.spaces.model import Client, check_plain_text
from stigmergy.spaces.store import CLIENTS_OF

CLIENT = "space.client"
SILENCE_MS = 120_000
MOST_CLIENTS = 50
MOST_TOOLS = 200

OPEN_FOR = WAITS.query(
    "client_calls",
    """{by:waits_inbox} WHERE tenant = :tenant AND for_entity = :entity_id AND kind = 'tool' AND status = 'open'
       ORDER BY created_at, id LIMIT :limit""",
)


class ClientCall(msgspec.Struct, frozen=True):
    """A call that waits for a client. It is answered by the client, or as any answer to a run's tool."""

    run_id: str
    call_id: str
    tool: str
    args: JsonObject
    custom_ui: str | None
    space_id: str | None
    deadline: int


async def connect(tx: Transaction, entity_id: str, name: str, tools: list[str]) -> Client:
    check_plain_text(name, "name", 200, empty=True)
    if len(tools) > MOST_TOOLS or any(not 0 < len(tool) <= 64 for tool in tools):
        raise Invalid(f"a client has up to {MOST_TOOLS} tools, each with a name of 1 to 64 characters", "tools")
    if len(await tx.find(CLIENTS_OF, entity_id=entity_id, now=tx.now)) >= MOST_CLIENTS:
        raise Conflict(f"{MOST_CLIENTS} clients are connected for {entity_id}; disconnect one")
    until = tx.now + SILENCE_MS
    client = await tx.insert(Client(id=tx.new_id(), entity_id=entity_id, name=name, tools=tools, expires_at=until))
    await set_timer(tx, CLIENT, client.id, until)
    return client


async def stay(tx: Transaction, entity_id: str, id: str) -> Client:
    """It is still there."""
    client = await _mine(tx, entity_id, id)
    until = tx.now + SILENCE_MS
    await set_timer(tx, CLIENT, id, until)
    return await tx.update(client, expires_at=until)


async def disconnect(tx: Transaction, entity_id: str, id: str) -> None:
    await tx.delete(await _mine(tx, entity_id, id))
    await cancel_timer(tx, CLIENT, id)


async def forget_client(tx: Transaction, timer: Timer) -> None:
    """The timer's effect."""
    client = await tx.lock(Client, timer.id)
    if client is not None and client.expires_at <= tx.now:
        await tx.delete(client)


async def clients_of(tx: Snapshot, entity_id: str) -> list[Client]:
    return await tx.find(CLIENTS_OF, entity_id=entity_id, now=tx.now)


async def calls_for(tx: Snapshot, entity_id: str, id: str) -> list[ClientCall]:
    """The calls that wait for this client, the oldest first: those of its entity that name a tool it has."""
    client = await _connected(tx, entity_id, id)
    waits = await tx.find(OPEN_FOR, entity_id=entity_id, limit=500)
    calls = [_call(wait) for wait in waits]
    return [call for call in calls if not client.tools or call.tool in client.tools]


async def answer_call(
    tx: Transaction, entity_id: str, id: str, run_id: str, call_id: str, *, result: Any = None, error: str | None = None
) -> Run:
    """This client's answer to a call of a tool that it has."""
    client = await _connected(tx, entity_id, id)
    call = await tx.get(ToolCall, run_id, call_id)
    run = await tx.get(Run, run_id)
    mine = run is not None and run.owner_id == entity_id and call is not None and call.execution_type == "client"
    if call is None or not mine or (client.tools and call.tool_name not in client.tools):
        raise NotFound(f"run {run_id} has no call {call_id} for this client")
    return await answer_tool(tx, run_id, call_id, result=result, error=error)


async def _connected(tx: Snapshot, entity_id: str, id: str) -> Client:
    client = await tx.get(Client, id)
    if client is None or client.entity_id != entity_id or client.expires_at <= tx.now:
        raise NotFound(f"no client {id} is connected; connect again")
    return client


def _call(wait: Wait) -> ClientCall:
    details = wait.details or {}
    display: JsonObject = details.get("display") or {}
    return ClientCall(
        wait.run_id,
        wait.call_id,
        details.get("tool", ""),
        details.get("args", {}),
        display.get("customUI"),
        wait.space_id,
        wait.deadline,
    )


async def _mine(tx: Transaction, entity_id: str, id: str) -> Client:
    client = await tx.lock(Client, id)
    if client is None or client.entity_id != entity_id:
        raise NotFound(f"no client {id} is connected; connect again")
    return client
