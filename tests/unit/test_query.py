"""One SQL text for both engines: what is a parameter, what is a token, and what is only text."""

from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stigmergy.kernel.query import TOKENS, Query, Statement, for_postgres, for_sqlite
from stigmergy.kernel.sqlite_file import open_connection


def parts(sql: str) -> tuple[str, str, tuple[str, ...]]:
    statement = Statement("test", sql)
    return statement.sqlite, statement.postgres, statement.parameters


def test_parameters_are_numbered_by_their_first_place_and_repeated_names_share_a_number() -> None:
    assert parts("SELECT :b, :a, :b, :c_2 WHERE x = :a") == (
        "SELECT ?1, ?2, ?1, ?3 WHERE x = ?2",
        "SELECT $1, $2, $1, $3 WHERE x = $2",
        ("b", "a", "c_2"),
    )


def test_names_that_begin_alike_are_told_apart() -> None:
    assert parts("SELECT :id, :id_2, :idx")[2] == ("id", "id_2", "idx")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT x::text[], '{}'::json",
        "SELECT ':a', 'at 10:30', ': :b', 'it''s :c'",
        'SELECT ":a" FROM t',
        "SELECT 1 -- as in :a, or 'b\n, 2",
        "SELECT a[1:2]",
        "SELECT 'HH24:mi:ss'",
        "SELECT '{json}', '{nothing}', \"{json}\" -- {skip_locked}",
        "SELECT '', 'a', ''''",
    ],
)
def test_casts_literals_quoted_names_and_comments_stay_as_they_are(sql: str) -> None:
    assert parts(sql) == (sql, sql, ())


def test_a_parameter_beside_text_that_looks_like_one_is_found() -> None:
    sqlite, postgres, parameters = parts("SELECT CAST(:a AS TEXT), :b::text, ':c' || :d, x=:e, (:f),:g")
    assert parameters == ("a", "b", "d", "e", "f", "g")
    assert sqlite == "SELECT CAST(?1 AS TEXT), ?2::text, ':c' || ?3, x=?4, (?5),?6"
    assert postgres == "SELECT CAST($1 AS TEXT), $2::text, ':c' || $3, x=$4, ($5),$6"


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_what_each_engine_writes(token: str) -> None:
    assert for_sqlite(f"a {{{token}}} b") == f"a {TOKENS[token][0]} b"
    assert for_postgres(f"a {{{token}}} b") == f"a {TOKENS[token][1]} b"


def test_an_unknown_token_is_refused_when_the_statement_is_declared() -> None:
    with pytest.raises(KeyError, match="jsn"):
        Statement("test", "CREATE TABLE t (x {jsn})")


def test_a_list_is_a_table_with_one_column() -> None:
    statement = Statement("test", "SELECT x FROM t WHERE a = :a AND kind IN (SELECT value FROM {each:kinds}) AND b = :b")
    assert statement.parameters == ("a", "kinds", "b")
    assert statement.bind({"a": 1, "b": 2, "kinds": "[]"}, "main") == (1, "[]", 2)
    assert "json_each(?2)" in statement.sqlite
    assert "CAST($2 AS JSON)" in statement.postgres


def test_the_tenant_comes_from_the_transaction_and_from_nowhere_else() -> None:
    statement = Statement("test", "SELECT :a, :tenant")
    assert statement.bind({"a": 1, "tenant": "somebody else's"}, "main") == (1, "main")


def test_a_missing_value_is_refused_and_a_needless_one_is_not_bound() -> None:
    statement = Statement("test", "SELECT :a")
    with pytest.raises(KeyError, match="a"):
        statement.bind({}, "main")
    assert statement.bind({"a": 1, "b": 2}, "main") == (1,)
    assert Statement("test", "SELECT 1").bind({"b": 2}, "main") == ()


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT seq FROM changes", True),
        ("SELECT 1 FROM notes JOIN heads ON 1", True),
        ("DELETE FROM changes WHERE seq = 1", True),
        ("INSERT INTO changes VALUES (1)", False),
        ("SELECT 1 FROM changes_of_mind", False),
        ("SELECT 1 FROM notes", False),
    ],
)
def test_a_statement_knows_whether_it_reads_the_journal(sql: str, reads: bool) -> None:
    assert Statement("test", sql).reads_journal is reads


def test_a_query_gives_records() -> None:
    query = Query("test", "SELECT a FROM t", lambda row: f"record {row[0]}")
    assert query.decode((1,)) == "record 1"
    assert repr(query) == "<Statement test>"


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12)


@given(st.lists(st.one_of(NAMES.map(lambda name: (name, None)), TEXT.map(lambda text: (None, text))), min_size=1, max_size=6))
def test_sqlite_reads_any_mixture_of_literals_and_parameters_as_it_was_meant(
    columns: list[tuple[str | None, str | None]],
) -> None:
    written = [f":{name}" if name is not None else "'" + (text or "").replace("'", "''") + "'" for name, text in columns]
    statement = Statement("test", f"SELECT {', '.join(written)}")
    given = {name: f"value of {name}" for name, _ in columns if name is not None}
    rows = apsw.Connection("").execute(statement.sqlite, statement.bind(given, "main")).fetchall()
    expected = tuple(("main" if name == "tenant" else given[name]) if name is not None else text for name, text in columns)
    assert rows == [expected]


def test_an_index_is_named_to_sqlite_alone() -> None:
    statement = Statement("x", "SELECT 1 FROM t {by:t_owner} WHERE tenant = :tenant")
    assert statement.sqlite == "SELECT 1 FROM t INDEXED BY t_owner WHERE tenant = ?1"
    assert statement.postgres == "SELECT 1 FROM t  WHERE tenant = $1"


def test_sqlite_compiles_a_statement_once_whatever_is_bound_to_it(tmp_path: Path) -> None:
    """It asks who may do what whenever it compiles; it did so at each call of a statement with a bound LIMIT."""
    connection = open_connection(tmp_path / "store.db", writes=True)
    asked: list[int] = []

    def ask(*operation: object) -> int:
        asked.append(1)
        return apsw.SQLITE_OK

    connection.execute("CREATE TABLE notes (tenant TEXT, pos INTEGER, text TEXT, PRIMARY KEY (tenant, pos)) WITHOUT ROWID")
    connection.authorizer = ask
    last = Statement(
        "notes.last", "SELECT text FROM notes WHERE tenant = :tenant AND pos <= :upto ORDER BY tenant, pos DESC LIMIT :limit"
    )
    compiled: list[int] = []
    for limit in (1, 1, 2, 3):
        connection.execute(last.sqlite, last.bind({"upto": limit, "limit": limit}, "main")).fetchall()
        compiled.append(len(asked))
    connection.close()
    assert compiled[0] > 0
    assert compiled == [compiled[0]] * 4
