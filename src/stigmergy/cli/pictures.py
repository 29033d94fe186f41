"""Runs for people: a tree that shows who does what, what it cost and how long it takes; and the same, line by line."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from rich.text import Text
from rich.tree import Tree

from stigmergy.cli.board import Board, CallLine, RunLine
from stigmergy.engine.watching import RunEvent
from stigmergy.runs.model import ENDED, Run
from stigmergy.runs.queries import Node

COLOURS = {
    "queued": "dim",
    "running": "cyan",
    "waiting_tool": "yellow",
    "waiting_reply": "yellow",
    "completed": "green",
    "failed": "red",
    "canceled": "magenta",
}
MARKS = {"success": ("✓", "green"), "failed": ("✗", "red"), "canceled": ("✗", "magenta"), "pending": ("?", "yellow")}
# How what waits is answered on the command line, by its kind.
ANSWERS = {"reply": "TEXT", "approval": "--decision approve", "tool": "--result JSON"}
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LONGEST_ARGUMENT = 40
LONGEST_RESULT = 80
LINES_OF_TEXT = 4


def picture(board: Board, frame: int = 0, where: object = "") -> Tree:
    """The whole tree as it stands. Where something is under way it turns, by the number of the frame. `where` is what commands
    are told that are to find the same."""
    root = board.runs.get(board.root)
    if root is None:
        return Tree(Text(f"{FRAMES[frame % len(FRAMES)]} run {board.root}", "dim"), guide_style="dim")
    tree = Tree(_run_line(board, root, frame), guide_style="dim")
    _grow(tree, board, root, frame, where)
    return tree


def _grow(tree: Tree, board: Board, line: RunLine, frame: int, where: object) -> None:
    for id, call in line.calls.items():
        branch = tree.add(_call_line(board, call, frame))
        if call.child is not None:
            child = board.runs[call.child]
            _grow(branch.add(_run_line(board, child, frame)), board, child, frame, where)
        if id in line.asks:
            branch.add(asked(line.asks[id], where))
    for id in line.children:
        child = board.runs[id]
        _grow(tree.add(_run_line(board, child, frame)), board, child, frame, where)
    for id, question in line.asks.items():
        if id not in line.calls:
            tree.add(asked(question, where))
    if line.status not in ENDED and line.text.strip():
        tree.add(Text("\n".join(line.text.strip().splitlines()[-LINES_OF_TEXT:]), "italic"))
    if line.error is not None:
        tree.add(Text(line.error, "red"))
    elif line.result is not None and line.id != board.root:  # the root's is the answer, which is printed whole
        tree.add(Text(f"→ {one_line(line.result, 2 * LONGEST_RESULT)}", "green", no_wrap=True, overflow="ellipsis"))


def _run_line(board: Board, line: RunLine, frame: int) -> Text:
    status = line.status
    if status == "waiting_tool" and any(call.took is None and call.child is not None for call in line.calls.values()):
        status = "waiting for others"
    text = headline(line.agent, status, line.steps, line.tokens, board.seconds(line))
    turning = line.status == "running" and not any(call.took is None for call in line.calls.values())
    return Text(f"{FRAMES[frame % len(FRAMES)]} ", "cyan") + text if turning else text


def headline(agent: str, status: str, steps: int, tokens: int, seconds: float | None) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(agent, "bold")
    text.append(f"  {status.replace('_', ' for a ')}", COLOURS.get(status, "yellow"))
    cost = [f"{steps} step{'' if steps == 1 else 's'}" if steps else "", f"{tokens:,} tokens" if tokens else ""]
    took = "" if seconds is None else duration(seconds)
    text.append("".join(f"  {part}" for part in (*cost, took) if part), "dim")
    return text


def _call_line(board: Board, call: CallLine, frame: int) -> Text:
    mark, colour = MARKS.get(call.status, (FRAMES[frame % len(FRAMES)], "cyan"))
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{mark} ", colour)
    text.append(called(call.tool, call.args))
    if call.error is not None:
        text.append(f"  {one_line(call.error, LONGEST_RESULT)}", "red")
    elif call.took is not None and call.child is None:
        text.append(f"  → {one_line(call.result, LONGEST_RESULT)}", "green")
    text.append(f"  {duration(board.seconds(call))}", "dim")
    return text


def called(tool: str, args: Any) -> str:
    """A call as one would write it."""
    if not isinstance(args, dict):
        return f"{tool}({one_line(args, LONGEST_ARGUMENT)})"
    given = (f"{name}={one_line(value, LONGEST_ARGUMENT, quoted=True)}" for name, value in cast(dict[str, Any], args).items())
    return f"{tool}({', '.join(given)})"


def asked(event: RunEvent, where: object) -> Text:
    question = event.question or "it waits for its client"
    answer = f"stigmergy waits answer {event.wait_id} {ANSWERS.get(event.wait_kind or '', '')}".rstrip()
    return Text.assemble((f"? {question}  ", "bold yellow"), (f"{answer}{where}", "dim"))


def one_line(value: Any, longest: int, *, quoted: bool = False) -> str:
    text = value if isinstance(value, str) and not quoted else msgspec.json.encode(value).decode()
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def news(board: Board, event: RunEvent, where: object = "") -> Iterator[str]:
    """The same in words, for where nothing can move: what an event, which the board has taken, brought."""
    line = board.runs.get(event.run_id)
    if line is None or event.kind in ("text", "withdrawn"):
        return
    who = "  " * board.depth(line) + line.agent
    if event.kind == "status":
        ended = line.status in ENDED
        said = headline("", line.status, line.steps, line.tokens, board.seconds(line) if ended else None).plain.strip()
        yield f"{who}: {said}" + (f": {line.error}" if line.error else "")
    elif event.kind == "message" and event.role == "user":
        yield f"{who} hears: {one_line(event.text, LONGEST_RESULT)}"
    elif event.kind == "message" and event.text:
        yield f"{who} says: {one_line(event.text, LONGEST_RESULT)}"
    elif event.kind == "call" and event.status == "running":
        yield f"{who} calls {called(event.tool or '', event.args)}"
    elif event.kind == "result" and line.calls[event.call_id or ""].child is None:
        came = f"failed: {event.error}" if event.error is not None else one_line(event.result, LONGEST_RESULT)
        yield f"{who} has {event.tool}: {came}"
    elif event.kind == "wait":
        yield f"{who} asks: {asked(event, where).plain.removeprefix('? ')}"


def seconds_of(run: Run, now_ms: int) -> float | None:
    if run.started_at is None:
        return None
    return ((run.ended_at or now_ms) - run.started_at) / 1000


def family(node: Node, now_ms: int) -> Tree:
    """A tree of runs that was read."""

    def label(run: Run) -> Text:
        cost = headline(run.agent, run.status, run.step, run.tokens_used, seconds_of(run, now_ms))
        text = Text.assemble((f"{run.id}  ", "dim"), cost)
        came = run.error if run.error is not None else run.result
        return text if came is None else text + Text(f"\n{one_line(came, LONGEST_RESULT)}", "red" if run.error else "")

    def grow(tree: Tree, node: Node) -> Tree:
        for child in node.children:
            grow(tree.add(label(child.run)), child)
        return tree

    return grow(Tree(label(node.run), guide_style="dim"), node)
