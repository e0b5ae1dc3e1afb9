"""What a migration asks about a table: its key, its other columns, how many rows it has, and which have no id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import ColumnElement, Connection, Engine, Integer, Select, column, select, text
from sqlalchemy.dialects import mysql
from support.marks import on
from support.people import send

from sqlalchemy_public_id import ConfigurationError, NanoId, Snowflake, Uuid4
from sqlalchemy_public_id.migrations import PublicIdColumn, table
from sqlalchemy_public_id.migrations.databases import live_table, rows_of
from sqlalchemy_public_id.migrations.postgresql.rows import RowsByKey, lock_of_window
from sqlalchemy_public_id.migrations.rows import encoded
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.table import LiveTable

pytestmark = pytest.mark.backend

OTHER = f"facts_{os.getpid()}"
"""A schema, or another database, with a table of the same name; databases of MySQL are common to all processes."""
COLUMNS = "Tenant integer NOT NULL, region integer NOT NULL, number integer NOT NULL, public_id varchar(12)"


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection in AUTOCOMMIT mode to a table whose key has two columns, and to one in another schema."""
    start = "ATTACH ':memory:' AS" if engine.name == "sqlite" else "CREATE SCHEMA"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        send(connection, "DROP TABLE IF EXISTS fact")
        send(connection, f"{start} {OTHER}")
        send(connection, f"CREATE TABLE fact ({COLUMNS}, PRIMARY KEY (region, Tenant))")
        send(connection, f"CREATE TABLE {OTHER}.fact (a integer NOT NULL PRIMARY KEY, Public_Id varchar(12))")
        send(connection, f"INSERT INTO {OTHER}.fact (a) VALUES (1)")
        try:
            yield connection
        finally:
            if engine.name != "sqlite":
                send(connection, f"DROP SCHEMA {OTHER}" + " CASCADE" * (engine.name == "postgresql"))
            send(connection, "DROP TABLE fact")
            connection.invalidate()


def live(connection: Connection, name: str = "fact", *others: str, schema: str | None = None) -> LiveTable:
    return live_table(connection, PublicIdColumn.of(name, schema=schema, unique_with=others))


def write(connection: Connection, *ids: str | None) -> None:
    """Insert rows with these ids, as literals."""
    values = [f"(1, {number}, 1, {'NULL' if id is None else repr(id)})" for number, id in enumerate(ids)]
    send(connection, f"INSERT INTO fact VALUES {', '.join(values)}")


# --- names and columns


def test_columns_and_the_key(connection: Connection) -> None:
    """The columns of the key come in its order, and all columns are those of the table in the schema that is named."""
    tenant = "tenant" if connection.dialect.name == "postgresql" else "Tenant"

    assert live(connection).read_primary_key() == ["region", tenant]
    assert live(connection).read_other_columns() == [tenant, "region", "number"]
    assert live(connection, schema=OTHER).read_primary_key() == ["a"]
    assert live(connection, schema=OTHER).read_other_columns() == ["a"]


@on("mysql", "mariadb", "postgresql")
def test_column_of_an_unknown_type(connection: Connection, recwarn: pytest.WarningsRecorder) -> None:
    """A column of a type that SQLAlchemy does not know is a column like any other, without a warning."""
    send(connection, "ALTER TABLE fact ADD place point")

    assert live(connection).read_other_columns()[-1] == "place"
    assert len(live(connection).read_primary_key()) == 2
    assert recwarn.list == []


@on("sqlite", "mysql", "mariadb")
def test_index_of_a_column_in_another_case(connection: Connection) -> None:
    """The unique index of a column, and of those with which it is unique, is found, however they are spelled."""
    name, table = ("i", f"{OTHER}.fact") if connection.dialect.name != "sqlite" else (f"{OTHER}.i", "fact")
    send(connection, f"CREATE UNIQUE INDEX {name} ON {table} (PUBLIC_ID)")
    state = live(connection, schema=OTHER).read_state()
    send(connection, f"CREATE UNIQUE INDEX {name}2 ON {table} (PUBLIC_ID, A)")
    of_tenants = live(connection, "fact", "A", schema=OTHER).read_state()

    assert state.unique is not None
    assert (state.unique.name, state.unique.columns) == ("i", ("public_id",))
    assert of_tenants.unique is not None
    assert (of_tenants.unique.name, of_tenants.unique.columns) == ("i2", ("public_id", "A"))


@on("postgresql")
def test_index_that_stores_further_columns(connection: Connection) -> None:
    """A unique index is the one of the ids, whatever columns it stores besides; one with the id among these is not."""
    send(connection, "CREATE UNIQUE INDEX stores_id ON fact (number) INCLUDE (public_id)")
    before = live(connection).read_state().unique
    send(connection, "CREATE UNIQUE INDEX stores_number ON fact (public_id) INCLUDE (number)")
    found = live(connection).read_state().unique

    assert before is None
    assert found is not None
    assert (found.name, found.columns) == ("stores_number", ("public_id",))


def test_quotes_in_names(connection: Connection) -> None:
    """A quote in the name of a column is no part of the escape that a catalog may show."""
    quote = connection.dialect.identifier_preparer.initial_quote
    name = f"{quote * 2}k{quote}"
    send(connection, "DROP TABLE fact")
    quoted = quote + name.replace(quote, quote * 2) + quote
    send(connection, f"CREATE TABLE fact (public_id varchar(12), {quoted} integer NOT NULL PRIMARY KEY)")

    assert live(connection).read_primary_key() == live(connection).read_other_columns() == [name]


@on("mysql", "mariadb")
def test_generated_columns(connection: Connection) -> None:
    """A generated column demands that its text fits, in the table of the schema that is named only."""
    more = "ADD g varchar(3) AS (upper(Public_Id)) VIRTUAL, ADD h int AS (a + 1) VIRTUAL"
    send(connection, f"ALTER TABLE {OTHER}.fact {more}")
    demands = {demand.name: demand.expression for demand in live(connection, schema=OTHER).read_constraints()}
    ids = "(SELECT 'abc' AS Public_Id UNION ALL SELECT 'abcd' UNION ALL SELECT NULL) AS fact"

    assert [*live(connection).read_constraints()] == []
    assert demands.keys() == {"the generated column g", "the generated column h"}
    assert send(connection, f"SELECT {demands['the generated column g']} FROM {ids}").scalars().all() == [1, 0, None]


@on("postgresql")
def test_check_of_another_column(connection: Connection) -> None:
    """The temporary CHECK is found by the name of the column that it is for."""
    for name in ("code", "public_id"):
        send(connection, f"ALTER TABLE fact ADD IF NOT EXISTS {name} text")
        found = [live_table(connection, PublicIdColumn.of("fact", name)).read_state().check]
        check = f"CONSTRAINT ck_fact_{name}_not_null CHECK ({name} IS NOT NULL) NOT VALID"
        send(connection, f"ALTER TABLE fact ADD {check}")
        found.append(live_table(connection, PublicIdColumn.of("fact", name)).read_state().check)
        assert found == [False, True]


def test_no_such_table(connection: Connection) -> None:
    """The error for a name that is no table's, or a view's, names it with its schema, and says what to do."""
    send(connection, "CREATE VIEW seen AS SELECT * FROM fact")
    send(connection, f"CREATE VIEW {OTHER}.seen AS SELECT * FROM {OTHER}.fact")
    said = []
    try:
        for schema in (None, OTHER):
            for name in ("nothing", "seen"):
                with pytest.raises(ConfigurationError) as caught:
                    live(connection, name, schema=schema).read_state()
                said.append(str(caught.value))
    finally:
        send(connection, "DROP VIEW seen")

    nothing = "there is no table {}; create it first, or correct its name"
    view = "{} is not an ordinary table; name the table that holds the rows"
    assert said[:2] == [nothing.format("'nothing'"), view.format("'seen'")]
    elsewhere = f"in schema '{OTHER}'"
    assert said[2:] == [nothing.format(f"'nothing' {elsewhere}"), view.format(f"'seen' {elsewhere}")]


@pytest.mark.parametrize(
    ("keys", "others", "remedy"),
    [
        (["public_id"], (), None),
        (["number", "PUBLIC_ID"], ("Number",), None),
        (["number", "number"], (), "declare the ids with unique_with=('number',), or {}"),
        (["region", "number"], ("number",), "declare the ids with unique_with=('number', 'region'), or {}"),
        (["Tenant"], ("region",), "{}, because unique_with may not contain the primary key"),
        (["region", "tenant"], (), "{}, because unique_with may not contain the primary key"),
    ],
)
@on("sqlite", "mysql")
def test_keys_of_partitions(connection: Connection, keys: list[str], others: tuple[str, ...], remedy: str) -> None:
    """The unique index needs each column of the partitions, in whatever case; with all of the key, it is no option."""
    obstacle = live(connection, "fact", *others).obstacle_of_partitions(keys)

    if remedy is None:
        assert obstacle is None
    else:
        assert obstacle is not None
        instead = "keep the ids in a separate table that refers to this one"
        lacking = [key for key in dict.fromkeys(keys) if key.lower() not in others]
        problem = f"fact is partitioned by {', '.join(lacking)}, which each of its unique indexes must contain"
        assert (obstacle.code, obstacle.problem, obstacle.remedy) == ("partitioned", problem, remedy.format(instead))


@on("sqlite", "mysql")
def test_keys_of_partitions_without_a_primary_key(connection: Connection) -> None:
    """A table without a primary key may have the columns of its partitions in the unique index."""
    send(connection, "DROP TABLE fact")
    send(connection, "CREATE TABLE fact (a integer, public_id varchar(12))")
    obstacle = live(connection).obstacle_of_partitions(["a"])

    assert obstacle is not None
    assert obstacle.remedy.startswith("declare the ids with unique_with=('a',)")


@on("mysql")
@pytest.mark.parametrize(
    ("type_", "bits"),
    [
        (mysql.TINYINT(), 7),
        (mysql.SMALLINT(), 15),
        (mysql.MEDIUMINT(unsigned=True), 24),
        (mysql.INTEGER(), 31),
        (mysql.INTEGER(unsigned=True), 32),
        (Integer(), 31),
        (mysql.BIGINT(), 63),
        (mysql.BIGINT(unsigned=True), 64),
    ],
    ids=repr,
)
def test_largest_key(connection: Connection, type_: Integer, bits: int) -> None:
    """A key can reach the largest number of its type, which is twice as large without a sign."""
    assert live(connection).read_largest_key("number", type_) == 2**bits - 1


def test_references(connection: Connection) -> None:
    """A foreign key counts if it is to the ids, also as one column of several; the other columns do not."""
    name = connection.dialect.name
    here = "" if name == "sqlite" else f"{OTHER}."
    ids = "public_id varchar(12) NOT NULL UNIQUE, UNIQUE (id, public_id)"
    send(connection, f"CREATE TABLE {OTHER}.target (id int NOT NULL PRIMARY KEY, {ids})")
    of_all = {"a int": "a) {} (id", "b varchar(12)": "b) {} (public_id", "d varchar(12)": "c, d) {} (id, public_id"}
    keys = ", ".join(f"FOREIGN KEY ({key.format(f'REFERENCES {here}target')})" for key in of_all.values())
    send(connection, f"CREATE TABLE {OTHER}.note ({', '.join(of_all)}, c int, {keys})")

    assert sorted(live(connection, "target", schema=OTHER).read_references()) == [
        (OTHER, "note", "b"),
        (OTHER, "note", "d"),
    ]


@on("postgresql")
def test_references_of_partitions(connection: Connection) -> None:
    """A foreign key of a table with partitions counts once, and one that a partition alone has counts, too."""
    send(connection, f"ALTER TABLE {OTHER}.fact ADD UNIQUE (public_id)")
    to_fact = f"REFERENCES {OTHER}.fact (public_id)"
    send(connection, f"CREATE TABLE {OTHER}.note (a varchar(12) {to_fact}, b varchar(12)) PARTITION BY LIST (b)")
    send(connection, f"CREATE TABLE {OTHER}.part PARTITION OF {OTHER}.note DEFAULT")
    send(connection, f"ALTER TABLE {OTHER}.part ADD FOREIGN KEY (b) {to_fact}")

    assert live(connection, schema=OTHER).read_references() == [(OTHER, "note", "a"), (OTHER, "part", "b")]


@on("postgresql")
def test_size_of_partitions(connection: Connection) -> None:
    """A table is as large as its partitions with their indexes; a partition without an estimate counts no row."""
    pay = f"{OTHER}.pay"
    send(connection, f"CREATE TABLE {pay} (a int PRIMARY KEY, public_id text) PARTITION BY RANGE (a)")
    for number, (first, last) in enumerate([(0, 10), (10, 20)]):
        send(connection, f"CREATE TABLE {pay}_{number} PARTITION OF {pay} FOR VALUES FROM ({first}) TO ({last})")
    send(connection, f"INSERT INTO {pay} SELECT generate_series(0, 15)")
    send(connection, f"ANALYZE {pay}_0")
    found = live(connection, "pay", schema=OTHER)

    assert found.estimate_rows() == 10
    of_both = f"SELECT pg_total_relation_size('{pay}_0') + pg_total_relation_size('{pay}_1')"
    assert found.estimate_bytes() == send(connection, of_both).scalar()


@on("mysql", "mariadb")
def test_size_with_indexes(connection: Connection) -> None:
    """A table is as large as its rows and its indexes together."""
    send(connection, "CREATE INDEX wide ON fact (public_id)")
    send(connection, "ANALYZE TABLE fact").all()
    sizes = "SELECT DATA_LENGTH, INDEX_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
    data, indexes = send(connection, f"{sizes} AND TABLE_NAME = 'fact'").one()

    assert live(connection).estimate_bytes() == data + indexes > data


# --- triggers, and what a table demands


FIRST, NAMED, QUOTED = "BEFORE INSERT", "public_id", 'Pu"b'
TRIGGERS = [
    ("fact", FIRST, "ROW", NAMED, "ENABLE", NAMED, True, True),
    (f"{OTHER}.fact", FIRST, "ROW", NAMED, "ENABLE", NAMED, False, False),
    ("fact", FIRST, "STATEMENT", NAMED, "ENABLE", NAMED, False, True),
    ("fact", "AFTER INSERT", "ROW", NAMED, "ENABLE", NAMED, False, True),
    ("fact", "BEFORE UPDATE", "ROW", NAMED, "ENABLE", NAMED, False, False),
    ("fact", FIRST, "ROW", "number", "ENABLE", NAMED, False, False),
    ("fact", FIRST, "ROW", "PUBLIC_ID", "ENABLE", NAMED, True, True),
    ("fact", FIRST, "ROW", '"Pu""b"', "ENABLE", QUOTED, True, True),
    ("fact", FIRST, "ROW", NAMED, "ENABLE", QUOTED, False, False),
    ("fact", FIRST, "ROW", NAMED, "DISABLE", NAMED, False, False),
    ("fact", FIRST, "ROW", NAMED, "ENABLE ALWAYS", NAMED, True, True),
    ("fact", FIRST, "ROW", NAMED, "ENABLE REPLICA", NAMED, False, True),
]
"""A trigger: its table, when it fires, what it names, its mode → the column, whether it fills it, and may refuse it."""


@on("postgresql")
def test_triggers_for_new_rows(connection: Connection) -> None:
    """A trigger fills a column if it can set it in each new row; one that names it otherwise may refuse new ids."""
    wrong = []
    send(connection, f"CREATE TABLE {OTHER}.public_id (n int PRIMARY KEY)")  # whose name internal triggers have
    send(connection, f'ALTER TABLE fact ADD FOREIGN KEY (number) REFERENCES {OTHER}.public_id, ADD "Pu""b" text')
    for case in TRIGGERS:
        table, event, each, sets, mode, name, *expected = case
        body = f"$$ BEGIN NEW.{sets} := '1'; RETURN NEW; END $$"
        send(connection, f"CREATE OR REPLACE FUNCTION {OTHER}.noted() RETURNS trigger LANGUAGE plpgsql AS {body}")
        send(connection, f"CREATE TRIGGER noted {event} ON {table} FOR EACH {each} EXECUTE FUNCTION {OTHER}.noted()")
        send(connection, f"ALTER TABLE {table} {mode} TRIGGER noted")
        asked = live_table(connection, PublicIdColumn.of("fact", name))
        found = [asked.read_state().filled, "the trigger noted" in [each.name for each in asked.read_constraints()]]
        wrong += [(case, found)] * (found != expected or len([*asked.read_constraints()]) != found[1])
        send(connection, f"DROP TRIGGER noted ON {table}")

    assert wrong == []


@on("postgresql")
def test_triggers_of_partitions(connection: Connection) -> None:
    """A trigger of the table and one of a partition alone are named once each, however many partitions there are."""
    send(connection, f"CREATE TABLE {OTHER}.pay (a int, public_id text) PARTITION BY LIST (a)")
    send(connection, f"CREATE TABLE {OTHER}.pay_1 PARTITION OF {OTHER}.pay FOR VALUES IN (1)")
    send(connection, f"CREATE TABLE {OTHER}.pay_2 PARTITION OF {OTHER}.pay DEFAULT")
    body = "$$ BEGIN NEW.public_id := ''; RETURN NEW; END $$"
    send(connection, f"CREATE FUNCTION {OTHER}.noted() RETURNS trigger LANGUAGE plpgsql AS {body}")
    for name, place in (("of_all", "pay"), ("of_one", "pay_2")):
        fires = f"BEFORE INSERT OR UPDATE ON {OTHER}.{place} FOR EACH ROW EXECUTE FUNCTION {OTHER}.noted()"
        send(connection, f"CREATE TRIGGER {name} {fires}")
    found = live(connection, "pay", schema=OTHER)

    assert [demand.name for demand in found.read_constraints()] == ["the trigger of_all", "the trigger of_one"]
    assert found.update_triggers() == ["of_all", "of_one"]


@on("postgresql")
def test_demands(connection: Connection) -> None:
    """Domains, CHECKs and generated columns of the ids demand something, and others nothing; code of roles is named."""
    for statement in (
        f"CREATE FUNCTION {OTHER}.is_same(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN $1 = $2",
        f"CREATE OPERATOR {OTHER}.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = {OTHER}.is_same)",
        f"CREATE DOMAIN {OTHER}.code AS varchar(12) NOT NULL CHECK (VALUE <> 'a')",
        f"ALTER TABLE fact ALTER public_id TYPE {OTHER}.code, ADD CONSTRAINT of_number CHECK (number > 0)",
        f"ALTER TABLE fact ADD CONSTRAINT of_id CHECK (public_id OPERATOR({OTHER}.===) 'x')",
        "ALTER TABLE fact ADD CONSTRAINT ck_fact_public_id_not_null CHECK (public_id IS NOT NULL)",
        "ALTER TABLE fact ADD sum int GENERATED ALWAYS AS (number + 1) STORED",
    ):
        send(connection, statement)
    for name, type_, value in (
        ("a", "varchar", "upper(public_id)"),
        ("b", "varchar(5)", "upper(public_id)"),
        ("c", "char(5)", "upper(public_id)"),
        ("d", "numeric(9, 2)", "length(public_id)"),
    ):
        send(connection, f"ALTER TABLE fact ADD {name} {type_} GENERATED ALWAYS AS ({value}) STORED")
    demands = {demand.name: demand for demand in live(connection).read_constraints()}

    generated = [f"the generated column {name}" for name in "abcd"]
    assert sorted(demands) == ["the CHECK constraint of_id", "the domain code", *generated]
    assert [name for name in generated if "<=" in str(demands[name].expression)] == generated[1:3]
    why_not = f"it calls operator {OTHER}.===(text,text), which may be code of another role"
    assert {demand.why_not: name for name, demand in demands.items() if demand.why_not} == {
        why_not: "the CHECK constraint of_id"
    }


@on("mysql", "mariadb")
def test_triggers_and_checks_of_others(connection: Connection) -> None:
    """Triggers and CHECKs of a table beside, and of one of the same name elsewhere, are none of this table."""
    send(connection, "ALTER TABLE fact ADD CONSTRAINT same CHECK (number > 0)")
    send(connection, f"ALTER TABLE {OTHER}.fact ADD CONSTRAINT same CHECK (a > 0)")
    send(connection, f"CREATE TABLE {OTHER}.beside (Public_Id varchar(12))")
    for prefix, name in (("", "fact"), (f"{OTHER}.", "beside")):
        for event in ("insert", "update"):
            fires = f"BEFORE {event} ON {prefix}{name} FOR EACH ROW SET NEW.public_id = 'x'"
            send(connection, f"CREATE TRIGGER {prefix}on_{event} {fires}")
    found = [live(connection), live(connection, schema=OTHER)]
    demands = [[(each.name, "number" in str(each.expression)) for each in of.read_constraints()] for of in found]

    same = "the CHECK constraint same"
    assert demands == [[(same, True), ("the trigger on_insert", False)], [(same, False)]]
    assert [of.update_triggers() for of in found] == [["on_update"], []]
    assert [of.read_state().filled for of in found] == [True, False]


# --- the rows


def test_few_rows(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table has few rows up to the limit, and not with one more."""
    monkeypatch.setattr(table, "FEW_ROWS", 3)
    found = [live(connection).has_few_rows()]
    write(connection, "a", "b", "c")
    found.append(live(connection).has_few_rows())
    send(connection, "INSERT INTO fact VALUES (2, 2, 2, NULL)")

    assert [*found, live(connection).has_few_rows()] == [True, True, False]


def test_rows_to_fill(connection: Connection) -> None:
    """Rows have to be filled if one has no id, or if there are any and no column; those of a namesake do not count."""
    exists, missing = State(exists=True), State()
    asked = live(connection)
    found = [asked.has_rows_to_fill(exists), asked.has_rows_to_fill(missing)]
    write(connection, "a")
    found += [asked.has_rows_to_fill(exists), asked.has_rows_to_fill(missing)]
    send(connection, "INSERT INTO fact VALUES (2, 2, 2, NULL), (2, 3, 2, NULL)")
    found.append(asked.has_rows_to_fill(exists))

    assert found == [False, False, False, True, True]
    assert asked.count_missing() == 2
    assert live(connection, schema=OTHER).has_rows_to_fill(exists)
    assert live(connection, schema=OTHER).count_missing() == 1


@pytest.mark.parametrize(
    ("rows", "missing", "few"),
    [(0, 0, False), (1000, 1000, False), (1001, 1000, True), (1002, 1001, False), (5, 0, True)],
)
@on("sqlite", "postgresql")
def test_few_that_are_missing(connection: Connection, rows: int, missing: int, few: bool) -> None:
    """A thousand rows without an id are few, if a row has one."""
    if rows:
        write(connection, *[None] * missing, *["id"] * (rows - missing))

    assert live(connection).are_few_missing() is few


def test_some_ids(connection: Connection) -> None:
    """Some ids are read for a guess: at most a hundred, and none where a row has none."""
    write(connection, *[None] * 120, *(f"id{number}" for number in range(120)))
    ids = live(connection).read_some_ids()

    assert (len(ids), len({*ids}), {id[:2] for id in ids}) == (100, 100, {"id"})
    assert live(connection, schema=OTHER).read_some_ids() == []
    assert live_table(connection, PublicIdColumn.of("fact", "number")).read_some_ids() == []


# --- positions


PLACES = [(1, 1), (1, 2), (2, 0), (2, 1), (3, 0)]
"""Region and tenant of the rows, in the order of the key."""


@on("sqlite", "mysql", "mariadb")
def test_order_of_positions(connection: Connection) -> None:
    """Rows are read and compared in the order of the whole key, in whatever order they were written."""
    end = " WITHOUT ROWID" if connection.dialect.name == "sqlite" else ""
    send(connection, "DROP TABLE fact")
    send(connection, f"CREATE TABLE fact ({COLUMNS}, UNIQUE (number), PRIMARY KEY (region, Tenant)){end}")
    with pytest.raises(ConfigurationError, match=r"fact has no column 'code'; .* op\.expand_public_id\('fact'\)"):
        rows_of(live_table(connection, PublicIdColumn.of("fact", "code")))
    for number, (region, tenant) in enumerate(reversed(PLACES)):
        id = "'x'" if (region, tenant) in PLACES[3:] else "NULL"
        send(connection, f"INSERT INTO fact VALUES ({tenant}, {region}, {number}, {id})")
    rows = rows_of(live(connection))

    def found(condition: ColumnElement[bool]) -> list[tuple[int, ...]]:
        return sorted(tuple(row) for row in connection.execute(select(*rows.position).where(condition)))

    assert (rows.last(), rows.last(missing=True)) == ((3, 0), (2, 0))
    assert rows.count_rows() == 5 or connection.dialect.name != "sqlite"
    assert rows.missing(None, (3, 0)) == PLACES[:3]
    assert rows.missing((1, 1), (2, 1)) == PLACES[1:3]
    assert [rows.end_of_window((1, 1), (3, 0), size) for size in (1, 2, 4, 5)] == [(1, 2), (2, 0), (3, 0), None]
    assert rows.end_of_window(None, (1, 2), 2) == (1, 2)
    assert rows.end_of_window(None, (1, 2), 3) is None
    assert rows.has_missing()
    send(connection, "UPDATE fact SET public_id = number")
    assert (rows.has_missing(), rows.last(missing=True)) == (False, None)
    for first in PLACES:
        assert found(rows.at(first)) == [first]
        assert found(rows.between(None, first)) == [each for each in PLACES if each <= first]
        for last in PLACES:
            assert found(rows.between(first, last)) == [each for each in PLACES if first < each <= last]
            assert found(rows.from_to(first, last)) == [each for each in PLACES if first <= each <= last]


@on("sqlite", "mysql", "mariadb", "postgresql")
def test_ids_of_others(connection: Connection) -> None:
    """A window keeps the ids that others have written after it was read, and says how many rows got one."""
    write(connection, None, "old", None, None, None, None)
    rows = rows_of(live(connection))
    last = rows.last()
    assert last is not None
    window, new = rows.window(None, last), NanoId().generate_many(6)
    send(connection, "UPDATE fact SET public_id = 'theirs' WHERE region = 0")

    filled = [window.fill(new[:3]), window.fill(new[3:])]

    ids = {row.region: row.public_id for row in connection.execute(text("SELECT region, public_id FROM fact"))}
    assert (sum(filled), window.is_done, ids[0], ids[1]) == (4, True, "theirs", "old")
    assert {ids[2], ids[3], ids[4], ids[5]} < {*new}


def test_text_of_a_number() -> None:
    """A number is written with all of its digits, also if the first ones are zeros, and text in its own case."""
    assert encoded(Uuid4(), Uuid4().from_int(0x0012 << 112 | 4 << 76 | 8 << 60)) == "0012000000004000" + "8" + "0" * 15
    assert encoded(Snowflake(machine_id=1), Snowflake(machine_id=1).from_int(5)) == "5"
    assert encoded(NanoId(alphabet="aB"), "aBBa") == "aBBa"


@on("postgresql")
def test_claims_of_two_columns(connection: Connection) -> None:
    """A window that is claimed for one column is refused for this one only."""
    ids, numbers = (
        rows_of(live_table(connection, PublicIdColumn.of("fact", name))) for name in ("public_id", "number")
    )
    with connection.engine.connect() as other:
        assert other.scalar(select(lock_of_window(ids, None)))
        assert [connection.scalar(select(lock_of_window(rows, None))) for rows in (ids, numbers)] == [False, True]


@on("postgresql")
def test_position_of_rows_elsewhere(connection: Connection) -> None:
    """Rows that another server stores are found by the primary key, in its order, whatever else is unique."""
    send(connection, "ALTER TABLE fact ADD UNIQUE (number)")

    assert [*RowsByKey.read_position_columns(live(connection))] == ["region", "tenant"]


# --- the position of a row on MySQL and MariaDB


@on("mysql", "mariadb")
@pytest.mark.parametrize(
    ("keys", "position"),
    [
        ("UNIQUE a (number), PRIMARY KEY (region, tenant)", ["region", "tenant"]),
        ("UNIQUE b (number), UNIQUE c (region, tenant)", ["number"]),
        ("UNIQUE b (region, tenant), UNIQUE c (number)", ["region", "tenant"]),
        ("UNIQUE a (missing, number), UNIQUE b (missing), UNIQUE c (number)", ["number"]),
        ("INDEX a (number), UNIQUE c (region)", ["region"]),
        ("UNIQUE a (number, line(25)), UNIQUE c (region)", ["region"]),
        ("UNIQUE a (number, place(25)), UNIQUE c (region)", ["region"]),
        ("UNIQUE a (missing, number), INDEX b (number)", []),
    ],
)
def test_position(connection: Connection, keys: str, position: list[str]) -> None:
    """Rows are found by the primary key, or the first unique index of columns that are NOT NULL and can be compared."""
    columns = "number int NOT NULL, tenant int NOT NULL, region int NOT NULL, missing int, line linestring NOT NULL"
    columns += ", place point NOT NULL"
    if connection.dialect.name == "mysql":  # which has no unique index of a line, but indexes of expressions
        keys = keys.replace("line(25)", "(region + 1)").replace("place(25)", "(region + 2)")
    send(connection, "DROP TABLE fact")
    send(connection, f"CREATE TABLE fact ({columns}, public_id varchar(12), {keys})")
    send(connection, f"DROP TABLE {OTHER}.fact")
    send(connection, f"CREATE TABLE {OTHER}.fact (missing int NOT NULL, public_id varchar(12), PRIMARY KEY (missing))")
    if position:
        assert [column.name for column in rows_of(live(connection)).parts] == position
    else:
        with pytest.raises(
            ConfigurationError,
            match=r"fact has no primary key, and .* or give region ids, a unique index",
        ):
            rows_of(live_table(connection, PublicIdColumn.of("fact", "region")))
    assert [column.name for column in rows_of(live(connection, schema=OTHER)).parts] == ["missing"]


OF_TYPES = {
    "enum('z', 'a', 'm')": "'z' | 'a' | 'm'",
    "set('z', 'a')": "'' | 'z' | 'a' | 'z,a'",
    "bit(4)": "1 | 2 | 9 | 10",
    "float": "0.1 | 16777216 | 16777218",
    "decimal(9,3)": "-2 | 1.004 | 1.005 | 10",
    "datetime(6)": "'2020-01-01 00:00:00.000001' | '2020-01-01 00:00:00.000002'",
    "timestamp(6)": "'2020-01-01 00:00:00.000001' | '2020-01-01 00:00:00.000002'",
    "time(6)": "'-10:00' | '00:00:00.5' | '00:00:00.6' | '100:00'",
    "varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_spanish_ci": "'n' | 'Ñ' | 'o'",
    "varchar(9) CHARACTER SET latin1 COLLATE latin1_bin": "'B' | 'a' | 'ä'",
    "varbinary(9)": "'' | x'00' | x'ff00'",
}
"""The type of a key, and values in their order."""


@on("mysql", "mariadb")
def test_order_of_another_index(connection: Connection) -> None:
    """Rows are read in the order of their positions, also if they are stored in the order of another index."""
    columns = "number int NOT NULL, region int NOT NULL, more varchar(255), public_id varchar(12)"
    send(connection, "DROP TABLE fact")
    send(connection, f"CREATE TABLE fact ({columns}, UNIQUE z (number), UNIQUE y (region))")
    send(connection, f"INSERT INTO fact VALUES {', '.join(f'({n}, {9 - n}, NULL, NULL)' for n in range(9))}")

    assert rows_of(live(connection)).missing(None, (9,)) == [(n,) for n in range(1, 10)]


@on("mysql", "mariadb")
def test_order_of_types(connection: Connection) -> None:
    """A row is found, and rows are compared, by the order of the type of the key, with all of its digits."""
    wrong = []
    for type_, values in OF_TYPES.items():
        written = values.split(" | ")
        send(connection, "DROP TABLE fact")
        send(connection, f"CREATE TABLE fact (k {type_} NOT NULL PRIMARY KEY, n int, public_id varchar(12))")
        values = ", ".join(f"({value}, {n}, NULL)" for n, value in enumerate(written))
        send(connection, f"INSERT INTO fact VALUES {values}")
        rows = rows_of(live(connection))
        last = rows.last()
        assert last is not None
        places = rows.missing(None, last)
        query: Select[Any] = select(column("n")).select_from(rows.table).order_by(column("n"))
        for n, place in enumerate(places):
            up_to = connection.scalars(query.where(rows.between(None, place))).all()
            at = connection.scalars(query.where(rows.at(place))).all()
            if (up_to, at) != ([*range(n + 1)], [n]):
                wrong.append((type_, place, up_to, at))
        if len(places) != len(written):
            wrong.append((type_, last, places, []))

    assert wrong == []


@on("mysql", "mariadb")
def test_claims(connection: Connection) -> None:
    """A window that a process has claimed is refused to others, until its end or an error, and no other window is."""
    own, theirs, named = live(connection), live(connection, schema=OTHER), PublicIdColumn.of("fact", schema=OTHER)
    here = connection.engine.url.database
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as second:

        def granted(target: PublicIdColumn, after: tuple[int, ...] | None) -> bool:
            with rows_of(live_table(second, target)).claim(after) as is_granted:
                return is_granted

        with rows_of(own).claim((1, 1)) as is_granted:
            assert is_granted
            assert [granted(own.target, after) for after in ((1, 1), (1, 2), None)] == [False, True, True]
        assert granted(own.target, (1, 1))
        with pytest.raises(ZeroDivisionError), rows_of(own).claim(None):
            assert not granted(own.target, None)
            raise ZeroDivisionError
        assert granted(own.target, None)
        with rows_of(theirs).claim(None):  # the schema is named, so that the database of the session is no matter
            send(second, f"USE {OTHER}")
            assert not granted(named, None)
            for other in (PublicIdColumn.of("fact", "a", schema=OTHER), PublicIdColumn.of("fact", schema=here)):
                assert granted(other, None)
        with rows_of(own).claim(None):
            assert granted(PublicIdColumn.of("fact"), None)
        second.invalidate()
