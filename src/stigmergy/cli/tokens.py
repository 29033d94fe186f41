"""`stigmergy token`: who may come in, given out, listed, revoked."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from stigmergy.access.commands import create_token, list_tokens, revoke_token
from stigmergy.access.model import SHORTEST_SECRET, Grant, Token, check_secret, signed
from stigmergy.cli.store import AsJson, Store, opened, out, print_json
from stigmergy.errors import Invalid
from stigmergy.kernel.clock import SystemClock
from stigmergy.kernel.transaction import Scope
from stigmergy.settings import Settings, load

DAY_MS = 24 * 3600 * 1000

Tenant = Annotated[str, Parameter(help="Whose data the token opens.")]

app = App(name="token", help="Tokens: who may come in, and what they may do.")


@app.command
def create(
    entity: str,
    *,
    tenant: Tenant = "main",
    grant: Annotated[list[Grant] | None, Parameter(help="What it allows; may be given more than once. Unset: read.")] = None,
    days: Annotated[int | None, Parameter(help="How long it is good. Unset: until it is revoked.")] = None,
    note: Annotated[str, Parameter(help="What it is for, for those who list tokens.")] = "",
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Make a token and show it, this once. The server and this command must have the same secret.

    Parameters
    ----------
    entity
        Who comes with it: a person's name, an agent's.
    """
    settings = load({"store": store})
    secret = _secret(settings)
    if days is not None and not 0 < days <= 36_500:
        raise Invalid("a token is good for 1 to 36,500 days", "--days")
    if not entity or len(entity) > 200 or not entity.isprintable():
        raise Invalid("an entity has 1 to 200 printable characters", "entity")
    expires_at = None if days is None else SystemClock().now() + days * DAY_MS
    grants = list(dict.fromkeys(grant or ["read"]))
    claims = _run(settings, create_token, entity, grants, note=note, expires_at=expires_at, tenant=tenant)
    token = signed(claims, secret)
    if json:
        return print_json({"token": token, "id": claims.id, "tenant": tenant, "entity": entity, "grants": grants})
    out.print(token, markup=False)


@app.command(name="list")
def all(*, tenant: Tenant = "main", store: Store = None, json: AsJson = False) -> None:
    """Show the tokens of a tenant; their texts are not kept."""
    tokens: list[Token] = _run(load({"store": store}), list_tokens, tenant=tenant)
    if json:
        return print_json([_shown(token) for token in tokens])
    for token in tokens:
        state = "revoked" if token.revoked_at else f"until {_day(token.expires_at)}" if token.expires_at else "for good"
        text = f"{token.id}  {token.entity}  {', '.join(token.grants)}  {state}  {token.note}"
        out.print(text.rstrip(), markup=False)


@app.command
def revoke(id: str, *, tenant: Tenant = "main", store: Store = None) -> None:
    """Let a token open nothing any more, from this moment on.

    Parameters
    ----------
    id
        The token's id, as `stigmergy token list` shows it.
    """
    _run(load({"store": store}), revoke_token, id, tenant=tenant)
    out.print(f"Token {id} is revoked.", markup=False)


def _secret(settings: Settings) -> str:
    if settings.secret is None:
        raise Invalid(
            f"a token is signed with the server's secret: set STIGMERGY_SECRET to {SHORTEST_SECRET} or more random characters",
            "secret",
        )
    check_secret(settings.secret)
    return settings.secret


def _run(settings: Settings, unit: Any, *args: Any, tenant: str, **kwargs: Any) -> Any:
    async def run() -> Any:
        async with opened(settings, may_migrate=True) as database:
            return await database.write(unit, *args, scope=Scope(tenant, "cli"), **kwargs)

    return asyncio.run(run())


def _shown(token: Token) -> dict[str, Any]:
    fields = msgspec.to_builtins(token)
    names = ("id", "entity", "grants", "note", "created_at", "expires_at", "revoked_at")
    return {name: _moment(fields[name]) if name.endswith("_at") else fields[name] for name in names}


def _moment(ms: int | None) -> str | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()
