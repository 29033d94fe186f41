"""Breadcrumbs on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("stigmergy"))


def run(folder: Path, *arguments: str, code: int = 0, given: str | None = None) -> str:
    done = subprocess.run(
        [COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False, input=given, env=os.environ
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run(tmp_path, "migrate")
    return tmp_path


def test_what_is_put_is_got_listed_and_fed(folder: Path) -> None:
    context = '{"n": 1, "text": "[bold]not markup[/]"}'
    made = run(folder, "breadcrumbs", "put", "note.v1", "a title", "--context", context, "--tag", "a", "--tag", "b").strip()
    other = run(folder, "breadcrumbs", "put", "note.v1", "--context", "-", given='{"n": 2}').strip()
    shown = json.loads(run(folder, "breadcrumbs", "get", made))
    assert (shown["title"], shown["tags"], shown["context"]["text"]) == ("a title", ["a", "b"], "[bold]not markup[/]")
    listed = json.loads(run(folder, "breadcrumbs", "ls", "--where", "context.n == 2", "--json"))
    assert [view["id"] for view in listed] == [other]
    assert "a title" in run(folder, "breadcrumbs", "ls", "--tag", "a")
    assert "a title" in run(folder, "breadcrumbs", "search", "title")
    found = json.loads(run(folder, "breadcrumbs", "search", "title", "--method", "text", "--json"))
    assert ([each["breadcrumb"]["id"] for each in found["items"]], found["stale"]) == ([made], 0)
    preview = run(folder, "assembly", "preview", made, '[{"schema_name": "x.v1", "role": "trigger"}, {"schema_name": "note.v1"}]')
    assert json.loads(preview)["context"]["note"]["id"] == other


def test_a_live_tail_shows_what_happens(folder: Path) -> None:
    tail = subprocess.Popen([COMMAND, "feed", "--after", "0", "--json"], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        made = run(folder, "breadcrumbs", "put", "note.v1").strip()
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["id"] == made
    finally:
        tail.kill()
        tail.communicate()


def test_an_import_that_is_repeated_does_nothing_twice_and_an_export_gives_it_back(folder: Path) -> None:
    lines = [{"id": f"n{n:04}", "schema_name": "note.v1", "title": str(n), "context": {"n": n}} for n in range(1_203)]
    source = folder / "in.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for _ in range(2):
        assert "1203 breadcrumbs" in run(folder, "breadcrumbs", "import", "in.jsonl")
    (folder / "out.jsonl.partial").write_text('{"id": "n0600"}\n{"id": "n06')
    run(folder, "breadcrumbs", "export", "out.jsonl")
    given = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in given] == [f"n{n:04}" for n in range(600, 1_203)]
    assert given[-1]["context"] == {"n": 1_202}
    assert not (folder / "out.jsonl.partial").exists()
    run(folder, "migrate", "--store", "other.db")
    (folder / "whole.jsonl").write_text("\n".join(json.dumps(row) for row in given[1:]))
    assert "602" in run(folder, "breadcrumbs", "import", "whole.jsonl", "--store", "other.db")


def test_a_faulty_line_is_named_and_what_was_before_its_batch_stays(folder: Path) -> None:
    good = json.dumps({"schema_name": "note.v1"}) + "\n"
    (folder / "in.jsonl").write_text(good * 700 + '{"schema_name": 3}\n')
    assert "line 701" in run(folder, "breadcrumbs", "import", "in.jsonl", code=2)
    assert len(json.loads(run(folder, "breadcrumbs", "ls", "--limit", "499", "--json"))) == 499


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["breadcrumbs", "put", "note.v1", "--context", "[1]"], "context"),
        (["breadcrumbs", "put", "note.v1", "--context", "@none.json"], "none.json"),
        (["breadcrumbs", "import", "none.jsonl"], "none.jsonl"),
        (["breadcrumbs", "ls", "--where", "context.n >"], "where"),
    ],
)
def test_wrong_use_is_one_clear_sentence(folder: Path, arguments: list[str], says: str) -> None:
    said = run(folder, *arguments, code=2)
    assert says in said
    assert len(said.splitlines()) == 1
