"""How long a request may take: its body to arrive, and then to be answered. A feed has no end and no deadline."""

import asyncio
from typing import TypeAlias

from litestar.types import ASGIApp, Message, Receive, Scope, Send
from litestar.types.asgi_types import HTTPReceiveMessage, WebSocketReceiveMessage

from stigmergy.api.auth import is_feed
from stigmergy.errors import StigmergyError

# Here, since a function's annotations are evaluated each time that it is made.
Received: TypeAlias = HTTPReceiveMessage | WebSocketReceiveMessage


class TooSlow(StigmergyError):
    """The body did not arrive in time."""

    code = "request_timeout"
    status = 408
    retryable = True


class DeadlinePassed(StigmergyError):
    """There is no answer in time. A write that had begun is finished all the same."""

    code = "deadline_passed"
    status = 504
    retryable = True


class Deadline:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_feed(scope["path"]):
            return await self._app(scope, receive, send)
        is_waiting = is_answered = False

        async def received() -> Received:
            nonlocal is_waiting
            is_waiting = True
            message = await receive()
            is_waiting = False
            return message

        async def answered(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            async with asyncio.timeout(self._seconds):
                await self._app(scope, received, answered)
        except TimeoutError:
            if is_answered:
                return  # who does not take the answer has no use for another: the connection is closed
            if is_waiting:
                raise TooSlow(f"the body was not here within {self._seconds:g} seconds; send it faster, or less") from None
            raise DeadlinePassed(
                f"there is no answer within {self._seconds:g} seconds; ask for less at once. A write may have been done: read"
                " before you write again"
            ) from None
