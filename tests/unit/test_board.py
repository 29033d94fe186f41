"""A tree of runs as it is drawn from events, with a clock of the test's own."""

import io
from typing import Any

from rich.console import Console

from stigmergy.cli.board import Board
from stigmergy.cli.pictures import called, duration, news, one_line, picture
from stigmergy.engine.watching import EventKind, RunEvent


class Told:
    """A board that is told of a run `lead`, and of one under it; each event a second after the one before."""

    def __init__(self) -> None:
        self.now = 0.0
        self.board = Board("1", lambda: self.now)
        self.lines: list[str] = []

    def tell(self, kind: EventKind, run: str = "1", **fields: Any) -> None:
        event = RunEvent(kind=kind, run_id=run, agent={"1": "lead", "2": "helper"}.get(run, ""), **fields)
        self.board.take(event)
        self.lines += news(self.board, event, " --url http://here")
        self.now += 1

    def drawn(self) -> list[str]:
        console = Console(file=io.StringIO(), width=80, color_system=None)
        console.print(picture(self.board, 0, " --url http://here"))
        assert isinstance(console.file, io.StringIO)
        return [line.rstrip() for line in console.file.getvalue().splitlines()]


def delegated() -> Told:
    told = Told()
    told.tell("status", status="queued")
    told.tell("message", role="user", text="Find it.")
    told.tell("status", status="running")
    told.tell("message", role="assistant", text="", step=1, tokens=1_234)
    told.tell("call", call_id="a", tool="create_task", args={"agent": "helper", "instruction": "look"}, status="running")
    told.tell("call", call_id="b", tool="price", args={"symbol": "BTC"}, status="running")
    told.tell("status", "2", status="queued", parent_run_id="1")
    told.tell("status", "2", status="running", parent_run_id="1")
    return told


def test_a_child_stands_under_the_call_that_it_is_for() -> None:
    told = delegated()
    told.tell("result", call_id="b", tool="price", args={"symbol": "BTC"}, status="success", result=97_000.0)
    told.tell("status", status="waiting_tool", step=1, tokens_used=1_234)
    told.tell("text", "2", stream_id="s", offset=0, text="I am ")
    told.tell("text", "2", stream_id="s", offset=5, text="looking")
    assert told.drawn() == [
        "lead  waiting for others  1 step  1,234 tokens  12.0 s",
        '├── ⠋ create_task(agent="helper", instruction="look")  8.0 s',
        "│   └── ⠋ helper  running  6.0 s",
        "│       └── I am looking",
        '└── ✓ price(symbol="BTC")  → 97000.0  3.0 s',
    ]


def test_a_tree_that_has_ended_stands_still() -> None:
    told = delegated()
    told.tell("status", "2", status="completed", parent_run_id="1", result="found", step=1, tokens_used=10)
    told.tell("result", call_id="a", tool="create_task", args={"agent": "helper"}, status="success", result={"run_id": "2"})
    told.tell("result", call_id="b", tool="price", args={"symbol": "BTC"}, status="failed", error="no such coin")
    told.tell("status", status="failed", error="limit: enough", step=2, tokens_used=2_000)
    told.now += 1_000
    assert told.drawn() == [
        "lead  failed  2 steps  2,000 tokens  11.0 s",
        '├── ✓ create_task(agent="helper")  5.0 s',
        "│   └── helper  completed  1 step  10 tokens  2.0 s",
        "│       └── → found",
        '├── ✗ price(symbol="BTC")  no such coin  5.0 s',
        "└── limit: enough",
    ]


def test_what_waits_is_shown_with_the_command_that_answers_it_until_it_is_answered() -> None:
    told = Told()
    told.tell("status", status="running")
    told.tell("call", call_id="a", tool="drop", args={"table": "t"}, status="pending")
    told.tell("wait", call_id="a", wait_id="w", wait_kind="approval", question="May it?")
    assert told.drawn()[1:] == [
        '└── ? drop(table="t")  2.0 s',
        "    └── ? May it?  stigmergy waits answer w --decision approve --url http://here",
    ]
    told.tell("result", call_id="a", tool="drop", args={"table": "t"}, status="success", result="done")
    assert told.drawn()[1:] == ['└── ✓ drop(table="t")  → done  2.0 s']


def test_withdrawn_text_is_gone_and_a_runs_own_text_is_told_from_its_offset() -> None:
    told = Told()
    told.tell("status", status="running")
    told.tell("text", stream_id="s", offset=0, text="one two")
    told.tell("text", stream_id="s", offset=4, text="two three")
    assert told.drawn()[1:] == ["└── one two three"]
    told.tell("withdrawn", stream_id="s")
    assert told.drawn()[1:] == []


def test_what_is_told_of_a_run_that_is_not_known_is_left() -> None:
    told = Told()
    told.tell("text", "9", stream_id="s", offset=0, text="x")
    assert (told.board.runs, told.lines) == ({}, [])


def test_the_same_is_told_in_lines() -> None:
    told = delegated()
    told.tell("wait", "2", call_id="x", wait_id="w", wait_kind="reply", question="Which one?")
    told.tell("message", "2", role="assistant", text="This\none.", step=1)
    told.tell("status", "2", status="completed", parent_run_id="1", result="found", step=1, tokens_used=10)
    told.tell("result", call_id="a", tool="create_task", args={"agent": "helper"}, status="success", result={})
    told.tell("result", call_id="b", tool="price", args={"symbol": "BTC"}, status="success", result=97_000.0)
    told.tell("status", status="failed", error="limit: enough", step=2, tokens_used=2_000)
    assert told.lines == [
        "lead: queued",
        "lead hears: Find it.",
        "lead: running",
        'lead calls create_task(agent="helper", instruction="look")',
        'lead calls price(symbol="BTC")',
        "  helper: queued",
        "  helper: running",
        "  helper asks: Which one?  stigmergy waits answer w TEXT --url http://here",
        "  helper says: This one.",
        "  helper: completed  1 step  10 tokens  4.0 s",
        "lead has price: 97000.0",
        "lead: failed  2 steps  2,000 tokens  13.0 s: limit: enough",
    ]


def test_texts_are_cut_to_a_line() -> None:
    assert one_line("a\n b   c", 80) == "a b c"
    assert one_line("x" * 100, 10) == "x" * 9 + "…"
    assert called("f", {"a": 1, "b": "x" * 100}) == 'f(a=1, b="' + "x" * 38 + "…)"
    assert called("f", "not JSON") == "f(not JSON)"
    assert [duration(each) for each in (0.0123, 1.26, 75, 3_700)] == ["12 ms", "1.3 s", "1 min 15 s", "1 h 01 min"]
