"""Tokens given out, listed, revoked."""

from stigmergy.access.model import TOKENS, Claims, Grant, Token, Unauthorized
from stigmergy.errors import NotFound
from stigmergy.kernel.transaction import Snapshot, Transaction

LIST = TOKENS.query("all", "WHERE tenant = :tenant ORDER BY tenant, id")


async def create_token(
    tx: Transaction, entity: str, grants: list[Grant], *, note: str = "", expires_at: int | None = None
) -> Claims:
    """Give out a token. Its text is the signed claims, which only the caller can make."""
    token = await tx.insert(Token(id=tx.new_id(), entity=entity, grants=grants, note=note, expires_at=expires_at))
    return Claims(token.id, tx.tenant, entity, tuple(grants), expires_at)


async def revoke_token(tx: Transaction, id: str) -> Token:
    token = await tx.lock(Token, id)
    if token is None:
        raise NotFound(f"no token {id}")
    return token if token.revoked_at is not None else await tx.update(token, revoked_at=tx.now)


async def list_tokens(tx: Snapshot) -> list[Token]:
    return await tx.find(LIST)


def check_stored(token: Token | None) -> None:
    """Genuine claims are good only as long as the token they name is there and not revoked."""
    if token is None or token.revoked_at is not None:
        raise Unauthorized("this token was revoked; make a new one with `stigmergy token create`")
