"""Numbered migrations, one text for both engines, run once each under a lock.

A source is a package with a `migrations` folder of files like `0001_journal.sql`. The kernel is the first source; a program
may add its own. A store that has seen a migration which this program does not know is refused: it is newer than the program.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import NamedTuple

from stigmergy.errors import SchemaTooNew, SchemaTooOld

KERNEL = "stigmergy.kernel"
_FILE = re.compile(r"(\d{4})_\w+\.sql")
_LITERAL = r"""('[^']*'|"[^"]*")"""
_COMMENT = re.compile(rf"{_LITERAL}|--[^\n]*")
_END = re.compile(rf"{_LITERAL}|;[ \t]*(?:\n|\Z)")

TABLE = """CREATE TABLE IF NOT EXISTS schema_migrations (
    source TEXT NOT NULL, number BIGINT NOT NULL, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL,
    PRIMARY KEY (source, number))"""
READ = "SELECT source, number, name, checksum FROM schema_migrations ORDER BY source, number"


class Migration(NamedTuple):
    source: str
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    def statements(self, dialect: Callable[[str], str]) -> list[str]:
        """As `for_sqlite` or `for_postgres` has them. Each ends with a semicolon at the end of a line. A literal may hold what
        it likes."""
        without_comments = _COMMENT.sub(lambda found: found[1] or "", dialect(self.sql))
        marked = _END.sub(lambda found: found[1] or "\0", without_comments)
        return [text for part in marked.split("\0") if (text := part.strip())]


def load(sources: Iterable[str] = (KERNEL,)) -> list[Migration]:
    found: list[Migration] = []
    for source in sources:
        found.extend(
            Migration(source, int(match[1]), file.name, file.read_text("utf-8"))
            for file in files(source).joinpath("migrations").iterdir()
            if (match := _FILE.fullmatch(file.name))
        )
    order = {source: place for place, source in enumerate(sources)}
    return sorted(found, key=lambda migration: (order[migration.source], migration.number))


def pending(known: Sequence[Migration], applied: Iterable[tuple[str, int, str, str]]) -> list[Migration]:
    """What is still to be run. Refuses a store that is newer than this program."""
    by_place = {(migration.source, migration.number): migration for migration in known}
    seen: set[tuple[str, int]] = set()
    for source, number, name, checksum in applied:
        migration = by_place.get((source, number))
        if migration is None:
            raise SchemaTooNew(
                f"the store has migration {name} of {source}, which this program does not know; use a newer stigmergy for it"
            )
        if migration.checksum != checksum:
            raise SchemaTooNew(
                f"migration {name} of {source} was another one when the store ran it; use the program that wrote the store"
            )
        seen.add((source, number))
    return [migration for migration in known if (migration.source, migration.number) not in seen]


def refuse_pending(missing: Sequence[Migration]) -> None:
    if missing:
        raise SchemaTooOld(
            f"the store lacks {len(missing)} migration(s), the first is {missing[0].name}; start `stigmergy serve` or run"
            " `stigmergy migrate` once to bring it up to date"
        )
