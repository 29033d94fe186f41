"""Records become rows and rows records again, whatever an engine makes of a value on the way."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import apsw
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from stigmergy.kernel.query import Row, for_sqlite
from stigmergy.kernel.record import COLLECTIONS, Collection, Record, collection_of, declare, templates
from support.notes import ENTRIES, NOTES, Entry, Note


class Point(msgspec.Struct):
    x: float
    label: str | None = None


class Everything(Record, frozen=True, kw_only=True):
    id: str
    number: int
    ratio: float
    flag: bool
    raw: bytes
    state: Literal["open", "closed"]
    bounded: Annotated[int, Meta(ge=-(2**63))]
    maybe_text: str | None = None
    maybe_number: int | None = None
    maybe_bounded: Annotated[int, Meta(le=2**63 - 1)] | None = None
    maybe_ratio: float | None = None
    maybe_flag: bool | None = None
    maybe_raw: bytes | None = None
    maybe_state: Literal["open", "closed"] | None = None
    items: list[str] = []
    table: dict[str, Any] = {}
    point: Point | None = None
    pair: tuple[int, str] = (0, "")
    either: str | int = 0
    moment: datetime | None = None
    anything: Any = None


COLUMNS = """
    tenant TEXT, version BIGINT, seq BIGINT, created_at BIGINT, updated_at BIGINT, id TEXT, number BIGINT, ratio DOUBLE PRECISION,
    flag BOOLEAN, raw {blob}, state TEXT, bounded BIGINT, maybe_text TEXT, maybe_number BIGINT, maybe_bounded BIGINT,
    maybe_ratio DOUBLE PRECISION, maybe_flag BOOLEAN, maybe_raw {blob}, maybe_state TEXT, items {json}, "table" {json},
    point {json}, pair {json}, either {json}, moment {json}, anything {json}"""

TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
STATES: st.SearchStrategy[Any] = st.sampled_from(["open", "closed"])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)
RECORDS = st.builds(
    Everything,
    id=TEXT,
    number=INTS,
    ratio=FLOATS,
    flag=st.booleans(),
    raw=st.binary(max_size=20),
    state=STATES,
    bounded=INTS,
    maybe_text=st.none() | TEXT,
    maybe_number=st.none() | INTS,
    maybe_bounded=st.none() | INTS,
    maybe_ratio=st.none() | FLOATS,
    maybe_flag=st.none() | st.booleans(),
    maybe_raw=st.none() | st.binary(max_size=20),
    maybe_state=st.none() | STATES,
    items=st.lists(TEXT, max_size=3),
    table=st.dictionaries(TEXT, JSON, max_size=3),
    point=st.none() | st.builds(Point, FLOATS, st.none() | TEXT),
    pair=st.tuples(INTS, TEXT),
    either=TEXT | INTS,
    moment=st.none() | st.datetimes(timezones=st.just(UTC)),
    anything=JSON,
)


@pytest.fixture(scope="module")
def collection() -> Collection[Everything]:
    return Collection(Everything, "everything", path="everything/{id}")


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    connection = apsw.Connection("")
    connection.execute(for_sqlite(f"CREATE TABLE everything ({COLUMNS})"))
    return connection


def through_sqlite(connection: apsw.Connection, row: Row) -> Row:
    connection.execute("DELETE FROM everything")
    connection.execute(f"INSERT INTO everything VALUES ({', '.join('?' * len(row))})", row)
    (stored,) = connection.execute("SELECT * FROM everything").fetchall()
    return stored


@given(record=RECORDS)
def test_a_record_comes_back_from_sqlite_as_it_was(
    collection: Collection[Everything], connection: apsw.Connection, record: Everything
) -> None:
    back = collection.decode(through_sqlite(connection, collection.encode(record)))
    assert back == record
    assert [type(getattr(back, name)) for name in collection.columns] == [
        type(getattr(record, name)) for name in collection.columns
    ]


@given(record=RECORDS)
def test_a_record_comes_back_from_values_that_keep_their_types(collection: Collection[Everything], record: Everything) -> None:
    """As PostgreSQL's do: a BOOLEAN is a bool, JSON is its text."""
    row = collection.encode(record)
    assert {type(value) for value in row} <= {str, int, float, bool, bytes, type(None)}
    assert collection.decode(row) == record


@given(record=RECORDS)
def test_a_body_in_the_history_is_the_record(collection: Collection[Everything], record: Everything) -> None:
    assert collection.decode_body(collection.encode_body(record)) == record


def test_absent_values_are_null_and_constraints_do_not_change_a_column(collection: Collection[Everything]) -> None:
    record = Everything(id="e", number=1, ratio=1, flag=True, raw=b"", state="open", bounded=7)
    row = dict(zip(collection.columns, collection.encode(record), strict=True))
    absent = {name for name in row if name.startswith("maybe_")} | {"point", "moment"}
    assert all(row[name] is None for name in absent)
    assert row["bounded"] == 7
    assert row["anything"] == "null"


class Plain(Record, frozen=True, kw_only=True):
    id: str
    done: bool
    data: dict[str, int]


def test_an_update_binds_the_new_values_and_the_old_version() -> None:
    collection = Collection(Plain, "plains", path="plains/{id}")
    before = Plain(tenant="t", id="p", version=3, seq=7, done=False, data={})
    after = msgspec.structs.replace(before, version=4, seq=9, updated_at=5, done=True, data={"a": 1})
    statement, values = collection.update_sql(("data", "done"))
    assert values(before, after) == ('{"a":1}', True, 4, 9, 5, "t", "p", 3)
    assert statement.sqlite == (
        "UPDATE plains SET data = ?1, done = ?2, version = ?3, seq = ?4, updated_at = ?5"
        " WHERE tenant = ?6 AND id = ?7 AND version = ?8 RETURNING version"
    )
    assert collection.update_sql(("data", "done")) is collection.update_sql(("data", "done"))


def test_an_update_of_no_field_writes_the_stamps() -> None:
    statement, _ = Collection(Plain, "plains", path="p").update_sql(())
    assert statement.parameters == ("version", "seq", "updated_at", "old_tenant", "old_id", "old_version")


def test_an_update_of_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(KeyError, match="dnoe"):
        Collection(Plain, "plains", path="p").update_sql(("dnoe",))


@pytest.mark.parametrize(
    ("record", "id"),
    [(Note(id="n/1'2"), "n/1'2"), (Entry(note_id="n", pos=12), "n/12"), (Entry(note_id="", pos=-1), "/-1")],
)
def test_an_id_is_the_parts_of_the_key(record: Record, id: str) -> None:
    assert collection_of(type(record)).id_of(record) == id


@pytest.mark.parametrize(
    ("note", "path"),
    [
        (Note(id="n", owner_id="mia"), "users/mia/notes"),
        (Note(id="n", owner_id=""), "users/-/notes"),
        (Note(id="n", owner_id="{id}"), "users/{id}/notes"),
    ],
)
def test_a_path_shows_the_fields_of_its_record(note: Note, path: str) -> None:
    assert NOTES.path_of(note) == path


def test_a_path_shows_numbers_and_what_the_record_does_not_have() -> None:
    collection = Collection(Everything, "everything", path="a/{number}/{maybe_text}/{no_such_field}")
    record = Everything(id="e", number=0, ratio=1, flag=True, raw=b"", state="open", bounded=7)
    assert collection.path_of(record) == "a/0/-/-"


def test_templates_are_those_of_every_collection() -> None:
    assert templates() == {name: collection.path for name, collection in COLLECTIONS.items()}
    assert templates()["entries"] == ENTRIES.path == "users/-/notes/{note_id}/entries"


def test_a_collection_is_found_by_its_record_and_declared_once() -> None:
    assert collection_of(Note) is NOTES
    with pytest.raises(ValueError, match="notes"):
        declare(Plain, "notes", path="plains/{id}")
    assert collection_of(Note) is NOTES is COLLECTIONS["notes"]
    with pytest.raises(KeyError):
        collection_of(Plain)


def test_a_schema_name_is_the_singular_unless_it_is_given() -> None:
    assert NOTES.schema_name == "note.v1"
    assert ENTRIES.schema_name == "entry.v1"
