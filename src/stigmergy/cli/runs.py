"""`stigmergy runs …`: what agents do and did: listed, shown, watched, spoken to, stopped."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from cyclopts import App, Parameter
from rich.markup import escape
from rich.rule import Rule
from rich.text import Text

from stigmergy.cli.doors import HERE, Door, Program, Where, door
from stigmergy.cli.pictures import COLOURS, MARKS, called, duration, family, headline, one_line, seconds_of
from stigmergy.cli.run import Stop, shown_to_its_end
from stigmergy.cli.store import AsJson, out, print_json
from stigmergy.kernel.clock import SystemClock
from stigmergy.runs.model import Run, RunMessage, RunStatus, ToolCall
from stigmergy.runs.queries import Node, Page, RunView

app = App(name="runs", help="What agents do: ls, show, tree, watch, prompt, tell, cancel.")
T = TypeVar("T")
MOST_SHOWN = 500
ROLES = {"system": "dim", "user": "bold", "assistant": "", "tool": "green"}

Limit = Annotated[int, Parameter(help="How many at the most.")]
Reason = Annotated[str, Parameter(help="Why; its agent's task says so.")]


def asked(where: Where, ask: Callable[[Door], Awaitable[T]]) -> T:
    """One thing asked of a server or of the store."""

    async def run() -> T:
        async with door(where) as opened:
            return await ask(opened)

    return asyncio.run(run())


@app.command
def ls(
    *,
    agent: Annotated[str | None, Parameter(help="Only runs of this agent.")] = None,
    status: Annotated[RunStatus | None, Parameter(help="Only these.")] = None,
    parent: Annotated[str | None, Parameter(help="Only those that this run started.")] = None,
    space: Annotated[str | None, Parameter(help="Only those in this space.")] = None,
    limit: Limit = 20,
    where: Where = HERE,
    json: AsJson = False,
) -> None:
    """List runs, the newest changed first."""
    page: Page = asked(where, lambda door: door.runs.list(agent=agent, status=status, parent=parent, space_id=space, limit=limit))
    if json:
        return print_json(page.items)
    now = SystemClock().now()
    for run in page.items:
        line = Text(f"{run.id}  ", "dim") + headline(run.agent, run.status, run.step, run.tokens_used, seconds_of(run, now))
        came = run.error if run.error is not None else run.result
        out.print(line + Text("" if came is None else f"  {one_line(came, 60)}", "red" if run.error else "dim"))
    return None


@app.command
def show(id: str, /, *, where: Where = HERE, json: AsJson = False) -> None:
    """Show a run with all that it was told, said and did.

    Parameters
    ----------
    id
        The run's id, as `stigmergy runs ls` shows it.
    """

    async def ask(door: Door) -> tuple[RunView, list[RunMessage], list[ToolCall]]:
        return await door.runs.get(id), await door.runs.messages(id, limit=MOST_SHOWN), await door.runs.calls(id)

    view, messages, calls = asked(where, ask)
    if json:
        return print_json({"run": view, "messages": messages, "tool_calls": calls})
    _print_head(view)
    for message in messages:
        out.print(
            Rule(Text(f"{message.role}{'' if message.name is None else f' {message.name}'}  #{message.pos}", "dim"), align="left")
        )
        if message.content:
            out.print(Text(message.content, ROLES[message.role]))
        if message.role == "assistant":
            for call in (call for call in calls if call.step == message.step):
                out.print(_call(call))
    return None


def _print_head(view: RunView) -> None:
    run = view.run
    out.print(headline(run.agent, run.status, run.step, run.tokens_used, seconds_of(run, SystemClock().now())))
    facts: dict[str, Any] = {
        "id": run.id,
        "of": run.owner_id,
        "space": run.space_id,
        "parent": run.parent_run_id,
        "task": run.task_id,
        "started": _moment(run.created_at),
        "deadline": _moment(run.deadline) if run.ended_at is None else None,
        "metadata": run.metadata or None,
        "variables": view.variables or None,
        "waits for": "a worker that can run it" if view.needs_worker else view.wait_state,
        "result": run.result,
        "error": run.error,
    }
    for name, value in facts.items():
        if value is not None:
            out.print(Text.assemble((f"  {name:<10}", "dim"), value if isinstance(value, str) else one_line(value, 2_000)))


def _call(call: ToolCall) -> Text:
    mark, colour = MARKS.get(call.status, ("…", "cyan"))
    text = Text.assemble((f"{mark} ", colour), called(call.tool_name, call.args))
    took = "" if call.duration_ms is None else f"  {duration(call.duration_ms / 1000)}"
    return text + Text(f"  {call.status}{took}", "dim") + Text("" if call.error is None else f"  {call.error}", "red")


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


@app.command
def tree(id: str, /, *, where: Where = HERE, json: AsJson = False) -> None:
    """Show the whole tree that a run is in.

    Parameters
    ----------
    id
        The id of any run of it.
    """
    node: Node = asked(where, lambda door: door.runs.tree(id))
    if json:
        return print_json(node)
    out.print(family(node, SystemClock().now()))
    return None


@app.command
def watch(id: str, /, *, where: Where = HERE, app: Program = None, stop: Stop = False, json: AsJson = False) -> int:
    """Come back to a run: show it from its beginning to its end, and print its answer.

    Parameters
    ----------
    id
        The run's id.
    """

    async def begin(door: Door) -> str:
        run: Run = (await door.runs.get(id)).run
        return run.id

    return shown_to_its_end(begin, where, app, stop=stop, json=json)


@app.command
def prompt(id: str, step: int, /, *, where: Where = HERE, json: AsJson = False) -> None:
    """Show exactly what the model was asked in a step.

    Parameters
    ----------
    id
        The run's id.
    step
        The step's number, from 1 on.
    """
    past = asked(where, lambda door: door.runs.prompt(id, step))
    if json:
        return print_json(past)
    for message in past.messages:
        out.print(Rule(Text(message.role, "dim"), align="left"))
        if message.content:
            out.print(Text(message.content, ROLES[message.role]))
        for call in message.tool_calls:
            out.print(Text.assemble(("→ ", "cyan"), f"{call.name} {call.arguments}", (f"  {call.id}", "dim")))
    names = ", ".join(tool.name for tool in past.tools)
    out.print(Rule(Text(f"{past.model or ''}  tools: {names or 'none'}", "dim"), align="left"))
    return None


@app.command
def tell(id: str, text: str, /, *, where: Where = HERE) -> None:
    """Say something to a run. A completed one goes on with it.

    Parameters
    ----------
    id
        The run's id.
    text
        What to say.
    """

    async def ask(door: Door) -> Run:
        await door.runs.hear(id, text)
        return (await door.runs.get(id)).run

    run = asked(where, ask)
    out.print(f"Run {id} has heard it; it is [{COLOURS[run.status]}]{run.status}[/].")


@app.command
def cancel(id: str, /, *, reason: Reason = "stopped from the command line", where: Where = HERE) -> None:
    """Stop a run and all that it started.

    Parameters
    ----------
    id
        The run's id.
    """
    run: Run = asked(where, lambda door: door.runs.cancel(id, reason))
    out.print(f"Run {id} is [{COLOURS[run.status]}]{run.status}[/]: {escape(run.error or _result(run.result))}")


def _result(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
