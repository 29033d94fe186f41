"""Migrations: what is missing, what is refused, and where one statement ends."""

import pytest

from stigmergy.errors import SchemaTooNew, SchemaTooOld
from stigmergy.kernel.migrate import KERNEL, Migration, load, pending, refuse_pending

FIRST = Migration("app", 1, "0001_first.sql", "CREATE TABLE a (x TEXT);\n")
SECOND = Migration("app", 2, "0002_second.sql", "CREATE TABLE b (x TEXT);\n")
OTHER = Migration("part", 1, "0001_other.sql", "CREATE TABLE c (x TEXT);\n")
KNOWN = [FIRST, SECOND, OTHER]


def applied(*migrations: Migration) -> list[tuple[str, int, str, str]]:
    return [(migration.source, migration.number, migration.name, migration.checksum) for migration in migrations]


def statements(sql: str) -> list[str]:
    return Migration("app", 1, "0001_first.sql", sql).statements(str)


def test_what_was_not_applied_is_pending_in_order() -> None:
    assert pending(KNOWN, []) == KNOWN
    assert pending(KNOWN, applied(FIRST)) == [SECOND, OTHER]
    assert pending(KNOWN, applied(OTHER, FIRST)) == [SECOND]
    assert pending(KNOWN, applied(*KNOWN)) == []


@pytest.mark.parametrize(
    "unknown", [Migration("app", 3, "0003_third.sql", "SELECT 1;\n"), Migration("new", 1, "0001_new.sql", "SELECT 1;\n")]
)
def test_a_store_with_a_migration_that_is_not_known_is_newer(unknown: Migration) -> None:
    with pytest.raises(SchemaTooNew, match=f"{unknown.name} of {unknown.source}.*newer"):
        pending(KNOWN, applied(*KNOWN, unknown))


def test_a_store_that_ran_another_text_is_refused() -> None:
    with pytest.raises(SchemaTooNew, match=r"0001_first.sql of app was another one"):
        pending(KNOWN, applied(FIRST._replace(sql="CREATE TABLE a (y TEXT);\n"), SECOND))


def test_the_checksum_is_of_the_text() -> None:
    assert FIRST.checksum == FIRST._replace(name="0001_renamed.sql").checksum
    assert FIRST.checksum != FIRST._replace(sql=FIRST.sql + " ").checksum


def test_a_store_that_lacks_migrations_is_refused_with_what_to_do() -> None:
    refuse_pending([])
    with pytest.raises(SchemaTooOld, match=r"lacks 2 migration\(s\).*0002_second.sql.*stigmergy migrate"):
        refuse_pending([SECOND, OTHER])


def test_sources_come_in_their_order_and_their_files_by_number() -> None:
    places = [(migration.source, migration.number) for migration in load(["support.notes", KERNEL])]
    assert places[0] == ("support.notes", 1)
    kernel = [number for source, number in places if source == KERNEL]
    assert kernel == list(range(1, len(kernel) + 1))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", []),
        ("-- nothing\n\n-- at all\n", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1"]),
        ("SELECT 1;\nSELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1;  \n\n;\nSELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1; -- one; two\nSELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1 -- it's\n, 2;\nSELECT 3", ["SELECT 1 \n, 2", "SELECT 3"]),
        ("SELECT '--;\n', ';';\nSELECT 2", ["SELECT '--;\n', ';'", "SELECT 2"]),
        ("SELECT 'it''s;\n -- no comment';\nSELECT 2", ["SELECT 'it''s;\n -- no comment'", "SELECT 2"]),
        ('SELECT ";\n--";\nSELECT 2', ['SELECT ";\n--"', "SELECT 2"]),
        ("CREATE TRIGGER t BEGIN SELECT 1; SELECT 2; END;\n", ["CREATE TRIGGER t BEGIN SELECT 1; SELECT 2; END"]),
    ],
)
def test_a_statement_ends_with_a_semicolon_at_the_end_of_a_line(sql: str, expected: list[str]) -> None:
    assert statements(sql) == expected
