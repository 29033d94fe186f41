"""Tokens: what they say, how they are signed. A token is `stg.<claims>.<signature>`, HMAC-SHA256 over the claims.

The claims alone say who comes: tenant and entity are never taken from a path or a body. A stored token can be revoked; a
browser token is not stored and lives for minutes, since an EventSource can only carry it in its address.
"""

import base64
import hashlib
import hmac
from functools import lru_cache
from typing import Literal

import msgspec

from stigmergy.errors import Invalid, StigmergyError
from stigmergy.kernel.record import Record, declare

Grant = Literal["read", "write", "operate"]
GRANTS: tuple[Grant, ...] = ("read", "write", "operate")
BROWSER_MS = 5 * 60 * 1000
SHORTEST_SECRET = 16

_PREFIX = "stg"


class Unauthorized(StigmergyError):
    """There is no token, or it opens nothing."""

    code = "unauthorized"
    status = 401


class Forbidden(StigmergyError):
    """The token does not allow this, or the caller's Host or Origin is not welcome."""

    code = "forbidden"
    status = 403


class Token(Record, frozen=True, kw_only=True):
    """A token that was given out. Its text is not stored: who loses it asks for a new one."""

    id: str
    entity: str
    grants: list[Grant]
    note: str = ""
    expires_at: int | None = None
    revoked_at: int | None = None


TOKENS = declare(Token, "tokens", path="tokens/{id}")


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who comes with a token. `id` is that of a stored token; a browser token has the one it was made with."""

    id: str
    tenant: str
    entity: str
    grants: tuple[Grant, ...]
    expires_at: int | None = None
    browser: bool = False

    def demand(self, grant: Grant) -> None:
        if grant not in self.grants:
            raise Forbidden(f"this needs the grant `{grant}`; the token has {', '.join(self.grants) or 'none'}")


def check_secret(secret: str) -> None:
    if len(secret) < SHORTEST_SECRET:
        raise Invalid(f"a secret has at least {SHORTEST_SECRET} characters", "secret")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Claims)


def signed(claims: Claims, secret: str) -> str:
    body = _base64(_encoder.encode(claims))
    return f"{_PREFIX}.{body}.{_signature(body, secret)}"


def verified(token: str, secret: str, now: int) -> Claims:
    """The claims of a token that is genuine and not expired."""
    claims = _genuine(token, secret)
    if claims.expires_at is not None and claims.expires_at <= now:
        raise Unauthorized("this token has expired; make a new one with `stigmergy token create`")
    return claims


@lru_cache(4_096)
def _genuine(token: str, secret: str) -> Claims:
    """The claims of a token with our signature: the same for ever, so those that come again are known."""
    prefix, _, rest = token.partition(".")
    body, _, signature = rest.partition(".")
    if prefix != _PREFIX or not hmac.compare_digest(signature.encode(), _signature(body, secret).encode()):
        raise Unauthorized("this token is not one of ours; make one with `stigmergy token create`")
    return _decoder.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def _signature(body: str, secret: str) -> str:
    return _base64(hmac.digest(secret.encode(), body.encode("utf-8", "surrogatepass"), hashlib.sha256))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
