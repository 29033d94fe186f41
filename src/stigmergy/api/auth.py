"""Who comes: found out once for every request, before any route.

With a secret, a bearer token says it. Without one the server is bound to loopback and open to whoever is on this machine; then
the Host and Origin headers must be local too, or a web page elsewhere could rebind its name to us or post across sites.
"""

import re
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.types import ASGIApp, Receive, Scope, Send

from stigmergy.access.commands import check_stored
from stigmergy.access.model import GRANTS, SHORTEST_SECRET, Claims, Forbidden, Unauthorized, check_secret, verified
from stigmergy.api.stored_tokens import StoredTokens
from stigmergy.breadcrumbs.audience import Reader
from stigmergy.errors import Invalid
from stigmergy.kernel.database import Database
from stigmergy.kernel.transaction import Scope as UnitScope
from stigmergy.settings import Settings
from stigmergy.triggers.webhooks import CAUSE_HEADER, parse_cause

# What needs no token: whether we are up, and what we are.
OPEN_PATHS = frozenset({"/health", "/openapi.json", "/docs"})
UNKNOWN = Claims("", "", "", ())

LOCAL = Claims("local", "main", "local", GRANTS)


# No more than these: a record may be called `events`, and an agent `trigger`.
_FEED = re.compile(r"/v1/(?:(?:runs|spaces)/[^/]+/)?events")
_KEYED = re.compile(r"/v1/agents/[^/]+/trigger")


def is_feed(path: str) -> bool:
    """Whether this is what an EventSource asks for: a stream without an end, for which a browser token may be in the address."""
    return _FEED.fullmatch(path) is not None


def is_keyed(path: str) -> bool:
    """Whether this is called by programs outside, with a key that the route itself looks at."""
    return _KEYED.fullmatch(path) is not None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open_doors(settings: Settings) -> None:
    """Without a secret everybody who reaches the address may do everything, so it must be loopback."""
    if settings.secret is None and not is_loopback(settings.host):
        raise Invalid(
            f"serving on {settings.host} needs a secret, or everybody who reaches it may do everything: set STIGMERGY_SECRET to"
            f" {SHORTEST_SECRET} or more random characters and make tokens with `stigmergy token create`, or serve on 127.0.0.1",
            "host",
        )
    if settings.secret is not None:
        check_secret(settings.secret)


class Gate:
    """ASGI middleware: puts the claims on the connection, or answers 401 or 403."""

    def __init__(self, app: ASGIApp, *, database: Database, secret: str | None, origins: tuple[str, ...]) -> None:
        self._app = app
        self._clock = database.clock
        self._stored = StoredTokens(database)
        self._secret = secret
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _READ}
            scope["state"]["claims"] = await self._claims(scope["path"], scope["query_string"], headers)
        await self._app(scope, receive, send)

    async def _claims(self, path: str, query: bytes, headers: dict[bytes, str]) -> Claims:
        self._check_origin(headers)
        if self._secret is None:
            return LOCAL
        if path in OPEN_PATHS or is_keyed(path):
            return UNKNOWN
        token, in_address = _token(path, query, headers)
        if token is None:
            raise Unauthorized("this needs a token: send `Authorization: Bearer …`; make one with `stigmergy token create`")
        claims = verified(token, self._secret, self._clock.now())
        if claims.browser and not is_feed(path):
            raise Forbidden("a browser token is for the feed alone")
        if in_address and not claims.browser:
            raise Forbidden("addresses are written into logs: only a token of `POST /v1/tokens/browser` may be in one")
        check_stored(await self._stored.named_by(claims))
        return claims

    def _check_origin(self, headers: dict[bytes, str]) -> None:
        """An Origin is a web page's. Ours, and those that the settings name, may come; and no page may when we are open."""
        host = headers.get(b"host", "")
        if self._secret is None and not is_loopback(_name(host)):
            raise Forbidden(f"the host {host[:100]!r} is not this machine's; use 127.0.0.1 or localhost")
        origin = headers.get(b"origin")
        if origin is not None and origin not in self._origins and self._secret is None and urlsplit(origin).netloc != host:
            raise Forbidden(f"pages of {origin[:100]!r} may not call this server; name it in the setting `origins`")


_READ = frozenset({b"host", b"origin", b"authorization"})


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _token(path: str, query: bytes, headers: dict[bytes, str]) -> tuple[str | None, bool]:
    """The token of a request, and whether it came in the address."""
    scheme, _, token = headers.get(b"authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip(), False
    if is_feed(path):
        for part in query.decode("latin-1").split("&"):
            name, _, value = part.partition("=")
            if name == "token" and value:
                return value, True
    return None, False


def claims_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Claims:
    return connection.scope["state"]["claims"]


def unit_scope(claims: Claims, cause: int | None = None, depth: int = 0) -> UnitScope:
    return UnitScope(claims.tenant, claims.entity, cause, depth)


def cause_of(connection: ASGIConnection[Any, Any, Any, Any]) -> tuple[int | None, int]:
    """The cause and the depth of what this request writes: those of the delivery that a receiver answers by it, if it says so."""
    text = connection.headers.get(CAUSE_HEADER)
    return (None, 0) if text is None else parse_cause(text)


def reader_of(claims: Claims) -> Reader:
    return Reader(claims.entity, everything="operate" in claims.grants)
