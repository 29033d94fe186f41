"""What comes in: JSON decoded straight into the type that a route takes, and refused as a whole when any of it is no good.

Of a key that is given twice the last one counts. Refused are NUL in a text, nesting deeper than `DEEPEST`, NaN and infinity,
lone surrogates, bytes that are not UTF-8, and anything after the document.
"""

import math
import re
from functools import lru_cache
from typing import Any

import msgspec
from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import HTTPException, InternalServerException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.types import Empty

from stigmergy.breadcrumbs.depth import DEEPEST, is_too_deep
from stigmergy.breadcrumbs.model import JsonObject
from stigmergy.errors import Invalid

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class JsonRequest(Request[Any, Any, State]):
    """A request whose body is JSON and nothing else."""

    async def json(self) -> Any:
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and kind != "application/json" and not kind.endswith("+json"):
            raise HTTPException(f"a body is application/json here, not {kind[:100]}", status_code=415)
        field = self.route_handler.parsed_data_field
        return decoded(await self.body(), Any if field is None else field.annotation, "body")

    async def body(self) -> bytes:
        """All of it. Mostly it came in one piece with the head, and then it is that piece."""
        if self._body is Empty:
            self._body = self._connection_state.body = await self._received()
        return self._body

    async def _received(self) -> bytes:
        """What comes, as long as it is not more than the server takes. What says that it is more is not even begun with."""
        most = self.route_handler.resolve_request_max_body_size() or math.inf
        if (self.content_length or 0) > most:
            raise RequestEntityTooLarge()
        parts: list[bytes] = []
        size = 0
        while True:
            message: Any = await self.receive()
            if message["type"] == "http.disconnect":
                raise InternalServerException("client disconnected prematurely")
            parts.append(message["body"])
            size += len(message["body"])
            if size > most:
                raise RequestEntityTooLarge()
            if not message.get("more_body"):
                return b"".join(parts)


def decoded(text: bytes, kind: Any, where: str) -> Any:
    """A JSON document as a value of this type. A fault inside names its place."""
    try:
        value = _decoder(kind).decode(text)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise Invalid(message, place.strip("`.") or where) from error
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:  # DecodeError and UnicodeDecodeError are ones
        raise Invalid(f"this is not JSON ({error})", where, code="malformed") from error
    if is_too_deep(text):
        raise _too_deep(where)
    if b"\\u0000" in text and _NUL.search(text):
        raise Invalid("a text may not contain NUL", where)
    return value


def json_object(text: str, where: str) -> JsonObject:
    """A JSON object that came as the text of a parameter."""
    return decoded(text.encode("utf-8", "replace"), JsonObject, where)


def refuse_nul(request: Request[Any, Any, Any]) -> None:
    """An address with NUL in it: no id, tag or name has one, and no store takes one."""
    if "\0" in request.scope["path"]:
        raise Invalid("an address may not contain NUL", "path")
    query = request.scope["query_string"]
    if b"%00" in query or b"\0" in query:
        raise Invalid("a parameter may not contain NUL", "query")


def _too_deep(where: str) -> Invalid:
    return Invalid(f"at most {DEEPEST} levels of objects and lists are allowed", where, code="too_deep")


@lru_cache(256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
