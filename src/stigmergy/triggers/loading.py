"""Triggers in files: `triggers.json`, or the same as TOML."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from stigmergy.errors import Invalid
from stigmergy.kernel.rules import Rule
from stigmergy.triggers.definitions import Reading, parse_definitions

LARGEST = 16 * 1024 * 1024


def load_triggers(path: Path, reading: Reading) -> list[Rule]:
    """The rules of a file: all of them, or `Invalid` with the place of the first fault."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Invalid(f"this file of triggers cannot be read ({error.strerror or error})", str(path)) from None
    if len(text) > LARGEST:
        raise Invalid(f"a file of triggers has up to {LARGEST:,} bytes", str(path))
    data = _toml(text, path) if path.suffix == ".toml" else _json(text, path)
    try:
        return parse_definitions(data, reading)
    except Invalid as error:
        raise Invalid(error.message, f"{path}: {error.where}" if error.where else str(path), error.code) from None


def _toml(text: bytes, path: Path) -> Any:
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"this is not TOML ({error})", str(path)) from None


def _json(text: bytes, path: Path) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        message, _, at = str(error).rpartition(" (byte ")
        offset = int(at[:-1]) if at[:-1].isdecimal() else None
        place = "" if offset is None else f", {_place(text, offset)}"
        raise Invalid(f"this is not JSON ({message or error})", f"{path}{place}") from None


def _place(text: bytes, offset: int) -> str:
    before = text[:offset]
    newline = b"\n"
    return f"line {before.count(newline) + 1}, column {offset - before.rfind(newline)}"
