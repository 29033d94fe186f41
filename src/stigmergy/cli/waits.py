"""`stigmergy waits …`: the inbox. What runs have stopped for, and its answers."""

from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from rich.text import Text

from stigmergy.cli.doors import HERE, Where
from stigmergy.cli.pictures import called, duration
from stigmergy.cli.runs import asked
from stigmergy.cli.store import AsJson, out, print_json
from stigmergy.engine.approvals import What
from stigmergy.errors import Invalid
from stigmergy.kernel.clock import SystemClock
from stigmergy.runs.model import Run, Wait

app = App(name="waits", help="What runs wait for: ls, answer.")


@app.command
def ls(
    *,
    mine: Annotated[bool, Parameter(negative="", help="Only what waits for who asks.")] = False,
    limit: Annotated[int, Parameter(help="How many at the most.")] = 50,
    where: Where = HERE,
    json: AsJson = False,
) -> None:
    """Show every question, approval and client's tool that waits, the oldest first."""
    waits: list[Wait] = asked(where, lambda door: door.runs.waits(mine=mine, limit=limit))
    if json:
        return print_json(waits)
    now = SystemClock().now()
    for wait in waits:
        what = wait.question or _call(wait)
        left = duration(max(0, wait.deadline - now) / 1000)
        head = Text.assemble((wait.id, "bold"), f"  {wait.kind}  ", (what, "yellow"))
        out.print(head + Text(f"  for {wait.for_entity or wait.party_name}, {left} left, run {wait.run_id}", "dim"))
        if decisions := (wait.details or {}).get("decisions"):
            out.print(Text(f"    {_call(wait)}  {' | '.join(decisions)}", "dim"))
    return None


def _call(wait: Wait) -> str:
    details = wait.details or {}
    return called(details["tool"], details.get("args", {})) if "tool" in details else ""


@app.command
def answer(
    id: str,
    text: Annotated[str | None, Parameter(help="The answer to a question.")] = None,
    /,
    *,
    decision: Annotated[What | None, Parameter(alias="-d", help="What is to be done, of an approval.")] = None,
    reason: Annotated[str | None, Parameter(help="Why.")] = None,
    args: Annotated[str | None, Parameter(help="With `modify`: other arguments, a JSON object.")] = None,
    result: Annotated[str | None, Parameter(help="Of a client's tool: its result, as JSON.")] = None,
    error: Annotated[str | None, Parameter(help="Of a client's tool: why there is none.")] = None,
    where: Where = HERE,
) -> None:
    """Answer what waits, and let its run go on.

    Parameters
    ----------
    id
        The id of what waits, as `stigmergy waits ls` shows it.
    """
    given: dict[str, Any] = {"text": text, "decision": decision, "reason": reason, "error": error}
    given = {name: value for name, value in given.items() if value is not None}
    if args is not None:
        given["args"] = _json(args, "--args")
    if result is not None:
        given["result"] = _json(result, "--result")
    if not given:
        raise Invalid("say an answer: a text, --decision, --result or --error, by what is asked", "answer")
    run: Run = asked(where, lambda door: door.runs.answer(id, **given))
    out.print(f"Run {run.id} is {run.status}.", markup=False)


def _json(text: str, place: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Invalid(f"this is not JSON ({error})", place) from None
