"""A small part of a program, for the kernel's tests: notes that change, entries that are written once."""

from typing import Any

import msgspec

from stigmergy.kernel.record import Record, declare


class Note(Record, frozen=True, kw_only=True):
    id: str
    owner_id: str = "someone"
    text: str = ""
    tags: list[str] = msgspec.field(default_factory=list[str])
    data: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    done: bool = False


class Entry(Record, frozen=True, kw_only=True):
    note_id: str
    pos: int
    text: str | None = None


NOTES = declare(Note, "notes", path="users/{owner_id}/notes", tags=lambda note: note.tags, context=lambda note: note.data)
ENTRIES = declare(
    Entry, "entries", path="users/-/notes/{note_id}/entries", key=("note_id", "pos"), history="append", schema_name="entry.v1"
)
