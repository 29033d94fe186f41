"""Looking after a SQLite file: its own checks, and a copy of it while it is in use."""

import os
from pathlib import Path

import apsw

from stigmergy.errors import Invalid
from stigmergy.kernel.database import Finding, Progress
from stigmergy.kernel.sqlite_file import open_connection, sync_folder, translated

# Pages copied between two looks at the progress.
STEP = 2_000


def check_file(path: Path, synchronous: str) -> list[Finding]:
    connection = open_connection(path)
    try:
        faults = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        mode = connection.pragma("journal_mode")
    except apsw.Error as error:
        faults, broken, mode = [str(error)], [], "unknown"
    finally:
        connection.close()
    return [
        Finding("integrity of the file", not faults, "; ".join(faults) or "whole", "restore the last good backup"),
        Finding(
            "references between tables",
            not broken,
            f"{len(broken)} point nowhere" if broken else "all point somewhere",
            "somebody wrote to the file beside the engine; restore the last good backup",
        ),
        Finding("setting: journal_mode", mode == "wal", str(mode), "start `stigmergy serve` once; it sets wal"),
        Finding(
            "setting: synchronous",
            synchronous != "NORMAL",
            synchronous,
            "the last commits may be lost in a power failure; set `synchronous = FULL` unless you accept that",
        ),
    ]


def back_up(path: Path, target: Path, progress: Progress | None = None) -> None:
    """Copy one snapshot of the file. The target appears under its name when it is whole and on the disk."""
    if target.exists():
        raise Invalid("this file is there already; choose another name for the backup", str(target))
    partial = target.with_name(f"{target.name}.partial")
    try:
        _copy(path, partial, progress)
        os.replace(partial, target)
        sync_folder(target)
    except apsw.Error as error:
        raise translated(error, target) from error
    except OSError as error:
        raise Invalid(f"the backup cannot be written ({error.strerror})", str(target)) from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)


def _copy(path: Path, partial: Path, progress: Progress | None) -> None:
    source = open_connection(path)
    copy = apsw.Connection(str(partial))
    try:
        # an open read transaction holds the snapshot, so that writers neither wait nor make the copy start over
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchall()
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(STEP)
                if progress is not None:
                    progress(backup.page_count - backup.remaining, backup.page_count)
        source.execute("COMMIT")
    finally:
        copy.close()
        source.close()
    with open(partial, "rb") as written:
        os.fsync(written.fileno())
