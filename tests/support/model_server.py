"""A server of models over real HTTP that answers as a test has told it to; most of what is here speaks OpenAI's chat protocol."""

import asyncio
import json
import socket
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import msgspec
import uvicorn

from support.loopback import Uvicorn

Json = dict[str, Any]


class Answer(msgspec.Struct, kw_only=True):
    """What is sent. `chunks` are the events of a stream; with `broken` the connection ends in their midst."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}
    chunks: list[Any] | None = None
    done: bool = True
    broken: bool = False
    after: float = 0.0


class ModelServer:
    """`async with ModelServer() as server: server.answers.append(…)`. What it was asked is in `asked`."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.asked: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.waited_for = asyncio.Event()
        self.hung_up = asyncio.Event()
        self._listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listening.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        config = uvicorn.Config(
            self._app, interface="asgi3", log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=5
        )
        self._uvicorn = Uvicorn(config)

    @property
    def model(self) -> str:
        return f"openai-compatible:tiny@{self.url}"

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._uvicorn.serve(sockets=[self._listening]))
        await self._uvicorn.ready.wait()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._uvicorn.should_exit = True
        await self._serving

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        self.asked.append({"path": scope["path"], **json.loads(body)})
        answer = self.answers.popleft()
        if answer.after and await self._gone_before(answer.after, receive):
            return
        headers = {"content-type": "application/json" if answer.chunks is None else "text/event-stream"} | answer.headers
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        if answer.chunks is None:
            content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            await send({"type": "http.response.body", "body": content})
            return
        for chunk in [*answer.chunks, *(["[DONE]"] if answer.done and not answer.broken else [])]:
            line = chunk if isinstance(chunk, str) else json.dumps(chunk)
            named = f"event: {chunk['type']}\n" if isinstance(chunk, dict) and "type" in chunk else ""
            await send({"type": "http.response.body", "body": f"{named}data: {line}\n\n".encode(), "more_body": True})
        if not answer.broken:  # else uvicorn closes a connection whose answer has no end
            await send({"type": "http.response.body", "body": b""})

    async def _gone_before(self, seconds: float, receive: Any) -> bool:
        self.waited_for.set()
        try:
            await asyncio.wait_for(receive(), seconds)
        except TimeoutError:
            return False
        self.hung_up.set()
        return True


def chunk(delta: Json, *, finish: str | None = None, **fields: Any) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": [choice], **fields}


def streamed(deltas: Iterable[Json], *, finish: str | None = "stop", **fields: Any) -> Answer:
    """A stream of these deltas, its end, and what it used."""
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "prompt_tokens_details": {"cached_tokens": 4}}
    ends = [chunk({}, finish=finish), {**chunk({}), "choices": [], "usage": usage}] if finish else []
    return Answer(chunks=[*(chunk(delta) for delta in deltas), *ends], **fields)


def whole(message: Json, *, finish: str = "stop") -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return Answer(
        body={"id": "c1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice], "usage": usage}
    )


def call(index: int, id: str | None, name: str | None, arguments: str) -> Json:
    """A piece of a tool call, as it is streamed."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, "type": "function", "function": function} | ({"id": id} if id else {})]}


def refused(status: int, message: str, **headers: str) -> Answer:
    body = {"error": {"message": message, "type": "error"}}
    return Answer(status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
