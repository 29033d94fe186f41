"""A small HTTP server on loopback that keeps what it was asked and answers what it is told to."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Web:
    """`with Web() as web: …`; `web.answer` is (status, headers, body), or called with the request to give it."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Any = (200, {"content-type": "application/json"}, b"{}")
        self.delay = 0.0
        web = self

        class Handler(BaseHTTPRequestHandler):
            def reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                asked = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                web.asked.append(asked)
                time.sleep(web.delay)
                given: Any = web.answer(asked) if callable(web.answer) else web.answer
                status, headers, answer = given
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:
                    pass  # who asked has gone away

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = reply

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def answer_json(self, value: Any, status: int = 200) -> None:
        self.answer = (status, {"content-type": "application/json"}, json.dumps(value).encode())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
