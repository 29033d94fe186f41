"""PostgreSQL that goes away: a server that can be stopped and started, and a proxy that cuts connections where it is told."""

import asyncio
import shutil
import tempfile
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from support.postgres import PostgresServer

SOCKET = ".s.PGSQL.5432"


class StoppableServer(PostgresServer):
    def __init__(self) -> None:
        super().__init__()
        self._guardians = [self._guardian]

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "fast", "-D", str(self._data))

    def start(self) -> None:
        self._guardian = self._launch(fsync=False)
        self._guardians.append(self._guardian)
        self._wait_until_ready()

    def close(self) -> None:
        while self._guardians:
            self._guardian = self._guardians.pop()
            super().close()


class CuttingProxy:
    """Hands on what clients and server say to each other, until a client says something at which to cut it off, once."""

    def __init__(self, server: Path) -> None:
        self.server = server
        self.directory = Path(tempfile.mkdtemp(prefix="stigmergy-proxy-"))
        self.delivers = False
        self.cuts = 0
        self._needle = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def url_through(self, url: str) -> str:
        return url.replace(quote(str(self.server), safe=""), quote(str(self.directory), safe=""))

    def cut_at(self, needle: bytes, *, deliver: bool = False) -> None:
        """Cut the next connection on which this is said: before the server hears it, or once the server has answered."""
        self._needle = needle
        self.delivers = deliver

    def is_time_to_cut(self, said: bytes) -> bool:
        if not self._needle or self._needle not in said:
            return False
        self._needle = b""
        self.cuts += 1
        return True

    def _accept(self, client: StreamReader, to_client: StreamWriter) -> None:
        task = asyncio.create_task(_Connection(self, client, to_client).carry())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_unix_server(self._accept, str(self.directory / SOCKET))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listening.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(self.directory)


class _Connection:
    def __init__(self, proxy: CuttingProxy, client: StreamReader, to_client: StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._to_client = to_client
        self._is_cut = False

    async def carry(self) -> None:
        server, to_server = await asyncio.open_unix_connection(str(self._proxy.server / SOCKET))
        ways = [asyncio.create_task(self._up(to_server)), asyncio.create_task(self._down(server))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (self._to_client, to_server):
                end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _up(self, to_server: StreamWriter) -> None:
        while said := await self._client.read(1 << 16):
            if self._proxy.is_time_to_cut(said):
                self._is_cut = True
                if not self._proxy.delivers:
                    return
            to_server.write(said)

    async def _down(self, server: StreamReader) -> None:
        while said := await server.read(1 << 16):
            if self._is_cut:
                return
            self._to_client.write(said)
