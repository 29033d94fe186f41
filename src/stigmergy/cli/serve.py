"""`stigmergy serve`: the engine and its API in one process."""

import asyncio
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import uvicorn
from cyclopts import Parameter

from stigmergy.api.app import create_app, end_feeds
from stigmergy.api.auth import refuse_open_doors
from stigmergy.app import App
from stigmergy.cli.process import on_signals, run_process, spare_what_stays
from stigmergy.cli.program import Program, load_program
from stigmergy.cli.store import Store, out
from stigmergy.settings import changed, load

# How long requests that are under way may take once the server was told to end; a reader that does not read is cut off then.
# And after them the steps of runs.
SHUTDOWN_SECONDS = 5


def serve(
    program: Program | None = None,
    /,
    *,
    store: Store = None,
    host: Annotated[str | None, Parameter(help="The address to listen on.")] = None,
    port: Annotated[int | None, Parameter(help="The port to listen on; 0 takes a free one.")] = None,
) -> None:
    given = {"store": store, "host": host, "port": port}
    if program is None:
        # under a name of its own, since what a program declares under its name is taken back when it is not there
        app = App(entity="server", settings=load(given))
    else:
        app = load_program(program)
        app.settings = changed(app.settings, given)
    run_process(app.settings, _serve(app))


async def _serve(app: App) -> None:
    settings = app.settings
    refuse_open_doors(settings)
    async with app:
        api = create_app(app.database, settings, app.telemetry, app.searcher)
        config = uvicorn.Config(
            api,
            host=settings.host,
            port=settings.port,
            log_level="warning",
            server_header=False,
            access_log=False,  # below the log's level anyway, and each line would be made first
            proxy_headers=False,  # nothing of a request's address or scheme is looked at
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        ending: list[asyncio.Task[None]] = []

        def end() -> None:
            if not ending:
                out.print("Ends after the requests and steps that are under way.")
                end_feeds(api)
                ending.append(asyncio.create_task(app.drain(), name="drain"))

        await _Server(config, app, end).serve()
        if ending:
            await asyncio.wait(ending, timeout=SHUTDOWN_SECONDS)


class _Server(uvicorn.Server):
    """Says where it is once it is there."""

    def __init__(self, config: uvicorn.Config, app: App, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)

    def _end(self, which: signal.Signals) -> None:
        self.handle_exit(which, None)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """End in good order on a signal, and leave it at that: uvicorn would then raise it again, and the store would not
        be closed."""
        with on_signals(self._end):
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        spare_what_stays()
        for server in self.servers:
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                out.print(f"Stigmergy keeps its state in {self._app.settings.store} and listens on http://{host}:{port}")
                out.print(f"  health   http://{host}:{port}/health")
                out.print(f"  OpenAPI  http://{host}:{port}/openapi.json")
                if self._app.code.agents:
                    out.print(f"  agents   {', '.join(sorted(self._app.code.agents))}", markup=False)
                if self._app.greeting:
                    greeting = self._app.greeting.replace("{url}", f"http://{host}:{port}").replace("{command}", as_called())
                    out.print(greeting, markup=False)


def as_called() -> str:
    """This command, for a person to call it again."""
    here = sys.argv[0]
    return "stigmergy" if Path(here).name != "stigmergy" or shutil.which("stigmergy") == here else here
