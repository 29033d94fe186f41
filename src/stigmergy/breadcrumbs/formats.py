"""Values as text, for a model to read: what `format` rules and templates write.

A string is itself; null and what is missing are nothing; everything else is compact JSON.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from stigmergy.breadcrumbs.paths import NOTHING, path_steps, read, refuse

MAX_TEXT = 16 * 1024  # bytes of a template, a format
MAX_OUTPUT = 256 * 1024  # characters that one template or format gives

Run = Callable[[dict[str, Any]], Any]

_encode = msgspec.json.encode


class RuleFailed(Exception):
    """Why a rule failed while reading, in words that hold no value of the context."""


class Absent:
    """What reads as missing."""

    __slots__ = ()


def text(value: Any) -> str:
    if value.__class__ is str:
        return value
    if value is None or value is NOTHING or isinstance(value, Absent):
        return ""
    if isinstance(value, str):  # marked as safe: there is nothing to be safe from
        return str(value)
    return str(value) if value.__class__ is int else _encode(value).decode()


def within(size: int) -> None:
    if size > MAX_OUTPUT:
        raise RuleFailed(f"the output is longer than {MAX_OUTPUT} characters")


def format_text(format: str, where: str) -> Run:
    if len(format.encode()) > MAX_TEXT:
        refuse(f"a format has at most {MAX_TEXT} bytes", where)
    parts: list[str | list[str]] = []
    for plain, double, path, lone in re.findall(r"([^{}]+)|(\{\{|\}\})|\{([^{}]+)\}|([{}])", format):
        if lone:
            refuse("a single brace; write {path}, or {{ and }} for braces", where)
        parts.append(path_steps(path, where) if path else plain or double[0])

    def run(context: dict[str, Any]) -> str:
        written: list[str] = []
        size = 0
        for part in parts:
            written.append(part if isinstance(part, str) else text(read(context, part)))
            size += len(written[-1])
            within(size)
        return "".join(written)

    return run
