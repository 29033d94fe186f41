"""Records and collections: what is stored, declared once.

A record is a frozen msgspec Struct. Its collection says in which table it lives, under which key and path, who may write
it and what happens to old bodies; from the two come the columns, the codecs and the statements that insert, update, delete
and get it, written once for every part.

The kernel stamps `tenant`, `version`, `seq`, `created_at` and `updated_at`; nobody else sets them.
"""

import types
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

import msgspec

from stigmergy.errors import Invalid
from stigmergy.kernel.query import Query, Row, Statement


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What every stored fact has. `seq` is the journal position of its last change."""

    tenant: str = ""
    version: int = 0
    seq: int = 0
    created_at: int = 0
    updated_at: int = 0


R = TypeVar("R", bound=Record)
History = Literal["versions", "append"]

_SCALARS = (str, int, float, bool, bytes)


class Update(NamedTuple):
    statement: Statement
    values: Callable[[Any, Any], Row]


class Collection(Generic[R]):
    """One kind of record: its table, its statements, and what selectors and paths see of it."""

    def __init__(
        self,
        record: type[R],
        name: str,
        *,
        path: str,
        key: tuple[str, ...] = ("id",),
        history: History = "versions",
        schema_name: str | Callable[[R], str] | None = None,
        tags: Callable[[R], Iterable[str]] | None = None,
        context: Callable[[R], dict[str, Any]] | None = None,
        clients_write: Iterable[str] = (),
        keep_versions: int | None = None,
        comes_back: bool = True,
        belongs_to: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.record = record
        self.name = name
        self.path = path
        self.key = key
        self.history: History = history
        self.versioned = history == "versions"
        self.schema_name = schema_name if schema_name is not None else f"{name.removesuffix('s')}.v1"
        self.tags = tags
        self.context = context
        self.clients_write = frozenset(clients_write)
        self.keep_versions = keep_versions
        # Whether a record that was deleted may be made again under its key, and then goes on with its number.
        self.comes_back = comes_back and self.versioned
        # Columns that name a record of another collection, which is there as long as this one is. The doctor looks for others.
        self.belongs_to = belongs_to
        # What a part keeps beside its rows (tags, search indexes), written in the transaction of every change.
        self.derive: Callable[[Any, Any], Awaitable[None]] | None = None
        self.columns = tuple(field.name for field in msgspec.structs.fields(record))
        self.id_of = _compile(f"lambda r: {_key_expression(record, key)}")
        self.key_of = _compile(f"lambda r: {_fields(key)}")
        self.encode, self.decode = _codecs(record)
        self.encode_body = msgspec.json.Encoder().encode
        self.decode_body = msgspec.json.Decoder(record).decode
        self._statements()

    def _statements(self) -> None:
        columns = ", ".join(self.columns)
        values = ", ".join(f":{column}" for column in self.columns)
        mine = " AND ".join(f"{column} = :{column}" for column in ("tenant", *self.key))
        # the order of :columns is the order of `encode`, so that a record binds without a dict
        self.insert_sql = Statement(f"{self.name}.insert", f"INSERT INTO {self.name} ({columns}) VALUES ({values})")
        self.insert_new_sql = Statement(
            f"{self.name}.insert_new",
            f"INSERT INTO {self.name} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING version",
        )
        self.get_sql = self.query("get", f"WHERE {mine}")
        self.lock_sql = self.query("lock", f"WHERE {mine} {{for_update}}")
        self.delete_sql = Statement(
            f"{self.name}.delete", f"DELETE FROM {self.name} WHERE {mine} AND version = :version RETURNING version"
        )
        self.since_sql = self.query("since", "WHERE tenant = :tenant AND seq > :after ORDER BY tenant, seq LIMIT :limit")
        self.between_sql = self.query("between", "WHERE tenant = :tenant AND seq > :after AND seq <= :upto")
        self.delete_values = _compile(f"lambda r: {_fields(('tenant', *self.key, 'version'))}")
        self._updates: dict[tuple[str, ...], Update] = {}

    def update_sql(self, fields: tuple[str, ...]) -> "Update":
        """The guarded update of these fields and the stamps, with what binds it to the records before and after."""
        update = self._updates.get(fields)
        if update is None:
            changed = tuple(dict.fromkeys((*fields, "version", "seq", "updated_at")))
            mine = ("tenant", *self.key)
            sets = ", ".join(f"{column} = :{column}" for column in changed)
            where = " AND ".join(f"{column} = :old_{column}" for column in (*mine, "version"))
            sql = f"UPDATE {self.name} SET {sets} WHERE {where} RETURNING version"
            outs, _, names = _expressions(self.record)
            new = (outs[column] for column in changed)
            old = (f"before.{column}" for column in (*mine, "version"))
            values = _compile(f"lambda before, r: ({', '.join((*new, *old))},)", **names)
            update = self._updates[fields] = Update(Statement(f"{self.name}.update", sql), values)
        return update

    def query(self, name: str, rest: str) -> Query[R]:
        """A named query for records of this collection: `rest` is what follows the table's name."""
        select = f"SELECT {', '.join(f'{self.name}.{column}' for column in self.columns)} FROM {self.name}"
        return Query(f"{self.name}.{name}", f"{select} {rest}", self.decode)

    def path_of(self, record: R) -> str:
        return self.path.format_map(_Fields(record))

    def __repr__(self) -> str:
        return f"<Collection {self.name}>"


class _Fields:
    """A record's fields for a path template; an absent one is shown as `-`, so that every path has its segments."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def __getitem__(self, name: str) -> str:
        value = getattr(self.record, name, None)
        return "-" if value is None or value == "" else str(value)


COLLECTIONS: dict[str, Collection[Any]] = {}
_BY_RECORD: dict[type[Record], Collection[Any]] = {}


def declare(record: type[R], name: str, **settings: Any) -> Collection[R]:
    """Make `name` the collection of `record`, known to the whole process."""
    collection = Collection(record, name, **settings)
    if COLLECTIONS.get(name) is not None:
        raise ValueError(f"the collection {name!r} is declared twice")
    COLLECTIONS[name] = _BY_RECORD[record] = collection
    return collection


def collection_of(record: type[R]) -> Collection[R]:
    return _BY_RECORD[record]


def templates(schema_name: str | None = None) -> dict[str, str]:
    """Every collection's path template, for rules that name collections by pattern; of those alone that can show a record of
    this schema name, where one is given. It may end in `*`."""
    return {name: of.path for name, of in COLLECTIONS.items() if schema_name is None or _shows(of, schema_name)}


def _shows(collection: Collection[Any], wanted: str) -> bool:
    name = collection.schema_name
    return not isinstance(name, str) or (name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted)


def _compile(source: str, **names: Any) -> Callable[..., Any]:
    """A function written for one record type. Rows are coded a hundred thousand times a second; a loop over fields costs
    four times as much as the expression it would walk."""
    return cast(Callable[..., Any], eval(source, names))


def _fields(names: Iterable[str]) -> str:
    return f"({', '.join(f'r.{name}' for name in names)},)"


def _key_expression(record: type[Record], key: tuple[str, ...]) -> str:
    if len(key) == 1:
        return f"r.{key[0]}" if record.__annotations__.get(key[0]) is str else f"str(r.{key[0]})"
    return "f'" + "/".join(f"{{r.{name}}}" for name in key) + "'"


def _expressions(record: type[Record]) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """For each field, the source that puts it into a row and the source that takes it out again: JSON columns through
    msgspec, booleans from SQLite's integers, the rest as it is. Also the names these sources use."""
    names: dict[str, Any] = {"record": record, "encode": _encode_json}
    outs: dict[str, str] = {}
    ins: dict[str, str] = {}
    for position, field in enumerate(msgspec.structs.fields(record)):
        kind, optional = _column_kind(field.type)
        out, back = f"r.{field.name}", f"r[{position}]"
        if kind == "json":
            decoder = f"decode_{field.name}"
            names[decoder] = msgspec.json.Decoder(field.type).decode
            out, back = f"encode({out})", f"{decoder}({back})"
        elif kind == "bool":
            back = f"bool({back})"
        if optional and kind in ("json", "bool"):
            out = f"(None if r.{field.name} is None else {out})"
            back = f"None if r[{position}] is None else {back}"
        outs[field.name] = out
        ins[field.name] = back
    return outs, ins, names


def _codecs(record: type[R]) -> tuple[Callable[[R], Row], Callable[[Row], R]]:
    outs, ins, names = _expressions(record)
    encode = _compile(f"lambda r: ({', '.join(outs.values())},)", **names)
    arguments = ", ".join(f"{name}={source}" for name, source in ins.items())
    return encode, _compile(f"lambda r: record({arguments})", **names)


def _encode_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise Invalid(f"a value cannot be written as JSON ({error})", code="invalid_value") from error


def _column_kind(annotation: Any) -> tuple[Literal["plain", "bool", "json"], bool]:
    """How a field is stored, and whether it may be absent."""
    optional = False
    annotation = _bare(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        optional = len(members) < len(get_args(annotation))
        annotation = _bare(members[0]) if len(members) == 1 else annotation
    if get_origin(annotation) is Literal and all(isinstance(value, str) for value in get_args(annotation)):
        return "plain", optional
    if annotation is bool:
        return "bool", optional
    return ("plain" if annotation in _SCALARS else "json"), optional


def _bare(annotation: Any) -> Any:
    """A type without the constraints that `Annotated` adds."""
    return _bare(get_args(annotation)[0]) if get_origin(annotation) is Annotated else annotation
