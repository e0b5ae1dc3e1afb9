"""A schema for each tenant: one command migrates and audits a table in all of them."""

from __future__ import annotations

import json
import sys
import threading
import time
import types
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from support.command import run
from support.marks import on
from support.people import People

from sqlalchemy_public_id import NanoId, PublicIdMixin, lookup

pytestmark = [pytest.mark.backend, on("postgresql", "mysql", "mariadb")]

DONE, REFUSED, UNUSABLE = 0, 1, 2
"""The exit statuses."""


class Tenants:
    """Schemas with a table ``person`` each."""

    def __init__(self, engine: Engine, count: int) -> None:
        self.engine, self.stem = engine, f"tenant{uuid.uuid4().hex[:8]}"
        self.people = [People(engine, schema=f"{self.stem}_{number}") for number in range(count)]
        with engine.begin() as connection:
            for each in self.people:
                connection.execute(text(f"CREATE SCHEMA {each.schema}"))
        for each in self.people:
            each.create(20)

    @property
    def pattern(self) -> str:
        return f"{self.stem}_*"

    def drop(self) -> None:
        cascade = " CASCADE" if self.engine.dialect.name == "postgresql" else ""
        with self.engine.begin() as connection:
            for each in self.people:
                connection.execute(text(f"DROP SCHEMA {each.schema}{cascade}"))


@pytest.fixture
def tenants(engine: Engine) -> Iterator[Tenants]:
    made = Tenants(engine, 3)
    yield made
    made.drop()


@pytest.fixture(autouse=True)
def url(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", engine.url.render_as_string(hide_password=False))


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> type[DeclarativeBase]:
    """Models whose tables are declared without a schema, as ``schema_translate_map`` wants them."""

    class Base(DeclarativeBase): ...

    class Person(PublicIdMixin, Base):
        __tablename__ = "person"
        __public_id__ = NanoId(prefix="per")
        name: Mapped[str | None]

    module = types.ModuleType("models_of_tenants")
    module.Base, module.Person = Base, Person  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Person


def test_pattern(tenants: Tenants) -> None:
    """``--schema`` with a pattern migrates the table in each schema that matches, and says which table a line is of."""
    planned = run("plan", "person", "--schema", tenants.pattern, "--output", "json")
    done = run("add", "person", "--schema", tenants.pattern, "--jobs", "2")
    again = run("add", "person", "--schema", tenants.pattern)

    assert [each["target"] for each in json.loads(planned.stdout)] == [
        f"{people.schema}.person.public_id" for people in tenants.people
    ]
    assert (done.exit_code, again.exit_code, again.stderr) == (DONE, DONE, ""), done.stderr
    for people in tenants.people:
        people.check_complete(20)
        assert f"{people.schema}.person: 20 rows" in done.stderr
        assert f"{people.schema}.person.public_id has an id in each row" in done.stdout


def test_one_character(tenants: Tenants) -> None:
    """A question mark in a pattern stands for one character; a backfill fills the table of each schema that matches."""
    pattern, first = f"{tenants.stem}_?", tenants.people[0]
    namesake = People(tenants.engine)
    namesake.create(1)
    namesake.run("expand_public_id")
    namesake.execute("UPDATE person SET public_id = NULL")
    assert run("expand", "person", "--schema", pattern).exit_code == DONE
    for people in tenants.people:
        people.execute(f"UPDATE {people.name} SET public_id = NULL")

    filled = run("backfill", "person", "--schema", pattern)
    first.execute(f"ALTER TABLE {first.name} DROP COLUMN public_id")
    first.execute(f"ALTER TABLE {first.name} ADD public_id varchar(40)")
    refused = run("backfill", "person", "--schema", str(first.schema))
    others = namesake.ids()
    namesake.drop()

    assert filled.exit_code == DONE
    assert filled.stdout.splitlines()[0].startswith(f"20 rows of {first.schema}.person got an id in ")
    assert [None in people.ids() for people in tenants.people] == [True, False, False]
    assert (refused.exit_code, others) == (UNUSABLE, [None])
    assert "person.public_id has 40 characters, but ids of NanoId() have 12" in refused.stderr


def test_letters_in_another_case(tenants: Tenants) -> None:
    """A pattern distinguishes capitals, as PostgreSQL does."""
    if tenants.engine.name != "postgresql":
        pytest.skip("the names of schemas may be without capitals")
    tenants.people[0].execute(f'ALTER SCHEMA {tenants.people[0].schema} RENAME TO "{tenants.stem}_A"')
    try:
        planned = run("plan", "person", "--schema", f"{tenants.stem}_?", "--json")
        refused = run("plan", "person", "--schema", f"{tenants.stem}_a*")
    finally:
        tenants.people[0].execute(f'ALTER SCHEMA "{tenants.stem}_A" RENAME TO {tenants.people[0].schema}')

    targets = [each["target"].partition(".")[0] for each in json.loads(planned.stdout)]
    assert targets == sorted(targets) == [f"{tenants.stem}_{number}" for number in ("1", "2", "A")]
    assert refused.exit_code == UNUSABLE


def test_no_schema_matches(tenants: Tenants) -> None:
    """A pattern that matches no schema is an error that lists the schemas."""
    done = run("add", "person", "--schema", "nobody_*")
    assert done.exit_code == UNUSABLE
    assert "no schema matches 'nobody_*'" in done.stderr
    assert str(tenants.people[0].schema) in done.stderr


def test_schema_without_the_table(tenants: Tenants) -> None:
    """A schema that lacks the table is named and makes the exit status 2; the others are migrated."""
    tenants.people[1].drop()
    done = run("add", "person", "--schema", tenants.pattern)
    assert done.exit_code == UNUSABLE
    assert f"{tenants.people[1].schema}.person" in done.stderr
    tenants.people[0].check_complete(20)
    tenants.people[2].check_complete(20)


def test_models(tenants: Tenants, models: type[DeclarativeBase]) -> None:
    """Models without a schema describe the tables of every tenant, to ``add`` and to ``audit``."""
    arguments = ("--schema", tenants.pattern, "--models", "models_of_tenants:Base")
    done = run("add", "--all", *arguments)
    audited = run("audit", *arguments, "--output", "json")

    assert done.exit_code == DONE, done.stderr
    report = json.loads(audited.stdout)
    assert [each["name"] for each in report["tables"]] == [f"{people.schema}.person" for people in tenants.people]
    assert {each["format"] for each in report["tables"]} == {"per_ and 12 of 0-9 a-z"}
    assert audited.exit_code == DONE, audited.stdout
    for people in tenants.people:
        engine = tenants.engine.execution_options(schema_translate_map={None: people.schema})
        with Session(engine) as session:
            session.add(person := models(name="Ada"))
            session.commit()
            assert lookup.get_one(session, models, person.public_id) is person


def test_models_some_of_which_have_a_schema(tenants: Tenants, models: type[DeclarativeBase]) -> None:
    """``--all`` with the schemas of tenants leaves out a table that the models declare in a schema of its own."""
    Base: Any = models.__bases__[-1]

    class Country(PublicIdMixin, Base):
        __tablename__ = "country"
        __table_args__ = ({"schema": "shared"},)

    done = run("add", "--all", "--schema", tenants.pattern, "--models", "models_of_tenants:Base")

    assert done.exit_code == DONE, done.stderr
    assert "country" not in done.stdout + done.stderr
    assert [people.state().complete for people in tenants.people] == [True] * 3


def test_models_with_a_schema(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that declare a schema cannot be moved to another one: the error says what to leave out."""

    class Base(DeclarativeBase): ...

    class Person(PublicIdMixin, Base):
        __tablename__ = "person"
        __table_args__ = ({"schema": "shared"},)

    module = types.ModuleType("models_of_a_schema")
    module.Base = Base  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    done = run("add", "person", "--schema", tenants.pattern, "--models", "models_of_a_schema:Base")
    assert done.exit_code == UNUSABLE
    assert "the models declare the schema 'shared' for person" in done.stderr
    Base.metadata.tables["shared.person"].schema = tenants.people[0].schema
    all_of_it = run("add", "--all", "--schema", tenants.pattern, "--models", "models_of_a_schema:Base")
    assert all_of_it.exit_code == UNUSABLE
    assert f"the models declare the schema '{tenants.people[0].schema}' for person" in all_of_it.stderr


def test_audit_of_all(tenants: Tenants) -> None:
    """``audit`` finds each tenant whose table differs from the others."""
    run("add", "person", "--schema", tenants.pattern)
    for people in tenants.people[1:]:
        people.run("loosen_public_id")
    audited = run("audit", "--schema", tenants.pattern)
    assert audited.exit_code == REFUSED
    assert f"{tenants.people[0].schema}.person: 20 ids (12 of 0-9 a-z); nothing is wrong" in audited.stdout
    for people in tenants.people[1:]:
        shown = audited.stdout.partition(f"{people.schema}.person: 20 ids (12 of 0-9 a-z)\n")[2]
        assert shown.startswith("  error    unique-missing ")


@pytest.mark.slow
def test_fifty_tenants_beside_writers(engine: Engine) -> None:
    """One command migrates fifty schemas while writers that do not know the column insert: no statement fails."""
    tenants = Tenants(engine, 50)
    stop, failed, written, longest = threading.Event(), list[str](), [0], [0.0]

    def write(number: int) -> None:
        other = create_engine(engine.url)
        with other.connect() as connection:
            while not stop.is_set():
                for people in tenants.people[number::3]:
                    began = time.monotonic()
                    try:
                        connection.execute(text(f"INSERT INTO {people.name} (name) VALUES ('old writer')"))
                        connection.commit()
                    except Exception as error:  # any error of a writer fails the test
                        failed.append(f"{people.schema}: {error}")
                        connection.rollback()
                    written[0] += 1
                    longest[0] = max(longest[0], time.monotonic() - began)
        other.dispose()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    try:
        for writer in writers:
            writer.start()
        done = run("add", "person", "--schema", tenants.pattern, "--jobs", "2")
    finally:
        stop.set()
        for writer in writers:
            writer.join()
        incomplete = [people.schema for people in tenants.people if None in people.ids()]
        tenants.drop()
    assert (done.exit_code, failed, incomplete) == (DONE, [], []), done.stderr
    assert written[0] > 100
    assert longest[0] < 5


def test_audit_of_a_column_that_some_tenants_have(tenants: Tenants) -> None:
    """``audit --column`` of several schemas is refused only if none of them has the column."""
    first = tenants.people[0]
    arguments = ["audit", "--column", "number", "--schema", tenants.pattern]
    audited = run(*arguments)
    assert audited.exit_code == UNUSABLE
    assert f"there is no column 'number' in {first.schema}.person, " in audited.stderr

    assert run("add", "person", "--column", "number", "--schema", str(first.schema)).exit_code == DONE
    audited = run(*arguments)
    assert audited.exit_code == DONE
    assert f"{first.schema}.person: 20 ids (12 of 0-9 a-z); nothing is wrong" in audited.stdout
