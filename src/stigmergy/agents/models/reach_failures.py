"""What went wrong on the way to a provider, as `ModelFailed`: can trying again help, when, and what is to be done."""

from typing import Any, cast

import httpx2
from pydantic import ValidationError
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)

from stigmergy.agents.models.port import ModelFailed

_AGAIN = (408, 409, 425, 429)

# The first that fits: what it is called, and whether trying again can help.
_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, bool], ...] = (
    (
        ModelContextWindowExceededError,
        "was given more than fits its window; lower the agent's `history_tokens`",
        False,
    ),
    (ModelAuthenticationError, "refused the key; check the provider's variable in the worker's environment", False),
    (ModelNotFoundError, "was not found; check its name and, for a server of your own, the URL", False),
    (ModelQuotaExceededError, "refused because the account's quota is used up", False),
    (ModelRequestRejectedError, "rejected the request", False),
    (ModelRateLimitError, "is asked too often", True),
    (ModelUnavailableError, "is not available now", True),
    (ModelServerError, "failed on the provider's side", True),
    (ModelTimeoutError, "did not answer in time", True),
    (ModelRequestTimeout, "did not answer in time", True),
    (ModelConnectionError, "could not be reached, or the connection broke", True),
    (ContentFilterError, "was stopped by the provider's content filter", False),
    (UnexpectedModelBehavior, "answered what cannot be understood", True),
    ((AttributeError, LookupError, ValidationError), "answered what cannot be understood", True),
    (UserError, "cannot take this request", False),
    (TimeoutError, "did not answer in time", True),
    (OSError, "could not be reached, or the connection broke", True),
    (httpx2.TimeoutException, "did not answer in time", True),
    (httpx2.TransportError, "could not be reached, or the connection broke", True),
    (httpx2.StreamError, "could not be reached, or the connection broke", True),
)


def failed(error: Exception, name: str) -> ModelFailed:
    what, again = next(((what, again) for kind, what, again in _KINDS if isinstance(error, kind)), (None, False))
    if what is None and isinstance(error, ModelHTTPError):
        what, again = f"answered with status {error.status_code}", error.status_code in _AGAIN or error.status_code >= 500
    elif what is None and isinstance(error, ModelAPIError):
        what, again = "answered what cannot be understood", True
    said = _said(error)
    message = f"{name} {what or 'cannot be asked like this'}" + (f": {said}" if said else "")
    return ModelFailed(message, retryable=again, retry_after=_retry_after(error) if again else None)


def _said(error: Exception) -> str:
    """The provider's own words."""
    body: Any = getattr(error, "body", None)
    for _ in range(2):
        if isinstance(body, dict):
            fields = cast(dict[str, Any], body)
            body = fields.get("message") or fields.get("error") or fields.get("detail")
    said = body if isinstance(body, str) and body else f"{error}" or type(error).__name__
    return " ".join(said.split())[:400]


def _retry_after(error: Exception) -> float | None:
    if not isinstance(error, ModelAPIError):
        return None
    if error.retry_after is not None or not isinstance(error, ModelHTTPError):
        return error.retry_after
    try:  # a fraction of a second, which the standard does not know and servers send
        seconds = float((error.headers or {}).get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
