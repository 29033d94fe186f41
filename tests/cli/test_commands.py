"""The command as a person uses it: a process, its output, its exit code."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from support import commands
from support.commands import COMMAND
from support.stores import make_file


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen([COMMAND, "serve", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    found = re.search(r"http://\S+", first)
    assert found is not None
    yield process, found[0]
    process.kill()
    process.communicate()


def get(url: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_serve_makes_the_store_answers_and_ends_in_good_order(served: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    process, url = served
    assert get(f"{url}/health")[1]["status"] == "ok"
    status, openapi = get(f"{url}/openapi.json")
    assert (status, openapi["openapi"]) == (200, "3.1.0")
    status, problem = get(f"{url}/nowhere")
    assert (status, problem["code"]) == (404, "not_found")
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stigmergy.db"]


def test_commands_work_beside_a_running_server(served: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    commands.run(tmp_path, "doctor")
    assert commands.run(tmp_path, "backup", "copy.db") == "copy.db holds a copy of stigmergy.db.\n"
    findings = json.loads(commands.run(tmp_path, "doctor", "--store", "copy.db", "--json"))
    assert all(finding["well"] for finding in findings)


def test_every_command_has_help(tmp_path: Path) -> None:
    helped = commands.run(tmp_path, "--help")
    listed = dict(re.findall(r"^│ ([a-z]+) +(.*?) *│$", helped, re.MULTILINE))
    assert all(listed.values()), listed
    names = list(listed)
    assert {"serve", "worker", "migrate", "backup", "doctor", "settings", "breadcrumbs", "feed", "assembly", "token"} <= {*names}
    for name in names:
        assert "Usage" in commands.run(tmp_path, name, "--help")


def make_foreign(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE others (id)")
    connection.close()


def make_newer(path: Path) -> None:
    make_file(path)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO schema_migrations VALUES ('stigmergy.kernel', 9999, '9999_later.sql', '', 0)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "arguments", "code", "says"),
    [
        (lambda path: path.write_text("hello " * 200), ["serve"], 3, "is not a SQLite file"),
        (make_foreign, ["serve"], 3, "of another program"),
        (make_newer, ["doctor"], 4, "use a newer stigmergy"),
        (lambda path: path.mkdir(), ["serve"], 3, "is a folder"),
        (lambda path: None, ["doctor"], 3, "stigmergy migrate"),
    ],
    ids=["not a database", "foreign", "newer", "folder", "not there yet"],
)
def test_a_store_that_cannot_be_used_is_one_clear_sentence(tmp_path, make, arguments, code, says) -> None:
    path = tmp_path / "bad.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    command = [COMMAND, *arguments, "--store", "bad.db"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == code
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("mysql://host/name", "mysql:// is no store"),
        ("postgresql://127.0.0.1:1/none", "cannot be reached"),
        ("missing/folder.db", "does not exist"),
        (":memory:", "needs a file"),
    ],
)
def test_a_wrong_place_is_one_clear_sentence(tmp_path: Path, store: str, says: str) -> None:
    said = commands.run(tmp_path, "doctor", "--store", store, code=3)
    assert len(said.splitlines()) == 1
    assert says in said
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_setting_is_one_clear_sentence(tmp_path: Path) -> None:
    said = commands.run(tmp_path, "doctor", code=2, environment={"STIGMERGY_BUSY_SECONDS": "soon"})
    assert len(said.splitlines()) == 1
    assert "busy_seconds" in said
