"""What one server does over HTTP: creates in a second, and how soon a thousand followers hear of a write.

    python bench/breadcrumbs_http.py

The server is a process of its own, pinned to one core where `taskset` is there, with tokens, a JSON Schema and hints; the load
comes from this process. Each figure is from one run of some seconds; CPU is the server's.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import psutil
import uvloop
from report import line, percentiles, title

COMMAND = str(Path(sys.executable).with_name("stigmergy"))
SECRET = "a secret for the benchmark"
CONNECTIONS = 64
FOLLOWERS = 1_000
SECONDS = 5.0
WRITES_PER_SECOND = 20
SCHEMA = {
    "json_schema": {
        "type": "object",
        "required": ["text", "user"],
        "properties": {"text": {"type": "string"}, "n": {"type": "integer"}, "user": {"type": "object"}},
    }
}
CRUMB = {
    "schema_name": "bench.v1",
    "title": "a breadcrumb",
    "tags": ["session:42", "bench"],
    "context": {"text": "x" * 200, "n": 1, "user": {"name": "Mia", "email": "mia@example.org"}},
    "llm_hints": {"exclude": ["user.email"], "transform": {"said": {"type": "format", "format": "{user.name}: {text}"}}},
}


class Connection:
    """As much of HTTP as a load needs, so that the load is not what is measured."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"

    async def open(self) -> "Connection":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        return self

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{kind}\r\n".encode() + body)

    async def ask(self, method: str, path: str, body: bytes = b"") -> int:
        self.send(method, path, body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        await self.reader.readexactly(int(length[1]) if length else 0)
        return int(head[9:12])

    def close(self) -> None:
        self.writer.close()


class Server:
    """The process, and how to reach it."""

    def __init__(self, process: subprocess.Popen[str], port: int, token: str) -> None:
        self.process = process
        self._port = port
        self._token = token

    async def connection(self) -> Connection:
        return await Connection(self._port, self._token).open()

    def cpu(self) -> float:
        """Seconds of CPU that it has taken."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


def served(folder: Path) -> Server:
    environment = os.environ | {"STIGMERGY_SECRET": SECRET}
    made = [COMMAND, "token", "create", "bench", "--grant", "read", "--grant", "write", "--grant", "operate"]
    token = subprocess.run(made, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    pinned = ["taskset", "-c", "0"] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []
    command = [*pinned, COMMAND, "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    found = re.search(r"http://\S+:(\d+)", process.stdout.readline())
    assert found
    return Server(process, int(found[1]), token)


async def requests_per_second(server: Server, method: str, path: str, body: bytes, status: int) -> tuple[float, float]:
    """So many in a second, and in a second of the server's CPU."""
    connections = [await server.connection() for _ in range(CONNECTIONS)]
    done = 0
    end = time.perf_counter() + SECONDS

    async def caller(connection: Connection) -> None:
        nonlocal done
        while time.perf_counter() < end:
            assert await connection.ask(method, path, body) == status
            done += 1

    start, cpu = time.perf_counter(), server.cpu()
    await asyncio.gather(*(caller(connection) for connection in connections))
    rates = done / (time.perf_counter() - start), done / (server.cpu() - cpu)
    for connection in connections:
        connection.close()
    return rates


async def delays(server: Server) -> list[float]:
    """Milliseconds from the call of a write to each follower's hearing of it."""
    followers = [await server.connection() for _ in range(FOLLOWERS)]
    heard: list[float] = []
    begun: dict[int, float] = {}
    expected = int(WRITES_PER_SECOND * SECONDS)

    async def follow(follower: Connection) -> None:
        seen = 0
        while seen < expected:
            said = await follower.reader.readuntil(b"\n\n")
            found = re.search(rb'"n":(\d+)', said)
            if found:
                seen += 1
                heard.append((time.perf_counter() - begun[int(found[1])]) * 1_000)

    for follower in followers:
        follower.send("GET", "/v1/events?schema_name=bench.v1")
        await follower.reader.readuntil(b"retry: 2000\n\n")
    tasks = [asyncio.create_task(follow(follower)) for follower in followers]
    writer = await server.connection()
    start = time.perf_counter()
    for n in range(expected):
        await asyncio.sleep(max(0, start + n / WRITES_PER_SECOND - time.perf_counter()))
        begun[n] = time.perf_counter()
        crumb = CRUMB | {"context": {**CRUMB["context"], "n": n}, "llm_hints": {"exclude": ["user.email"]}}
        assert await writer.ask("POST", "/v1/breadcrumbs", msgspec.json.encode(crumb)) == 201
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    for each in (*followers, writer):
        each.close()
    return heard


async def main(server: Server) -> bool:
    title("One server process over HTTP", connections=CONNECTIONS, followers=FOLLOWERS)
    setting = await server.connection()
    assert await setting.ask("PUT", "/v1/schemas/bench.v1", msgspec.json.encode(SCHEMA)) == 200
    assert await setting.ask("PUT", "/v1/breadcrumbs/one", msgspec.json.encode(CRUMB)) == 200
    setting.close()
    rate, cpu = await requests_per_second(server, "GET", "/health", b"", 200)
    line("health: what the framework and a small read cost", rate, cpu=cpu)
    rate, cpu = await requests_per_second(server, "POST", "/v1/breadcrumbs", msgspec.json.encode(CRUMB), 201)
    kept = line("creates with token, schema and hints", rate, wanted=4_000, cpu=cpu)
    rate, cpu = await requests_per_second(server, "GET", "/v1/breadcrumbs/one", b"", 200)
    line("reads of one breadcrumb as a view", rate, cpu=cpu)
    began, cpu = time.perf_counter(), server.cpu()
    heard = await delays(server)
    busy = (server.cpu() - cpu) / (time.perf_counter() - began)
    kept = percentiles("events to followers", heard, p99=250) and kept
    print(f"    {WRITES_PER_SECOND} writes a second to {FOLLOWERS:,} followers keep the server's core busy for {busy:.0%}")
    return kept


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory() as folder:
        server = served(Path(folder))
        try:
            kept = uvloop.run(main(server))
        finally:
            server.process.terminate()
            server.process.wait(30)
    sys.exit(0 if kept else 1)
