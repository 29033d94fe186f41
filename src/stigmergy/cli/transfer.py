"""`stigmergy breadcrumbs import` and `export`: files of JSON lines, of any length, in bounded memory.

Both go on where they were when they are started again after an end in the middle. An import's batches are written once each,
under a key made of the file's content; an export begins behind the last whole line that it wrote.
"""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from stigmergy.breadcrumbs import commands
from stigmergy.breadcrumbs.model import BREADCRUMBS, Breadcrumb, Draft, JsonObject
from stigmergy.cli.breadcrumbs import As, Tenant, open_crumbs
from stigmergy.cli.store import Store, out, progress
from stigmergy.errors import Invalid
from stigmergy.kernel.idempotency import answer_key, claim_key
from stigmergy.kernel.query import Statement
from stigmergy.kernel.transaction import Snapshot, Transaction

# What goes together in one transaction, at the most: lines and, however long they are, bytes.
BATCH = 500
BATCH_BYTES = 4 * 1024 * 1024
# A context has 1 MiB at the most; written with an escape for every character it is six times as long.
LONGEST_LINE = 8 * 1024 * 1024
# Bytes that are read at once when the end of a file is looked for.
TAIL = 64 * 1024

EXPORTED = BREADCRUMBS.query("exported", "WHERE tenant = :tenant AND id > :after ORDER BY tenant, id LIMIT :limit")
COUNTED = Statement("breadcrumbs.count", "SELECT count(*) FROM breadcrumbs WHERE tenant = :tenant AND id > :after")

_GIVEN = frozenset(Draft.__struct_fields__)
# What an export has besides is ours to say anew.
_KNOWN = _GIVEN | frozenset(Breadcrumb.__struct_fields__)


class _Exported(msgspec.Struct):
    """As much of an exported line as says where to go on."""

    id: str
    tenant: str | None = None


def import_(file: Path, *, store: Store = None, tenant: Tenant = "main", entity: As = "cli") -> None:
    """Read breadcrumbs from a file of JSON lines. Started again within a day after an end in the middle, it goes on where it
    was."""

    async def run() -> None:
        done = before = 0
        async with open_crumbs(store, tenant, entity) as (database, scope, _):
            name, total = await asyncio.to_thread(_fingerprint, file)
            with progress(f"Reading {file.name}") as show:
                seen = 0
                for number, lines in enumerate(_batches(file)):
                    drafts = [_draft(line, done + place) for place, line in enumerate(lines, 1)]
                    is_new = await database.write(_import_batch, f"{name}:{number}", drafts, done + 1, scope=scope)
                    done += len(drafts)
                    before += 0 if is_new else len(drafts)
                    seen += sum(map(len, lines))
                    show(seen, total)
        out.print(f"{done - before} breadcrumbs were written.")
        if before:
            out.print(
                f"{before} of the {done} in the file were written by an import of it within the last day, and are left alone."
            )

    asyncio.run(run())


async def _import_batch(tx: Transaction, key: str, drafts: list[Draft], first: int) -> bool:
    """One batch, once: what an import before this one has done is not done again. A fault names its line."""
    if await claim_key(tx, "import", key, b"") is not None:
        return False
    for number, draft in enumerate(drafts, first):
        try:
            await commands.create(tx, draft)
        except Invalid as error:
            raise error.inside(f"line {number}") from error
    await answer_key(tx, "import", key, b"done")
    return True


def _fingerprint(file: Path) -> tuple[str, int]:
    try:
        with file.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest(), file.stat().st_size
    except OSError as error:
        raise Invalid(f"this file cannot be read ({error.strerror})", str(file)) from error


def _batches(file: Path) -> Iterator[list[bytes]]:
    """The lines of a file, the same together whenever it is read."""
    with file.open("rb") as source:
        lines: list[bytes] = []
        size = 0
        while line := source.readline(LONGEST_LINE + 1):
            lines.append(line)
            size += len(line)
            if len(lines) == BATCH or size >= BATCH_BYTES:
                yield lines
                lines, size = [], 0
        if lines:
            yield lines


def _draft(line: bytes, number: int) -> Draft:
    if len(line) > LONGEST_LINE:
        raise Invalid(f"a line has at most {LONGEST_LINE:,} bytes", f"line {number}")
    try:
        fields = msgspec.json.decode(line, type=JsonObject)
        if unknown := fields.keys() - _KNOWN:
            raise Invalid(f"a breadcrumb has no {min(unknown)!r}", f"line {number}")
        return msgspec.convert({name: value for name, value in fields.items() if name in _GIVEN}, Draft)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise Invalid(str(error), f"line {number}") from error


def export(file: Path, *, store: Store = None, tenant: Tenant = "main", entity: As = "cli") -> None:
    """Write every breadcrumb to a file of JSON lines. Started again after an end in the middle, it goes on where it was."""
    if file.exists():
        raise Invalid("this file is there already; choose another name", str(file))
    partial = file.with_name(f"{file.name}.partial")

    async def run() -> None:
        after = await asyncio.to_thread(_resumed, partial, tenant)
        written = 0
        async with open_crumbs(store, tenant, entity) as (database, scope, _):
            left = await database.read(_count_left, after, scope=scope)
            with await asyncio.to_thread(_appending, partial) as target, progress(f"Writing {file.name}") as show:
                while rows := await database.read(_export_batch, after, scope=scope):
                    target.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
                    after = rows[-1].id
                    written += len(rows)
                    show(written, max(written, left))
        await asyncio.to_thread(partial.rename, file)
        out.print(f"{file} has every breadcrumb of {tenant}.", markup=False)

    asyncio.run(run())


async def _export_batch(tx: Snapshot, after: str) -> list[Breadcrumb]:
    return await tx.find(EXPORTED, after=after, limit=BATCH)


async def _count_left(tx: Snapshot, after: str) -> int:
    ((count,),) = await tx.rows(COUNTED, after=after)
    return count


def _resumed(partial: Path, tenant: str) -> str:
    """The id with which an export of this tenant ended. A line that was cut is taken off."""
    if not partial.exists():
        return ""
    with partial.open("r+b") as file:
        start = file.seek(0, os.SEEK_END)
        tail = b""
        while start and tail.count(b"\n") < 2:
            end, start = start, max(0, start - TAIL)
            file.seek(start)
            tail = file.read(end - start) + tail
        whole = tail[: tail.rfind(b"\n") + 1]
        file.truncate(start + len(whole))
    return _id_of(whole.splitlines()[-1], partial, tenant) if whole else ""


def _id_of(line: bytes, partial: Path, tenant: str) -> str:
    try:
        last = msgspec.json.decode(line, type=_Exported)
        if last.tenant not in (None, tenant):
            raise Invalid(f"this is the beginning of an export of {last.tenant}; remove it to begin anew", str(partial))
        return last.id
    except msgspec.DecodeError as error:
        raise Invalid(f"this is not the beginning of an export ({error}); remove it to begin anew", str(partial)) from error


def _appending(partial: Path) -> BinaryIO:
    try:
        return partial.open("ab")
    except OSError as error:
        raise Invalid(f"this file cannot be written ({error.strerror})", str(partial)) from error
