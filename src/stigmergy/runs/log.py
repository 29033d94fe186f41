"""What goes into a run's log. The caller has locked the run and taken the positions.

A text over `LARGEST` bytes is kept whole as a block; the log has its beginning, and says so.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from stigmergy.agents.models.port import Image
from stigmergy.agents.tokens import count_tokens
from stigmergy.kernel.blocks import put_block
from stigmergy.kernel.transaction import Transaction
from stigmergy.runs.model import Part, Role, Run, RunMessage
from stigmergy.runs.texts import sound

LARGEST = 64 * 1024
# What a model sees of a text that is larger: its beginning, in characters.
SHOWN = 16 * 1024


class Kept(NamedTuple):
    """A text as the log has it."""

    content: str
    parts: list[Part] | None
    reference: dict[str, Any] | None


async def kept(tx: Transaction, text: str) -> Kept:
    """The text, or its beginning and where the whole of it is."""
    text = sound(text)
    size = len(text) if text.isascii() else len(text.encode())
    if size <= LARGEST:
        return Kept(text, None, None)
    block = await put_block(tx, text.encode(), "text/plain")
    note = f"\n\n[clipped: {size:,} bytes in all, the first {SHOWN:,} characters are shown; the whole is block {block}]"
    part = Part(kind="text", block=block, media_type="text/plain", size=size)
    return Kept(text[:SHOWN] + note, [part], {"block": block, "size": size, "clipped": True})


async def pictured(tx: Transaction, images: Sequence[Image]) -> list[Part]:
    """Pictures and files, each kept once by its content."""
    return [
        Part(
            kind="image" if image.media_type.startswith("image/") else "file",
            block=await put_block(tx, image.data, image.media_type),
            media_type=image.media_type,
            size=len(image.data),
            name=image.name,
        )
        for image in images
    ]


async def say(
    tx: Transaction,
    run: Run,
    pos: int,
    role: Role,
    content: str,
    *,
    step: int | None = None,
    name: str | None = None,
    tool_call_id: str | None = None,
    parts: list[Part] | None = None,
    model: str = "",
) -> RunMessage:
    """Put a message into the log."""
    message = RunMessage(
        run_id=run.id,
        pos=pos,
        owner_id=run.owner_id,
        space_id=run.space_id,
        step=run.step if step is None else step,
        role=role,
        content=content,
        parts=parts,
        tool_call_id=tool_call_id,
        name=name,
        token_count=count_tokens(content, model),
    )
    return await tx.insert(message)


def as_text(value: Any) -> str:
    """A result as a model reads it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
