"""Text of an answer while it comes, as it goes over the bus: in which topic, and in which form."""

from typing import Literal

import msgspec


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an answer: `text` stands at `offset` of it. `withdrawn`: forget what came under this id."""

    run_id: str
    stream_id: str
    offset: int = 0
    text: str = ""
    kind: Literal["text", "withdrawn", "done"] = "text"


def stream_topic(tenant: str, run_id: str) -> str:
    return f"stream/{tenant}/{run_id}"


def asking_topic(tenant: str, run_id: str) -> str:
    """Who comes in the middle asks here for the text so far."""
    return f"stream-asked/{tenant}/{run_id}"
