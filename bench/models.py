"""What reaching a model costs on our side: counting tokens, a request over loopback, importing what is imported late."""

import asyncio
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from statistics import median
from typing import Any

import httpx
from report import title

from stigmergy.agents.models.named import named_model
from stigmergy.agents.models.port import Message, Request
from stigmergy.agents.models.providers import close_models
from stigmergy.agents.tokens import COUNTED, count_tokens
from support.model_server import ModelServer, streamed

SENTENCE = "The quick brown fox, all of 7 years old, jumps over the lazy dog. "
TEXTS = {"a word": "hello", "a message": SENTENCE * 4, "a page": SENTENCE * 50, "the most": SENTENCE * (COUNTED // len(SENTENCE))}
REQUESTS = 200


def per_call(function: Callable[[], Any], calls: int) -> float:
    return min(timeit.repeat(function, number=calls, repeat=5)) / calls * 1e6


def tokens() -> None:
    title("count_tokens, microseconds per call")
    print(f"{'':12} {'characters':>11} {'tokens':>8} {'counted':>10} {'estimated':>10}")
    for name, text in {**TEXTS, "20 MB": SENTENCE * (20_000_000 // len(SENTENCE))}.items():
        calls = max(3, 200_000 // (len(text) + 100))
        counted = per_call(lambda text=text: count_tokens(text, "openai:gpt-5-mini"), calls)
        estimated = per_call(lambda text=text: count_tokens(text, "anthropic:claude-haiku-5-5"), calls)
        total = count_tokens(text, "openai:gpt-5-mini")
        print(f"{name:12} {len(text):>11,} {total:>8,} {counted:>10,.2f} {estimated:>10,.2f}")


async def requests() -> None:
    title("one streamed request over loopback, milliseconds, one after the other", requests=REQUESTS)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    async with ModelServer() as server:
        async with httpx.AsyncClient() as client:
            raw = await _median(lambda: client.post(f"{server.url}/chat/completions", json=body), server)
        model, asked = named_model(server.model, {}), Request(server.model, (Message("user", "hello"),))
        ours = await _median(lambda: model.request(asked, lambda _: None), server)
        await close_models()
    print(f"bare httpx {raw:.2f}, through the port {ours:.2f}, so that the port costs {ours - raw:.2f}")


async def _median(ask: Callable[[], Any], server: ModelServer) -> float:
    taken: list[float] = []
    for _ in range(REQUESTS):
        server.answers.append(streamed([{"content": "Hello "}, {"content": "you."}]))
        begun = time.perf_counter()
        await ask()
        taken.append(time.perf_counter() - begun)
    return median(taken) * 1000


def imports() -> None:
    title("imports, milliseconds, the best of five")
    for module in (
        "stigmergy",
        "stigmergy.agents.models.named",
        "stigmergy.agents.models.reach",
        "stigmergy.agents.mcp_connection",
    ):
        code = f"import time; begun = time.perf_counter(); import {module}; print(time.perf_counter() - begun)"
        best = min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(5))
        print(f"{module:40} {best * 1000:>7,.0f}")


if __name__ == "__main__":
    tokens()
    asyncio.run(requests())
    imports()
