"""`examples/nested_agents`: an orchestrator, a researcher and a tool runner outside, driven by webhooks alone. Whoever is killed
meanwhile, each question has one answer, and nothing is doubled."""

import runpy
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.repository import ROOT

FOLDER = ROOT / "examples" / "nested_agents"
PATIENCE_SECONDS = 100
QUICK = {"STIGMERGY_LEASE_SECONDS": "1"}

pytestmark = pytest.mark.serial

Both: Any = runpy.run_path(str(FOLDER / "run.py"))["Both"]


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Any]:
    with Both(tmp_path, *free_ports(), **QUICK) as both:
        yield both


class Chat:
    """Mia, who asks one thing in a space of its own, and says in which currency when she is asked."""

    def __init__(self, both: Any, number: int, question: str) -> None:
        self._both = both
        self.space_id = both.call("POST", "/v1/spaces", {"id": f"space-{number}", "members": ["agent:orchestrator"]})["id"]
        self._path = f"/v1/spaces/{self.space_id}/messages"
        self._say({"id": f"{self.space_id}-question", "content": question})
        self._asked = 0

    def _say(self, message: dict[str, Any]) -> None:
        self._both.call("POST", self._path, message)

    def messages(self) -> list[dict[str, Any]]:
        return self._both.call("GET", f"{self._path}?after=0")["items"]

    def is_answered(self) -> bool:
        """Look whether there is an answer; answer what is asked."""
        heard = [each for each in self.messages() if each["role"] == "agent"]
        for question in (each for each in heard if each["id"].startswith("question-")):
            self._say({"id": f"reply-to-{question['id']}", "content": "In dollars, please.", "reply_to": question["id"]})
        return any(each["id"].startswith("answer-") for each in heard)


def until_answered(chats: list[Chat]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(chat.is_answered() for chat in chats):
        assert time.monotonic() < deadline, [chat.messages() for chat in chats]
        time.sleep(0.05)


def check(both: Any, chats: list[Chat]) -> None:
    """Fail unless everything that happened, happened once."""

    def get(path: str) -> Any:
        return both.call("GET", path, token=both.orchestrator)

    for chat in chats:
        said = chat.messages()
        in_euros = "euros" in said[0]["content"]
        answer = "One bitcoin is worth 87,300 euros." if in_euros else "One bitcoin is worth 97,000 dollars."
        expected = [("human", said[0]["content"])]
        if not in_euros:
            expected += [("agent", "In dollars or in euros?"), ("human", "In dollars, please.")]
        assert [(each["role"], each["content"]) for each in said] == [*expected, ("agent", answer)]

        (task,) = get(f"/v1/tasks?space_id={chat.space_id}")["items"]
        assert (task["status"], task["result"], task["completions"]) == ("success", answer, 1)
        (sub_agent,) = get(f"/v1/sub-agents?task_id={task['id']}")["items"]
        assert (sub_agent["state"], sub_agent["result"]) == ("completed", answer)
        log = get(f"/v1/sub-agents/{sub_agent['id']}/messages")["items"]
        asking = [] if in_euros else ["assistant", "user"]
        assert [each["role"] for each in log] == ["system", "user", *asking, "assistant", "tool", "tool", "assistant"]
        calls = get(f"/v1/sub-agents/{sub_agent['id']}/tool-calls")["items"]
        assert [(each["tool_name"], each["status"]) for each in calls] == [("price", "success"), ("rate", "success")]
        taken = sorted([each["pos"] for each in log] + [each[at] for each in calls for at in ("opened_pos", "settled_pos")])
        assert taken == list(range(1, len(taken) + 1)), "the log has gaps"
    assert get("/v1/deliveries?status=dead")["items"] == []


def test_questions_are_answered(both: Any) -> None:
    chats = [Chat(both, 1, "What is a bitcoin worth in euros?"), Chat(both, 2, "What is a bitcoin worth?")]
    until_answered(chats)
    check(both, chats)


def test_whoever_is_killed_meanwhile_each_question_has_one_answer(both: Any) -> None:
    chats: list[Chat] = []
    for number, which in enumerate(["service", "stigmergy"] * 3):
        chats.append(Chat(both, number, f"What is a bitcoin worth{' in euros' if number % 2 else ''}?"))
        until = time.monotonic() + 0.05 * (number % 4)
        while time.monotonic() < until:
            chats[-1].is_answered()
        both.kill(which)
        time.sleep(0.1)
        both.start(which)
    until_answered(chats)
    check(both, chats)


def test_a_webhook_that_we_did_not_sign_is_refused(both: Any) -> None:
    url = f"http://127.0.0.1:{both.service_port}/webhook/orchestrator"
    headers = {"webhook-id": "x", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,bm8="}
    assert httpx.post(url, json={"event": {"document": {"data": {}}}}, headers=headers).status_code == 401
