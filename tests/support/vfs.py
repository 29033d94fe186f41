"""A disk that fails when it is told to: a layer between SQLite and the operating system.

Whoever opens a file while it is in place gets it, the store under test included.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

import apsw

NAME = "faulty"
BASE = "unix"

Operation = Literal["write", "sync"]


def full() -> apsw.Error:
    return _error(apsw.FullError("the disk is full"), apsw.SQLITE_FULL)


def write_failed() -> apsw.Error:
    return _error(apsw.IOError("a write failed"), apsw.SQLITE_IOERR_WRITE)


def sync_failed() -> apsw.Error:
    return _error(apsw.IOError("an fsync failed"), apsw.SQLITE_IOERR_FSYNC)


def _error(error: apsw.Error, extended: int) -> apsw.Error:
    setattr(error, "extendedresult", extended)  # noqa: B010  # not in apsw's types
    return error


class FaultyDisk(apsw.VFS):
    """`with FaultyDisk() as disk: …; disk.fail("write", full)`. What fails is the write-ahead log: that is where commits go."""

    def __init__(self) -> None:
        super().__init__(NAME, BASE)
        self.failures = 0
        self._operation: Operation | None = None
        self._error = full
        self._passes = 0

    def fail(self, operation: Operation, error: Callable[[], apsw.Error], *, after: int = 0) -> None:
        """From now on, once that many more have passed, until `heal`."""
        self._error = error
        self._passes = after
        self._operation = operation

    def heal(self) -> None:
        self._operation = None

    def pass_or_fail(self, operation: Operation, path: str) -> None:
        if operation != self._operation or not path.endswith("-wal"):
            return
        if self._passes > 0:
            self._passes -= 1
            return
        self.failures += 1
        raise self._error()

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)

    def __enter__(self) -> Self:
        apsw.set_default_vfs(NAME)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        apsw.set_default_vfs(BASE)
        self.unregister()


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        super().__init__(BASE, name, flags)
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.pass_or_fail("write", self._path)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.pass_or_fail("sync", self._path)
        super().xSync(flags)
