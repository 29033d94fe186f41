"""A thousand followers on one server process."""

import asyncio
import json
import re
from pathlib import Path

import httpx
import pytest

from support.server import ServerProcess

FOLLOWERS = 1_000
WRITES = 10


async def follow(port: int, ready: asyncio.Semaphore) -> list[int]:
    """The numbers that one follower hears."""
    async with ready:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /v1/events?schema_name=n.v1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        await reader.readuntil(b"retry: 2000\n\n")
    heard: list[int] = []
    while len(heard) < WRITES:
        block = await reader.readuntil(b"\n\n")
        found = re.search(rb"^data: (.*)$", block, re.MULTILINE)
        if found:
            heard.append(json.loads(found[1])["context"]["n"])
    writer.close()
    return heard


@pytest.mark.serial
async def test_a_thousand_followers_each_hear_every_change_once_in_order(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        ready = asyncio.Semaphore(50)
        following = [asyncio.create_task(follow(server.port, ready)) for _ in range(FOLLOWERS)]
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            # the writes begin when everybody listens: a semaphore lets them in by turn, and us behind them all
            await asyncio.sleep(0)
            for _ in range(50):
                await ready.acquire()
            for n in range(WRITES):
                answer = await client.post("/v1/breadcrumbs", json={"schema_name": "n.v1", "context": {"n": n}})
                assert answer.status_code == 201
            async with asyncio.timeout(30):
                heard = await asyncio.gather(*following)
            assert heard == [list(range(WRITES))] * FOLLOWERS
            assert (await client.get("/health")).status_code == 200
