"""The HTTP application over one open database: its routes, its gate, its errors."""

from importlib.metadata import version
from typing import Any

import msgspec
from litestar import Litestar, Request, get, post
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.middleware import DefineMiddleware
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from stigmergy.access.model import BROWSER_MS, signed
from stigmergy.api.assembly import preview
from stigmergy.api.auth import Gate, claims_of
from stigmergy.api.breadcrumbs import BreadcrumbRoutes, SchemaRoutes
from stigmergy.api.events import events
from stigmergy.api.feeds import Feeds
from stigmergy.api.input import JsonRequest, refuse_nul
from stigmergy.api.problems import HANDLERS
from stigmergy.errors import Invalid
from stigmergy.kernel.database import Database
from stigmergy.settings import Settings

VERSION = version("stigmergy")


class Health(msgspec.Struct):
    """Whether the store answers."""

    status: str
    version: str
    store: str


class BrowserToken(msgspec.Struct):
    """A token for an EventSource, which cannot set headers: `/v1/events?token=…`."""

    token: str
    expires_in: int


@get("/health", summary="Whether the store answers", operation_id="health", tags=["system"])
async def health(state: State) -> Health:
    database: Database = state.database
    await database.tenants()
    return Health("ok", VERSION, type(database).__name__.removesuffix("Database").lower())


@post("/v1/tokens/browser", summary="A short-lived token for the feed", operation_id="create_browser_token", tags=["system"])
async def browser_token(request: Request[Any, Any, State]) -> BrowserToken:
    settings: Settings = request.app.state.settings
    if settings.secret is None:
        raise Invalid("this server asks for no tokens; open the feed without one", code="no_secret")
    claims = claims_of(request)
    claims.demand("read")
    now = request.app.state.database.clock.now()
    until = min(now + BROWSER_MS, claims.expires_at or now + BROWSER_MS)
    short = msgspec.structs.replace(claims, grants=("read",), expires_at=until, browser=True)
    return BrowserToken(signed(short, settings.secret), (until - now) // 1000)


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    return request.app.openapi_schema.to_schema()


def _cors(origins: tuple[str, ...]) -> CORSConfig:
    return CORSConfig(
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["authorization", "content-type", "idempotency-key", "if-match", "if-none-match", "last-event-id"],
        expose_headers=["etag", "www-authenticate"],
    )


def create_app(database: Database, settings: Settings | None = None) -> Litestar:
    """The application over an open database, which stays its caller's to close."""
    settings = settings or Settings()
    gate = DefineMiddleware(Gate, database=database, secret=settings.secret, origins=settings.origins)
    return Litestar(
        route_handlers=[health, openapi, browser_token, BreadcrumbRoutes, SchemaRoutes, events, preview],
        middleware=[gate],
        state=State({"database": database, "settings": settings, "feeds": Feeds(database)}),
        request_class=JsonRequest,
        before_request=refuse_nul,
        exception_handlers=HANDLERS,
        cors_config=_cors(settings.origins) if settings.origins else None,
        compression_config=CompressionConfig(backend="gzip", minimum_size=2_000, exclude=["/v1/events"]),
        request_max_body_size=settings.max_body,
        logging_config=None,  # the program that serves says where its log goes
        openapi_config=OpenAPIConfig(
            title="Stigmergy",
            version=VERSION,
            description="A state and run engine for LLM agents.",
            path="/docs",
            render_plugins=[JsonRenderPlugin()],
        ),
    )


def end_feeds(app: Litestar) -> None:
    """End every open feed, so that the server can close; their followers come back with their positions."""
    app.state.feeds.end()
