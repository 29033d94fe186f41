"""Errors on the wire: RFC 9457 problem details with our stable codes."""

import logging
from http import HTTPStatus
from typing import Any, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from stigmergy.errors import StigmergyError

log = logging.getLogger(__name__)


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong. `code` is stable, `detail` says what to do, `where` is the place of the fault."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    where: str | None = None


AnyRequest = Request[Any, Any, Any]


def _answer(status: int, code: str, detail: str, where: str | None = None) -> Response[Problem]:
    body = Problem(f"urn:stigmergy:{code}", code.replace("_", " "), status, detail, code, where)
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
    return Response(body, status_code=status, media_type="application/problem+json", headers=headers)


def of_ours(_: AnyRequest, error: StigmergyError) -> Response[Problem]:
    return _answer(error.status, error.code, str(error), getattr(error, "where", None))


def of_validation(_: AnyRequest, error: ValidationException) -> Response[Problem]:
    """What Litestar and msgspec refuse: a body, a parameter or a header that is not what the route says."""
    faults = cast(list[dict[str, str]], error.extra or [{}])
    return _answer(422, "invalid", faults[0].get("message") or error.detail, faults[0].get("key"))


def of_http(_: AnyRequest, error: HTTPException) -> Response[Problem]:
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    return _answer(error.status_code, code, error.detail or code)


def of_anything(request: AnyRequest, error: Exception) -> Response[Problem]:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(500, "internal", "this is a defect of the server; its log says more")


HANDLERS: dict[int | type[Exception], Any] = {
    StigmergyError: of_ours,
    ValidationException: of_validation,
    HTTPException: of_http,
    Exception: of_anything,
}
