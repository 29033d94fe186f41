"""Replies that were recorded once and are played back: the same answers to the same requests, with no call to the outside.

A recording is JSON Lines, one exchange each: `request`, the hash of what was asked, and `reply`. What was asked is the messages,
the tools and the settings; not the model's name, so that a recording of one model can stand in for it under `recorded:FILE`.
When the same was asked several times the last reply stands: a step that is repeated after a crash gets what it got before.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

from stigmergy.agents.models.port import Model, ModelFailed, OnText, Reply, Request
from stigmergy.agents.models.scripted import pieces
from stigmergy.errors import Invalid


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a recording."""

    request: str
    reply: Reply


def request_hash(request: Request) -> str:
    asked = msgspec.json.encode((request.messages, request.tools, request.settings), order="sorted")
    return hashlib.sha256(asked).hexdigest()


class Recording:
    """A model whose replies are written down as they come. Each line is in the file before its reply is handed on."""

    def __init__(self, model: Model, path: str | Path) -> None:
        self.name = f"recording:{path}"
        self._model = model
        self._path = Path(path)

    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        reply = await self._model.request(request, on_text)
        line = msgspec.json.encode(Exchange(request_hash(request), reply)) + b"\n"
        self._append(line)
        return reply

    def _append(self, line: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:  # one write, so that lines of several writers do not mix
            file.write(line)


class RecordedModel:
    """Plays a recording. What was never asked fails, and says so."""

    def __init__(self, exchanges: Iterable[Exchange], *, name: str) -> None:
        self.name = name
        self._replies = {exchange.request: exchange.reply for exchange in exchanges}

    async def request(self, request: Request, on_text: OnText | None = None) -> Reply:
        asked = request_hash(request)
        reply = self._replies.get(asked)
        if reply is None:
            last = request.messages[-1].content[:80] if request.messages else ""
            raise ModelFailed(
                f"{self.name} has no reply to this request ({asked[:12]}, last message {last!r}); record it again with"
                " `Recording(model, path)` around the model that shall answer"
            )
        if on_text is not None:
            for piece in pieces(reply.text):
                on_text(piece)
        return reply


def load_recording(path: str) -> RecordedModel:
    """The recording in a file, as it is now. `Invalid`, with the line of the fault, when it is none."""
    file = Path(path)
    try:
        found = file.stat()
        return _loaded(path, found.st_mtime_ns, found.st_size)
    except FileNotFoundError:
        raise Invalid("there is no such recording", path, "unknown_model") from None
    except OSError as error:
        raise Invalid(f"this recording cannot be read ({error})", path) from error


@lru_cache(16)
def _loaded(path: str, _changed: int, _size: int) -> RecordedModel:
    lines = enumerate(Path(path).read_bytes().splitlines(), 1)
    return RecordedModel([_exchange(path, number, line) for number, line in lines if line.strip()], name=f"recorded:{path}")


def _exchange(path: str, number: int, line: bytes) -> Exchange:
    try:
        return msgspec.json.decode(line, type=Exchange)
    except msgspec.MsgspecError as error:
        raise Invalid(f"this line is no recorded reply ({error})", f"{path}:{number}") from error
