"""New ids are tried against what a table demands of them, before anything is changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, Integer, MetaData, Table, text
from support.marks import on
from support.people import People

from sqlalchemy_public_id import ConfigurationError, NanoId, Snowflake, Uuid4, audit, public_id_column
from sqlalchemy_public_id.errors import MigrationRefused, Obstacle
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations.databases import live_table, plan_for
from sqlalchemy_public_id.migrations.mysql import table as mysql_table
from sqlalchemy_public_id.migrations.operation import PHASES, examine
from sqlalchemy_public_id.migrations.trial import try_ids

pytestmark = pytest.mark.backend

OLD = NanoId(length=8)
NEW = NanoId(length=8, prefix="per").accepting(OLD)

LENGTH = {"sqlite": "length", "postgresql": "length", "mysql": "char_length", "mariadb": "char_length"}
BINARY = {"mysql": "COLLATE utf8mb4_bin", "mariadb": "COLLATE utf8mb4_bin"}


@pytest.fixture
def new_table(new_people: Callable[..., People], engine: Engine) -> Callable[..., People]:
    """Make a table with ids of the old format, a column ``kind``, and more constraints."""

    def make(more: str = "", format: Format = NEW, nulls: str = "NOT NULL") -> People:
        more = more.format(length=LENGTH[engine.name])
        type_ = f"varchar(20) {BINARY.get(engine.name, '')}"
        people = new_people(0, f", kind varchar(20), public_id {type_} {nulls} UNIQUE{more}", format=format)
        people.execute("INSERT INTO person (name, kind, public_id) VALUES ('Ada', 'a', 'abcdefgh')")
        return people

    return make


def tried(people: People, format: Format = NEW) -> dict[str, bool]:
    """Return what refuses new ids, and what was not tried: its words → True if it refuses."""
    with people.engine.connect() as connection:
        live = live_table(connection, people.target.__class__.of("person", format=format))
        return {outcome.demand: outcome.refused is not None for outcome in try_ids(live)}


REFUSING = {
    "length": ", CONSTRAINT of_id CHECK ({length}(public_id) = 8)",
    "pattern": ", CONSTRAINT of_id CHECK (public_id NOT LIKE '%!_%' ESCAPE '!')",
    "and not null": ", CONSTRAINT of_id CHECK (public_id IS NOT NULL AND {length}(public_id) < 9)",
}
ACCEPTING = {
    "wide enough": ", CONSTRAINT of_id CHECK ({length}(public_id) < 20)",
    "about another column": ", CONSTRAINT of_kind CHECK ({length}(kind) = 1)",
}
OF_BOTH = {
    "or": "{kind} = 'b' OR {{length}}(public_id) = 8",
    "and": "{kind} = 'a' AND {{length}}(public_id) < 20",
    "and is not null": "{kind} IS NOT NULL AND {{length}}(public_id) < 20",
    "is not null and": "{kind} IS NOT NULL AND {kind} <> 'b' AND {{length}}(public_id) < 20",
    "is not null and in": "{kind} IS NOT NULL AND {kind} IN ('a', 'b') AND {{length}}(public_id) < 20",
}
QUOTED = ["kind", '"kind"', '"KIND"', "`kind`", "[kind]"]
"""Names of a column as SQLite stores them; the servers' catalogs have the one that needs no quotes."""


@on("postgresql")
def test_check_of_a_partition(new_people: Callable[..., People]) -> None:
    """A CHECK that only a partition has is tried; one that it has from its table is named once."""
    people = new_people(0, format=NEW)
    people.execute("DROP TABLE person")
    people.execute(
        "CREATE TABLE person (tenant int, public_id varchar(20), CONSTRAINT of_id CHECK (length(public_id) = 8), "
        "CONSTRAINT wide CHECK (length(public_id) < 20)) PARTITION BY LIST (tenant)"
    )
    people.execute("CREATE TABLE person_1 (gone int, public_id varchar(20), tenant int)")
    people.execute("ALTER TABLE person_1 DROP COLUMN gone")
    people.execute("ALTER TABLE person_1 ADD CONSTRAINT wide CHECK (length(public_id) < 20)")
    people.execute("ALTER TABLE person_1 ADD CONSTRAINT of_id CHECK (length(public_id) = 8)")
    people.execute("ALTER TABLE person_1 ADD CONSTRAINT plain CHECK (public_id NOT LIKE '%#_%' ESCAPE '#')")
    people.execute("ALTER TABLE person ATTACH PARTITION person_1 FOR VALUES IN (1)")

    found = tried(people)

    assert found == {"the CHECK constraint of_id": True, "the CHECK constraint plain of the partition person_1": True}


@pytest.mark.parametrize("check", REFUSING)
def test_check_that_refuses(new_table: Callable[..., People], check: str) -> None:
    """A CHECK that knows the old form is found by the audit and by autogenerate, and refused by operations."""
    people = new_table(REFUSING[check], nulls="")

    assert tried(people) == {"the CHECK constraint of_id": True}
    report = audit.run(people.engine, tables=["person"], formats={"person": NEW})
    found = {each.problem: each for each in report.findings}
    assert found["ids-refused"].severity == "error"
    assert "of_id" in found["ids-refused"].message
    with pytest.raises(MigrationRefused) as caught:
        people.add()
    assert "ids-refused" in [each.code for each in caught.value.obstacles]


@pytest.mark.parametrize("check", ACCEPTING)
def test_check_that_accepts(new_table: Callable[..., People], check: str) -> None:
    """A CHECK that accepts new ids, or is about other columns, is no obstacle and no finding."""
    people = new_table(ACCEPTING[check])

    assert tried(people) == {}
    report = audit.run(people.engine, tables=["person"], formats={"person": NEW})
    assert not {"ids-refused", "not-tried"} & {each.problem for each in report.findings}


@pytest.mark.backend(kind=["kind"], check=["or", "is not null and in"])
@pytest.mark.parametrize("kind", QUOTED)
@pytest.mark.parametrize("check", OF_BOTH)
def test_check_of_several_columns(new_table: Callable[..., People], check: str, kind: str) -> None:
    """A CHECK that needs other columns is not tried, however it names them, and the audit and the plan say so."""
    people = new_table(f", CONSTRAINT of_both CHECK ({OF_BOTH[check].format(kind=kind)})")

    assert tried(people) == {"the CHECK constraint of_both": False}
    report = audit.run(people.engine, tables=["person"], formats={"person": NEW})
    found = {each.problem: each for each in report.findings}
    assert found["not-tried"].severity == "info"
    assert "also needs" in found["not-tried"].message


REFUSE = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NEW; END $$"
RAISE = "IF length(NEW.{column}) <> 8 THEN RAISE 'length'; END IF;"
ABORT = "BEGIN SELECT RAISE(ABORT, 'length'); END"
SIGNAL = "IF char_length(NEW.{column}) <> 8 THEN SIGNAL SQLSTATE '45000'; END IF"
TRIGGERS = {
    "sqlite": (f"CREATE TRIGGER of_new BEFORE {{event}} ON person WHEN length(NEW.{{column}}) <> 8 {ABORT}",),
    "postgresql": (
        REFUSE.format(RAISE),
        "CREATE TRIGGER of_new BEFORE {event} ON person FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
    "mysql": (f"CREATE TRIGGER of_new BEFORE {{event}} ON person FOR EACH ROW {SIGNAL}",),
}
TRIGGERS["mariadb"] = TRIGGERS["mysql"]


@pytest.mark.parametrize(
    ("event", "column"), [("INSERT", "public_id"), ("UPDATE", "public_id"), ("INSERT", "kind")], ids=str
)
def test_trigger(new_table: Callable[..., People], engine: Engine, event: str, column: str) -> None:
    """A trigger for new rows that names the id is not tried, and the audit and the plan say so; others are none."""
    people = new_table()
    if engine.name == "postgresql":
        people.execute("DROP FUNCTION IF EXISTS refuse")
    for statement in TRIGGERS[engine.name]:
        people.execute(statement.format(event=event, column=column))

    is_named = (event, column) == ("INSERT", "public_id")
    assert tried(people) == ({"the trigger of_new": False} if is_named else {})
    report = audit.run(people.engine, tables=["person"], formats={"person": NEW})
    said = [each.message for each in report.findings if each.problem == "not-tried"]
    expected = "the trigger of_new of person was not tried with new ids of public_id: only an INSERT runs it"
    assert said == [expected] * is_named
    with people.engine.connect() as connection:
        planned = examine(connection, plan_for(people.target, connection.dialect), PHASES["add"])
    assert [warning for warning in planned.warnings if "not tried" in warning] == said


@on("postgresql")
def test_condition_of_a_trigger(new_table: Callable[..., People]) -> None:
    """A condition of a trigger that names the id counts, too."""
    people = new_table()
    people.execute("DROP FUNCTION IF EXISTS refuse")
    people.execute(REFUSE.format("RAISE 'length';"))
    people.execute(
        "CREATE TRIGGER of_new BEFORE INSERT ON person FOR EACH ROW WHEN (length(NEW.public_id) <> 8) "
        "EXECUTE FUNCTION refuse()"
    )

    assert tried(people) == {"the trigger of_new": False}


def test_autogenerate(new_table: Callable[..., People], caplog: pytest.LogCaptureFixture) -> None:
    """Autogenerate logs a warning for a CHECK that refuses new ids, although it has nothing to write."""
    people = new_table(REFUSING["length"])
    column = public_id_column(NEW).column
    column.name = column.key = "public_id"
    metadata = MetaData()
    Table("person", metadata, Column("id", Integer, primary_key=True), column)
    only: Any = {"include_object": lambda item, name, kind, *_: kind != "column" or name == "public_id"}

    with people.engine.connect() as connection:
        produce_migrations(MigrationContext.configure(connection, opts=only), metadata)

    assert [record.levelno for record in caplog.records if "of_id" in record.message] == [logging.WARNING]


def test_foreign_key(new_table: Callable[..., People], engine: Engine) -> None:
    """A CHECK, and a type that is too short, are found in the foreign keys that copy the id, too."""
    people = new_table()
    length, binary = LENGTH[engine.name], BINARY.get(engine.name, "")
    people.execute(
        f"CREATE TABLE note (id integer PRIMARY KEY, person_id varchar(20) {binary}, other_id varchar(10) {binary},"
        f" CONSTRAINT of_copy CHECK ({length}(person_id) = 8),"
        f" FOREIGN KEY (person_id) REFERENCES person (public_id), FOREIGN KEY (other_id) REFERENCES person (public_id))"
    )
    try:
        found = tried(people)
    finally:
        people.execute("DROP TABLE note")

    assert found.pop("the CHECK constraint of_copy")
    assert len(found) == (engine.name != "sqlite")  # which enforces no lengths
    assert all(found.values())


def test_generated_column(new_table: Callable[..., People], engine: Engine) -> None:
    """An expression of a generated column that is too long for new ids is found, except on SQLite."""
    people = new_table(", copied varchar(8) GENERATED ALWAYS AS (public_id) STORED")

    assert tried(people) == ({} if engine.name == "sqlite" else {"the generated column copied": True})


@on("postgresql")
def test_domain(new_people: Callable[..., People], engine: Engine) -> None:
    """The conditions of a domain, and of the domain that it is based on, are tried."""
    people = new_people(0)
    people.execute("CREATE DOMAIN short AS varchar(20) CONSTRAINT of_short CHECK (length(VALUE) = 8)")
    people.execute("CREATE DOMAIN shorter AS short CHECK (VALUE <> 'x')")
    try:
        people.execute("ALTER TABLE person ADD public_id shorter NOT NULL DEFAULT 'abcdefgh' UNIQUE")

        assert tried(people) == {"the domain short": True}
    finally:
        people.drop()
        people.execute("DROP DOMAIN shorter, short")


@on("postgresql")
def test_functions_of_others(new_table: Callable[..., People], engine: Engine) -> None:
    """A CHECK that calls a function outside of ``pg_catalog`` is not tried: another role may have written it."""
    people = new_table()
    people.execute("CREATE FUNCTION is_short(t varchar) RETURNS boolean LANGUAGE sql RETURN length(t) = 8")
    try:
        people.execute("ALTER TABLE person ADD CONSTRAINT of_id CHECK (is_short(public_id))")

        assert tried(people) == {"the CHECK constraint of_id": False}
    finally:
        people.drop()
        people.execute("DROP FUNCTION is_short")


@on("postgresql", "mysql", "sqlite")
def test_numbers(new_people: Callable[..., People], engine: Engine) -> None:
    """Ids that are stored as numbers are tried as the database stores them."""
    type_ = {"postgresql": "uuid", "mysql": "binary(16)", "sqlite": "blob"}[engine.name]
    zero = {"postgresql": "'00000000-0000-0000-0000-000000000000'"}.get(
        engine.name, "X'00000000000000000000000000000000'"
    )
    people = new_people(0, f", public_id {type_} UNIQUE, CONSTRAINT of_id CHECK (public_id = {zero})")

    assert tried(people, Uuid4()) == {"the CHECK constraint of_id": True}


@on("mysql")
def test_server_without_a_catalog_of_checks(new_table: Callable[..., People], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not list its CHECKs, such as OceanBase, raises no error: it is said that nothing was tried."""
    people = new_table(REFUSING["length"])
    monkeypatch.setattr(mysql_table, "_ALL_CHECKS", text("SELECT * FROM information_schema.NO_SUCH_CATALOG"))

    assert tried(people) == {"any CHECK constraint": False}


def test_nothing_is_changed(new_table: Callable[..., People]) -> None:
    """A trial reads: rows, the open transaction and the search path are as before."""
    people = new_table(REFUSING["length"])
    with people.engine.connect() as connection:
        connection.execute(text("UPDATE person SET kind = 'z'"))
        try_ids(live_table(connection, people.target))
        kept = connection.execute(text("SELECT kind FROM person")).scalars().all()
        connection.rollback()

    assert kept == ["z"]


REMEDY = "drop or change it in an earlier revision, or take a format whose ids it accepts"


@on("postgresql")
def test_words_about_a_foreign_key(new_table: Callable[..., People]) -> None:
    """What is said about a foreign key names its own table and column, the demand, and an id that is refused."""
    people = new_table()
    people.execute(
        "CREATE TABLE note (person_id varchar(20) REFERENCES person (public_id),"
        " short_id varchar(10) REFERENCES person (public_id), CONSTRAINT of_copy CHECK (length(person_id) = 8))"
    )
    try:
        with people.engine.connect() as connection:
            found = try_ids(live_table(connection, people.target.__class__.of("person", format=NEW)))
    finally:
        people.execute("DROP TABLE note")

    of_check, of_type = sorted(found, key=lambda outcome: outcome.column)
    assert (of_check.table, of_check.column, of_check.demand) == ("note", "person_id", "the CHECK constraint of_copy")
    assert (of_type.table, of_type.column, of_type.demand) == ("note", "short_id", "the type VARCHAR(10)")
    assert [str(each) for each in (of_check, of_type)] == [
        f"the CHECK constraint of_copy of note refuses new ids of person_id, such as {of_check.refused!r}",
        (
            f"the type VARCHAR(10) of note refuses new ids of short_id, such as {of_type.refused!r}: "
            f"ids have up to 12 characters"
        ),
    ]
    assert of_check.refused
    assert NEW.is_valid(of_check.refused)
    assert of_check.as_obstacle() == Obstacle("ids-refused", str(of_check), REMEDY)


@on("postgresql")
def test_foreign_key_in_another_schema(new_table: Callable[..., People]) -> None:
    """A foreign key is looked at in its own schema, and not in a table of that name beside the ids."""
    people = new_table()
    people.execute("CREATE TABLE note (person_id varchar(20) CONSTRAINT of_note CHECK (length(person_id) < 9))")
    people.execute("CREATE SCHEMA apart")
    try:
        people.execute(
            "CREATE TABLE apart.note (person_id varchar(20) REFERENCES person (public_id)"
            " CONSTRAINT of_apart CHECK (length(person_id) < 10))"
        )
        assert tried(people) == {"the CHECK constraint of_apart": True}
    finally:
        people.execute("DROP SCHEMA apart CASCADE")
        people.execute("DROP TABLE note")


def test_each_of_several_ids(new_table: Callable[..., People], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ids are tried, because a condition may accept some: the one that is refused is named."""
    people = new_table(", CONSTRAINT of_id CHECK (public_id NOT LIKE '%c')")
    ids = ["per_aaaaaaaa", "per_aaaaaaab", "per_aaaaaaac"]
    monkeypatch.setattr(type(NEW), "example", lambda _: ids.pop(0) if ids else "per_aaaaaaaa")
    with people.engine.connect() as connection:
        [outcome] = try_ids(live_table(connection, people.target.__class__.of("person", format=NEW)))

    assert (outcome.refused, outcome.reason) == ("per_aaaaaaac", "")


def test_format_that_generates_nothing(new_table: Callable[..., People]) -> None:
    """Ids that only the application can generate are not tried, and it is said why."""
    people = new_table(REFUSING["length"], format=NanoId(length=8))
    with people.engine.connect() as connection:
        format = Snowflake(machine_id=no_machine, storage="text")
        outcomes = try_ids(live_table(connection, people.target.__class__.of("person", format=format)))

    assert [str(outcome) for outcome in outcomes] == [
        (
            "the CHECK constraint of_id of person was not tried with new ids of public_id: "
            "the format generates no ids here"
        )
    ]


def no_machine() -> int:
    raise ConfigurationError("this machine has no number")
