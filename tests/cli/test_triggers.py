"""Triggers and deliveries on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from support import commands

BASE = {"STIGMERGY_WEBHOOK_BASE": "http://127.0.0.1:1"}
TRIGGERS: list[dict[str, Any]] = [
    {"id": "on-note", "collection": "breadcrumbs", "event": "create", "condition": "title == 'x'", "action": "POST /hook"},
    {"id": "on-task", "collection": "users/*/orch-chats/*/tasks", "event": "update (status='success')", "action": "POST /done"},
]


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    return commands.run(folder, *arguments, code=code, environment=BASE)


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "triggers.json").write_text(json.dumps(TRIGGERS))
    return folder


def test_triggers_are_checked_added_listed_tested_and_taken_away(folder: Path) -> None:
    assert "2 triggers can be put" in run(folder, "triggers", "check", "triggers.json")
    run(folder, "triggers", "add", "triggers.json")
    listed = run(folder, "triggers", "list")
    assert "on-note  breadcrumbs  create  when title == 'x'  → webhook http://127.0.0.1:1/hook" in listed
    assert [each["id"] for each in json.loads(run(folder, "triggers", "list", "--json"))] == ["on-note", "on-task"]
    change = '{"collection": "tasks", "event": "update", "data": {"status": "success"}, "before": {"status": "running"}}'
    told = {each["id"]: each for each in json.loads(run(folder, "triggers", "test", change, "--json"))}
    assert (told["on-task"]["fires"], told["on-note"]["why_not"]) == (True, "the collection is tasks, not breadcrumbs")
    assert "fires  on-task" in run(folder, "triggers", "test", change, "--file", "triggers.json")
    assert "no trigger on-other" in run(folder, "triggers", "rm", "on-task", "on-other", code=5)
    assert "on-task" in run(folder, "triggers", "list")
    for command in (("triggers", "add"), ("triggers", "rm"), ("deliveries", "discard")):
        assert "name at least one" in run(folder, *command, code=2)
    run(folder, "triggers", "rm", "on-task")
    assert "on-task" not in run(folder, "triggers", "list")
    assert "no trigger on-task" in run(folder, "triggers", "rm", "on-task", code=5)
    assert run(folder, "triggers", "secret").startswith("whsec_")


def test_faults_and_what_looks_wrong_are_told_with_their_place(folder: Path) -> None:
    broken = [TRIGGERS[0], TRIGGERS[1] | {"event": "update (stat='x')"}]
    (folder / "broken.json").write_text(json.dumps(broken))
    message = run(folder, "triggers", "add", "broken.json", code=2)
    assert "broken.json: triggers[1].event: 'stat' is no field of tasks" in message
    assert run(folder, "triggers", "list") == ""
    (folder / "loop.json").write_text(json.dumps([TRIGGERS[0] | {"collection": "**", "condition": None}]))
    assert "self_start" in run(folder, "triggers", "check", "loop.json", code=1)


def test_deliveries_are_listed_shown_given_up_and_retried(folder: Path) -> None:
    run(folder, "triggers", "add", "triggers.json")
    run(folder, "breadcrumbs", "put", "note.v1", "x")
    (delivery,) = json.loads(run(folder, "deliveries", "ls", "--json"))
    assert (delivery["status"], delivery["trigger_id"]) == ("pending", "on-note")
    assert "pending  on-note" in run(folder, "deliveries", "ls", "--status", "pending", "--trigger", "on-note")
    shown = json.loads(run(folder, "deliveries", "show", delivery["id"]))
    assert shown["request"]["event"]["document"]["data"]["title"] == "x"
    assert "is pending" in run(folder, "deliveries", "retry", delivery["id"], code=6)
    assert "1 given up" in run(folder, "deliveries", "discard", delivery["id"])
    assert json.loads(run(folder, "deliveries", "show", delivery["id"]))["delivery"]["status"] == "discarded"
    assert "0 to be handed over" in run(folder, "deliveries", "retry", "--trigger", "on-note")
    assert "name deliveries" in run(folder, "deliveries", "retry", code=2)
