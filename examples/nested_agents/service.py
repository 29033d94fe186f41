"""An orchestrator, a researcher and a tool runner, as a program outside of Stigmergy that is driven by its webhooks alone.

    person → chat → orchestrator → task → researcher ⇄ tools → task is done → orchestrator → chat

Nothing is kept in here: every fact is in Stigmergy, each write there is a change, and the changes that `triggers.json` names come
back as webhooks, at least once each. So every handler looks at what there is and does what is missing. It may be called twice,
and this process may be killed between any two lines: nothing is lost, and nothing is done twice.

Of Stigmergy it needs three environment variables: STIGMERGY_URL, STIGMERGY_TOKEN (of the entity `agent:orchestrator`, which may
operate) and STIGMERGY_WEBHOOK_SECRET. Only the standard library is used.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

QUESTION = "ASK: "  # so the researcher begins what it wants to ask the person
AGENTS: dict[str, Json] = {
    "orchestrator": {"model": "scripted", "executor": "external", "description": "Gives tasks and tells what came of them."},
    "researcher": {
        "model": "scripted",
        "executor": "external",
        "instructions": "You find out what things are worth. If you do not know in which currency, ask.",
        "limits": {"max_steps": 10},
    },
}

# ---- the model and its tools: scripted, so that the example needs no key; a call of a real model takes the place of `think` ----


def think(messages: list[Json]) -> Json:
    """What the researcher says to all that was said so far: text, and the tools that it wants to be called."""
    said = [message["content"] for message in messages if message["role"] == "user"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    currency = next((name for name in ("dollar", "euro") if name in " ".join(said).lower()), None)
    if currency is None:
        return {"content": f"{QUESTION}In dollars or in euros?"}
    if not results:
        calls = [("price", {"of": said[0]}), ("rate", {"currency": currency})]
        return {"content": "I look it up.", "tool_calls": [_tool_call(number, *call) for number, call in enumerate(calls)]}
    price, rate = (float(result) for result in results[-2:])
    return {"content": f"One bitcoin is worth {price * rate:,.0f} {currency}s."}


def _tool_call(number: int, name: str, arguments: Json) -> Json:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def price(of: str) -> float:
    return 97_000.0


def rate(currency: str) -> float:
    return {"dollar": 1.0, "euro": 0.9}[currency]


TOOLS: dict[str, Callable[..., Any]] = {"price": price, "rate": rate}


# ---- Stigmergy, as it is seen from here ----


class Refused(Exception):
    """Stigmergy refused a request."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(f"{status} {problem}")
        self.status = status


# What was done already, or by somebody else in this moment: 409 is a state that has moved on, 412 a version.
DONE_ALREADY = (409, 412)


class Stigmergy:
    """Its API, for one webhook: whatever is written is caused by the change that the webhook is about."""

    def __init__(self, cause: str | None = None) -> None:
        self._headers = {"Authorization": f"Bearer {os.environ['STIGMERGY_TOKEN']}", "Content-Type": "application/json"}
        if cause is not None:
            self._headers["stigmergy-cause"] = cause

    def call(self, method: str, path: str, body: Json | None = None, *, if_match: int | None = None, key: str = "") -> Any:
        headers = dict(self._headers)
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(os.environ["STIGMERGY_URL"] + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode()) from None

    def get(self, path: str, **query: str) -> Any:
        return self.call("GET", f"{path}?{urllib.parse.urlencode(query)}")

    def move(self, path: str, body: Json, *, if_match: int | None = None) -> None:
        """Move something on, unless somebody else has."""
        try:
            self.call("PATCH", path, body, if_match=if_match)
        except Refused as refused:
            if refused.status not in DONE_ALREADY:
                raise

    def say(self, space_id: str, id: str, content: str, **more: Any) -> None:
        """Speak in the chat. The id is ours, so it is one message however often it is sent."""
        self.call("POST", f"/v1/spaces/{space_id}/messages", {"id": id, "content": content, **more})


# ---- what comes in: one handler for each trigger of triggers.json ----


def orchestrator(stigmergy: Stigmergy, message: Json, webhook_id: str) -> None:
    """on-user-message: an answer goes to the researcher that asked; anything else is a task for a new one."""
    asked = message["reply_to"] and stigmergy.get(f"/v1/spaces/{message['space_id']}/messages/{message['reply_to']}")
    if asked and (task_id := (asked.get("metadata") or {}).get("task_id")):
        run_id = stigmergy.get(f"/v1/tasks/{task_id}")["run_id"]
        answer = {"role": "user", "content": message["content"]}
        stigmergy.call("POST", f"/v1/sub-agents/{run_id}/messages", answer, key=webhook_id)
        return
    task = {
        "name": "agent:researcher",
        "instruction": message["content"],
        "executor": "external",
        "space_id": message["space_id"],
        "trigger_message_id": message["id"],
    }
    stigmergy.call("POST", "/v1/tasks", task, key=webhook_id)


def agent_init(stigmergy: Stigmergy, task: Json, webhook_id: str) -> None:
    """on-new-task: the task is taken up. However often that is asked for, it has one sub-agent."""
    if task["executor"] == "external" and task["status"] == "pending":
        stigmergy.call("POST", "/v1/sub-agents", {"task_id": task["id"]})


def agent_loop(stigmergy: Stigmergy, message: Json, webhook_id: str) -> None:
    """on-sub-agent-message: think, once all that was asked for is there; then stop, ask, or let the tools run."""
    path = f"/v1/sub-agents/{message['run_id']}"
    log = stigmergy.get(f"{path}/messages", limit="500")
    if log["status"] == "running" and is_to_think(log["items"]):
        try:
            # of two who think at the same time, the one whose version is the run's is heard
            stigmergy.call("POST", f"{path}/messages", {"role": "assistant"} | think(log["items"]), if_match=log["version"])
        except Refused as refused:
            if refused.status not in DONE_ALREADY:
                raise
        log = stigmergy.get(f"{path}/messages", limit="500")
    last = log["items"][-1]
    if log["status"] != "running" or last["role"] != "assistant" or last.get("tool_calls"):
        return
    if last["content"].startswith(QUESTION):
        stigmergy.move(path, {"status": "waiting_for_user"}, if_match=log["version"])
    else:
        stigmergy.move(path, {"status": "completed", "result": last["content"]}, if_match=log["version"])


def is_to_think(messages: list[Json]) -> bool:
    """Whether something was said since the last thought, and every call that was asked for by then has its result."""
    thoughts = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not thoughts:
        return True
    since = messages[thoughts[-1] + 1 :]
    asked = messages[thoughts[-1]].get("tool_calls", [])
    answered = {message.get("tool_call_id") for message in since}
    return bool(since) and all(call["id"] in answered for call in asked)


def tool_runner(stigmergy: Stigmergy, call: Json, webhook_id: str) -> None:
    """on-sub-agent-tool: a call is run and settled; its result is a message, which wakes the researcher."""
    path = f"/v1/sub-agents/{call['run_id']}/tool-calls/{call['id']}"
    if stigmergy.get(path)["status"] not in ("pending", "running"):
        return
    stigmergy.move(path, {"status": "running"})
    # a call that was begun by one of us who was killed is run again: these tools only look
    try:
        outcome = {"status": "success", "result": TOOLS[call["tool_name"]](**call["args"])}
    except Exception as error:
        outcome = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    stigmergy.move(path, outcome)


def orchestrator_finalize(stigmergy: Stigmergy, task: Json, webhook_id: str) -> None:
    """on-task-completed: the person is told the result."""
    stigmergy.say(task["space_id"], f"answer-{task['id']}-{task['completions']}", task["result"])


def orchestrator_notify(stigmergy: Stigmergy, task: Json, webhook_id: str) -> None:
    """on-task-waiting: the person is asked what the researcher wants to know. Who answers replies to this message."""
    log = stigmergy.get(f"/v1/sub-agents/{task['run_id']}/messages", limit="500")["items"]
    question = [message["content"] for message in log if message["content"].startswith(QUESTION)][-1]
    id = f"question-{task['id']}-{task['version']}"
    stigmergy.say(task["space_id"], id, question.removeprefix(QUESTION), metadata={"task_id": task["id"]})


def orchestrator_failed(stigmergy: Stigmergy, task: Json, webhook_id: str) -> None:
    """on-task-failed: the person is told why."""
    stigmergy.say(task["space_id"], f"failure-{task['id']}", f"I could not find out: {task['error']}")


Handler = Callable[[Stigmergy, Json, str], None]
WEBHOOKS: dict[str, Handler] = {
    "/webhook/orchestrator": orchestrator,
    "/webhook/agent-init": agent_init,
    "/webhook/agent-loop": agent_loop,
    "/webhook/tool-runner": tool_runner,
    "/webhook/orchestrator-finalize": orchestrator_finalize,
    "/webhook/orchestrator-notify": orchestrator_notify,
    "/webhook/orchestrator-failed": orchestrator_failed,
}


# ---- the HTTP server ----


class Webhooks(BaseHTTPRequestHandler):
    """2xx: done. 5xx: Stigmergy comes again. Another 4xx: it does not, and keeps a dead letter."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        handler = WEBHOOKS.get(self.path)
        if handler is None:
            return self._answer(404, "there is no such webhook")
        if not is_signed(self.headers, body):
            return self._answer(401, "the signature is not ours, or too old")
        try:
            document = json.loads(body)["event"]["document"]["data"]
            handler(Stigmergy(self.headers["stigmergy-cause"]), document, self.headers["webhook-id"])
        except Exception as error:  # whatever it was, the next try finds what there is
            return self._answer(503, f"{type(error).__name__}: {error}")
        return self._answer(204)

    def _answer(self, status: int, text: str = "") -> None:
        if text:
            print(f"{self.path}: {status} {text}", file=sys.stderr, flush=True)
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """One line a request is too many."""


def is_signed(headers: Any, body: bytes) -> bool:
    """Whether Stigmergy sent this, not long ago: as Standard Webhooks says."""
    key = base64.b64decode(os.environ["STIGMERGY_WEBHOOK_SECRET"].removeprefix("whsec_"))
    id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not at.isdecimal() or abs(time.time() - int(at)) > 300:
        return False
    right = "v1," + base64.b64encode(hmac.digest(key, f"{id}.{at}.".encode() + body, hashlib.sha256)).decode()
    return any(hmac.compare_digest(right, given) for given in headers.get("webhook-signature", "").split())


def declare_agents() -> None:
    """Tell Stigmergy who the agents are, and that it is we who execute them."""
    while True:
        try:
            for name, definition in AGENTS.items():
                Stigmergy().call("PUT", f"/v1/agents/{name}", {"name": name} | definition)
            return
        except (OSError, HTTPException):  # it is not there yet, or not any more
            time.sleep(0.1)


def main(port: int) -> None:
    declare_agents()
    server = ThreadingHTTPServer(("127.0.0.1", port), Webhooks)
    server.daemon_threads = True
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
