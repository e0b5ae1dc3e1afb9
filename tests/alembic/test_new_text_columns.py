"""Columns of ids that models declare as TEXT: operations add them, autogenerate writes them, and a plan shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import Column, Engine, ForeignKey, Integer, MetaData, Table, Text, inspect
from support import command
from support.marks import on
from support.people import People
from support.projects import Project, downgrade_of, upgrade_of
from support.shops import old_shop
from support.shops import shop as shop_with

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdType,
    Uuid7,
    audit,
)
from sqlalchemy_public_id.errors import DryRun
from sqlalchemy_public_id.references import AnyPublicIdType

pytestmark = pytest.mark.backend

BYTEWISE = {"sqlite": "TEXT", "postgresql": 'TEXT COLLATE "C"'}
VARCHAR = r"leave sql_type out, so that the column is VARCHAR\(16\)"
CUSTOMER = NanoId(prefix="cus")


def shop(sql_type: Literal["TEXT"] | None = "TEXT") -> MetaData:
    """Return customers that have ids of a prefix."""
    return shop_with(CUSTOMER, sql_type=sql_type)


def with_copies(sql_type: Literal["TEXT"] | None = "TEXT") -> MetaData:
    """Return the shop with tables that hold copies of ids, and a key of ids."""
    metadata = shop(sql_type)
    key: Any = PublicIdType(CUSTOMER, sql_type)
    Table("box", metadata, Column("id", key, primary_key=True, default=CUSTOMER.generate))
    for name, part in {
        "visit": Column("of", ForeignKey("customer.public_id")),
        "parcel": Column("of", key, ForeignKey("box.id")),
        "trace": Column("of", AnyPublicIdType(64, sql_type), index=True),
    }.items():
        Table(name, metadata, Column("id", Integer, primary_key=True), part)
    return metadata


def type_of(engine: Engine, table: str, column: str = "public_id") -> Any:
    return next(each["type"] for each in inspect(engine).get_columns(table) if each["name"] == column)


def is_text(engine: Engine, table: str, column: str = "public_id") -> bool:
    return isinstance(type_of(engine, table, column), Text)


@pytest.fixture
def customers(new_project: Callable[..., Project]) -> Project:
    """Return a project with customers that have no ids."""
    project = new_project()
    project.migrate(old_shop())
    project.execute("INSERT INTO customer (name) VALUES ('Ada'), ('Bo')")
    return project


# --- autogenerate


@on("sqlite", "postgresql")
def test_autogenerate(customers: Project, engine: Engine) -> None:
    """The operation says TEXT, ``alembic check`` is clean, and the way back and forth leads to TEXT again."""
    written = customers.migrate(shop())

    assert upgrade_of(written) == ["op.add_public_id('customer', format=NanoId(prefix='cus'), sql_type='TEXT')"]
    assert downgrade_of(written) == ["op.drop_public_id('customer')"]
    assert is_text(engine, "customer")
    assert customers.check(shop()) is None
    assert customers.check(shop(None)) is None
    customers.downgrade()
    customers.upgrade()
    assert is_text(engine, "customer")
    models = {"customer": CUSTOMER}
    assert [str(each) for each in audit.run(engine, tables=["customer"], formats=models).findings] == []


@on("sqlite", "postgresql")
def test_copies(customers: Project, engine: Engine) -> None:
    """Foreign keys, primary keys, foreign keys to these, and ids of any model are TEXT; nothing is left to do."""
    written = customers.revision(with_copies())
    customers.upgrade()

    assert "sql_type='TEXT'" in written
    for table, column in (("box", "id"), ("visit", "of"), ("parcel", "of"), ("trace", "of")):
        assert is_text(engine, table, column), table
    assert customers.check(with_copies()) is None
    assert customers.check(with_copies(None)) is None


@on("sqlite", "postgresql")
def test_three_revisions(customers: Project, engine: Engine) -> None:
    """Of three revisions, the one that adds the column says TEXT."""
    customers.configure(
        "process_revision_directives=three_revisions,",
        "from sqlalchemy_public_id.alembic.revisions import three_revisions",
    )
    files = customers.files(shop())
    customers.upgrade()

    assert [written.count("sql_type='TEXT'") for written in files] == [1, 0, 0]
    assert is_text(engine, "customer")
    assert customers.check(shop()) is None


@on("sqlite", "postgresql")
def test_column_that_exists(customers: Project, engine: Engine) -> None:
    """A column with a length keeps it, and the operation that completes it says nothing of TEXT."""
    customers.execute("ALTER TABLE customer ADD COLUMN public_id varchar(16)")
    written = customers.migrate(shop())

    assert "op.add_public_id('customer'" in written
    assert "sql_type" not in written
    assert type_of(engine, "customer").length == 16
    assert customers.check(shop()) is None


@on("sqlite", "postgresql")
def test_left_by_its_model(customers: Project, engine: Engine) -> None:
    """The downgrade of a dropped column adds TEXT again."""
    customers.migrate(shop())
    written = customers.migrate(old_shop(), "no ids")

    assert upgrade_of(written) == ["op.drop_public_id('customer')"]
    assert "sql_type='TEXT'" in str(downgrade_of(written))
    customers.downgrade()
    assert is_text(engine, "customer")
    assert customers.differences(shop()) == []


@on("mysql", "mariadb")
def test_refused_by_autogenerate(customers: Project) -> None:
    """Where an index of TEXT needs a length, no revision is written, and the error names the VARCHAR."""
    with pytest.raises(ConfigurationError, match=VARCHAR):
        customers.revision(shop())


# --- operations


@on("sqlite", "postgresql")
@pytest.mark.parametrize("online", [True, False])
def test_operation(new_people: Callable[..., People], engine: Engine, online: bool) -> None:
    """The operation adds a column of TEXT that is compared byte by byte, and a second run changes nothing."""
    people = new_people(3)
    for _ in range(2):
        people.add(sql_type="TEXT", online=online)

    people.check_complete(3)
    assert is_text(engine, "person")
    assert people.state().collation in {None, "C", "BINARY"}
    people.run("loosen_public_id", sql_type="TEXT")
    people.check_expanded()
    people.run("drop_public_id", sql_type="TEXT")
    people.check_gone()


@on("sqlite")
def test_strict_table(new_people: Callable[..., People], engine: Engine) -> None:
    """A STRICT table of SQLite gets TEXT, as it does without the option."""
    people = new_people(0)
    people.drop()
    people.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT) STRICT")
    people.write(2)
    people.add(sql_type="TEXT")

    people.check_complete(2)
    assert is_text(engine, "person")


@on("sqlite", "postgresql")
@pytest.mark.parametrize(("options", "expected"), [("", True), (", sql_type=None", False), (", sql_type='TEXT'", True)])
def test_by_hand(customers: Project, engine: Engine, options: str, expected: bool) -> None:
    """An operation by hand takes the type from the model, unless it says what it adds."""
    customers.config.attributes["metadata"] = shop()
    imported = "__import__('sqlalchemy_public_id').NanoId(prefix='cus')"
    customers.write(f"op.add_public_id('customer', format={imported}{options})")
    customers.upgrade()

    assert is_text(engine, "customer") == expected
    assert customers.check(shop()) is None


@on("sqlite", "postgresql")
def test_older_revision(customers: Project, engine: Engine) -> None:
    """A revision for ids that are stored as numbers runs, although the model has TEXT by now."""
    customers.config.attributes["metadata"] = shop()
    customers.write("op.expand_public_id('customer', format=__import__('sqlalchemy_public_id').Uuid7())")
    customers.upgrade()

    assert not is_text(engine, "customer")


@on("mysql", "mariadb")
@pytest.mark.parametrize("operation", ["add_public_id", "expand_public_id"])
def test_refused_operation(new_people: Callable[..., People], operation: str) -> None:
    """Where an index of TEXT needs a length, the operation is refused, names the VARCHAR, and changes nothing."""
    people = new_people(1, format=CUSTOMER)
    with pytest.raises(ConfigurationError, match=rf"^the column person\.public_id has sql_type='TEXT'.*{VARCHAR}$"):
        people.run(operation, sql_type="TEXT")

    assert people.columns() == ["id", "name"]


@on("sqlite")
def test_wrong_options(new_people: Callable[..., People]) -> None:
    """Another type, and a format that stores numbers, are refused before anything is sent."""
    people = new_people(0)
    with pytest.raises(ConfigurationError, match=r"^sql_type is 'CLOB', expected one of 'TEXT'$"):
        people.add(sql_type="CLOB")
    with pytest.raises(ConfigurationError, match=r'stores numbers; add storage="text" to the format'):
        people.add(sql_type="TEXT", format=Uuid7())


@on("postgresql")
def test_script(new_people: Callable[..., People]) -> None:
    """A script adds TEXT."""
    script = new_people(0).script("expand_public_id", sql_type="TEXT")

    assert 'ADD COLUMN public_id TEXT COLLATE "C"' in script


# --- the plan, and the command line


@on("sqlite", "postgresql")
def test_dry_run(new_people: Callable[..., People], engine: Engine) -> None:
    """A dry run shows the statement that adds TEXT, without an obstacle."""
    people = new_people(2)
    with pytest.raises(DryRun) as caught:
        people.add(sql_type="TEXT", dry_run=True)

    report = caught.value.report
    assert report.obstacles == ()
    statements = [sql for step in report.steps for sql in step.statements]
    assert f"public_id {BYTEWISE[engine.name]}" in statements[0]
    assert people.columns() == ["id", "name"]


@on("sqlite", "postgresql")
def test_plan_of_a_column(new_people: Callable[..., People], engine: Engine) -> None:
    """A plan for a column of TEXT that exists keeps it: none of its statements names another type."""
    collation = ' COLLATE "C"' if engine.name == "postgresql" else ""
    people = new_people(2, more=f", public_id text{collation}")
    with pytest.raises(DryRun) as caught:
        people.add(sql_type="TEXT", dry_run=True)

    report = caught.value.report
    assert report.obstacles == ()
    statements = [sql for step in report.steps for sql in step.statements]
    assert not any("public_id VARCHAR" in sql or "TYPE" in sql for sql in statements)


def person(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Write a module with a model that declares TEXT, and return the argument for it."""
    (folder / f"{name}.py").write_text(MODELS)
    monkeypatch.syspath_prepend(folder)
    return f"{name}:Base"


MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy_public_id import NanoId, PublicIdColumnMixin

class Base(DeclarativeBase):
    __public_id_sql_type__ = "TEXT"

class Person(PublicIdColumnMixin, Base):
    __tablename__ = "person"
    __public_id__ = NanoId(prefix="newtext")
    id: Mapped[int] = mapped_column(primary_key=True)
"""


@on("sqlite", "postgresql")
def test_commands_with_models(
    new_people: Callable[..., People], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    """``plan``, ``expand``, ``backfill`` and ``contract`` take TEXT from the models."""
    people = new_people(2, format=NanoId(prefix="newtext"))
    base = person(tmp_path, monkeypatch, f"text_models_{engine.name}")
    url = engine.url.render_as_string(hide_password=False)
    planned = command.run("plan", url, "person", "--models", base)

    assert (planned.exit_code, f"public_id {BYTEWISE[engine.name]}" in planned.output) == (0, True)
    for name in ("expand", "backfill", "contract"):
        assert command.run(name, url, "person", "--models", base).exit_code == 0
    people.check_complete(2)
    assert is_text(engine, "person")
    assert command.run("audit", url, "--models", base).exit_code == 0


@on("sqlite", "postgresql")
def test_commands_without_models(new_people: Callable[..., People], engine: Engine) -> None:
    """``--sql-type TEXT`` adds TEXT."""
    people = new_people(2)
    url = engine.url.render_as_string(hide_password=False)

    assert command.run("add", url, "person", "--sql-type", "TEXT").exit_code == 0
    people.check_complete(2)
    assert is_text(engine, "person")


@on("mysql", "mariadb")
def test_refused_commands(
    new_people: Callable[..., People], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    """Where an index of TEXT needs a length, the plan and the operation name the VARCHAR, and change nothing."""
    people, base = new_people(2), person(tmp_path, monkeypatch, f"text_models_{engine.name}")
    url = engine.url.render_as_string(hide_password=False)
    for name in ("plan", "add"):
        for options in (("--models", base), ("--sql-type", "TEXT", "--format", 'NanoId(prefix="newtext")')):
            result = command.run(name, url, "person", *options)
            assert result.exit_code != 0
            assert "so that the column is VARCHAR(20)" in result.output + result.stderr

    assert people.columns() == ["id", "name"]
