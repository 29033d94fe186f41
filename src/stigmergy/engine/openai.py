"""A run's monologue in the shape that OpenAI's protocol has for messages, and with it many other programs.

An assistant's calls stand in its message, their arguments as text; the results follow it in the order of the calls.
"""

from typing import NamedTuple

from stigmergy.agents.models.port import Message
from stigmergy.engine.prompt import groups_of
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs import queries
from stigmergy.runs.model import JsonObject


class OpenAIPage(NamedTuple):
    """Some of them: of how many entries of the log they were made, and the position of the last of these."""

    messages: list[JsonObject]
    size: int
    last: int | None


async def openai_messages(tx: Snapshot, id: str, *, after: int = 0, limit: int = 200) -> OpenAIPage:
    rows = await queries.messages(tx, id, after=after, limit=limit)
    calls = await queries.calls(tx, id, from_step=min((row.step for row in rows), default=0))
    system = [Message("system", row.content) for row in rows if row.role == "system"]
    said = [message for group in groups_of(rows, calls) for message in group.messages]
    placed = {message.tool_call_id for message in said if message.role == "tool"}
    # results of calls that stood on the page before
    first = [Message("tool", row.content, tool_call_id=row.tool_call_id) for row in rows if _is_left(row.tool_call_id, placed)]
    shown = [as_openai(message) for message in (*system, *first, *said)]
    return OpenAIPage(shown, len(rows), rows[-1].pos if rows else None)


def _is_left(call_id: str | None, placed: set[str | None]) -> bool:
    return call_id is not None and call_id not in placed


def as_openai(message: Message) -> JsonObject:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}
