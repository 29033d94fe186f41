"""Requests that are measured, and the page that shows the measurements."""

from typing import Any

from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from stigmergy.api.auth import claims_of
from stigmergy.errors import NotFound
from stigmergy.telemetry import CONTENT_TYPE, Telemetry


class Observe:
    """ASGI middleware: each request is one operation, named by its route."""

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        route = scope.get("path_template") or "unknown"
        with self._telemetry.timed("request", f"{scope['method']} {route}", carrier=headers) as attributes:

            async def note_status(message: Message) -> None:
                if message["type"] == "http.response.start":
                    attributes["http.response.status_code"] = message["status"]
                await send(message)

            await self._app(scope, receive, note_status)


@get("/metrics", include_in_schema=False)
async def metrics(request: Request[Any, Any, State]) -> Response[bytes]:
    """In Prometheus' text format. An operator's to see: names of routes and units are the program's own business."""
    telemetry: Telemetry | None = request.app.state.telemetry
    claims_of(request).demand("operate")
    if telemetry is None:
        raise NotFound("there are no metrics: set STIGMERGY_TELEMETRY to `metrics` or `all`")
    return Response(telemetry.exposition(), media_type=CONTENT_TYPE)
