"""Short ways to speak with a server of runs, for the tests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

Connect = Callable[..., Awaitable[httpx.AsyncClient]]
PATIENCE = 20


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


async def started(client: httpx.AsyncClient, instruction: str, agent: str = "lead", **more: Any) -> dict[str, Any]:
    answer = await client.post("/v1/runs", json={"agent": agent, "instruction": instruction, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def done(client: httpx.AsyncClient, instruction: str, **more: Any) -> dict[str, Any]:
    id = (await started(client, instruction, **more))["id"]
    return await ended(client, id)


async def ended(client: httpx.AsyncClient, id: str) -> dict[str, Any]:
    run = (await client.get(f"/v1/runs/{id}", params={"wait": PATIENCE})).json()
    assert run["status"] in ("completed", "failed", "canceled"), run
    return run


async def waiting(client: httpx.AsyncClient, id: str) -> dict[str, Any]:
    """What a run waits for."""
    async with asyncio.timeout(PATIENCE):
        while True:
            items = (await client.get("/v1/waits")).json()["items"]
            if found := [each for each in items if each["run_id"] == id]:
                run = (await client.get(f"/v1/runs/{id}")).json()
                if run["status"].startswith("waiting"):
                    return found[0]
            await asyncio.sleep(0.01)
