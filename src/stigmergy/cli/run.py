"""`stigmergy run AGENT "…"`: start a run and watch it to its end. What is watched goes to standard error, the answer to standard
output."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.live import Live
from rich.tree import Tree

from stigmergy.cli.board import Board
from stigmergy.cli.doors import HERE, Door, Program, Where, working_door
from stigmergy.cli.pictures import news, picture
from stigmergy.cli.store import AsJson, out, print_json
from stigmergy.engine.watching import RunEvent, RunFailed
from stigmergy.runs.model import Run

FRAMES_PER_SECOND = 12
INTERRUPTED = 130

Stop = Annotated[bool, Parameter(negative="", help="Ctrl-C stops the run. Without this it leaves it, and says how to come back.")]


def run(
    agent: str,
    instruction: Annotated[str | None, Parameter(help="What it is to do.")] = None,
    /,
    *,
    where: Where = HERE,
    app: Program = None,
    space: Annotated[str | None, Parameter(help="The space in which it is done; without one it gets its own.")] = None,
    key: Annotated[str | None, Parameter(help="The same key starts one run, however often it is given.")] = None,
    stop: Stop = False,
    json: AsJson = False,
) -> int:
    """Start a run of an agent, show it while it goes on, and print its answer. Exit code 1 when it ends without one.

    On a terminal the tree of its agents and tools is shown live, elsewhere a line for everything that happens.

    Parameters
    ----------
    agent
        The agent's name, as `stigmergy agents ls` shows it.
    """

    async def begin(door: Door) -> str:
        return (await door.runs.start(agent, instruction, key=key, space_id=space)).id

    return shown_to_its_end(begin, where, app, stop=stop, json=json)


def shown_to_its_end(begin: Any, where: Where, program: str | None, *, stop: bool, json: bool) -> int:
    """Begin with a run, and show it until its end. The exit code."""
    begun: list[tuple[str, Where]] = []

    async def main() -> Run:
        async with working_door(where, program) as door:
            id = await begin(door)
            begun.append((id, door.where))
            try:
                await _show(Board(id), door.runs.events(id), door.where)
            except asyncio.CancelledError:
                if stop:
                    await door.runs.cancel(id, "stopped from the command line")
                raise
            return (await door.runs.get(id)).run

    try:
        ended = asyncio.run(main())
    except KeyboardInterrupt:
        if begun:
            _say_how_to_come_back(*begun[0], program, stopped=stop)
        return INTERRUPTED
    if json:
        print_json(ended)
    elif ended.status == "completed":
        out.print(ended.result if isinstance(ended.result, str) else _as_json(ended.result), markup=False)
    if ended.status != "completed" and not json:
        raise RunFailed(f"run {ended.id} {ended.status}: {ended.error}")
    return 0 if ended.status == "completed" else 1


async def _show(board: Board, events: AsyncIterator[RunEvent], where: Where) -> None:
    terminal = Console(stderr=True, highlight=False)
    if not terminal.is_terminal:
        plain = Console(stderr=True, soft_wrap=True, highlight=False)
        async for event in events:
            board.take(event)
            for line in news(board, event, where):
                plain.print(line, markup=False)
        return

    def drawn() -> Tree:
        return picture(board, int(time.monotonic() * FRAMES_PER_SECOND), where)

    with Live(get_renderable=drawn, console=terminal, refresh_per_second=FRAMES_PER_SECOND, vertical_overflow="visible"):
        async for event in events:
            board.take(event)


def _say_how_to_come_back(id: str, where: Where, program: str | None, *, stopped: bool) -> None:
    told = Console(stderr=True, soft_wrap=True, highlight=False)
    if stopped:
        told.print(f"Run {id} was stopped.")
        return
    app = "" if program is None else f" --app {program}"
    goes_on = "goes on at the server" if where.url is not None else "stays in the store, and goes on when a worker takes it up"
    told.print(f"Run {id} {goes_on}.", markup=False)
    told.print(f"  back to it  stigmergy runs watch {id}{where}{app}", markup=False)
    told.print(f"  stop it     stigmergy runs cancel {id}{where}", markup=False)


def _as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()
