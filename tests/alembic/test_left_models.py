"""A model that no longer declares a public id: the column is dropped, and its downgrade adds it again."""

from __future__ import annotations

import pytest
from sqlalchemy import Column, Index, MetaData, String, text
from support.marks import on, since_mariadb
from support.projects import Project, downgrade_of, upgrade_of
from support.shops import old_shop, shop

from sqlalchemy_public_id import NanoId, ObjectId, Uuid7
from sqlalchemy_public_id.formats import BASE58, Format

pytestmark = [pytest.mark.backend, since_mariadb(10, 10, "RANDOM_BYTES()")]


def ids(project: Project) -> list[str]:
    """Return the ids of the three customers."""
    with project.engine.connect() as connection:
        return list(connection.execute(text("SELECT public_id FROM customer")).scalars())


FORMATS = [NanoId(prefix="cus"), NanoId(20, alphabet=BASE58), NanoId(prefix="c", separator="-")]
NUMBERS = [Uuid7(), ObjectId()]
"""Formats whose ids SQLite does not generate as numbers."""


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("format", NUMBERS, ids=repr)
def test_numbers(project: Project, format: Format) -> None:
    """The default tells the format of numbers, which say nothing themselves."""
    project.migrate(shop(format))

    assert upgrade_of(project.migrate(old_shop(), "no ids")) == ["op.drop_public_id('customer')"]
    project.downgrade()
    assert project.differences(shop(format)) == []
    assert len({*ids(project)}) == 3


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_there_and_back(project: Project, format: NanoId) -> None:
    """The revision drops the column with its index; the downgrade gives each row an id of the former format."""
    project.migrate(shop(format))
    dropped = project.revision(old_shop(), "no ids")

    assert upgrade_of(dropped) == ["op.drop_public_id('customer')"]
    assert "# No model declares customer.public_id. Its ids are lost" in dropped
    project.upgrade()
    assert project.check(old_shop()) is None
    project.downgrade()
    assert project.differences(shop(format)) == []
    assert len({*filter(format.is_valid, ids(project))}) == 3
    project.upgrade()
    assert project.check(old_shop()) is None


def test_table_without_rows(project: Project) -> None:
    """The default alone tells the format, with its prefix."""
    project.migrate(shop(Uuid7(prefix="cus", encoding="hex", storage="text")))
    project.execute("DELETE FROM customer")
    dropped = project.revision(old_shop(), "no ids")

    assert upgrade_of(dropped) == ["op.drop_public_id('customer')"]
    assert "Uuid7(prefix='cus'" in str(downgrade_of(dropped))


def test_other_changes(project: Project) -> None:
    """Names, comments and other indexes come back; other changes have their own revision."""

    def before() -> MetaData:
        metadata = shop(NanoId(), comment="shown to customers")
        columns = metadata.tables["customer"].c
        (unique,) = metadata.tables["customer"].indexes
        unique.name = "one_id"
        Index("ix_customer_name_id", columns.name, columns.public_id)
        return metadata

    def after() -> MetaData:
        metadata = old_shop()
        metadata.tables["customer"].append_column(Column("city", String(20)))
        return metadata

    project.migrate(before())
    assert "unique_name='one_id'" in project.migrate(after(), "no ids").rpartition("def downgrade()")[2]
    assert project.history()[-2:] == ["no ids", "no ids: public ids"]
    assert project.check(after()) is None
    project.downgrade("-2")
    assert project.differences(before()) == []


def test_second_unique_index(project: Project) -> None:
    """A second unique index or constraint goes with the column, and no operation names it."""
    project.migrate(shop(NanoId()))
    is_sqlite = project.engine.name == "sqlite"  # which adds no constraint to a table
    project.execute(
        "CREATE UNIQUE INDEX a_second ON customer (public_id)"
        if is_sqlite
        else "ALTER TABLE customer ADD CONSTRAINT a_second UNIQUE (public_id)"
    )

    assert upgrade_of(project.migrate(old_shop(), "no ids")) == ["op.drop_public_id('customer')"]


@on("postgresql", "mysql", "mariadb")
def test_column_that_may_be_null(project: Project) -> None:
    """The downgrade of an expanded column that was dropped is the expand."""
    project.write("op.expand_public_id('customer')")
    project.upgrade()

    assert downgrade_of(project.migrate(old_shop())) == ["op.expand_public_id('customer')"]
    project.downgrade()
    assert ids(project) == [None] * 3


@on("postgresql")
def test_column_of_the_project(project: Project) -> None:
    """A column with a default of the project, such as gen_random_uuid(), is dropped by Alembic."""
    project.execute("ALTER TABLE customer ADD COLUMN token uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()")
    project.execute("ALTER TABLE customer ADD COLUMN code text NOT NULL DEFAULT 'cus_'")

    assert "op.drop_public_id" not in project.migrate(old_shop())
    project.downgrade()
