"""The HTTP application over one open database: its routes, its gate, its errors."""

from typing import Any

from litestar import Litestar, Request
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.middleware import DefineMiddleware

from stigmergy.api.auth import Gate
from stigmergy.api.compression import Compress
from stigmergy.api.deadline import Deadline
from stigmergy.api.feeds import Feeds
from stigmergy.api.input import JsonRequest, refuse_nul
from stigmergy.api.observed import Observe, metrics
from stigmergy.api.problems import HANDLERS
from stigmergy.api.responses import JsonResponse
from stigmergy.api.system import ROUTES, docs, openapi
from stigmergy.breadcrumbs.embeddings import open_embedder
from stigmergy.breadcrumbs.search import Searcher
from stigmergy.kernel.database import Database
from stigmergy.settings import Settings
from stigmergy.telemetry import Telemetry


def create_app(
    database: Database, settings: Settings | None = None, telemetry: Telemetry | None = None, searcher: Searcher | None = None
) -> Litestar:
    """The application over an open database, which stays its caller's to close; so does the searcher."""
    settings = settings or Settings()
    searcher = searcher or Searcher(open_embedder(settings))
    gate = DefineMiddleware(Gate, database=database, secret=settings.secret, origins=settings.origins)
    deadline = DefineMiddleware(Deadline, seconds=settings.request_seconds)
    observe = [DefineMiddleware(Observe, telemetry=telemetry)] if telemetry is not None else []
    return Litestar(
        route_handlers=[*ROUTES, openapi, docs, metrics],
        middleware=[*observe, deadline, Compress, gate],
        state=State(
            {
                "database": database,
                "settings": settings,
                "feeds": Feeds(database),
                "searcher": searcher,
                "telemetry": telemetry,
            }
        ),
        request_class=JsonRequest,
        response_class=JsonResponse,
        before_request=_first,
        exception_handlers=HANDLERS,
        cors_config=_cors(settings.origins) if settings.origins else None,
        request_max_body_size=settings.max_body,
        logging_config=None,  # the program that serves says where its log goes
        openapi_config=None,  # see `document`
    )


async def _first(request: Request[Any, Any, Any]) -> JsonResponse[None] | None:
    """Before any route: refuse what none takes; and answer OPTIONS, of which Litestar says only one route's methods.

    It is a coroutine because Litestar gives a plain function a thread of the loop's own pool, for every request: a hop that
    costs more than the route, and no request moves while a program has that pool filled with calls of its own."""
    refuse_nul(request)
    if request.method != "OPTIONS":
        return None
    template = request.scope["path_template"]
    methods = {str(method) for route in request.app.routes if route.path_format == template for method in route.methods}
    return JsonResponse(None, status_code=204, headers={"Allow": ", ".join(sorted(methods))})


def _cors(origins: tuple[str, ...]) -> CORSConfig:
    return CORSConfig(
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["authorization", "content-type", "idempotency-key", "if-match", "if-none-match", "last-event-id"],
        expose_headers=["etag", "www-authenticate"],
    )


def end_feeds(app: Litestar) -> None:
    """End every open feed, so that the server can close; their followers come back with their positions."""
    feeds: Feeds = app.state.feeds
    feeds.end()
