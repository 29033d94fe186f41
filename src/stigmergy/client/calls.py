"""A call: what is asked of the server, and whether it may be asked again."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from stigmergy.errors import Invalid, NotFound


class Call(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str | int] = {}
    body: Any = None
    if_match: int | None = None
    key: str | None = None
    is_read: bool = False
    token: str | None = None

    @property
    def may_repeat(self) -> bool:
        """Whether to ask twice is to ask once: it writes nothing, or at most one of two equal writes succeeds."""
        return self.is_read or self.if_match is not None or self.key is not None

    @property
    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        if self.if_match is not None:
            headers["If-Match"] = f'"{self.if_match}"'
        if self.key is not None:
            headers["Idempotency-Key"] = self.key
        return headers

    @property
    def content(self) -> bytes | None:
        if self.body is None:
            return None
        try:
            return msgspec.json.encode(self.body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Invalid(f"this cannot be written as JSON ({error})", "body") from error


def read(path: str, params: Mapping[str, str | int | None] | None = None) -> Call:
    given = {name: value for name, value in (params or {}).items() if value is not None}
    return Call("GET", path, given, is_read=True)


def breadcrumb_path(id: str, *rest: str) -> str:
    """The address of a breadcrumb. What cannot stand in one names no breadcrumb."""
    return path_of("/v1/breadcrumbs", an_id(id), *rest)


def space_path(id: str, *rest: str) -> str:
    return path_of("/v1/spaces", *(an_id(part, "space") for part in (id, *rest)))


def run_path(id: str, *rest: str) -> str:
    return path_of("/v1/runs", an_id(id, "run"), *rest)


def agent_path(name: str, *rest: str) -> str:
    return path_of("/v1/agents", an_id(name, "agent"), *rest)


def wait_path(id: str, *rest: str) -> str:
    return path_of("/v1/waits", an_id(id, "wait"), *rest)


def entity_path(id: str | None, *rest: str) -> str:
    """Without an id it is that of whoever asks."""
    return path_of("/v1/entities", *(an_id(part, "entity") for part in (id or "me", *rest)))


def path_of(front: str, *parts: str) -> str:
    return "/".join((front, *(quote(part, safe="") for part in parts)))


def an_id(id: str, what: str = "breadcrumb") -> str:
    """An id as it is. What can be none is not asked for."""
    if id in ("", ".", "..") or "/" in id or "\0" in id:
        raise NotFound(f"no {what} {id}")
    return id


def schema_path(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Invalid("this cannot stand in an address, so a schema with this name cannot be put over HTTP", "name")
    return f"/v1/schemas/{quote(name, safe='')}"


def server_url(given: str) -> str:
    try:
        parts = urlsplit(given)
        complete = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        complete = False
    if not complete:
        raise Invalid(f"{given[:100]!r} is no address of a server, such as http://127.0.0.1:8420", "url")
    return given.rstrip("/")


def server_headers(token: str | None) -> dict[str, str]:
    agent = {"User-Agent": f"stigmergy/{version('stigmergy')}"}
    if token is None:
        return agent
    if not token.isascii() or not token.isprintable():
        raise Invalid("a token is one line of plain characters; make one with `stigmergy token create`", "token")
    return agent | {"Authorization": f"Bearer {token}"}
