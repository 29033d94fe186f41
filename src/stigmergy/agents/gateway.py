"""Gateway tools: an HTTP call that the tool's config describes, filled in with the model's arguments.

`{{input.city}}` and `{{secret.NAME}}` stand in the path and query of the url, in headers and in the body. An argument cannot
change where the call goes: the host is fixed in the config, and what is put into a url is escaped. Secrets come by name from
the server's environment (`STIGMERGY_SECRET_<NAME>`); they are in no record, and where an answer repeats one, it is taken out.

No redirect is followed, answers are bounded in size and time, and addresses that are private to the server's network are called
only where the settings allow it; asked of the address that is connected to, so that no name can be pointed elsewhere.
"""

import asyncio
import os
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from stigmergy.agents.model import JsonObject, ToolSpec
from stigmergy.errors import Invalid, StigmergyError
from stigmergy.net import AddressRefused, Reach

SECRET_PREFIX = "STIGMERGY_SECRET_"
LARGEST_ANSWER = 1 << 20
LONGEST_TIMEOUT_MS = 10 * 60_000
# Of an answer that is an error, how much its reader is told.
SHOWN_OF_ERROR = 500
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_SLOT = re.compile(r"\{\{\s*(input|secret)\.([\w.-]+)\s*\}\}")
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_KNOWN = frozenset({"url", "method", "headers", "body", "timeout", "maxBytes"})

Escape = Callable[[str], str]


class GatewayFailed(StigmergyError):
    """A gateway tool's call that brought no result."""

    code = "gateway_failed"
    status = 502


class _Prepared(NamedTuple):
    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None
    most_bytes: int


def check_execution(spec: ToolSpec, where: str) -> None:
    """Refuses a config that no call could be made of."""
    execution = spec.execution
    if execution is None:
        raise Invalid("a gateway tool says in `execution` what to call", f"{where}.execution")
    if unknown := set(execution) - _KNOWN:
        raise Invalid(f"an execution has no {min(unknown)!r}; it has {', '.join(sorted(_KNOWN))}", f"{where}.execution")
    _check_url(execution.get("url"), f"{where}.execution.url")
    if str(execution.get("method", "GET")).upper() not in METHODS:
        raise Invalid(f"a method is one of {', '.join(METHODS)}", f"{where}.execution.method")
    headers = execution.get("headers", {})
    if not isinstance(headers, dict):
        raise Invalid("headers are names with texts", f"{where}.execution.headers")
    for name, value in cast(JsonObject, headers).items():
        if _HEADER_NAME.fullmatch(name) is None or not isinstance(value, str) or "\n" in value or "\r" in value:
            raise Invalid("a header is a name and a text on one line", f"{where}.execution.headers.{name[:60]}")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise Invalid("this header is set by the call itself", f"{where}.execution.headers.{name}")
    _check_number(execution.get("maxBytes", 1), LARGEST_ANSWER, f"{where}.execution.maxBytes")
    _check_number(execution.get("timeout", 1), LONGEST_TIMEOUT_MS, f"{where}.execution.timeout")
    _check_number(spec.timeout_ms, LONGEST_TIMEOUT_MS, f"{where}.timeout")
    for name in secrets_of(execution):
        if _SECRET_NAME.fullmatch(name) is None:
            raise Invalid(f"a secret's name is capitals, digits and `_`, not {name[:60]!r}", f"{where}.execution")


def _check_url(url: Any, where: str) -> None:
    if not isinstance(url, str) or len(url) > 4_000:
        raise Invalid("a url is a text of up to 4,000 characters", where)
    try:
        parts = urlsplit(_SLOT.sub("x", url))
        fixed = url.split("://", 1)[-1].split("/", 1)[0].split("?", 1)[0]
        port = parts.port
    except ValueError as error:
        raise Invalid(f"this is no URL ({error})", where) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise Invalid("a url starts with http:// or https:// and names a host", where)
    if "{{" in fixed or "@" in fixed:
        raise Invalid("the host is fixed, without templates, user and password; put what varies after it", where)


def _check_number(value: Any, most: int, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise Invalid(f"a number from 1 to {most:,} is wanted", where)


def secrets_of(execution: JsonObject) -> frozenset[str]:
    """The names of the secrets that a config asks for."""
    return frozenset(slot[1] for slot in _SLOT.findall(msgspec.json.encode(execution).decode()) if slot[0] == "secret")


def secrets_from(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The secrets that this server has, by name."""
    found = os.environ if environment is None else environment
    return {name.removeprefix(SECRET_PREFIX): value for name, value in found.items() if name.startswith(SECRET_PREFIX) and value}


async def call_gateway(spec: ToolSpec, args: JsonObject, secrets: Mapping[str, str], reach: Reach) -> Any:
    """Make the call, and give its answer: JSON as a value, a text as it is. What fails is `GatewayFailed`."""
    check_execution(spec, spec.name)
    used = {name: secrets[name] for name in secrets_of(spec.execution or {}) if name in secrets}
    try:
        prepared = _prepare(spec, args, used)
        async with asyncio.timeout(spec.timeout_ms / 1000):
            answer = await _send(prepared, reach)
    except TimeoutError:
        raise GatewayFailed(f"{spec.name}: no answer within {spec.timeout_ms / 1000:g} s") from None
    except httpx.HTTPError as error:
        # from None: the request of httpx' error has the secrets in it, and tracebacks are logged
        raise GatewayFailed(_without(f"{spec.name}: the call failed ({type(error).__name__}: {error})", used)) from None
    except (GatewayFailed, AddressRefused) as error:
        raise type(error)(_without(f"{spec.name}: {error}", used)) from None
    return _read(_without(answer.text, used), answer.kind)


class _Answer(NamedTuple):
    text: str
    kind: str


async def _send(prepared: _Prepared, reach: Reach) -> _Answer:
    url = httpx.URL(prepared.url)
    address = await _address(url.host, url.port or (443 if url.scheme == "https" else 80), reach)
    headers = {**prepared.headers, "host": url.netloc.decode("ascii")}
    request = httpx.Request(
        prepared.method,
        url.copy_with(host=address),
        headers=headers,
        content=prepared.content,
        extensions={"sni_hostname": url.host},
    )
    # A connection for this call alone, since one that is kept for an address could be another host's. And no httpx client: it
    # would log the url, and a secret may be in it.
    async with httpx.AsyncHTTPTransport(trust_env=False) as transport:
        response = await transport.handle_async_request(request)
        try:
            body = await _bounded(response, prepared.most_bytes)
        finally:
            await response.aclose()
    text = body.decode(response.charset_encoding or "utf-8", "replace")
    if response.status_code >= 300:
        why = "a redirect, which is not followed" if response.status_code < 400 else text[:SHOWN_OF_ERROR]
        raise GatewayFailed(f"answered {response.status_code}: {why}")
    return _Answer(text, response.headers.get("content-type", ""))


async def _bounded(response: httpx.Response, most: int) -> bytes:
    read = bytearray()
    async for chunk in response.aiter_bytes():
        read += chunk
        if len(read) > most:
            raise GatewayFailed(f"the answer is larger than {most:,} bytes")
    return bytes(read)


async def _address(host: str, port: int, reach: Reach) -> str:
    """An address of this host that may be called."""
    reach.check_literal(host)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise GatewayFailed(f"the name {host} leads nowhere ({error})") from None
    allowed = [address for entry in found if reach.allows(address := str(entry[4][0]))]
    if not allowed:
        raise AddressRefused(f"{host} leads to no address that this server may call; name its network in the settings")
    return allowed[0]


def _prepare(spec: ToolSpec, args: JsonObject, secrets: Mapping[str, str]) -> _Prepared:
    execution = spec.execution or {}
    values = _Values(args, secrets)
    method = str(execution.get("method", "GET")).upper()
    headers = {name.lower(): values.fill(text, _one_line) for name, text in execution.get("headers", {}).items()}
    content = None
    if "body" in execution:
        content = _body(execution["body"], values, headers)
    elif method not in ("GET", "HEAD", "DELETE"):
        content = msgspec.json.encode(args)
    if content is not None:
        headers.setdefault("content-type", "application/json")
    url = values.fill(execution["url"], lambda text: quote(text, safe=""))
    return _Prepared(method, url, headers, content, execution.get("maxBytes", LARGEST_ANSWER))


def _body(body: Any, values: "_Values", headers: Mapping[str, str]) -> bytes:
    if not isinstance(body, str):
        return msgspec.json.encode(values.fill_all(body))
    is_json = "json" in headers.get("content-type", "application/json")
    return values.fill(body, _inside_json if is_json else str).encode()


class _Values:
    """What is put into the templates of one call."""

    def __init__(self, args: JsonObject, secrets: Mapping[str, str]) -> None:
        self._args = args
        self._secrets = secrets

    def fill(self, template: str, escape: Escape) -> str:
        return _SLOT.sub(lambda slot: escape(_text(self._value(slot[1], slot[2]))), template)

    def fill_all(self, body: Any) -> Any:
        """JSON with templates in its texts. A text that is one template becomes the value itself."""
        if isinstance(body, dict):
            return {key: self.fill_all(value) for key, value in cast(JsonObject, body).items()}
        if isinstance(body, list):
            return [self.fill_all(value) for value in cast(list[Any], body)]
        if not isinstance(body, str):
            return body
        whole = _SLOT.fullmatch(body)
        return self._value(whole[1], whole[2]) if whole is not None else self.fill(body, str)

    def _value(self, kind: str, name: str) -> Any:
        if kind == "secret":
            if name not in self._secrets:
                raise GatewayFailed(f"the server has no secret {name}; set {SECRET_PREFIX}{name} where it runs")
            return self._secrets[name]
        found: Any = self._args
        for part in name.split("."):
            if isinstance(found, dict) and part in found:
                found = cast(JsonObject, found)[part]
            elif isinstance(found, list) and part.isdecimal() and int(part) < len(cast(list[Any], found)):
                found = cast(list[Any], found)[int(part)]
            else:
                raise GatewayFailed(f"the arguments have no {name}")
        return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _one_line(text: str) -> str:
    if any(sign in text for sign in "\r\n\0"):
        raise GatewayFailed("a value for a header has a line break")
    return text


def _inside_json(text: str) -> str:
    return msgspec.json.encode(text).decode()[1:-1]


def _without(text: str, secrets: Mapping[str, str]) -> str:
    """A text with no secret in it, as it was sent or as it stood in a url."""
    for name, value in sorted(secrets.items(), key=lambda item: -len(item[1])):
        for form in {value, quote(value, safe=""), _inside_json(value)}:
            text = text.replace(form, f"[secret {name}]")
    return text


def _read(text: str, kind: str) -> Any:
    if "json" not in kind:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
