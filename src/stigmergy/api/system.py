"""What a server says of itself: its health, its description, tokens for browsers."""

from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.datastructures import State

from stigmergy.access.model import BROWSER_MS, signed
from stigmergy.api.agents import AgentRoutes
from stigmergy.api.assembly import preview
from stigmergy.api.auth import claims_of
from stigmergy.api.breadcrumbs import BreadcrumbRoutes, SchemaRoutes
from stigmergy.api.clients import ClientRoutes
from stigmergy.api.deliveries import DeliveryRoutes
from stigmergy.api.document import document
from stigmergy.api.entities import EntityRoutes
from stigmergy.api.events import events
from stigmergy.api.messages import MessageRoutes
from stigmergy.api.runs import RunRoutes
from stigmergy.api.search import search
from stigmergy.api.service_keys import ServiceKeyRoutes, trigger_agent
from stigmergy.api.space_events import space_events
from stigmergy.api.spaces import SpaceRoutes
from stigmergy.api.sub_agents import SubAgentRoutes
from stigmergy.api.tasks import TaskRoutes
from stigmergy.api.triggers import TriggerRoutes
from stigmergy.api.waits import WaitRoutes
from stigmergy.api.wire import BrowserToken, Health
from stigmergy.errors import Invalid
from stigmergy.kernel.database import Database
from stigmergy.settings import Settings

VERSION = version("stigmergy")
# The page draws what the server describes, with its own script and nobody else's.
PAGE_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"


@get("/health", summary="Whether the store answers", operation_id="health", tags=["system"])
async def health(request: Request[Any, Any, State]) -> Health:
    database: Database = request.app.state.database
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


ROUTES: tuple[Any, ...] = (
    health,
    browser_token,
    BreadcrumbRoutes,
    SchemaRoutes,
    search,
    events,
    preview,
    TriggerRoutes,
    DeliveryRoutes,
    TaskRoutes,
    SubAgentRoutes,
    AgentRoutes,
    RunRoutes,
    WaitRoutes,
    SpaceRoutes,
    MessageRoutes,
    space_events,
    EntityRoutes,
    ClientRoutes,
    ServiceKeyRoutes,
    trigger_agent,
)


@lru_cache(1)
def _document() -> bytes:
    return msgspec.json.encode(document(ROUTES, VERSION))


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi() -> Response[bytes]:
    return Response(_document(), media_type=MediaType.JSON)


@get("/docs", include_in_schema=False, sync_to_thread=False)
def docs() -> Response[str]:
    page = files("stigmergy.api").joinpath("docs.html").read_text("utf-8")
    return Response(page, media_type=MediaType.HTML, headers={"Content-Security-Policy": PAGE_POLICY})
