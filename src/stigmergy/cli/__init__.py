"""The `stigmergy` command: noun first, one file per noun, `--help` everywhere.

An error of ours is one sentence on standard error and an exit code of its own kind; a traceback is a defect.
"""

import sys
from typing import Any

from cyclopts import App, CycloptsError
from rich.console import Console

from stigmergy.cli import agents, breadcrumbs, deliveries, runs, store, tokens, transfer, triggers, waits
from stigmergy.cli.run import run
from stigmergy.errors import Conflict, Invalid, NotFound, SchemaTooNew, SchemaTooOld, StigmergyError, StoreError

# What a script can tell from the exit code: 2 wrong use, 3 the store, 4 its schema, 5 not there, 6 a conflict.
EXIT_CODES: tuple[tuple[type[StigmergyError], int], ...] = (
    (Invalid, 2),
    (SchemaTooNew, 4),
    (SchemaTooOld, 4),
    (StoreError, 3),
    (NotFound, 5),
    (Conflict, 6),
)

# Named, and imported when they are called: what these import is slow, and no other command needs it. What they say of themselves
# is here, so that the list of commands can show it.
LATER = {
    "stigmergy.cli.serve:serve": """Serve the API, on the address that it prints, with a program's agents if one is named.

        Brings the store up to date first. What is given here wins over the settings of the program's App. Ctrl-C ends it in good
        order: requests and steps that are under way have some seconds to end.""",
    "stigmergy.cli.worker:worker": """Work on the runs and deliveries of a program, without an API.

        Any number of workers can share a store. The first Ctrl-C or SIGTERM lets the steps that are under way end, and gives the
        rest to the other workers; a second one ends at once. How many runs it has at a time and how long its lease is are the
        settings `concurrent_runs` and `lease_seconds`.""",
    "stigmergy.cli.chat:chat": "Talk in a space, with people and agents: what is said and done there comes as it happens.",
    "stigmergy.cli.spaces:app": "Conversations of humans and agents: ls, show, create, add, post, history.",
}

app = App(name="stigmergy", help="A state and run engine for LLM agents.", version_flags=["--version"])
for place, help in LATER.items():
    app.command(place, name=place.partition(":")[0].rpartition(".")[2], help=help)
app.command(store.migrate)
app.command(store.backup)
app.command(store.doctor)
app.command(store.settings)
breadcrumbs.app.command(transfer.import_, name="import")
breadcrumbs.app.command(transfer.export)
app.command(breadcrumbs.app)
app.command(breadcrumbs.assembly)
app.command(breadcrumbs.feed)
app.command(tokens.app)
app.command(triggers.app)
app.command(deliveries.app)
app.command(run)
app.command(runs.app)
app.command(agents.app)
app.command(waits.app)


def main(arguments: list[str] | None = None) -> None:
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        sys.exit(_status(app(arguments, exit_on_error=False, print_error=True, error_console=errors)))
    except CycloptsError:
        sys.exit(2)
    except StigmergyError as error:
        errors.print(f"[bold red]stigmergy:[/] {_plain(error)}")
        sys.exit(next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1))
    except KeyboardInterrupt:
        sys.exit(130)


def _status(result: Any) -> int:
    return result if isinstance(result, int) else 0


def _plain(error: StigmergyError) -> str:
    return str(error).replace("[", "\\[")
