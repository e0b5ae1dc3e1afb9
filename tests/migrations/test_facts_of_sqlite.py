"""What SQLite says about a table: each fact, beside one that looks like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine
from support.attached_databases import OTHER, attach
from support.people import People, send
from support.refusals import refused

from sqlalchemy_public_id.migrations import PublicIdColumn, obstacles
from sqlalchemy_public_id.migrations.databases import database_of, live_table, plan_for
from sqlalchemy_public_id.migrations.operation import PHASES, examine
from sqlalchemy_public_id.migrations.sqlite.table import SQLiteRows

NewPeople = Callable[..., People]


@pytest.fixture
def both(new_engine: Callable[..., Engine], tmp_path: Path) -> Iterator[Engine]:
    """An engine whose database has another one attached."""
    engine = new_engine("sqlite")
    attach(engine, tmp_path / "other.db")
    yield engine
    engine.dispose()


@pytest.mark.parametrize("is_ours", [True, False])
def test_kind_of_a_namesake(both: Engine, is_ours: bool) -> None:
    """A table is virtual if it is so itself, and not if the table of the same name in another database is."""
    virtual, plain = (OTHER, "main") if is_ours else ("main", OTHER)
    with both.begin() as connection:
        send(connection, f"CREATE VIRTUAL TABLE {virtual}.person USING fts5(name)")
        send(connection, f"CREATE TABLE {plain}.person (id integer PRIMARY KEY, name text)")

    misfit = People(both, schema=OTHER).state().misfit

    assert (misfit.code if misfit else None) == ("virtual" if is_ours else None)


@pytest.mark.parametrize("name", ["person", '"person"', "[person]", "'person'", "PERSON", "/* of */ person"])
@pytest.mark.parametrize(
    "columns",
    ["", " OF name", " OF public_id", ' OF name, "Public_Id"', " OF 'public_id' /* , */", " --\nOF [public_id]"],
)
@pytest.mark.parametrize("kind", ["TRIGGER", "TEMP TRIGGER"])
def test_triggers_that_an_update_fires(new_people: NewPeople, name: str, columns: str, kind: str) -> None:
    """A trigger of UPDATE is found and skipped however its table is written, unless it names only other columns."""
    people = new_people(1, ", public_id text")
    with people.engine.connect() as connection:
        send(connection, "CREATE TABLE noted (id integer)")
        body = "BEGIN INSERT INTO noted VALUES (NEW.id); END"
        send(connection, f"CREATE {kind} noting AFTER /* any */ UPDATE{columns} ON {name} {body}")
        live = live_table(connection, people.target)
        found = live.update_triggers()
        with live.without_triggers():
            send(connection, "UPDATE person SET public_id = 'a'")
        send(connection, "UPDATE person SET public_id = 'b'")
        fired = len(send(connection, "SELECT * FROM noted").all())

    is_of_another = columns == " OF name"
    assert (found, fired) == ([], 0) if is_of_another else (["noting"], 1)


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
@pytest.mark.parametrize("name", ["person", "Person", "other"])
def test_temporary_table_in_front(new_people: NewPeople, kind: str, name: str) -> None:
    """A temporary table or view that hides the table is named before anything is changed; others are none of ours."""
    people = new_people(1)
    with people.engine.connect() as connection:
        send(connection, f"CREATE TEMP {kind} {name}{' (id integer)' if kind == 'TABLE' else ' AS SELECT 1 AS id'}")
        places = people.target, replace(people.target, schema="main")
        found = [live_table(connection, place).obstacle_of_a_temporary_table() for place in places]
        # only a table or a view hides the table
        send(connection, "CREATE TEMP TRIGGER person AFTER INSERT ON main.person BEGIN SELECT 1; END")
        send(connection, next((each.remedy.split(",")[0] for each in found if each), f"DROP {kind} temp.{name}"))
        found.append(live_table(connection, people.target).obstacle_of_a_temporary_table())
        send(connection, "DROP TRIGGER temp.person")

    assert [hidden and hidden.code for hidden in found] == [None if name == "other" else "temporary", None, None]


@pytest.mark.parametrize("key", ["a, b", "b, a"])
@pytest.mark.parametrize("after", ["", "WITHOUT ROWID"])
def test_order_of_a_key(engine: Engine, key: str, after: str) -> None:
    """The columns of a primary key are read in the order of the key, whatever the order of the columns is."""
    target = PublicIdColumn.of("person")
    with engine.begin() as connection:
        send(connection, f"CREATE TABLE person (a int, b int, public_id text, PRIMARY KEY ({key})) {after}")
        live = live_table(connection, target)
        assert ", ".join(SQLiteRows.read_key(live)) == key


@pytest.mark.parametrize("default", ["NULL", "null", "'NULL'", "'x'"])
def test_default_of_null(new_people: NewPeople, default: str) -> None:
    """DEFAULT NULL is no default, and a text is one."""
    people = new_people(2, f", public_id text DEFAULT {default}")

    assert people.state().default == (default if "'" in default else None)
    if "'" in default:
        assert "constant-default" in refused(people)
    else:
        people.add()
        people.check_complete(2)


@pytest.mark.parametrize("collation", ["NOCASE", "RTRIM", "rtrim", "BINARY"])
def test_index_that_compares_otherwise(new_people: NewPeople, collation: str) -> None:
    """An index by a collation that treats different ids as equal is not the one of the ids."""
    people = new_people(0, ", public_id text")
    people.execute(f"CREATE UNIQUE INDEX uq_person_public_id ON person (public_id COLLATE {collation})")

    if collation == "BINARY":
        people.add()
        people.check_complete(0)
    else:
        assert "another collation" in refused(people)["wrong-index"]


@pytest.mark.parametrize("collation", ["NOCASE", "RTRIM", "BINARY"])
def test_column_that_compares_otherwise(new_people: NewPeople, collation: str) -> None:
    """A column by whose collation different ids are equal is refused, and the remedy names the exact collation."""
    people = new_people(1, f", public_id varchar(12) COLLATE {collation}")

    if collation == "BINARY":
        people.add()
        people.check_complete(1)
    else:
        assert "collation='BINARY'" in " ".join(refused(people).values())


@pytest.mark.parametrize("name", ["person", "Person", "PERSON"])
def test_counter_of_a_table_in_another_case(new_people: NewPeople, name: str) -> None:
    """After a migration that names the table in another case, no key is given to a second row."""
    people = new_people(5)
    people.execute("DELETE FROM person WHERE id > 2")
    spelled = People(people.engine, name)

    spelled.add()

    spelled.write(1)
    with people.engine.connect() as connection:
        assert send(connection, "SELECT max(id) FROM person").scalar() == 6


@pytest.mark.parametrize("schema", [None, "main"])
def test_remedies_name_the_schema(new_people: NewPeople, schema: str | None) -> None:
    """The change of a column that an obstacle advises names the schema, if the operation does."""
    people = new_people(1, ", public_id text DEFAULT 'x'")
    people.schema = schema

    named = f", schema={schema!r}" if schema else ""
    assert f"op.alter_column('person', 'public_id'{named}, server_default=None)" in refused(people)["constant-default"]


@pytest.mark.parametrize("type_", ["integer", "blob", "varchar(3)"])
def test_type_of_an_existing_column(new_people: NewPeople, type_: str) -> None:
    """A column of another kind is refused, and one that is too short is not: SQLite stores longer texts in it."""
    people = new_people(1, f", public_id {type_}")

    if type_ == "varchar(3)":
        people.add()
        people.check_complete(1)
    else:
        assert "the column public_id is " in " ".join(refused(people).values())


def test_invalid_ids_behind_the_sample(new_people: NewPeople, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report compares the ids of the first rows only; the contract compares all, and refuses."""
    monkeypatch.setattr(obstacles, "SAMPLE", 3)
    people = new_people(5)
    people.run("expand_public_id")
    people.run("backfill_public_id")
    people.execute("UPDATE person SET public_id = 'no id' WHERE id = 5")
    with people.engine.connect() as connection:
        report = examine(connection, plan_for(people.target, connection.dialect), PHASES["contract"])

    assert report.obstacles == ()
    assert "invalid-ids" in refused(people, "contract_public_id")


@pytest.mark.parametrize(
    ("statement", "has_written"),
    [
        ("SELECT * FROM person", False),
        ("CREATE INDEX noted ON person (name)", False),
        ("INSERT INTO person (name) VALUES ('x')", True),
        ("UPDATE person SET name = 'x'", True),
        ("DELETE FROM person", True),
    ],
)
def test_revision_that_has_written(new_people: NewPeople, statement: str, has_written: bool) -> None:
    """A revision has written if the driver has begun a transaction, unless that also contains the definitions."""
    people = new_people(1)
    with people.engine.connect() as connection:
        send(connection, statement)
        session = database_of(connection.dialect).session(connection)
        found = [session.has_written(lambda: None, transactional_ddl=each) for each in (False, True)]

    assert found == [has_written, False]
