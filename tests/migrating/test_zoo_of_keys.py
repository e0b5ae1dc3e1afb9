"""A table gets ids whatever its key is: each type of each database, with the values that Python does not know."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id import backfill

pytestmark = pytest.mark.backend

# --- the types of one column, and values of them

POSTGRESQL = {
    "boolean": "true | false",
    "smallint": "-32768 | 32767",
    "integer": "-2147483648 | 2147483647",
    "bigint": "-9223372036854775808 | 9223372036854775807",
    "numeric": "'NaN' | '1e-200' | '12345678901234567890.0123456789'",
    "numeric(9,2)": "-1.5 | 0 | 1234567.89",
    "real": "'NaN' | '-Infinity' | 0.1 | 16777217 | '1e-40'",
    "double precision": "'Infinity' | 0.1 | '5e-324' | '-0'",
    "money": "'-1.5' | '1000000'",
    "text": "'' | 'a' | 'B' | 'ä' | '%s :x ''' | E'\\\\' | E'\\n'",
    "varchar(9)": "'' | ' ' | 'a '",
    "char(9)": "'' | 'a' | 'a b'",
    '"char"': "'' | 'a'",
    "name": "'' | 'a'",
    'text COLLATE "C"': "'B' | 'a'",
    "bytea": "'\\x' | '\\x00ff'",
    "bit(3)": "B'101' | B'000'",
    "bit varying": "B'' | B'1'",
    "date": "'infinity' | '-infinity' | '0044-03-15 BC' | '12000-01-01'",
    "time": "'24:00' | '00:00' | '12:00:00.000001'",
    "timetz": "'24:00+15' | '12:00-03:30'",
    "timestamp": "'infinity' | '4714-11-24 BC' | '294276-12-31'",
    "timestamptz": "'-infinity' | '0001-01-01 BC' | '1800-01-01' | '294276-12-31'",
    "interval": "'1 month' | '-178000000 years' | '31 days' | '25:00:00.000001'",
    "uuid": "'00000000-0000-0000-0000-000000000000' | 'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    "inet": "'10.0.0.1' | '10.0.0.1/8' | '::1'",
    "cidr": "'10.0.0.0/8' | '::/0'",
    "macaddr": "'08:00:2b:01:02:03'",
    "macaddr8": "'08:00:2b:01:02:03:04:05'",
    "jsonb": "'null' | '{\"a\": [1]}' | '\"x\"'",
    "int[]": "'{}' | '{1}' | '{1,NULL}' | '{{1,2},{3,4}}'",
    "text[]": "'{}' | '{\"a,b\"}' | '{NULL}'",
    "int4range": "'empty' | '[1,)' | '(,)'",
    "tstzrange": "'empty' | '[infinity,)' | '[2020-01-01,)'",
    "datemultirange": "'{}' | '{[2020-01-01,infinity)}'",
    "tsvector": "'' | 'a b' | 'a:1'",
    "tsquery": "'a & b' | '!a'",
    "oid": "0 | 4294967295",
    "regclass": "'pg_class' | 0",
    "xid8": "'1' | '18446744073709551615'",
    "pg_lsn": "'0/0' | 'FFFFFFFF/FFFFFFFF'",
    "oidvector": "'' | '1 2'",
    "timestamptz(3)": "'infinity' | '2020-01-01 00:00:00.001+14'",
    "interval hour to minute": "'00:01' | '-99:00'",
    "bool[]": "'{t,f}' | '{NULL}'",
    "uuid[]": "'{}' | '{ffffffff-ffff-ffff-ffff-ffffffffffff}'",
    "timestamptz[]": "'{infinity}' | '{\"0044-03-15 BC\"}'",
    "bytea[]": "'{}' | ARRAY['\\x00ff'::bytea]",
    "numrange": "'empty' | '[1.5,2)'",
    "daterange": "'[infinity,)' | '(,2020-01-01)'",
    "int8multirange": "'{}' | '{[1,9223372036854775807)}'",
    "tid": "'(0,1)' | '(4294967295,65535)'",
    "regtype": "'text' | 0",
    "zoo.mood": "'sad' | 'happy'",
    "zoo.mood[]": "'{}' | '{sad}'",
    'zoo."Mo od"': "'it''s' | 'a,b'",
    "zoo.pair": "'(1,a)' | '(,\"b,c\")' | '(2,)'",
    "zoo.small": "1 | 2",
    "zoo.range": "'[1.5,2)' | 'empty'",
    "zoo.ltree": "'' | 'a' | 'a.b'",
    "zoo.hstore": "'' | 'a=>NULL' | 'a=>1'",
    "zoo.citext": "'a' | 'B'",
    "zoo.cube": "'(1)' | '(1,2),(3,4)'",
    "zoo.isbn13": "'978-0-393-04002-9'",
    "zoo.seg": "'1 .. 2' | '~3'",
}
CREATED = {
    "zoo.mood": "CREATE TYPE zoo.mood AS ENUM ('sad', 'happy')",
    'zoo."Mo od"': """CREATE TYPE zoo."Mo od" AS ENUM ('it''s', 'a,b')""",
    "zoo.pair": "CREATE TYPE zoo.pair AS (number int, word text)",
    "zoo.small": "CREATE DOMAIN zoo.small AS int CHECK (VALUE < 9)",
    "zoo.range": "CREATE TYPE zoo.range AS RANGE (subtype = float8)",
    "zoo.isbn13": "CREATE EXTENSION isn SCHEMA zoo",
}
"""How the types in the schema zoo are created. The others are extensions of their name, which come with PostgreSQL."""

OF_BOTH = {
    "tinyint": "-128 | 127",
    "boolean": "true | false",
    "smallint unsigned": "0 | 65535",
    "mediumint": "-8388608 | 8388607",
    "int": "-2147483648 | 2147483647",
    "int(9) zerofill": "0 | 7",
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
    "varchar(9) CHARACTER SET ascii COLLATE ascii_bin": "'B' | 'a'",
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
    "tinyint unsigned": "0 | 255",
    "mediumint unsigned": "0 | 16777215",
    "int unsigned": "0 | 4294967295",
    "decimal(10)": "-9999999999 | 0",
    "bit(8)": "b'0' | b'11111111'",
    "nchar(9)": "'' | 'ä'",
    "varchar(9) CHARACTER SET utf8mb3": "'ä' | 'b'",
    "varchar(9) CHARACTER SET utf16": "'ä' | '😀'",
    "varchar(9) CHARACTER SET utf16le": "'ä' | '😀'",
    "varchar(9) CHARACTER SET cp1251": "'б' | 'b'",
    "varchar(9) CHARACTER SET koi8r": "'б' | 'b'",
    "varchar(9) CHARACTER SET greek": "'β' | 'b'",
    "varchar(9) CHARACTER SET hebrew": "'ב' | 'b'",
    "varchar(9) CHARACTER SET big5": "'中' | 'b'",
    "varchar(9) CHARACTER SET gbk": "'中' | 'b'",
    "varchar(9) CHARACTER SET euckr": "'가' | 'b'",
    "varchar(9) CHARACTER SET ujis": "'テ' | 'b'",
    "varchar(9) CHARACTER SET latin5": "'ğ' | 'b'",
    "varchar(9) CHARACTER SET macroman": "'é' | 'b'",
    "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_turkish_ci": "'ı' | 'b'",
    "varbinary(255)": "x'00' | x'5c27'",
    "time(3)": "'-838:59:59.000' | '00:00:00.001'",
    "datetime(3)": "'1000-01-01 00:00:00.001' | '1000-01-01 00:00:00.002'",
    "timestamp(3)": "'1970-01-02 00:00:00.001' | '1970-01-02 00:00:00.002'",
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
    "NONE": "'a' | 'b'",
    "DATE": "'15.3.2020' | 1577836800 | '2020-01-01'",
    "TIMESTAMP": "1577836800 | '2020-01-01 10:00' | 'now'",
    "TIME": "'25:00' | 7",
    "DECIMAL(9,2)": "1.005 | 'a' | 123456789012345678901234567890",
    "CHAR(36)": "1 | 'a'",
    "JSON": "'{' | '[1]'",
    "FLOAT": "1e308 | 'x'",
    **dict.fromkeys(
        # names of other databases, whose affinity is a matter of the letters in them
        (
            *("TINYINT", "SMALLINT", "MEDIUMINT", "BIGINT", "UNSIGNED BIG INT", "INT2", "INT8", "SERIAL", "POINT"),
            *(
                "FLOATING POINT",
                "CHARINT",
                "BLOBINT",
                "CHARACTER(20)",
                "VARCHAR(9)",
                "VARYING CHARACTER(9)",
                "NCHAR(9)",
            ),
            *(
                "VARYING CHARACTER(9)",
                "NATIVE CHARACTER(9)",
                "NVARCHAR(9)",
                "CLOB",
                "TEXT COLLATE RTRIM",
                "TEXT COLLATE BINARY",
            ),
            *(
                "DOUBLE",
                "DOUBLE PRECISION",
                "FLOAT",
                "DATETIME",
                "STRING",
                "JSON",
                "JSONB",
                "MONEY",
                "ANY",
                "BIT",
                "YEAR",
            ),
            *("INTERVAL", "BYTEA", "VARBINARY(9)", "IMAGE", "XML", "INET", "ENUM", "GEOMETRY", "CURRENCY", "HSTORE"),
            *("TIMESTAMPTZ", "[a type]", "'quoted'"),
        ),
        "1 | 2.5 | 'a' | 'B' | x'61' | '007'",
    ),
}

TABLES = [
    *(("postgresql", type_, values) for type_, values in POSTGRESQL.items()),
    *(("mysql", type_, values) for type_, values in MYSQL.items()),
    *(("mariadb", type_, values) for type_, values in MARIADB.items()),
    *(("sqlite", type_, values) for type_, values in SQLITE.items()),
]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch, table: People) -> Iterator[None]:
    """The backfill works in windows of two rows, to pass over many ends."""
    monkeypatch.setattr(backfill, "WINDOW", 2)
    yield
    if table.engine.name == "postgresql":
        table.execute("DROP SCHEMA IF EXISTS zoo CASCADE")


def create_type(table: People, type_: str) -> None:
    """Create a type of the schema zoo, or skip the test on an older server, which has no such type."""
    name = type_.removesuffix("[]")
    if name.startswith("zoo."):
        extension = name.removeprefix("zoo.")
        table.execute("CREATE SCHEMA zoo")
        if name in CREATED:
            table.execute(CREATED[name])
        else:
            table.execute(f"DROP EXTENSION IF EXISTS {extension} CASCADE")  # of another test
            table.execute(f"CREATE EXTENSION {extension} SCHEMA zoo")
    elif table.engine.name == "postgresql":
        with table.engine.connect() as connection:
            if connection.scalar(text("SELECT to_regtype(:name)"), {"name": type_.partition(" COLLATE")[0]}) is None:
                pytest.skip(f"this PostgreSQL has no {type_}")


def fill(table: People, columns: str, rows: list[str], after: str = "") -> None:
    """Create the table with these columns and rows, fill it, and check that each row has got an id of its own."""
    modes = {"mysql": "sql_mode = 'ALLOW_INVALID_DATES'", "mariadb": "sql_mode = 'ALLOW_INVALID_DATES'"}
    mode = modes.get(table.engine.name)
    with table.engine.begin() as connection:
        send(connection, "DROP TABLE person")
        send(connection, f"CREATE TABLE person (public_id varchar(12), {columns}) {after}")
        if mode:
            send(connection, f"SET SESSION {mode}")
        send(connection, f"INSERT INTO person VALUES {', '.join(f'(NULL, {row})' for row in rows)}")
        if mode:
            send(connection, "SET SESSION sql_mode = DEFAULT")

    table.run("backfill_public_id")

    with table.engine.connect() as connection:
        filled, different = send(connection, "SELECT count(public_id), count(DISTINCT public_id) FROM person").one()
    assert filled == different == len(rows)


def test_number_of_types() -> None:
    """The zoo has sixty types of each database."""
    assert all(len(types) >= 60 for types in (POSTGRESQL, MYSQL, MARIADB, SQLITE))


@pytest.mark.parametrize(
    ("database", "type_", "values"),
    TABLES,
    indirect=["database"],
    ids=[f"{database}-{type_}" for database, type_, _ in TABLES],
)
def test_part_of_a_key(table: People, type_: str, values: str) -> None:
    """Each row gets an id, whatever the type of a part of its key is."""
    create_type(table, type_)
    known = [value for value in values.split(" | ") if value != "NULL"]
    rows = [f"{value}, {number}" for value in known for number in range(2)]

    fill(table, f"k {type_}, n int, PRIMARY KEY (k, n)", rows, "WITHOUT ROWID" if table.engine.name == "sqlite" else "")


@on("sqlite")
@pytest.mark.parametrize("type_", SQLITE)
def test_key_of_sqlite(table: People, type_: str) -> None:
    """Each row of a table with row ids gets an id, whatever its key is, and also where the key is NULL."""
    fill(table, f"k {type_} PRIMARY KEY", SQLITE[type_].split(" | "))


@on("sqlite")
@pytest.mark.parametrize("names", ["rowid", "ROWID, _rowid_", "rowid, _rowid_, oid", '"RowId", oid'])
def test_columns_called_as_the_row_id(table: People, names: str) -> None:
    """Each row gets an id if columns have the names of the row id."""
    fill(table, f"{names}, k text PRIMARY KEY", [f"{'1, ' * (names.count(',') + 1)}'{key}'" for key in "abc"])


@on("postgresql", "sqlite")
def test_without_a_key(table: People) -> None:
    """Each row gets an id if the table has no key, and rows are equal."""
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
    """Each row gets an id if a unique index of columns that are NOT NULL tells the rows apart."""
    fill(table, columns, UNIQUE[columns])
