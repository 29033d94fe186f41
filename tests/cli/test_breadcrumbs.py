"""Breadcrumbs on the command line."""

import json
import subprocess
from pathlib import Path

import pytest

from support.commands import COMMAND, run


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["breadcrumbs", "put", "note.v1", "--context", "[1]"], "context"),
        (["breadcrumbs", "put", "note.v1", "--context", "@none.json"], "none.json"),
        (["breadcrumbs", "import", "none.jsonl"], "none.jsonl"),
        (["breadcrumbs", "ls", "--where", "context.n >"], "where"),
        (["assembly", "preview", "x", "["], "subscriptions"),
        (["assembly", "preview", "x", '{"schema_name": "a"}'], "subscriptions"),
    ],
)
def test_wrong_use_is_one_clear_sentence(folder: Path, arguments: list[str], says: str) -> None:
    said = run(folder, *arguments, code=2)
    assert says in said
    assert len(said.splitlines()) == 1
