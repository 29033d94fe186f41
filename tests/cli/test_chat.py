"""The demo team, started and talked to as a user would; and the commands of spaces against it."""

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import commands
from support.repository import ROOT
from support.server import COMMAND, PATIENCE, ServerProcess

DEMO = "examples/demo/team.py:app"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("demo"), str(ROOT / DEMO)) as server:
        yield server


def run(demo: ServerProcess, *arguments: str, code: int = 0) -> str:
    return commands.run(ROOT, *arguments, code=code, environment={"STIGMERGY_URL": demo.url})


class Terminal:
    """`stigmergy chat` at a terminal."""

    def __init__(self, demo: ServerProcess) -> None:
        self._ours, theirs = pty.openpty()
        environment = os.environ | {"STIGMERGY_URL": demo.url, "TERM": "xterm", "COLUMNS": "200", "LINES": "40"}
        self.process = subprocess.Popen([COMMAND, "chat", "demo"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown):
            assert time.monotonic() < end, self.shown[-3_000:]
            if select.select([self._ours], [], [], 0.2)[0]:
                got = os.read(self._ours, 65_536)
                if b"\x1b[6n" in got:  # where is the cursor?
                    os.write(self._ours, b"\x1b[1;1R")
                self.shown += got.decode("utf-8", "replace")

    def write(self, line: str) -> None:
        self.shown = ""
        os.write(self._ours, line.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._ours)


def test_the_server_that_make_starts_has_the_demo_team(demo: ServerProcess) -> None:
    # what `make test` itself was given is not for this one
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "ARGS")}
    told = subprocess.run(
        ["make", "-n", "run"], cwd=ROOT, env=alone, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert f"stigmergy serve {DEMO}" in told.stdout
    assert demo.process.stdout is not None
    greeting = ""
    while "limit=5" not in greeting:
        line = demo.process.stdout.readline()
        assert line, greeting
        greeting += line
    assert f"bin/stigmergy chat demo --url {demo.url}" in greeting


def test_a_question_is_delegated_looked_up_and_answered(demo: ServerProcess) -> None:
    command, said = [COMMAND, "chat", "demo", "--url", demo.url], "@guide what are breadcrumbs?\n"
    shown = subprocess.run(command, input=said, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert re.search(r"librarian  ⚙ search_docs\(query=what are breadcrumbs\?\)", shown)
    answer = re.search(r"guide ↩  “(.*)” That is docs/(.*)\.md, .*scripted", shown)
    assert answer is not None, shown
    assert "versioned packet of context" in answer[1]


def test_at_a_terminal_one_is_asked_answers_and_approves(demo: ServerProcess) -> None:
    terminal = Terminal(demo)
    try:
        terminal.until("here are guide, librarian")
        terminal.write("@guide hello\r")
        terminal.until("What would you like to know about?")
        terminal.write("idempotency keys\r")
        terminal.until("That is docs/")
        terminal.write("@guide note that this works\r")
        terminal.until("?1 May guide call keep_note?")
        terminal.write("/approve\r")
        terminal.until("Kept: this works.")
        terminal.write("@guide note that it does not\r")
        terminal.until("?2 May guide call keep_note?")
        terminal.write("/reject not this one\r")
        terminal.until("Then I keep nothing.")
        terminal.write("@nobody hello\r")
        terminal.until("nobody here is called @nobody")
        terminal.write("/quit\r")
        assert terminal.process.wait(PATIENCE) == 0
    finally:
        terminal.close()


def test_spaces_are_made_read_and_spoken_in_by_commands(demo: ServerProcess) -> None:
    id = run(demo, "spaces", "create", "The report", "--member", "tom", "--about", "who writes what").strip()
    assert "ada is in." in run(demo, "spaces", "add", "The report", "ada")
    message = run(demo, "spaces", "post", "the report", "- @tom, you begin").strip()
    shown = run(demo, "spaces", "show", id)
    assert all(part in shown for part in ("The report", "who writes what", "tom", "human"))
    assert "@tom, you begin" in run(demo, "spaces", "history", id)
    assert [each["id"] for each in json.loads(run(demo, "spaces", "history", id, "--json"))] == [message]
    assert {"demo", id} <= {each["id"] for each in json.loads(run(demo, "spaces", "ls", "--json"))}
    assert "stigmergy spaces ls" in run(demo, "spaces", "show", "nothing", code=5)
    assert "nobody here is called @eve" in run(demo, "spaces", "post", id, "@eve", code=2)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    complaint = commands.run(tmp_path, "chat", "demo", "--url", "http://127.0.0.1:9", code=3)
    assert "http://127.0.0.1:9 cannot be reached" in complaint
    assert len(complaint.splitlines()) == 1
