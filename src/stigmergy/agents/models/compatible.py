"""Servers of one's own that speak OpenAI's protocol: `openai-compatible:MODEL@https://host/v1`.

A server's key is in the environment as `STIGMERGY_KEY_` and its host: an agent's definition, which may come from anyone, names a
host, and so can send no other host's key there. A key is sent over TLS or to this machine alone.
"""

import os
import re
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from stigmergy.errors import Invalid

COMPATIBLE = "openai-compatible"

_HOST = re.compile(r"[a-z0-9]+(-+[a-z0-9]+)*(\.[a-z0-9]+(-+[a-z0-9]+)*)*|[0-9a-f:]*:[0-9a-f:]*")


class Server(msgspec.Struct, frozen=True):
    """A server that speaks OpenAI's protocol, and the model asked of it."""

    model: str
    url: str
    host: str

    @property
    def key_variable(self) -> str:
        """`api.my-host.io` → `STIGMERGY_KEY_API_MY__HOST_IO`: no two hosts share one."""
        return "STIGMERGY_KEY_" + self.host.upper().replace(":", "___").replace("-", "__").replace(".", "_")

    @property
    def key(self) -> str | None:
        return os.environ.get(self.key_variable)


def compatible_server(name: str) -> Server:
    """`Invalid` for what is not `openai-compatible:MODEL@URL`, or for a key that would go over the net in the open."""
    model, at, url = name.removeprefix(f"{COMPATIBLE}:").partition("@")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise Invalid(f"{url!r} is no URL ({error})", "model", "unknown_model") from None
    if not (model and at and host) or parts.scheme not in ("http", "https") or _HOST.fullmatch(host) is None:
        raise Invalid(f"write {COMPATIBLE}:MODEL@https://host/v1, not {name!r}", "model", "unknown_model")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Invalid("keys belong in the environment, and a server's URL ends with its path", "model", "unknown_model")
    server = Server(model, url, host)
    if server.key is not None and parts.scheme != "https" and not _here(host):
        raise Invalid(f"the key in {server.key_variable} would be sent without TLS; use https", "model", "unknown_model")
    return server


def _here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
