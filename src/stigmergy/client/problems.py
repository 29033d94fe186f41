"""An answer that is an error, as the error that a store in the same program would have raised."""

from collections.abc import Iterator

import httpx
import msgspec

from stigmergy.access.model import Forbidden, Unauthorized
from stigmergy.errors import CursorExpired, Invalid, StigmergyError, StoreUnavailable, StoreUnusable

# Answers that may be others in a moment.
PASSING = frozenset({429, 502, 503, 504})
# What is refused for what it says, whatever its code.
REFUSED = frozenset({400, 413, 415, 422})


class Problem(msgspec.Struct):
    """RFC 9457, with what we add to it."""

    detail: str
    code: str
    status: int
    where: str | None = None


def problem(answer: httpx.Response) -> StigmergyError:
    try:
        said = msgspec.json.decode(answer.content, type=Problem)
    except msgspec.DecodeError:
        return _unsaid(answer)
    known = BY_CODE.get(said.code)
    if known is not None and issubclass(known, Invalid):
        return known(said.detail, said.where)
    if known is not None:
        return known(said.detail)
    if said.code == Invalid.code or said.status in REFUSED:
        return Invalid(said.detail, said.where, said.code)
    error = StigmergyError(said.detail)
    error.code, error.status = said.code, said.status
    return error


def _unsaid(answer: httpx.Response) -> StigmergyError:
    """Somebody on the way answered, and not our server."""
    asked = f"{answer.request.method} {answer.request.url.copy_with(query=None)} was answered with {answer.status_code}"
    if answer.status_code in PASSING:
        return StoreUnavailable(f"{asked}; the server cannot be reached now")
    return StoreUnusable(f"{asked}, and not by a Stigmergy server; check the address")


def _all(of: type[StigmergyError]) -> Iterator[type[StigmergyError]]:
    for each in of.__subclasses__():
        yield each
        yield from _all(each)


# those with more to say than a message are made where that is known
BY_CODE = {each.code: each for each in (*_all(StigmergyError), Forbidden, Unauthorized) if each not in (Invalid, CursorExpired)}


def lost(error: httpx.RequestError, url: str) -> StoreUnavailable:
    said = str(error) or type(error).__name__
    return StoreUnavailable(f"{url} cannot be reached ({said}); is the server running, and is this its address?")
