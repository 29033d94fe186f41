"""The prompt of any past step, rebuilt from the rows: exactly the messages that were handed to the model."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec

from stigmergy.agents.models.port import Message, ToolShown
from stigmergy.agents.tokens import count_tokens
from stigmergy.engine.prompt import Rewritten, canonical
from stigmergy.errors import NotFound, StigmergyError
from stigmergy.kernel.blocks import get_block
from stigmergy.kernel.transaction import Snapshot
from stigmergy.runs import store
from stigmergy.runs.model import RunMessage, StepPrompt


class PromptPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a prompt and how many tokens it has: the instructions, a block by its hash, the history, the engine's remarks,
    the tools."""

    what: Literal["instructions", "block", "history", "remarks", "tools"]
    tokens: int
    block: str | None = None


class PastPrompt(msgspec.Struct, frozen=True):
    """What a model was asked in a step, and what that was made of. The parts are as they were composed, before any hook."""

    run_id: str
    step: int
    model: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolShown, ...]
    made_of: StepPrompt
    parts: tuple[PromptPart, ...] = ()


async def prompt_of(tx: Snapshot, run_id: str, step: int) -> PastPrompt:
    await store.the_run(tx, run_id)
    found = await tx.find(store.OF_STEP, run_id=run_id, step=step)
    if not found or found[0].prompt is None:
        raise NotFound(f"run {run_id} has no step {step}")
    about = found[0].prompt
    tools: tuple[ToolShown, ...] = ()
    if about.tools is not None:
        tools = msgspec.json.decode((await get_block(tx, about.tools)).body, type=tuple[ToolShown, ...])
    composed = await _messages(tx, run_id, about)
    messages = composed
    if about.rewritten is not None:
        messages = msgspec.json.decode((await get_block(tx, about.rewritten)).body, type=Rewritten).applied(composed)
    parts = tuple(_parts(composed, tools, about, partial(count_tokens, model=found[0].model or "")))
    return PastPrompt(run_id, step, found[0].model, messages, tools, about, parts)


def _parts(
    messages: Sequence[Message], tools: Sequence[ToolShown], about: StepPrompt, count: Callable[[str], int]
) -> Iterator[PromptPart]:
    """What the prompt was made of, in its order."""
    end = len(messages) - len(about.notes)
    begin = next((place for place, message in enumerate(messages[:end]) if message.role != "system"), end)
    blocks = begin - len(about.blocks)
    if blocks > 0:
        yield PromptPart("instructions", sum(count(message.content) for message in messages[:blocks]))
    for hash_, message in zip(about.blocks, messages[blocks:begin], strict=True):
        yield PromptPart("block", count(message.content), hash_)
    yield PromptPart("history", sum(count(_whole(message)) for message in messages[begin:end]))
    if about.notes:
        yield PromptPart("remarks", sum(count(note) for note in about.notes))
    if tools:
        yield PromptPart("tools", count(msgspec.json.encode(tools).decode()), about.tools)


def _whole(message: Message) -> str:
    """The text of a message with what it asks of tools."""
    return "\n".join((message.content, *(f"{call.name} {call.arguments}" for call in message.tool_calls)))


async def _messages(tx: Snapshot, run_id: str, about: StepPrompt) -> tuple[Message, ...]:
    size = about.upto - about.first + 1
    rows = await tx.find(store.MESSAGES_FROM, run_id=run_id, after=about.first - 1, upto=about.upto, limit=size)
    if about.first > 1:
        rows[:0] = await tx.find(store.SYSTEM_MESSAGE, run_id=run_id)
    first_step = min((row.step for row in rows if row.role != "system"), default=0)
    calls = await tx.find(store.CALLS_FROM, run_id=run_id, step=first_step)
    blocks = {hash_: (await get_block(tx, hash_)).body.decode() for hash_ in about.blocks}
    return canonical(rows, calls, about, blocks, await _pictures(tx, rows))


async def _pictures(tx: Snapshot, rows: list[RunMessage]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for part in (part for row in rows for part in row.parts or () if part.kind == "image"):
        try:
            found[part.block] = (await get_block(tx, part.block)).body
        except StigmergyError:
            continue
    return found
