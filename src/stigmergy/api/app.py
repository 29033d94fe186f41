"""The HTTP application: its routes and its errors, over one open database."""

from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from stigmergy.errors import StigmergyError
from stigmergy.kernel.database import Database

VERSION = version("stigmergy")


class Health(msgspec.Struct):
    """Whether the store answers."""

    status: str
    version: str
    store: str


class Problem(msgspec.Struct, omit_defaults=True):
    """An error in the form of RFC 9457. `code` is stable; `detail` says what was wrong and what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    where: str | None = None


@get("/health", summary="Whether the store answers", operation_id="health", tags=["system"])
async def health(state: State) -> Health:
    database: Database = state.database
    await database.tenants()
    return Health("ok", VERSION, type(database).__name__.removesuffix("Database").lower())


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    return request.app.openapi_schema.to_schema()


def problem(_: Request[Any, Any, Any], error: StigmergyError) -> Response[Problem]:
    where: str | None = getattr(error, "where", None)
    return _answer(
        Problem(f"urn:stigmergy:{error.code}", error.code.replace("_", " "), error.status, str(error), error.code, where)
    )


def http_problem(_: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return _answer(Problem(f"urn:stigmergy:{code}", code.replace("_", " "), error.status_code, error.detail, code))


def _answer(body: Problem) -> Response[Problem]:
    return Response(body, status_code=body.status, media_type="application/problem+json")


def create_app(database: Database) -> Litestar:
    """The application over an open database, which stays its caller's to close."""
    return Litestar(
        route_handlers=[health, openapi],
        state=State({"database": database}),
        exception_handlers={StigmergyError: problem, HTTPException: http_problem},
        openapi_config=OpenAPIConfig(
            title="Stigmergy",
            version=VERSION,
            description="A state and run engine for LLM agents.",
            path="/docs",
            render_plugins=[JsonRenderPlugin()],
        ),
    )
