"""`stigmergy serve`: the engine and its API in one process."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import uvicorn
from cyclopts import Parameter

from stigmergy.api.app import create_app, end_feeds
from stigmergy.api.auth import refuse_open_doors
from stigmergy.app import App
from stigmergy.cli.store import Store, out
from stigmergy.settings import Settings, load
from stigmergy.telemetry import set_up_logs

try:
    import uvloop
except ImportError:  # not to be had on Windows
    uvloop = None

# Threads give way to each other after this long. At Python's 5 ms a busy event loop holds the writer thread up for as long
# at every statement.
SWITCH_SECONDS = 0.00005
# How long requests that are under way may take once the server was told to end; a reader that does not read is cut off then.
SHUTDOWN_SECONDS = 5


def serve(
    *,
    store: Store = None,
    host: Annotated[str | None, Parameter(help="The address to listen on.")] = None,
    port: Annotated[int | None, Parameter(help="The port to listen on; 0 takes a free one.")] = None,
) -> None:
    """Serve the API, on the address that it prints. Brings the store up to date first. Ctrl-C ends it in good order."""
    settings = load({"store": store, "host": host, "port": port})
    sys.setswitchinterval(SWITCH_SECONDS)
    set_up_logs(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop is not None else None) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    refuse_open_doors(settings)
    async with App(settings=settings) as app:
        api = create_app(app.database, settings, app.telemetry, app.searcher)
        config = uvicorn.Config(
            api,
            host=settings.host,
            port=settings.port,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        await _Server(config, settings.store, lambda: end_feeds(api)).serve()


class _Server(uvicorn.Server):
    """Says where it is once it is there."""

    def __init__(self, config: uvicorn.Config, store: str, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._store = store
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """End in good order on a signal, and leave it at that: uvicorn would then raise it again, and the store would not
        be closed."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for each in signals:
            loop.add_signal_handler(each, self.handle_exit, each, None)
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                out.print(f"Stigmergy keeps its state in {self._store} and listens on http://{host}:{port}")
                out.print(f"  health   http://{host}:{port}/health")
                out.print(f"  OpenAPI  http://{host}:{port}/openapi.json")
