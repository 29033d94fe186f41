"""The `stigmergy` command as a person uses it: what it is given, what it says, its exit code.

In this process, since a new one takes a second to come up; `COMMAND` is for what is killed, or talks to another process.
"""

import io
import sys
from collections.abc import Mapping
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from stigmergy.cli import main

COMMAND = str(Path(sys.executable).with_name("stigmergy"))


def run(
    folder: Path, *arguments: str, code: int = 0, given: str = "", environment: Mapping[str, str] | None = None, wide: int = 200
) -> str:
    """What it says: on standard output, or on standard error when it is expected to fail (1 is an answer: something is wrong)."""
    said, complained = io.StringIO(), io.StringIO()
    variables = {"COLUMNS": str(wide)} | dict(environment or {})
    here = (chdir(folder), patch.dict("os.environ", variables), patch("sys.stdin", io.StringIO(given)))
    with ExitStack() as stack:
        for each in (*here, redirect_stdout(said), redirect_stderr(complained)):
            stack.enter_context(each)
        ended = _ended(list(arguments))
    assert ended == code, complained.getvalue() + said.getvalue()
    return complained.getvalue() if code > 1 else said.getvalue()


def _ended(arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
