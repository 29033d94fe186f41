"""The bus only says "look". It may lose or repeat messages and never carries truth: a reader is woken, then reads.

A topic is a text such as `changes/main`. A payload is for what may be lost altogether (text deltas of a stream).
Buses between processes deliver into the process's own `LocalBus`, so that there is one way to listen.
"""

import asyncio
import threading
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

# How many payloads a listener may fall behind before the oldest are dropped.
BACKLOG = 256


class Bus(Protocol):
    def publish(self, topic: str, payload: bytes = b"") -> None:
        """Tell whoever listens, in every process on the store. From any thread; never blocks, never raises."""
        ...

    def publish_all(self) -> None:
        """Wake everyone in this process: something changed, and nobody knows what."""
        ...

    def listen(self, topic: str) -> "Listener":
        """Start hearing a topic, from the call on."""
        ...

    async def close(self) -> None: ...


class Listener:
    """What one reader hears of one topic. Wakes coalesce; payloads queue up to a bound."""

    def __init__(self, bus: "LocalBus", topic: str) -> None:
        self.topic = topic
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._payloads: deque[bytes] = deque(maxlen=BACKLOG)

    async def heard_within(self, seconds: float | None = None) -> bool:
        """The same, and whether anything was heard."""
        try:
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        except TimeoutError:
            return False
        self._heard.clear()
        return True

    async def wait(self, seconds: float | None = None) -> list[bytes]:
        """Sleep until there is something to look at, or for that long. Gives the payloads heard since."""
        await self.heard_within(seconds)
        return [self._payloads.popleft() for _ in range(len(self._payloads))]

    def hear(self, payload: bytes) -> None:
        """From any thread: note it, and wake the reader in its own loop."""
        if payload:
            self._payloads.append(payload)
        if self._heard.is_set():
            return
        try:
            on_own_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_own_loop = False
        if on_own_loop:
            self._heard.set()
        else:
            with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
                self._loop.call_soon_threadsafe(self._heard.set)

    def close(self) -> None:
        self._bus.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class LocalBus:
    """The bus inside one process."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._lock = threading.Lock()

    def publish(self, topic: str, payload: bytes = b"") -> None:
        for listener in self._listeners.get(topic, ()):
            listener.hear(payload)

    def publish_all(self) -> None:
        for listeners in list(self._listeners.values()):
            for listener in listeners:
                listener.hear(b"")

    def listen(self, topic: str) -> Listener:
        listener = Listener(self, topic)
        with self._lock:
            self._listeners[topic] = (*self._listeners.get(topic, ()), listener)
        return listener

    def forget(self, listener: Listener) -> None:
        with self._lock:
            left = tuple(other for other in self._listeners.get(listener.topic, ()) if other is not listener)
            if left:
                self._listeners[listener.topic] = left
            else:
                self._listeners.pop(listener.topic, None)

    async def close(self) -> None:
        """Who listens is woken once more, to see that there is nothing to wait for."""
        self.publish_all()
        self._listeners.clear()


def changes_topic(tenant: str) -> str:
    return f"changes/{tenant}"
