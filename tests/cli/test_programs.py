"""Programs on the command line: served, worked on, ended; and what is said when none is there."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stigmergy import App
from stigmergy.settings import Settings

COMMAND = str(Path(sys.executable).with_name("stigmergy"))
PATIENCE = 30

PROGRAM = '''
import time
from pathlib import Path

from helper import ANSWER
from stigmergy import Agent, App, Asked, Reply, ScriptedModel, tool

@tool(timeout=60)
def dig() -> str:
    """Digs until it is told to stop."""
    Path("began").touch()
    while not Path("stop").exists():
        time.sleep(0.01)
    return "dug"

def script(request):
    last = request.messages[-1]
    if last.role == "user" and "dig" in last.content:
        return Reply(tool_calls=(Asked("1", "dig", "{}"),))
    return ANSWER

lead = Agent("lead", ScriptedModel(script), "Be brief.", tools=[dig])
app = App("program.db", agents=[lead])
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text('ANSWER = "42"\n')
    return tmp_path


def begin(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The process, once it says that it is there."""
    process = subprocess.Popen(
        [COMMAND, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def end(process: subprocess.Popen[str], *signals: signal.Signals) -> int:
    for each in signals:
        process.send_signal(each)
    try:
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode


def beside(folder: Path, store: str = "program.db") -> App:
    """Another process' view of the store: it starts runs, and works on none."""
    return App(entity="beside", settings=Settings(store=str(folder / store), work=False, embedder="off"))


async def seen(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("named", ["program:app", "program.py:app", "./program.py:app"])
@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)], ids=["serve", "worker"])
async def test_a_program_that_is_named_has_its_runs_worked_on(folder: Path, named: str, command: tuple[str, ...]) -> None:
    process = begin(folder, *command, named)
    async with beside(folder) as app:
        assert await app.ask("lead", "How much?", timeout=PATIENCE) == "42"
    assert end(process, signal.SIGTERM) == 0


async def test_the_store_of_the_command_line_wins_over_that_of_the_program(folder: Path) -> None:
    process = begin(folder, "worker", "program:app", "--store", "other.db")
    async with beside(folder, "other.db") as app:
        assert await app.ask("lead", "How much?", timeout=PATIENCE) == "42"
    assert end(process, signal.SIGINT) == 0
    assert not (folder / "program.db").exists()


async def test_a_server_without_a_program_leaves_the_agents_of_programs_as_they_are(folder: Path) -> None:
    working = begin(folder, "worker", "program:app")
    serving = begin(folder, "serve", "--port", "0", "--store", "program.db")
    async with beside(folder) as app:
        assert await app.ask("lead", "How much?", timeout=PATIENCE) == "42"
    assert (end(serving, signal.SIGTERM), end(working, signal.SIGTERM)) == (0, 0)


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)], ids=["serve", "worker"])
async def test_a_signal_lets_the_step_that_is_under_way_end_and_no_other_begins(folder: Path, command: tuple[str, ...]) -> None:
    process = begin(folder, *command, "program:app")
    async with beside(folder) as app:
        run = await app.runs.start("lead", "Go and dig.")
        await seen((folder / "began").exists)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert any(line.startswith("Ends after") for line in process.stdout)
        (folder / "stop").touch()
        assert await asyncio.to_thread(end, process) == 0
        (call,) = await app.runs.calls(run.id)
        view = await app.runs.get(run.id)
    assert (call.status, call.result) == ("success", "dug")
    assert (view.run.status, view.run.step) == ("running", 1)


async def test_a_second_signal_ends_a_worker_at_once_and_another_goes_on(folder: Path) -> None:
    process = begin(folder, "worker", "program:app")
    async with beside(folder) as app:
        run = await app.runs.start("lead", "Go and dig.")
        await seen((folder / "began").exists)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert "once more" in process.stdout.readline()
        began = time.monotonic()
        assert await asyncio.to_thread(end, process, signal.SIGTERM) == 1
        assert time.monotonic() - began < 5
        (folder / "stop").touch()
        again = begin(folder, "worker", "program:app")
        assert await run.result(PATIENCE) == "42"
    assert end(again, signal.SIGTERM) == 0


BROKEN = {
    "raises.py": "import os\nos.environ['NOT_THERE_AT_ALL']\n",
    "unclosed.py": "app = App(\n",
    "wants.py": "import not_installed_anywhere\n",
    "refused.py": "from stigmergy import Agent\nAgent('Not a name!', 'x:y')\n",
}


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("program", "name its App, such as `module:app`"),
        ("nowhere:app", "there is no module nowhere"),
        ("nowhere/at/all.py:app", "there is no file nowhere/at/all.py"),
        ("program:other", "program has no 'other'; it has an App named app"),
        ("program:lead", "program:lead is an Agent, and not an App of stigmergy; it has an App named app"),
        ("raises:app", "raises cannot be imported: KeyError: 'NOT_THERE_AT_ALL' (raises.py, line 2)"),
        ("unclosed.py:app", "'(' was never closed (unclosed.py, line 1)"),
        ("wants:app", "No module named 'not_installed_anywhere' (wants.py, line 1)"),
        ("refused:app", "refused cannot be imported"),
    ],
)
def test_a_name_that_leads_to_no_app_is_one_clear_sentence(folder: Path, named: str, says: str) -> None:
    for name, text in BROKEN.items():
        (folder / name).write_text(text)
    assert says in no_app(folder, "worker", named)


def test_serve_says_the_same_of_such_a_name(folder: Path) -> None:
    assert no_app(folder, "serve", "program:other") == no_app(folder, "worker", "program:other")


def no_app(folder: Path, command: str, named: str) -> str:
    done = subprocess.run([COMMAND, command, named], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "program.db").exists()
    return done.stderr
