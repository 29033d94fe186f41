"""The CEL library, imported when the first term needs it: its package brings a command line of its own along, which takes
longer to import than all of ours, and most programs and commands never need a term of CEL."""

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cel import Program


@cache
def _library() -> Any:
    return importlib.import_module("cel")


def compile_cel(source: str) -> "Program":
    """`ValueError` when the source is none."""
    return _library().compile(source)


def evaluate_cel(source: str) -> Any:
    return _library().evaluate(source)
