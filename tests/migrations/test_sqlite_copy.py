"""The copy of a table on SQLite keeps everything that the table has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from support.interrupt import interrupted
from support.people import People, migrating, send

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.errors import MigrationRefused


@pytest.fixture
def engine(new_engine: Callable[..., Engine]) -> Engine:
    return new_engine("sqlite")


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection in AUTOCOMMIT mode."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


def rows(connection: Connection, query: str) -> list[Any]:
    return [tuple(row) for row in send(connection, query)]


def add(engine: Engine, table: str = "person", **options: Any) -> People:
    people = People(engine, table=table, **options)
    people.add()
    return people


def script(connection: Connection, *statements: str) -> None:
    for statement in statements:
        send(connection, statement)


# --- what belongs to the table


def test_triggers(engine: Engine, connection: Connection) -> None:
    """Triggers on the table, and triggers on other tables that write to it, still work."""
    script(
        connection,
        "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT)",
        "CREATE TABLE log (what TEXT)",
        "CREATE TABLE city (name TEXT)",
        "INSERT INTO person (name) VALUES ('Ada')",
        "CREATE TRIGGER log_it AFTER INSERT ON person BEGIN INSERT INTO log VALUES (NEW.name || ' it''s; -- 1'); END",
        "CREATE TRIGGER city_person AFTER INSERT ON city BEGIN INSERT INTO person (name) VALUES (NEW.name); END",
    )

    add(engine)
    send(connection, "INSERT INTO city VALUES ('Rome')")

    assert rows(connection, "SELECT what FROM log") == [("Rome it's; -- 1",)]
    assert all(NanoId().is_valid(id) for (id,) in rows(connection, "SELECT public_id FROM person"))


def test_views(engine: Engine, connection: Connection) -> None:
    """Views of the table, and INSTEAD OF triggers on them, are unchanged."""
    script(
        connection,
        "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO person (name) VALUES ('Ada')",
        "CREATE VIEW names AS SELECT name FROM person",
        "CREATE TRIGGER names_in INSTEAD OF INSERT ON names BEGIN INSERT INTO person (name) VALUES (NEW.name); END",
    )
    before = rows(connection, "SELECT sql FROM sqlite_master WHERE name LIKE 'names%'")

    add(engine)
    send(connection, "INSERT INTO names VALUES ('Grace')")

    assert rows(connection, "SELECT name FROM names") == [("Ada",), ("Grace",)]
    assert rows(connection, "SELECT sql FROM sqlite_master WHERE name LIKE 'names%'") == before


def test_indexes(engine: Engine, connection: Connection) -> None:
    """Indexes that are partial or descending, or use expressions or collations, are created again, word for word."""
    script(
        connection,
        "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, age INT)",
        "CREATE INDEX by_lower ON person (lower(name))",
        "CREATE UNIQUE INDEX adults ON person (name) WHERE age >= 18",
        "CREATE INDEX by_age ON person (age DESC, name COLLATE NOCASE)",
    )
    query = "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND name NOT LIKE 'uq%' ORDER BY 1"
    before = rows(connection, query)

    people = add(engine)
    assert rows(connection, query) == before

    people.run("drop_public_id")
    assert rows(connection, query) == before


@pytest.mark.parametrize(
    ("create", "insert", "refused"),
    [
        ("(id INTEGER PRIMARY KEY, age INT, CHECK (age > 0))", "(age) VALUES (1)", "(age) VALUES (0)"),
        ("(id INTEGER PRIMARY KEY, age INT CHECK (age IN (1, 2)))", "(age) VALUES (1)", "(age) VALUES (3)"),
        ("(id INTEGER PRIMARY KEY, n TEXT COLLATE NOCASE UNIQUE)", "(n) VALUES ('a')", "(n) VALUES ('A')"),
        ("(a INT, b INT, PRIMARY KEY (a, b)) WITHOUT ROWID", "(a, b) VALUES (1, 2)", "(a, b) VALUES (1, 2)"),
        ("(id INTEGER PRIMARY KEY, n INT) STRICT", "(n) VALUES (1)", "(n) VALUES ('x')"),
        ("(id INTEGER PRIMARY KEY, a INT, b INT AS (a + 1) STORED, c AS (a * 2))", "(a) VALUES (1)", "(b) VALUES (1)"),
        (
            "(id INTEGER PRIMARY KEY /* the key, ) */, -- no (comma,\n 'na me' TEXT NOT NULL DEFAULT 'a,b)' -- end\n)",
            "DEFAULT VALUES",
            "('na me') VALUES (NULL)",
        ),
        ("([id] INTEGER PRIMARY KEY, `b``c` TEXT DEFAULT '(', \"d\"\"e\" NUMERIC(10, 2) NOT NULL DEFAULT 1)",
         "DEFAULT VALUES", '("d""e") VALUES (NULL)'),
        ("(id INTEGER PRIMARY KEY, p INT REFERENCES person (id), UNIQUE (p))", "(p) VALUES (1)", "(p) VALUES (1)"),
    ],
    ids=["check", "column check", "collation", "without rowid", "strict", "generated", "comments", "quotes", "self"],
)  # fmt: skip
def test_table(engine: Engine, connection: Connection, create: str, insert: str, refused: str) -> None:
    """The table still refuses the rows that it refused before, and the other columns have the same definitions."""
    script(connection, f"CREATE TABLE person {create}", f"INSERT INTO person {insert}")
    columns = rows(connection, "SELECT * FROM pragma_table_xinfo('person')")
    before = rows(connection, "SELECT * FROM person")

    add(engine)

    assert rows(connection, "SELECT * FROM pragma_table_xinfo('person') WHERE name <> 'public_id'") == columns
    names = ", ".join('"{}"'.format(column[1].replace('"', '""')) for column in columns)
    assert rows(connection, f"SELECT {names} FROM person") == before
    with pytest.raises(Exception, match=r"(?i)constraint|cannot|generated"):
        send(connection, f"INSERT INTO person {refused}")


@pytest.mark.parametrize("gone", ["id > 1", "id > 0"], ids=["last rows", "all rows"])
def test_counter(engine: Engine, connection: Connection, gone: str) -> None:
    """AUTOINCREMENT continues to count, even if the last rows, or all rows, were deleted: no key is used twice."""
    script(
        connection,
        "CREATE TABLE person (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT)",
        "INSERT INTO person (name) VALUES ('a'), ('b'), ('c')",
        f"DELETE FROM person WHERE {gone}",
    )

    add(engine)
    send(connection, "INSERT INTO person (name) VALUES ('d')")

    assert rows(connection, "SELECT max(id) FROM person") == [(4,)]
    assert rows(connection, "SELECT name, seq FROM sqlite_sequence") == [("person", 4)]


# --- other tables


CHILDREN = (
    "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT)",
    "CREATE TABLE card (id INTEGER PRIMARY KEY, owner INT NOT NULL REFERENCES person (id) ON DELETE CASCADE)",
    "INSERT INTO person (name) VALUES ('Ada'), ('Grace')",
    "INSERT INTO card (owner) VALUES (1), (1), (2)",
)


def test_children_stay(engine: Engine, connection: Connection) -> None:
    """With foreign keys off, as they are by default, rows of other tables stay, and refer to the same table."""
    script(connection, *CHILDREN)

    people = add(engine)
    people.run("drop_public_id")
    people.add()

    assert rows(connection, "SELECT count(*) FROM card") == [(3,)]
    assert rows(connection, "PRAGMA foreign_key_check") == []
    assert "REFERENCES person" in rows(connection, "SELECT sql FROM sqlite_master WHERE name = 'card'")[0][0]
    script(connection, "PRAGMA foreign_keys=ON", "DELETE FROM person WHERE id = 1")
    assert rows(connection, "SELECT count(*) FROM card") == [(1,)]


@pytest.mark.parametrize(
    ("parent", "operation", "online"),
    [
        ("person", "add_public_id", True),
        ("person", "add_public_id", False),
        ("Person", "add_public_id", True),  # SQLite ignores case
        ("[PERSON]", "loosen_public_id", True),
    ],
)
def test_foreign_keys_on(engine: Engine, connection: Connection, parent: str, operation: str, online: bool) -> None:
    """With foreign keys on, the copy would delete rows of other tables, so it is refused, and nothing is deleted."""
    script(connection, *(each.replace("REFERENCES person", f"REFERENCES {parent}") for each in CHILDREN))
    if operation == "loosen_public_id":
        add(engine)

    with engine.connect() as other:
        send(other, "PRAGMA foreign_keys=ON")
        other.commit()
        with (
            pytest.raises(MigrationRefused, match="PRAGMA foreign_keys is ON, and other tables refer to 'person'"),
            migrating(other) as op,
        ):
            getattr(op, operation)("person", online=online)
        other.rollback()
        if online:
            with migrating(other) as op:
                op.add_public_id("card")  # no table refers to it
        other.invalidate()

    assert rows(connection, "SELECT count(*) FROM card") == [(3,)]
    assert rows(connection, "SELECT count(*) FROM person") == [(2,)]


def test_foreign_key_to_the_column(engine: Engine, connection: Connection) -> None:
    """The unique index stays as long as a foreign key of another table needs it, because writes there would fail."""
    script(connection, "CREATE TABLE person (id INTEGER PRIMARY KEY)")
    people = add(engine)
    send(connection, "CREATE TABLE card (person TEXT REFERENCES person (public_id))")
    for operation in ("loosen_public_id", "drop_public_id"):
        with pytest.raises(MigrationRefused, match="a foreign key of another table needs the unique index"):
            people.run(operation)
    send(connection, "DROP TABLE card")
    people.run("loosen_public_id")


@pytest.mark.parametrize("action", ["REPLACE", "IGNORE"])
@pytest.mark.parametrize("unique", ["{} UNIQUE ON CONFLICT {}", "{}, UNIQUE (public_id) ON CONFLICT {}"])
def test_duplicates_that_raise_no_error(engine: Engine, connection: Connection, unique: str, action: str) -> None:
    """A UNIQUE that deletes the old row, or skips the new one, is refused, because a duplicate would raise no error."""
    definition = unique.format("public_id VARCHAR(12)", action)
    script(
        connection,
        f"CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT UNIQUE ON CONFLICT IGNORE, {definition})",
        "CREATE TABLE other (id INTEGER PRIMARY KEY, name TEXT UNIQUE ON CONFLICT IGNORE, public_id TEXT UNIQUE)",
    )

    with pytest.raises(MigrationRefused, match="the UNIQUE of public_id has ON CONFLICT"):
        add(engine)
    add(engine, "other")


def test_column_in_other_letters(engine: Engine, connection: Connection) -> None:
    """Each operation finds the column and its index even if the table spells the column in another case."""
    send(connection, "CREATE TABLE person (id INTEGER PRIMARY KEY, Public_ID VARCHAR(12))")
    people = add(engine)
    people.add()
    people.run("loosen_public_id")
    assert rows(connection, "SELECT name FROM sqlite_master WHERE type = 'index'") == []
    people.add()
    people.run("drop_public_id")

    assert rows(connection, "SELECT name FROM pragma_table_info('person')") == [("id",)]


@pytest.mark.parametrize("more", ["NOT NULL UNIQUE", "UNIQUE"])
def test_drop_a_column_of_another_program(engine: Engine, connection: Connection, more: str) -> None:
    """A column that is unique by an unnamed constraint, and by another index beside it, is dropped with both."""
    script(
        connection,
        f"CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, public_id VARCHAR(12) {more})",
        "CREATE UNIQUE INDEX one_more ON person (public_id)",
        "INSERT INTO person VALUES (1, 'Ada', 'izkpm55j334u')",
    )

    People(engine).run("drop_public_id")

    assert rows(connection, "SELECT * FROM person") == [(1, "Ada")]


def test_drop_that_a_view_prevents(engine: Engine, connection: Connection) -> None:
    """A view that needs the column makes the drop fail, and the index stays."""
    script(connection, "CREATE TABLE person (id INTEGER PRIMARY KEY)")
    people = add(engine)
    send(connection, "CREATE VIEW shown AS SELECT public_id FROM person")

    with pytest.raises(Exception, match="shown"):
        people.run("drop_public_id")

    assert rows(connection, "SELECT name FROM sqlite_master WHERE type = 'index'") == [("uq_person_public_id",)]


@pytest.mark.parametrize(("value", "error"), [(0, KeyboardInterrupt), (1, RuntimeError)])
@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE person RENAME", "CREATE TABLE", "INSERT INTO person", "DROP TABLE", "CREATE UNIQUE INDEX"],
)
def test_settings_stay_after_an_error(
    engine: Engine, connection: Connection, statement: str, error: type[BaseException], value: int
) -> None:
    """An error in the copy leaves PRAGMA legacy_alter_table, which ROLLBACK does not restore, as it was."""
    script(connection, *CHILDREN, "CREATE UNIQUE INDEX one ON person (name)")

    with engine.connect() as other:
        send(other, f"PRAGMA legacy_alter_table={value}")
        other.commit()
        with (
            pytest.raises(error),
            interrupted(engine, 2 if statement == "CREATE UNIQUE INDEX" else 1, error, "between", only=(statement,)),
            migrating(other) as op,
        ):
            op.add_public_id("person")
        assert send(other, "PRAGMA legacy_alter_table").scalar() == value
        other.invalidate()
    assert rows(connection, "SELECT name FROM person ORDER BY id") == [("Ada",), ("Grace",)]


@pytest.mark.parametrize("work", ["backfill", "contract"])
def test_reader_at_the_commit(new_engine: Callable[..., Engine], engine: Engine, work: str) -> None:
    """A COMMIT that waits in vain for a reader of the file is tried again, like a lock that is not acquired."""
    writer = new_engine("sqlite", engine.url, connect_args={"timeout": 0.05})
    people = People(writer)
    people.create(3)
    people.run("expand_public_id")
    if work == "contract":
        people.run("backfill_public_id")

    with engine.connect() as reader:
        cursor = reader.connection.cursor()
        cursor.execute("SELECT id FROM person")  # a reader holds its lock until it has fetched all rows
        cursor.fetchone()
        event.listen(writer, "handle_error", lambda context: cursor.close())
        people.run(f"{work}_public_id")

    assert None not in people.ids()


def test_rowids_without_a_name(engine: Engine, connection: Connection) -> None:
    """A key that is not the rowid is copied unchanged."""
    script(
        connection,
        "CREATE TABLE person (code TEXT PRIMARY KEY, n)",
        "INSERT INTO person VALUES ('x', 1), ('a', x'00ff')",
    )

    add(engine)

    assert rows(connection, "SELECT code, n FROM person ORDER BY code") == [("a", b"\x00\xff"), ("x", 1)]


# --- other connections


CHANGES = {
    "a column": "ALTER TABLE person ADD COLUMN age INTEGER",
    "an index": "CREATE INDEX by_name ON person (name)",
    "a trigger": "CREATE TRIGGER log_it AFTER INSERT ON person BEGIN SELECT 1; END",
    "a row": "INSERT INTO person (name, public_id) VALUES ('Grace', 'izkpm55j334u')",
}


@pytest.mark.parametrize("operation", ["contract_public_id", "loosen_public_id"])
@pytest.mark.parametrize("change", CHANGES)
def test_change_before_the_lock(engine: Engine, connection: Connection, change: str, operation: str) -> None:
    """What another connection changes just before the copy locks the file is in the copy."""
    send(connection, "CREATE TABLE person (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT)")
    send(connection, "INSERT INTO person (name) VALUES ('Ada')")
    people = add(engine)
    if operation == "contract_public_id":
        people.run("loosen_public_id")
    steps = iter(["the index", "the copy"])

    @event.listens_for(engine, "before_cursor_execute")
    def write(_: Connection, cursor: Any, statement: str, *rest: Any) -> None:
        if statement == "BEGIN IMMEDIATE" and next(steps) == "the copy":
            send(connection, CHANGES[change])

    people.run(operation)

    assert list(steps) == []
    expected = {
        "a column": "SELECT count(*) = 1 FROM pragma_table_info('person') WHERE name = 'age'",
        "an index": "SELECT count(*) = 1 FROM sqlite_master WHERE name = 'by_name'",
        "a trigger": "SELECT count(*) = 1 FROM sqlite_master WHERE name = 'log_it'",
        "a row": "SELECT count(*) = 2 FROM person",
    }
    assert rows(connection, expected[change]) == [(1,)]
