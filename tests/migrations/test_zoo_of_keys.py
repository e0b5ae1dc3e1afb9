"""A table gets ids whatever its key: the types of each database, with values that Python cannot represent.

PostgreSQL finds a row by its ``ctid``, whatever its key is.
"""

from __future__ import annotations

import pytest
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id.migrations import backfill

pytestmark = pytest.mark.backend

# --- the types of a key column, and values of each type

OF_BOTH = {
    "tinyint": "-128 | 127",
    "bigint": "-9223372036854775808 | 9223372036854775807",
    "bigint unsigned": "0 | 18446744073709551615",
    "decimal(65,0)": "-1 | 12345678901234567890123456789012345678901234567890123456789012345",
    "decimal(40,30)": "0.000000000000000000000000000001 | 1234567890.5 | -2",
    "decimal(9,2) unsigned": "0 | 1234567.89",
    "float": "0.1 | 16777217 | -3.4e38 | 1e-38",
    "double": "0.1 | 1.7976931348623157e308 | 5e-324 | -1",
    "bit(1)": "b'0' | b'1'",
    "bit(64)": "0 | 18446744073709551615",
    "char(9)": "'' | 'a' | 'a b'",
    "varchar(9)": "'' | 'a' | '%s :x ''' | '\\\\' | 'é'",
    "varchar(9) CHARACTER SET latin1": "'ä' | 'b'",
    "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": "'B' | 'a' | '😀'",
    "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_spanish_ci": "'n' | 'ñ' | 'o'",
    "varchar(9) CHARACTER SET latin1 COLLATE latin1_german2_ci": "'ä' | 'ad' | 'af'",
    "varchar(9) CHARACTER SET ucs2": "'ä' | 'b'",
    "varchar(9) CHARACTER SET utf32": "'ä' | 'b'",
    "varchar(9) CHARACTER SET sjis": "'b' | 'テ'",
    "binary(4)": "'' | 'a' | x'00ff'",
    "varbinary(9)": "'' | x'00' | x'ff00'",
    "date": "'0000-00-00' | '2020-00-00' | '1000-01-01' | '9999-12-31'",
    "datetime": "'0000-00-00' | '2020-01-00 00:00:00' | '9999-12-31 23:59:59'",
    "datetime(6)": "'1000-01-01 00:00:00.000001' | '1000-01-01 00:00:00.000002'",
    "timestamp": "'0000-00-00' | '1970-01-02' | '2038-01-18'",
    "timestamp(6)": "'1970-01-02 00:00:00.000001' | '1970-01-02 00:00:00.000002'",
    "time": "'-838:59:59' | '-00:00:01' | '10:00' | '30:00' | '838:59:59'",
    "time(6)": "'-10:00:00.000001' | '-10:00:00.000002' | '00:00:00.5'",
    "year": "0000 | 1901 | 2155",
    "enum('z', 'a', 'm', '')": "'z' | 'a' | 'm' | ''",
    "enum('3', '1', '2')": "'3' | '1' | '2'",
    "set('z', 'a')": "'' | 'z' | 'a' | 'z,a'",
}
MYSQL = OF_BOTH | {
    "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs": "'a' | 'B' | 'ä' | 'a '",
    "varchar(9) CHARACTER SET gb18030": "'b' | '中'",
}
MARIADB = OF_BOTH | {
    "uuid": "'00000000-0000-0000-0000-000000000000' | 'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    "inet4": "'0.0.0.0' | '255.255.255.255'",
    "inet6": "'::' | '::ffff:10.0.0.1' | 'ffff::'",
    "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin": "'a' | 'a '",
}

SQLITE = {
    "INTEGER": "-9223372036854775808 | 9223372036854775807",
    "INT": "1 | 'a' | x'00'",
    "BOOLEAN": "1 | 0 | 'true'",
    "REAL": "0.1 | 9e999 | 'a'",
    "NUMERIC": "1 | 1.5 | 'a' | x'00'",
    "TEXT": "NULL | NULL | 'a' | ''",
    "TEXT COLLATE NOCASE": "'a' | 'B'",
    "BLOB": "'a' | 1 | x'61'",
    "": "'a' | 1 | 1.5 | x'61' | NULL",
    "UUID": "'0188aaaa-bbbb-7ccc-8ddd-eeeeffff0000' | 'b' | 7",
    "DATE": "'15.3.2020' | 1577836800 | '2020-01-01'",
    "TIMESTAMP": "1577836800 | '2020-01-01 10:00' | 'now'",
    "TIME": "'25:00' | 7",
    "DECIMAL(9,2)": "1.005 | 'a' | 123456789012345678901234567890",
    "CHAR(36)": "1 | 'a'",
}

TABLES = [
    *(("mysql", type_, values) for type_, values in MYSQL.items()),
    *(("mariadb", type_, values) for type_, values in MARIADB.items()),
    *(("sqlite", type_, values) for type_, values in SQLITE.items()),
]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the backfill work in windows of two rows, so that it crosses many ends of windows."""
    monkeypatch.setattr(backfill, "WINDOW", 2)


def fill(table: People, columns: str, rows: list[str], after: str = "") -> None:
    """Create the table with these columns and rows, run the backfill, and check that each row has its own id."""
    has_modes = table.engine.name in {"mysql", "mariadb"}
    with table.engine.begin() as connection:
        send(connection, "DROP TABLE person")
        send(connection, f"CREATE TABLE person (public_id varchar(12), {columns}) {after}")
        if has_modes:
            send(connection, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'")
        send(connection, f"INSERT INTO person VALUES {', '.join(f'(NULL, {row})' for row in rows)}")
        if has_modes:
            send(connection, "SET SESSION sql_mode = DEFAULT")

    table.run("backfill_public_id")

    with table.engine.connect() as connection:
        filled, different = send(connection, "SELECT count(public_id), count(DISTINCT public_id) FROM person").one()
    assert filled == different == len(rows)


@pytest.mark.parametrize(
    ("database", "type_", "values"),
    TABLES,
    indirect=["database"],
    ids=[f"{database}-{type_}" for database, type_, _ in TABLES],
)
def test_part_of_a_key(table: People, type_: str, values: str) -> None:
    """Each row gets an id, whatever the type of a column in its composite key."""
    known = [value for value in values.split(" | ") if value != "NULL"]
    rows = [f"{value}, {number}" for value in known for number in range(2)]

    fill(table, f"k {type_}, n int, PRIMARY KEY (k, n)", rows, "WITHOUT ROWID" if table.engine.name == "sqlite" else "")


@on("sqlite")
@pytest.mark.parametrize("type_", SQLITE)
def test_key_of_sqlite(table: People, type_: str) -> None:
    """Each row of a table with row ids gets an id, whatever its key, even if the key is NULL."""
    fill(table, f"k {type_} PRIMARY KEY", SQLITE[type_].split(" | "))


@on("sqlite")
@pytest.mark.parametrize("names", ["rowid", "ROWID, _rowid_", "rowid, _rowid_, oid", '"RowId", oid'])
def test_columns_called_as_the_row_id(table: People, names: str) -> None:
    """Each row gets an id if columns are named like the row id."""
    fill(table, f"{names}, k text PRIMARY KEY", [f"{'1, ' * (names.count(',') + 1)}'{key}'" for key in "abc"])


@on("postgresql", "sqlite")
def test_without_a_key(table: People) -> None:
    """Each row gets an id if the table has no key, even if rows are equal."""
    fill(table, "name varchar(9)", ["'a'", "'a'", "NULL"])


UNIQUE = {
    "id int NOT NULL UNIQUE": ["1", "2", "3"],
    "id int NOT NULL, n int NOT NULL, UNIQUE (n, id)": ["1, 1", "1, 2", "2, 1"],
    "n int UNIQUE, id int NOT NULL, UNIQUE z (id)": ["NULL, 1", "NULL, 2", "1, 3"],
    "id varchar(9) NOT NULL, UNIQUE (id(3))": ["'a'", "'abcd'", "'abd'"],
}


@on("mysql", "mariadb")
@pytest.mark.parametrize("columns", UNIQUE)
def test_unique_index_instead_of_a_primary_key(table: People, columns: str) -> None:
    """Each row gets an id if a unique index on NOT NULL columns identifies the rows."""
    fill(table, columns, UNIQUE[columns])
