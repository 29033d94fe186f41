"""What goes out: a JSON document, encoded straight from what a route gives.

Litestar's own response prepares in every request for cookies, background tasks, texts and encoders of any type, and that was a
fifth of what a request took. Here it is a status, a few headers and a document.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from litestar import Response
from litestar.response.base import ASGIResponse
from litestar.serialization import default_serializer
from litestar.types import HTTPResponseStartEvent, Receive, Scope, Send

T = TypeVar("T")
JSON = "application/json"
# With these goes no document, whatever the route gives.
BODILESS = frozenset({204, 304})

_encode = msgspec.json.Encoder(enc_hook=default_serializer).encode


class JsonResponse(Response[T]):
    """What a route returns in place of its bare value, to say a status or headers with it; and what is made of a bare value."""

    def __init__(
        self,
        content: T,
        *,
        status_code: int | None = None,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        **_: Any,  # what Litestar has for cookies, encoders and tasks, of which there are none
    ) -> None:
        self.content = content
        self.status_code = status_code
        self.headers = dict(headers or {})
        self.media_type = media_type

    def to_asgi_response(self, app: Any, request: Any, *, status_code: int | None = None, **_: Any) -> ASGIResponse:
        return _Sent(self.content, self.status_code or status_code or 200, self.headers, self.media_type or JSON)


class _Sent(ASGIResponse):
    """The two messages of a response."""

    def __init__(self, content: Any, status: int, headers: Mapping[str, str], media_type: str) -> None:
        sent = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self.body = b""
        if status not in BODILESS:
            self.body = _encode(content)
            sent += ((b"content-type", media_type.encode("latin-1")), (b"content-length", b"%d" % len(self.body)))
        self._start: HTTPResponseStartEvent = {"type": "http.response.start", "status": status, "headers": sent}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(self._start)
        await send({"type": "http.response.body", "body": self.body, "more_body": False})
