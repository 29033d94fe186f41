"""Runs, agents and waits on the command line: on the store, with a program in this process, and over a server."""

import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import COMMAND, run
from support.server import ServerProcess

PATIENCE = 40
PROGRAM = """
from pathlib import Path
from stigmergy.settings import Settings
from support.team import team

app = team(Settings(store="program.db", embedder="off"))
"""
PLAIN = {"model": "scripted:script.toml", "instructions": "Answer."}
SCRIPT = '[[rules]]\nreply = "You said {{ last }}"\n'
SUPPORT = str(Path(__file__).parent.parent)


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "clerk.json").write_text(json.dumps(PLAIN))
    (folder / "script.toml").write_text(SCRIPT)
    return folder


@pytest.fixture
def served(folder: Path) -> Iterator[ServerProcess]:
    with ServerProcess(folder, "program:app", PYTHONPATH=SUPPORT) as server:
        yield server


def ids(text: str) -> list[str]:
    return [each["id"] for each in json.loads(text)]


def test_agents_that_are_data_are_put_shown_asked_and_taken_away(folder: Path) -> None:
    assert run(folder, "agents", "put", "clerk.json") == "clerk is there, in version 1.\n"
    assert "clerk  scripted:script.toml  of cli" in run(folder, "agents", "ls")
    assert "Answer." in run(folder, "agents", "show", "clerk")
    assert json.loads(run(folder, "agents", "show", "clerk", "--json"))["definition"]["model"] == PLAIN["model"]
    assert run(folder, "run", "clerk", "hello") == "You said hello\n"
    old = PLAIN | {"tools": [{"name": "x", "executionType": "client", "displayTool": False}]}
    (folder / "clerk.json").write_text(json.dumps(old))
    assert "notice tools[0]: displayTool False was migrated" in run(folder, "agents", "put", "clerk.json")
    run(folder, "agents", "rm", "clerk")
    assert run(folder, "agents", "ls") == ""
    assert "there is no agent 'clerk'" in run(folder, "agents", "rm", "clerk", code=5)
    assert "there is no agent 'clerk'" in run(folder, "run", "clerk", "hello", code=5)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "clerk.json: this is no definition"), ("[]", "clerk.json: a definition is an object"), ("{}", "model")],
)
def test_a_file_that_is_no_definition_is_refused(folder: Path, text: str, says: str) -> None:
    (folder / "clerk.json").write_text(text)
    assert says in run(folder, "agents", "put", "clerk.json", code=2)
    assert "cannot be read" in run(folder, "agents", "put", "nowhere.json", code=2)
    assert run(folder, "agents", "ls") == ""


def test_a_definition_comes_from_toml_and_from_standard_input(folder: Path) -> None:
    (folder / "other.toml").write_text('model = "scripted:script.toml"\n')
    assert "other is there" in run(folder, "agents", "put", "other.toml")
    assert "third is there" in run(folder, "agents", "put", "-", "--name", "third", given=json.dumps(PLAIN))
    assert "say the agent's name" in run(folder, "agents", "put", "-", given=json.dumps(PLAIN), code=2)


def test_runs_are_listed_shown_spoken_to_and_stopped(folder: Path) -> None:
    run(folder, "agents", "put", "clerk.json")
    done = json.loads(run(folder, "run", "clerk", "hello", "--json"))
    assert (done["status"], done["result"], done["owner_id"]) == ("completed", "You said hello", "cli")
    assert ids(run(folder, "runs", "ls", "--json")) == [done["id"]]
    listed = run(folder, "runs", "ls", "--agent", "clerk", "--status", "completed")
    assert re.search(rf"{done['id']}  clerk  completed  1 step  \d+ tokens  \S+ m?s  You said hello", listed)
    assert run(folder, "runs", "ls", "--status", "failed") == ""
    shown = run(folder, "runs", "show", done["id"])
    assert all(part in shown for part in ("system  #1", "Answer.", "user  #2", "hello", "assistant  #3", "You said hello"))
    assert len(json.loads(run(folder, "runs", "show", done["id"], "--json"))["messages"]) == 3
    asked = run(folder, "runs", "prompt", done["id"], "1")
    assert "Answer." in asked
    assert "tools: " in asked
    assert "no step 7" in run(folder, "runs", "prompt", done["id"], "7", code=5)
    assert "has heard it; it is running" in run(folder, "runs", "tell", done["id"], "and more")
    assert run(folder, "runs", "watch", done["id"]) == "You said and more\n"
    assert f"{done['id']}  clerk  completed  2 steps" in run(folder, "runs", "tree", done["id"])
    run(folder, "runs", "tell", done["id"], "once more")
    assert "is canceled: enough" in run(folder, "runs", "cancel", done["id"], "--reason", "enough")
    assert run(folder, "runs", "watch", done["id"], code=1) == ""
    assert "no run nothing" in run(folder, "runs", "show", "nothing", code=5)


def test_a_run_of_a_program_in_this_process_is_told_line_by_line(folder: Path) -> None:
    done = subprocess.run(
        [COMMAND, "run", "lead", "delegate this", "--app", "program:app"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": SUPPORT},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout.startswith("It is: ")) == (0, True), done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == "lead: queued"
    assert 'lead calls create_task(agent="helper", instruction="this")' in lines
    assert "  helper says: helped with this" in lines
    assert re.fullmatch(r"lead: completed  2 steps  \d+ tokens  .*s", lines[-1])
    assert len(ids(run(folder, "runs", "ls", "--store", "program.db", "--json"))) == 2


def test_a_run_over_a_server_asks_is_answered_and_comes_to_its_end(served: ServerProcess, folder: Path) -> None:
    there = {"STIGMERGY_URL": served.url}
    assert run(folder, "run", "lead", "price BTC", environment=there) == "It is: 97000.0\n"
    assert "lead  code:lead  of app  price, drop, fail, here" in run(folder, "agents", "ls", environment=there)
    waiting = subprocess.Popen(
        [COMMAND, "run", "lead", "drop users", "--url", served.url],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    hint = next(line for line in waiting.stderr if "stigmergy waits answer" in line)
    assert "lead asks: May lead call drop?" in hint
    assert hint.rstrip().endswith(f"--url {served.url}")
    listed = run(folder, "waits", "ls", environment=there)
    assert "approval  May lead call drop?  for local" in listed
    assert 'drop(table="users")  approve | reject | modify | cancel' in listed
    (wait,) = json.loads(run(folder, "waits", "ls", "--mine", "--json", environment=there))
    assert "say an answer" in run(folder, "waits", "answer", wait["id"], environment=there, code=2)
    assert "not JSON" in run(folder, "waits", "answer", wait["id"], "--result", "{", environment=there, code=2)
    modify = ("--decision", "modify", "--args", '{"table": "logs"}', "--reason", "only these")
    assert "is running" in run(folder, "waits", "answer", wait["id"], *modify, environment=there)
    output, _ = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, output) == (0, "It is: dropped logs for local\n")
    assert "answered already" in run(folder, "waits", "answer", wait["id"], "-d", "approve", environment=there, code=6)
    assert run(folder, "waits", "ls", environment=there) == ""
    with_both = run(folder, "run", "lead", "x", "--app", "program:app", environment=there, code=2)
    assert "give --url or --app" in with_both


def test_a_server_that_is_not_there_is_one_clear_sentence(folder: Path) -> None:
    message = run(folder, "runs", "ls", "--url", "http://127.0.0.1:1", code=3)
    assert "cannot be reached" in message
    assert len(message.splitlines()) == 1


class Terminal:
    """A command whose standard error is a terminal; what it showed there so far."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._near, far = pty.openpty()
        environment = os.environ | {"PYTHONPATH": SUPPORT, "COLUMNS": "110", "LINES": "40", "TERM": "xterm"}
        self.process = subprocess.Popen(
            [COMMAND, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=far, text=True
        )
        os.close(far)
        self.shown = ""
        self.changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                said = os.read(self._near, 65_536)
            except OSError:  # the other end was closed
                said = b""
            with self.changed:
                self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode("utf-8", "replace"))
                self.changed.notify_all()
            if not said:
                return

    def until(self, text: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: text in self.shown, PATIENCE), self.shown

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=PATIENCE)
        self._reader.join(PATIENCE)
        os.close(self._near)
        return self.process.returncode, output


def test_on_a_terminal_the_tree_is_live_and_the_answer_is_the_output(folder: Path) -> None:
    terminal = Terminal(folder, "run", "lead", "delegate this", "--app", "program:app")
    status, output = terminal.end()
    assert (status, output.startswith("It is: ")) == (0, True)
    last = terminal.shown[terminal.shown.rindex("lead  completed") :]
    assert re.match(
        r"lead  completed  2 steps  \d+ tokens  [\d.]+ m?s\s+"
        r'└── ✓ create_task\(agent="helper", instruction="this"\)  [\d.]+ m?s\s+'
        r"└── helper  completed  1 step  \d+ tokens  [\d.]+ m?s\s+"
        r"└── → helped with this",
        last.replace("\r", ""),
    ), last


@pytest.mark.parametrize("stop", [False, True])
def test_ctrl_c_leaves_a_run_and_says_how_to_come_back_or_stops_it(folder: Path, stop: bool) -> None:
    terminal = Terminal(folder, "run", "lead", "drop users", "--app", "program:app", *(["--stop"] if stop else []))
    terminal.until("stigmergy waits answer")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == (130, "")
    (id,) = ids(run(folder, "runs", "ls", "--store", "program.db", "--json"))
    if stop:
        assert f"Run {id} was stopped." in terminal.shown
        assert "canceled" in run(folder, "runs", "ls", "--store", "program.db")
        return
    assert f"stigmergy runs watch {id} --store program.db --app program:app" in terminal.shown
    assert f"stigmergy runs cancel {id} --store program.db" in terminal.shown
    assert "waiting for a reply" in run(folder, "runs", "ls", "--store", "program.db")
