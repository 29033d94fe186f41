"""Start Stigmergy and the service beside it, in a folder of their own, and talk to them: `python examples/nested_agents/run.py`.

Ctrl-C, or an empty line, ends both. What was said stays in the folder that it prints; given as its argument, it goes on there.
"""

import base64
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from http.client import HTTPException
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STIGMERGY = str(Path(sys.executable).with_name("stigmergy"))
PORT, SERVICE_PORT = 8420, 9000
PATIENCE_SECONDS = 30


class Both:
    """The two processes, on a store in a folder. Either may be killed and started again."""

    def __init__(self, folder: Path, port: int = PORT, service_port: int = SERVICE_PORT, **environment: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.port, self.service_port = port, service_port
        self._folder = folder
        self._environment = os.environ | environment | self._kept_secrets(f"http://127.0.0.1:{service_port}")
        self.mia = self._token("mia", "read", "write")
        self.orchestrator = self._token("agent:orchestrator", "read", "write", "operate")
        self._environment |= {"STIGMERGY_URL": self.url, "STIGMERGY_TOKEN": self.orchestrator}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def _kept_secrets(self, service: str) -> dict[str, str]:
        file = self._folder / "secrets.json"
        if not file.exists():
            webhook_secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
            kept = {"STIGMERGY_SECRET": secrets.token_urlsafe(32), "STIGMERGY_WEBHOOK_SECRET": webhook_secret}
            file.write_text(json.dumps(kept))
        triggers = str(HERE / "triggers.json")
        return json.loads(file.read_text()) | {"STIGMERGY_TRIGGERS": triggers, "STIGMERGY_WEBHOOK_BASE": service}

    def _token(self, entity: str, *grants: str) -> str:
        chosen = [part for grant in grants for part in ("--grant", grant)]
        command = [STIGMERGY, "token", "create", entity, *chosen]
        done = subprocess.run(command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def start(self, which: str) -> None:
        command = {
            "stigmergy": [STIGMERGY, "serve", "--port", str(self.port)],
            "service": [sys.executable, str(HERE / "service.py"), str(self.service_port)],
        }[which]
        log = (self._folder / f"{which}.log").open("ab")
        self.processes[which] = subprocess.Popen(command, cwd=self._folder, env=self._environment, stdout=log, stderr=log)
        log.close()

    def kill(self, which: str) -> None:
        process = self.processes.pop(which)
        process.kill()
        process.wait()

    def __enter__(self) -> "Both":
        for which in ("stigmergy", "service"):
            self.start(which)
        while not any(agent["name"] == "orchestrator" for agent in self.call("GET", "/v1/agents")["items"]):
            time.sleep(0.1)  # the service has not said yet who its agents are
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        """The API, as Mia if no other token is given. As long as it is not there it is waited for."""
        headers = {"Authorization": f"Bearer {token or self.mia}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                request = urllib.request.Request(self.url + path, data, headers, method=method)
                with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as refused:
                raise RuntimeError(f"{method} {path}: {refused.code} {refused.read().decode()}") from None
            except (OSError, HTTPException):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def talk(both: Both) -> None:
    space = both.call("POST", "/v1/spaces", {"name": "Questions", "members": ["agent:orchestrator"]})
    path = f"/v1/spaces/{space['id']}/messages"
    print("Ask what a bitcoin is worth. An empty line ends it.")
    seen, question = 0, None
    while (line := input("> ").strip()) != "":
        said = both.call("POST", path, {"id": str(uuid.uuid4()), "content": line, "reply_to": question})
        seen = said["seq"]
        while not (heard := both.call("GET", f"{path}?after={seen}")["items"]):
            time.sleep(0.1)
        print(heard[-1]["content"])
        question = heard[-1]["id"] if (heard[-1].get("metadata") or {}).get("task_id") else None


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="nested-agents-"))
    folder.mkdir(exist_ok=True)
    print(f"in {folder}")
    with Both(folder) as both:
        try:
            talk(both)
        except (KeyboardInterrupt, EOFError):
            print()


if __name__ == "__main__":
    main()
