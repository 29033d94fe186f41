"""Statements: SQL with a name, one text for both engines.

Parameters are `:name`; SQLite gets them numbered (`?1`), PostgreSQL as `$1`. A few tokens in braces stand for what the
engines write differently. Everything else must be portable, so that one text means one thing.

A statement that reads a record's columns is a `Query`; it knows the record and gives instances of it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

Row = tuple[Any, ...]
R = TypeVar("R")

# token: (SQLite, PostgreSQL)
TOKENS = {
    "json": ("TEXT", "JSON"),
    "blob": ("BLOB", "BYTEA"),
    "vector": ("BLOB", "REAL[]"),
    "seq_pk": ("INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    "clustered": ("WITHOUT ROWID", ""),
    "invoker": ("", "WITH (security_invoker = true)"),  # of a view: row-level security is that of who asks
    "for_update": ("", "FOR UPDATE"),
    "skip_locked": ("", "FOR UPDATE SKIP LOCKED"),
}
# {each:name} is a table with one column, `value`: the items of the JSON list of strings that is bound to :name.
EACH = ("json_each(:{})", "json_array_elements_text(CAST(:{} AS JSON)) AS each_{}(value)")
# {by:name} behind a table: the index to go by. SQLite keeps no statistics of its own accord, and takes the primary key of a
# clustered table for as good as any index that begins with the tenant; then a query reads all that a tenant has.
BY = ("INDEXED BY {}", "")
# A literal, a quoted name or a comment is matched first, as it is: what looks like a token or a parameter in it is text.
_TEXT = r"""'[^']*'|"[^"]*"|--[^\n]*"""
_TOKEN = re.compile(rf"{_TEXT}|\{{(?:each:(\w+)|by:(\w+)|(\w+))\}}")
_PARAMETER = re.compile(rf"{_TEXT}|(?<![:\w]):([a-z_][a-z0-9_]*)")

_JOURNAL = re.compile(r"\b(FROM|JOIN) (changes|heads)\b")


# What stands below a line `-- sqlite:` or `-- postgres:` is for that engine only, until another such line, or `-- both:`.
_ENGINE = re.compile(r"^-- (sqlite|postgres|both):\n", re.MULTILINE)


def for_sqlite(sql: str) -> str:
    return _TOKEN.sub(lambda token: _written(token, 0), _only("sqlite", sql))


def for_postgres(sql: str) -> str:
    return _TOKEN.sub(lambda token: _written(token, 1), _only("postgres", sql))


def as_each(values: Iterable[str]) -> str:
    """What is bound to the parameter of `{each:…}`."""
    return msgspec.json.encode(list(values)).decode()


def either(sqlite: str, postgres: str) -> str:
    """One text of two, where an engine has something of its own. Both must take the same parameters."""
    return f"-- sqlite:\n{sqlite}\n-- postgres:\n{postgres}"


def _only(engine: str, sql: str) -> str:
    common, *blocks = _ENGINE.split(sql)
    return common + "".join(text for name, text in zip(blocks[::2], blocks[1::2], strict=True) if name in (engine, "both"))


def _written(token: re.Match[str], engine: int) -> str:
    listed, index, name = token.groups()
    if listed:
        return EACH[engine].format(listed, listed)
    if index:
        return BY[engine].format(index)
    return TOKENS[name][engine] if name else token[0]


def _numbered(sql: str, sign: str, parameters: tuple[str, ...]) -> str:
    """The engine's own parameters instead of `:name`."""
    number = {parameter: f"{sign}{position}" for position, parameter in enumerate(parameters, 1)}
    return _PARAMETER.sub(lambda found: number[found[1]] if found[1] else found[0], sql)


class Statement:
    """One named SQL statement, compiled for both engines when it is declared."""

    __slots__ = ("bind", "name", "parameters", "postgres", "reads_journal", "sqlite")

    def __init__(self, name: str, sql: str) -> None:
        self.name = name
        found: list[str] = _PARAMETER.findall(for_sqlite(sql))
        self.parameters = tuple(dict.fromkeys(filter(None, found)))
        self.sqlite = _numbered(for_sqlite(sql), "?", self.parameters)
        self.postgres = _numbered(for_postgres(sql), "$", self.parameters)
        self.bind = self._binder()
        self.reads_journal = _JOURNAL.search(sql) is not None

    def _binder(self) -> Callable[[Mapping[str, Any], str], Row]:
        """Values in the statement's order; `:tenant` comes from the transaction and from nowhere else."""
        parts = ", ".join("tenant" if name == "tenant" else f"given[{name!r}]" for name in self.parameters)
        return eval(f"lambda given, tenant: ({parts},)" if parts else "lambda given, tenant: ()")

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"


class Query(Statement, Generic[R]):
    """A statement whose rows are records: it selects exactly a collection's columns, in their order."""

    __slots__ = ("decode",)

    def __init__(self, name: str, sql: str, decode: Callable[[Row], R]) -> None:
        super().__init__(name, sql)
        self.decode = decode
