"""From the name of a place to the store in it: a path is a SQLite file, a postgresql:// URL a database."""

from importlib.util import find_spec
from pathlib import Path

from stigmergy.errors import StoreUnusable
from stigmergy.kernel import migrate
from stigmergy.kernel.clock import Clock
from stigmergy.kernel.database import Database
from stigmergy.kernel.rules import RuleBook
from stigmergy.kernel.sqlite import SqliteDatabase

_POSTGRES = ("postgresql://", "postgres://")


def is_postgres(place: str) -> bool:
    return place.startswith(_POSTGRES)


def file_of(place: str) -> Path:
    """The SQLite file that a place names."""
    if place.startswith("sqlite:///"):
        return Path(place.removeprefix("sqlite:///"))
    if "://" in place:
        scheme = place.split("://", 1)[0]
        raise StoreUnusable(f"{scheme}:// is no store; give a file's path or a URL that starts with postgresql://")
    if not place or place == ":memory:":
        raise StoreUnusable("a store needs a file, so that what was acknowledged stays; give its path")
    return Path(place)


async def open_database(
    place: str,
    *,
    owner_place: str | None = None,
    may_migrate: bool = True,
    synchronous: str = "FULL",
    busy_seconds: float = 5.0,
    clock: Clock | None = None,
    rules: RuleBook | None = None,
    sources: tuple[str, ...] = (migrate.KERNEL,),
) -> Database:
    if not is_postgres(place):
        return await SqliteDatabase.open(
            file_of(place),
            clock=clock,
            rules=rules,
            sources=sources,
            may_migrate=may_migrate,
            synchronous=synchronous,
            busy_seconds=busy_seconds,
        )
    if find_spec("asyncpg") is None:
        raise StoreUnusable("a postgresql:// store needs the extra package: pip install 'stigmergy[postgres]'")
    from stigmergy.kernel.postgres import PostgresDatabase

    return await PostgresDatabase.open(
        place, owner_url=owner_place, clock=clock, rules=rules, sources=sources, may_migrate=may_migrate
    )
