"""What every route does with a request: on whose behalf a unit runs, its headers, and the same answer to the same key."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers import BaseRouteHandler
from litestar.params import HeaderParameter, QueryParameter

from stigmergy.access.model import Claims
from stigmergy.api.auth import cause_of, claims_of, unit_scope
from stigmergy.kernel.database import Database
from stigmergy.kernel.idempotency import answer_key, claim_key
from stigmergy.kernel.transaction import Transaction

T = TypeVar("T")
AnyRequest = Request[Any, Any, State]
IfMatch = Annotated[str | None, HeaderParameter(name="If-Match", description="The version that the caller has seen, in quotes.")]
IfNoneMatch = Annotated[str | None, HeaderParameter(name="If-None-Match", description="A version that the caller has.")]
IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key", min_length=1, max_length=200, description="The same key and body give the first answer."
    ),
]
Cursor = Annotated[str | None, QueryParameter(description="Where the page before ended.")]


def database_of(request: AnyRequest) -> Database:
    return request.app.state.database


async def write(request: AnyRequest, unit: Callable[..., Awaitable[Any]], *args: Any, grant: Any = "write", **kwargs: Any) -> Any:
    claims = claims_of(request)
    claims.demand(grant)
    return await database_of(request).write(unit, *args, scope=unit_scope(claims, *cause_of(request)), **kwargs)


async def read(request: AnyRequest, unit: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
    claims = claims_of(request)
    claims.demand("read")
    return await database_of(request).read(unit, *args, scope=unit_scope(claims), **kwargs)


def operator(request: AnyRequest) -> Claims:
    """An operator's claims; `Forbidden` for everybody else's."""
    claims = claims_of(request)
    claims.demand("operate")
    return claims


def operators_only(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """A guard of routes: others are told so before anything of what they sent is read."""
    claims_of(connection).demand("operate")


async def once(tx: Transaction, route: str, key: str | None, body: bytes, make: Callable[[], Awaitable[T]], kind: type[T]) -> T:
    """What is made, or what was made when this key came first. An answer is remembered with the versions it spoke of."""
    if key is None:
        return await make()
    first = await claim_key(tx, route, key, body)
    if first is not None:
        return msgspec.json.decode(first, type=kind)
    made = await make()
    await answer_key(tx, route, key, msgspec.json.encode(made))
    return made
