"""`stigmergy worker`: the runs and deliveries of a program, worked on by one more process on its store."""

import asyncio
import os
import signal
import sys

from stigmergy.app import App
from stigmergy.cli.process import on_signals, run_process, spare_what_stays
from stigmergy.cli.program import Program, load_program
from stigmergy.cli.store import Store, out
from stigmergy.settings import changed


def worker(program: Program, /, *, store: Store = None) -> None:
    app = load_program(program)
    app.settings = changed(app.settings, {"store": store, "work": True})
    run_process(app.settings, _work(app))


async def _work(app: App) -> None:
    """Work until a signal, and end what is under way, or end at once when there is another signal."""
    asked, at_once = asyncio.Event(), asyncio.Event()

    def end(_: signal.Signals) -> None:
        (at_once if asked.is_set() else asked).set()

    with on_signals(end):
        async with app:
            spare_what_stays()
            settings = app.settings
            agents = ", ".join(sorted(app.code.agents)) or "no agents of its own"
            out.print(
                f"Works on {settings.store}, on {settings.concurrent_runs} runs at once at the most: {agents}", markup=False
            )
            await asked.wait()
            out.print("Ends after the steps that are under way; once more ends it at once.", markup=False)
            drained = await _first_of(asyncio.create_task(app.drain()), at_once)
    if not drained:
        # A function of the program may still run in a thread, for which the loop and Python would wait.
        sys.stdout.flush()
        os._exit(1)


async def _first_of(task: "asyncio.Task[None]", event: asyncio.Event) -> bool:
    """Whether the task ended before the event came."""
    coming = asyncio.create_task(event.wait())
    await asyncio.wait((task, coming), return_when=asyncio.FIRST_COMPLETED)
    coming.cancel()
    if not task.done():
        task.cancel()
        return False
    task.result()
    return True
