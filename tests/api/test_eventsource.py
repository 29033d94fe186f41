"""The feed as web pages read it: with the `eventsource` client of npm, in the versions of `node/package-lock.json`.

It is installed once into `.venv`, from npm's own cache where that has it. Without Node nothing of this runs, and it says so.
"""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.reader import make
from support.repository import ROOT
from support.server import Server, ServerProcess

SOURCE = Path(__file__).with_name("node")
FILES = ("package.json", "package-lock.json", "reader.js")
# As the feed tells a reader to wait before it comes back.
RETRY_SECONDS = 2.0


@pytest.fixture(scope="session")
def node() -> Path:
    """A folder with the reader and what it imports."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("NODE IS NOT INSTALLED: the feed was not read by the eventsource client")
    bodies = b"".join((SOURCE / name).read_bytes() for name in FILES)
    folder = ROOT / ".venv" / f"node-{hashlib.sha256(bodies).hexdigest()[:16]}"
    if not folder.exists():
        _install(folder)
    return folder


def _install(folder: Path) -> None:
    """Beside its place first, so that of two processes that install one wins and none meets half of it."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    for name in FILES:
        shutil.copy(SOURCE / name, partial)
    command = ["npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    done = subprocess.run(command, cwd=partial, capture_output=True, text=True, timeout=90, check=False)
    if done.returncode != 0:
        shutil.rmtree(partial)
        pytest.skip(f"NPM CANNOT INSTALL: the feed was not read by the eventsource client: {done.stderr[-300:]}")
    try:
        partial.rename(folder)
    except OSError:
        shutil.rmtree(partial)


@contextmanager
def reading(node: Path, url: str, count: int) -> Iterator[Iterator[dict[str, Any]]]:
    """What the client says, as it says it; at its end it must have ended by itself."""
    with subprocess.Popen(["node", "reader.js", url, str(count)], cwd=node, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = (json.loads(line) for line in process.stdout)
            assert next(said) == {"open": True}
            yield said
            assert process.wait(10) == 0
        finally:
            process.kill()


def heard(said: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in said if "id" in each]


def test_it_lives_through_a_restart_of_the_server(node: Path, tmp_path: Path) -> None:
    texts = ["a\nb", "\u2028", "\ufeff", "\r", "😀", "last"]
    with ServerProcess(tmp_path) as first, reading(node, f"{first.url}/v1/events?after=0", len(texts)) as said:
        with httpx.Client(base_url=first.url) as client:
            for text in texts[:3]:
                make(client, context={"n": text})
        seen = [next(said) for _ in range(3)]
        first.kill()
        cut = time.monotonic()
        assert next(said) == {"error": 0, "closed": False}
        with ServerProcess(tmp_path, port=first.port) as second, httpx.Client(base_url=second.url) as client:
            for text in texts[3:]:
                make(client, context={"n": text})
            tries = list(takewhile(lambda each: "open" not in each, said))
            assert all(each["closed"] is False for each in tries)
            assert time.monotonic() - cut >= RETRY_SECONDS
            seen += heard(said)
    assert [each["n"] for each in seen] == texts
    assert [each["id"] for each in seen] == [str(n) for n in range(1, len(texts) + 1)]


def test_it_is_told_of_every_kind_of_change(node: Path, server: Server) -> None:
    client = server.client()
    with reading(node, f"{server.url}/v1/events", 3) as said:
        id = make(client)
        client.patch(f"/v1/breadcrumbs/{id}", json={"context": {"n": 2}}).raise_for_status()
        client.delete(f"/v1/breadcrumbs/{id}").raise_for_status()
        assert [(each["type"], each.get("n")) for each in heard(said)] == [
            ("breadcrumb.created", 1),
            ("breadcrumb.updated", 2),
            ("breadcrumb.deleted", None),
        ]


def test_it_comes_in_with_a_browser_token_and_without_one_it_gives_up(node: Path, guarded: Server) -> None:
    client = guarded.client_of("mia", "read", "write")
    token = client.post("/v1/tokens/browser").raise_for_status().json()["token"]
    with reading(node, f"{guarded.url}/v1/events?token={token}", 1) as said:
        make(client)
        assert [each["n"] for each in heard(said)] == [1]
    command = ["node", "reader.js", f"{guarded.url}/v1/events?token=stg.nothing", "1"]
    done = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=20, check=True)
    assert json.loads(done.stdout) == {"error": 401, "closed": True}
