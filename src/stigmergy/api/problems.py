"""Errors on the wire: RFC 9457 problem details with our stable codes."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException, ValidationException

from stigmergy.api.responses import JsonResponse
from stigmergy.errors import Invalid, StigmergyError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
# What the framework refuses, by our own names: its phrases differ from one Python to the next.
CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}


# What the framework says with no more than the status's own name, in sentences that say what to do.
DETAILS = {
    404: "there is no such route; /docs and /openapi.json have those that there are",
    405: "this route does not take this method; OPTIONS says which it takes",
    413: "the body is larger than this server takes; send less at once, or raise its setting `max_body`",
}


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong. `code` is stable, `detail` says what to do, `where` is the place of the fault."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    where: str | None = None


AnyRequest = Request[Any, Any, Any]
_PHRASES = {status.phrase for status in HTTPStatus}


def _answer(
    status: int, code: str, detail: str, where: str | None = None, headers: Mapping[str, str] | None = None
) -> JsonResponse[Problem]:
    body = Problem(f"urn:stigmergy:{code}", code.replace("_", " "), status, detail, code, where)
    return JsonResponse(body, status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def of_ours(_: AnyRequest, error: StigmergyError) -> JsonResponse[Problem]:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else {}
    detail, where = (error.message, error.where) if isinstance(error, Invalid) else (str(error), None)
    return _answer(error.status, error.code, detail, where, headers)


def of_validation(_: AnyRequest, error: ValidationException) -> JsonResponse[Problem]:
    """What Litestar and msgspec refuse: a parameter or a header that is not what the route says."""
    faults = cast(list[dict[str, str]], error.extra or [{}])
    where = faults[0].get("key")
    if where == "data":
        return _answer(422, "invalid", "this needs a JSON document as its body", "body")
    return _answer(422, "invalid", faults[0].get("message") or "a parameter is missing", where)


def of_http(_: AnyRequest, error: HTTPException) -> JsonResponse[Problem]:
    status = error.status_code
    code = CODES.get(status, f"http_{status}")
    headers = dict(error.headers or {})
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        headers["Connection"] = "close"  # what is still to come of the body is not read
    said = error.detail if error.detail and error.detail not in _PHRASES else DETAILS.get(status, code.replace("_", " "))
    return _answer(status, code, said, headers=headers)


def of_anything(request: AnyRequest, error: Exception) -> JsonResponse[Problem]:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(500, "internal", "this is a defect of the server; its log says more")


HANDLERS: dict[int | type[Exception], Any] = {
    StigmergyError: of_ours,
    ValidationException: of_validation,
    HTTPException: of_http,
    Exception: of_anything,
}
