"""Files of JSON lines, in and out: what was cut off goes on, what is wrong is named, and memory does not grow with the file."""

import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from support.commands import COMMAND, run
from support.stores import make_file

Line = dict[str, Any]


def lines_of(count: int, **fields: Any) -> list[Line]:
    return [{"id": f"n{n:06}", "schema_name": "note.v1", "title": str(n), "context": {"n": n}} | fields for n in range(count)]


def write(path: Path, lines: list[Line]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def stored(folder: Path, sql: str = "SELECT count(*) FROM breadcrumbs") -> Any:
    connection = apsw.Connection(str(folder / "stigmergy.db"))
    connection.set_busy_timeout(5_000)
    try:
        return connection.execute(sql).get
    finally:
        connection.close()


def test_what_is_exported_can_be_imported_elsewhere_and_nothing_of_its_writer_is_lost(folder: Path) -> None:
    lines = lines_of(3, tags=["a"], llm_hints={"exclude": ["n"]}, owner_id="mia", audience="private", description="d")
    write(folder / "in.jsonl", lines)
    assert "3 breadcrumbs" in run(folder, "breadcrumbs", "import", "in.jsonl")
    run(folder, "breadcrumbs", "export", "out.jsonl")
    given = read(folder / "out.jsonl")
    assert [{name: each[name] for name in lines[0]} for each in given] == lines
    make_file(folder / "other.db")
    run(folder, "breadcrumbs", "import", "out.jsonl", "--store", "other.db")
    run(folder, "breadcrumbs", "export", "again.jsonl", "--store", "other.db")
    assert [{name: each[name] for name in lines[0]} for each in read(folder / "again.jsonl")] == lines


def test_an_import_that_was_killed_goes_on_and_does_nothing_twice(folder: Path) -> None:
    lines = [{name: value for name, value in line.items() if name != "id"} for line in lines_of(8_000)]  # an id would be taken
    write(folder / "in.jsonl", lines)
    importing = subprocess.Popen([COMMAND, "breadcrumbs", "import", "in.jsonl"], cwd=folder, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while stored(folder) < 1_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    importing.kill()
    importing.wait()
    done = stored(folder)
    assert 1_000 <= done < 8_000
    assert done % 500 == 0
    said = run(folder, "breadcrumbs", "import", "in.jsonl")
    assert (f"{8_000 - done} breadcrumbs were written" in said, f"{done} of the 8000" in said) == (True, True)
    said = run(folder, "breadcrumbs", "import", "in.jsonl")
    assert ("0 breadcrumbs were written" in said, "8000 of the 8000" in said) == (True, True)
    assert (stored(folder), stored(folder, "SELECT count(DISTINCT title) FROM breadcrumbs")) == (8_000, 8_000)


@pytest.mark.parametrize("cut", ["", '{"id": "n00', "\n"], ids=["whole", "in a line", "an empty line"])
def test_an_export_that_was_cut_off_goes_on_behind_its_last_whole_line(folder: Path, cut: str) -> None:
    write(folder / "in.jsonl", lines_of(1_203))
    run(folder, "breadcrumbs", "import", "in.jsonl")
    long = json.dumps({"id": "n000600", "text": "x" * 200_000})  # longer than what is read at once from the end
    (folder / "out.jsonl.partial").write_text(f'{{"id": "n000000"}}\n{long}\n{cut}')
    if cut == "\n":
        assert "remove it" in run(folder, "breadcrumbs", "export", "out.jsonl", code=2)
        assert not (folder / "out.jsonl").exists()
        return
    run(folder, "breadcrumbs", "export", "out.jsonl")
    given = read(folder / "out.jsonl")
    assert [row["id"] for row in given] == ["n000000", *(f"n{n:06}" for n in range(600, 1_203))]
    assert given[-1]["context"] == {"n": 1_202}
    assert not (folder / "out.jsonl.partial").exists()
    assert "there already" in run(folder, "breadcrumbs", "export", "out.jsonl", code=2)


def test_an_export_goes_on_with_its_own_tenant_alone(folder: Path) -> None:
    run(folder, "breadcrumbs", "put", "note.v1", "--tenant", "acme")
    partial = folder / "out.jsonl.partial"
    partial.write_text('{"id": "a", "tenant": "main"}\n')
    assert "an export of main" in run(folder, "breadcrumbs", "export", "out.jsonl", "--tenant", "acme", code=2)
    assert partial.read_text() == '{"id": "a", "tenant": "main"}\n'
    assert "cannot be written" in run(folder, "breadcrumbs", "export", "nowhere/out.jsonl", code=2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"schema_name": 3}', "Expected `str`, got `int` - at `$.schema_name`"),
        ("{", "line 701"),
        ('{"schema_name": "note.v1", "context": ' + '{"a":' * 5_000 + "1" + "}" * 5_001, "line 701"),
        ('{"schema_name": "note.v1", "context": ' + '{"a":' * 200 + "1" + "}" * 201, "at most 100 levels"),
        ('{"schema_name": "note.v1", "tagz": []}', "no 'tagz'"),
        ('{"schema_name": "note.v1", "tags": [""]}', "line 701.tags[0]"),
        ('{"schema_name": "note.v1", "llm_hints": {"mode": "x"}}', "line 701.llm_hints"),
    ],
)
def test_a_faulty_line_is_named_and_what_was_before_its_batch_stays(folder: Path, line: str, says: str) -> None:
    good = json.dumps({"schema_name": "note.v1"}) + "\n"
    (folder / "in.jsonl").write_text(good * 700 + line + "\n")
    said = run(folder, "breadcrumbs", "import", "in.jsonl", code=2)
    assert "line 701" in said
    assert says in said
    assert stored(folder) == 500


@pytest.mark.serial
def test_memory_does_not_grow_with_the_file(folder: Path) -> None:
    """60 MB of large breadcrumbs: what goes together is bounded in bytes too."""
    write(folder / "in.jsonl", lines_of(120, context={"text": "x" * 500_000}))
    with subprocess.Popen([COMMAND, "breadcrumbs", "import", "in.jsonl"], cwd=folder, stdout=subprocess.DEVNULL) as importing:
        process = psutil.Process(importing.pid)
        first = most = 0
        while importing.poll() is None:
            if stored(folder):
                with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
                    most = max(most, process.memory_info().rss)
                first = first or most
            time.sleep(0.01)
    assert importing.returncode == 0
    assert stored(folder) == 120
    assert 0 < most - first < 60 * 1024 * 1024, f"{first:,} to {most:,} bytes"
