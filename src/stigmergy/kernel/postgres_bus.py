"""The bus between processes on one PostgreSQL: NOTIFY after the commit, coalesced, on a connection of its own.

Inside the transaction NOTIFY would serialise commits. What is lost with a connection is made up for by a poll: everybody
is told to look again.
"""

import asyncio
import base64
import logging
import secrets
from typing import Any

from stigmergy.kernel.bus import Listener, LocalBus
from stigmergy.kernel.postgres_schema import Connection, connect

log = logging.getLogger(__name__)

CHANNEL = "stigmergy"
# PostgreSQL takes 8,000 bytes; a payload that does not fit is lost, as the contract allows.
LARGEST = 7_900
POLL_SECONDS = 5.0
# A server that says nothing for so long is taken for gone.
ANSWER_SECONDS = 10.0
NOTIFY = "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message"


class PostgresBus:
    def __init__(self, url: str, poll_seconds: float = POLL_SECONDS) -> None:
        self._url = url
        self._poll_seconds = poll_seconds
        self._local = LocalBus()
        self._self = secrets.token_hex(4)
        self._out: dict[str, None] = {}
        self._pending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._keep_connected(), name="postgres bus")
        await self._ready.wait()

    def publish(self, topic: str, payload: bytes = b"") -> None:
        self._local.publish(topic, payload)
        message = f"{self._self} {topic} {base64.b85encode(payload).decode()}"
        if len(message) <= LARGEST:
            self._out[message] = None
            self._pending.set()

    def publish_all(self) -> None:
        self._local.publish_all()

    def listen(self, topic: str) -> Listener:
        return self._local.listen(topic)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._local.close()

    async def _keep_connected(self) -> None:
        while True:
            try:
                connection = await connect(self._url)
                try:
                    await connection.add_listener(CHANNEL, self._hear)
                    self._ready.set()
                    self._local.publish_all()
                    await self._carry(connection)
                finally:
                    connection.terminate()
            except Exception as error:  # whatever it was: without a bus everybody would wait for ever
                why = f"{type(error).__name__}: {error}"
                log.warning("the bus has no connection to PostgreSQL (%s); followers look every %g s", why, self._poll_seconds)
                self._ready.set()
                await asyncio.sleep(min(1.0, self._poll_seconds))
                self._local.publish_all()

    async def _carry(self, connection: Connection) -> None:
        while True:
            try:
                async with asyncio.timeout(self._poll_seconds):
                    await self._pending.wait()
            except TimeoutError:
                self._local.publish_all()
                await connection.execute("SELECT 1", timeout=ANSWER_SECONDS)
            self._pending.clear()
            messages, self._out = list(self._out), {}
            if messages:
                await connection.execute(NOTIFY, CHANNEL, messages, timeout=ANSWER_SECONDS)

    def _hear(self, connection: Any, process: int, channel: str, message: object) -> None:
        sender, topic, payload = str(message).split(" ", 2)
        if sender != self._self:
            self._local.publish(topic, base64.b85decode(payload))
