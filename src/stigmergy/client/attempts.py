"""How often a call is made, and what its caller is told in the end. Pure but for chance.

A wait doubles from one attempt to the next and is partly random, so that many clients do not come back at once. A server that
says when to come back (`Retry-After`) is believed, unless it is too far away.
"""

import random
import time
from email.utils import parsedate_to_datetime

import httpx

from stigmergy.client.calls import Call
from stigmergy.client.problems import PASSING, lost, problem
from stigmergy.errors import NotFound, OutcomeUnknown, StigmergyError, VersionConflict

MOST = 6
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0
FARTHEST_SECONDS = 60.0

# Failures before anything was sent.
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
_GATEWAY = frozenset({502, 504})


class Attempts:
    """Of one call. `failed` and `refused` give the seconds to wait before the next one, or raise what the caller is told."""

    def __init__(self, call: Call, url: str) -> None:
        self._call = call
        self._url = url
        self._made = 0
        self._may_be_done = False

    def failed(self, error: httpx.RequestError) -> float:
        """There was no answer."""
        if not isinstance(error, _UNSENT):
            self._may_be_done = True
        return self._next(lost(error, self._url), None)

    def refused(self, answer: httpx.Response) -> float:
        """There was one, and it is an error."""
        error = problem(answer)
        if answer.status_code not in PASSING:
            raise self._told(error)
        if answer.status_code in _GATEWAY or isinstance(error, OutcomeUnknown):
            self._may_be_done = True
        return self._next(error, retry_after(answer.headers.get("Retry-After")))

    def _next(self, error: StigmergyError, wanted: float | None) -> float:
        self._made += 1
        if not self._call.may_repeat or self._made >= MOST or (wanted or 0) > FARTHEST_SECONDS:
            raise self._unknown(error) if self._may_be_done and not self._call.is_read else error
        return max(backoff(self._made), wanted or 0)

    def _told(self, error: StigmergyError) -> StigmergyError:
        """A condition that no longer holds after an attempt whose answer was lost: perhaps because that one succeeded."""
        conditional = self._call.if_match is not None and isinstance(error, VersionConflict | NotFound)
        return self._unknown(error) if self._may_be_done and conditional else error

    def _unknown(self, error: StigmergyError) -> OutcomeUnknown:
        asked = f"{self._call.method} {self._call.path}"
        unknown = OutcomeUnknown(
            f"the answer to {asked} was lost, and it may have been done: read before you write again ({error})"
        )
        unknown.__cause__ = error
        return unknown


def backoff(made: int) -> float:
    """Seconds after this many attempts."""
    return min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(made - 1, 10)) * random.uniform(0.5, 1)


def retry_after(text: str | None) -> float | None:
    """The seconds that a `Retry-After` asks for, as a number or a date. One that cannot be read asks for nothing."""
    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None
