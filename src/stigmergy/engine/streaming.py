"""Text while it comes: over the bus, never in the store. What is stored later carries the same `stream_id`.

A piece says where it belongs, so that a reader who missed something knows. Who connects in the middle asks, and whoever is
thinking sends the text so far. What was streamed by a step that came to nothing is withdrawn.
"""

import asyncio
from functools import cached_property

import msgspec

from stigmergy.kernel.bus import Bus, Listener
from stigmergy.kernel.ids import new_id
from stigmergy.runs.pieces import Piece, asking_topic, stream_topic
from stigmergy.runs.texts import sound

# How long pieces are gathered before they are sent, and how large one is at the most (PostgreSQL's NOTIFY takes 8,000 bytes).
GATHER_SECONDS = 0.02
LARGEST_PIECE = 1_200


class Stream:
    """One answer on its way."""

    def __init__(self, bus: Bus, tenant: str, run_id: str) -> None:
        self._bus = bus
        self._tenant = tenant
        self._run_id = run_id
        self._text: list[str] = []
        self._sent = 0
        self._pending: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None
        self._answering: asyncio.Task[None] | None = None

    @cached_property
    def id(self) -> str:
        return new_id()

    @property
    def was_used(self) -> bool:
        return bool(self._sent or self._pending)

    def add(self, text: str) -> None:
        """The next piece. Pieces that come quickly are sent together."""
        self._pending.append(sound(text))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._flush)

    def _flush(self) -> None:
        self._timer = None
        text = "".join(self._pending)
        self._pending.clear()
        self._text.append(text)
        self._send(text, self._sent)
        self._sent += len(text)
        if self._answering is None:
            self._listener = self._bus.listen(asking_topic(self._tenant, self._run_id))
            self._answering = asyncio.create_task(self._answer(self._listener), name=f"stream {self.id}")

    async def _answer(self, listener: Listener) -> None:
        """Send the text so far to whoever asks for it."""
        while True:
            await listener.wait()
            self._send("".join(self._text), 0)

    def _send(self, text: str, offset: int) -> None:
        for at in range(0, len(text), LARGEST_PIECE):
            self._publish(Piece(self._run_id, self.id, offset + at, text[at : at + LARGEST_PIECE]))

    def _publish(self, piece: Piece) -> None:
        self._bus.publish(stream_topic(self._tenant, self._run_id), msgspec.json.encode(piece))

    def withdraw(self) -> None:
        """It came to nothing."""
        if self._sent:
            self._publish(Piece(self._run_id, self.id, kind="withdrawn"))
        self._end()

    def close(self) -> None:
        """The whole of it is stored."""
        if self._sent:
            self._publish(Piece(self._run_id, self.id, self._sent, kind="done"))
        self._end()

    def _end(self) -> None:
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._answering is not None:
            self._answering.cancel()
            self._answering = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def withdraw_all(bus: Bus, tenant: str, run_id: str) -> None:
    """Whatever a worker that is gone had streamed of this run came to nothing."""
    bus.publish(stream_topic(tenant, run_id), msgspec.json.encode(Piece(run_id, "*", kind="withdrawn")))
