"""Revisions that mix operations on public ids with others: each revision can be run again after a failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import alembic
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.operations.ops import (
    AddColumnOp,
    CreateForeignKeyOp,
    CreateIndexOp,
    CreateUniqueConstraintOp,
    DowngradeOps,
    MigrationScript,
    UpgradeOps,
)
from sqlalchemy import Column, Engine, ForeignKey, Index, Integer, MetaData, String, Table, inspect, text
from sqlalchemy.schema import FetchedValue
from support.marks import on
from support.people import people, send
from support.projects import Project, upgrade_of
from support.shops import old_shop, shop

from sqlalchemy_public_id import ConfigurationError, NanoId, public_id_column
from sqlalchemy_public_id.alembic import add_public_id
from sqlalchemy_public_id.alembic.ops import AddPublicIdOp, ExpandPublicIdOp
from sqlalchemy_public_id.alembic.revisions import one_revision
from sqlalchemy_public_id.errors import LockNotAvailable

pytestmark = pytest.mark.backend

PLAIN = str(Path(alembic.__file__).parent / "templates" / "generic")
"""The env.py that most projects have."""


@pytest.fixture(params=["generic", PLAIN], ids=["template", "plain env.py"])
def project(request: pytest.FixtureRequest, new_project: Callable[..., Project]) -> Project:
    """A project whose shop has customers."""
    made = new_project(template=request.param)
    made.migrate(old_shop(), "shop")
    made.execute("INSERT INTO customer (name) VALUES ('Ada'), ('Grace'), ('Mary')")
    return made


def with_city(metadata: MetaData) -> MetaData:
    metadata.tables["customer"].append_column(Column("city", String(20)))
    return metadata


def columns(project: Project) -> list[str]:
    project.engine.dispose()
    return [column["name"] for column in inspect(project.engine).get_columns("customer")]


# --- autogenerate


def test_two_revisions(project: Project) -> None:
    """Autogenerate writes the operations that commit into a separate revision, after all other changes."""
    project.migrate(with_city(shop()), "ids and cities")

    assert project.history() == ["shop", "ids and cities", "ids and cities: public ids"]
    assert project.check(with_city(shop())) is None
    project.downgrade()
    assert "public_id" not in columns(project)
    assert "city" in columns(project)
    project.downgrade()
    assert project.differences(old_shop()) == []
    project.upgrade()
    assert project.check(with_city(shop())) is None


def test_again_after_a_lock(project: Project) -> None:
    """A table that stays locked makes the upgrade fail; the same command completes it later."""
    if project.engine.name == "sqlite":
        pytest.skip("a reader does not lock the table")
    metadata = shop()
    Table("visit", metadata, Column("id", Integer, primary_key=True))
    project.revision(metadata)
    project.rewrite("add_public_id('customer'", "add_public_id('customer', attempts=1")

    with project.engine.connect() as reader:
        reader.execute(text("SELECT * FROM customer")).all()
        with pytest.raises(LockNotAvailable):
            project.upgrade()
    project.upgrade()

    assert project.check(metadata) is None


def test_what_depends_on_the_column_comes_last(project: Project) -> None:
    """An index on the new column and another one, and a foreign key to the new column, are created after the column."""
    metadata = with_city(shop())
    customer = metadata.tables["customer"]
    Index("ix_customer_city_and_id", customer.c.city, customer.c.public_id)
    Table("visit", metadata, Column("id", Integer, primary_key=True), Column("of", ForeignKey(customer.c.public_id)))
    Table("photo", metadata, Column("id", Integer, primary_key=True), Column("of", ForeignKey("visit.id")))
    written = project.migrate(metadata, "more")

    assert project.history()[1:] == ["more", "more: public ids", "more: after public ids"]
    assert project.check(metadata) is None
    assert written.index("add_public_id") < written.index("ix_customer_city_and_id")
    assert written.index("drop_table('photo')") < written.index("drop_table('visit')")
    project.downgrade("-3")
    assert project.differences(old_shop()) == []
    project.upgrade()
    assert project.check(metadata) is None


def foreign_key(schema: str | None, of: str | None) -> CreateForeignKeyOp:
    return CreateForeignKeyOp(
        f"fk_{of}", "visit", "customer", ["of"], ["public_id"], source_schema=schema, referent_schema=of
    )


DEPENDENT: dict[str, Callable[[str | None], Any]] = {
    "index": lambda schema: CreateIndexOp("ix", "customer", ["name", "public_id"], schema=schema),
    "constraint": lambda schema: CreateUniqueConstraintOp("uq", "customer", ["name", "public_id"], schema=schema),
    "foreign key": lambda schema: foreign_key(schema, schema),
    "foreign key from elsewhere": lambda schema: foreign_key("lobby", schema),
    "foreign key from the other": lambda schema: foreign_key(None if schema else "attic", schema),
    "column": lambda schema: AddColumnOp(
        "visit",
        Column(
            f"of_{schema}", String(12), ForeignKey(f"{schema}.customer.public_id" if schema else "customer.public_id")
        ),
    ),
}


def key_of(op: Any) -> tuple[str | None, ...]:
    """Return what distinguishes an operation from those of a namesake in another schema."""
    schema = op.kw.get("source_schema") if isinstance(op, CreateForeignKeyOp) else getattr(op, "schema", None)
    referent = getattr(op, "kw", {}).get("referent_schema")
    return type(op).__name__, schema, referent


@on("sqlite")
@pytest.mark.parametrize("ours", ["attic", None])
@pytest.mark.parametrize("dependent", DEPENDENT)
def test_namesakes_in_two_schemas(engine: Engine, dependent: str, ours: str | None) -> None:
    """Of two tables with one name, what depends on the ids of the one moves, with its downgrade, and nothing else."""
    other = None if ours else "attic"
    adding, more = AddPublicIdOp("customer", schema=ours), DEPENDENT[dependent](ours)
    of_others = [ExpandPublicIdOp("customer", schema=other, online=False), DEPENDENT[dependent](other)]
    upgrade = [adding, more, *of_others]
    downgrade = [op.reverse() for op in reversed(upgrade)]
    scripts = [MigrationScript("1", UpgradeOps(upgrade), DowngradeOps(downgrade), message="m")]

    one_revision(None, None, scripts)  # type: ignore[arg-type]

    written = [(script.upgrade_ops, script.downgrade_ops) for script in scripts]
    assert [[*map(key_of, up.ops)] for up, _ in written if up] == [
        [*map(key_of, of_others)],
        [*map(key_of, [adding])],
        [key_of(more)],
    ]
    for up, down in written:
        assert up is not None
        assert down is not None
        assert [*map(key_of, down.ops)] == [key_of(op.reverse()) for op in reversed(up.ops)]


@pytest.mark.parametrize("template", ["generic", PLAIN], ids=["template", "plain env.py"])
def test_created_table(new_project: Callable[..., Project], template: str) -> None:
    """A new table with a server default is created in one revision, because nobody else uses it yet."""
    project = new_project(template=template)
    metadata = with_city(shop(server_default=FetchedValue()))
    written = project.migrate(metadata)

    assert project.history() == ["next"]
    assert any("expand_public_id" in line and "online=False" in line for line in upgrade_of(written))
    if project.engine.name != "sqlite":  # there, the copy of the table adds the default
        project.execute("INSERT INTO customer (name) VALUES ('Ada')")
        assert project.check(metadata) is None


def test_created_table_and_back(new_project: Callable[..., Project]) -> None:
    """The downgrade of a revision that creates a table with a server default drops the table with all its parts."""
    project = new_project()
    metadata = with_city(shop(server_default=FetchedValue()))
    project.migrate(metadata)

    project.downgrade("base")
    assert not inspect(project.engine).has_table("customer")
    project.upgrade()
    assert project.check(metadata) is None


@on("sqlite", "postgresql")
def test_created_table_in_batches(new_project: Callable[..., Project]) -> None:
    """Batch mode writes no empty block into the downgrade of a table whose ids are unique by a constraint."""
    metadata = MetaData()
    column = public_id_column(NanoId(), server_default=FetchedValue()).column
    column.name = column.key = "public_id"
    key = Column("id", Integer, primary_key=True)
    Table("customer", metadata, key, column, Column("parent", ForeignKey("customer.public_id")))
    project = new_project()
    project.configure("render_as_batch=True,")
    project.migrate(metadata)

    project.downgrade("base")
    assert not inspect(project.engine).has_table("customer")


def test_own_directives_come_first(new_project: Callable[..., Project]) -> None:
    """The project's own ``process_revision_directives`` sees a single script that contains everything."""
    project = new_project()
    project.migrate(old_shop(), "shop")
    before = "seen = []\ndef own(context, revision, directives):\n    config.attributes['seen'] = len(directives)\n"
    project.configure("process_revision_directives=own,", before=before)

    project.revision(with_city(shop()), "both")

    assert project.config.attributes["seen"] == 1
    assert project.history() == ["shop", "both", "both: public ids"]


# --- revisions by hand


WRITES = {
    "a column": 'op.add_column("customer", sa.Column("nick", sa.String(20)))',
    "a row": "op.execute(\"INSERT INTO customer (name) VALUES ('Joan')\")",
}


@on("postgresql")
@pytest.mark.parametrize("written", WRITES)
def test_mixed(project: Project, written: str) -> None:
    """An operation is refused in a revision that has already written, which is rolled back; the remedy works."""
    project.write(f'{WRITES[written]}\n    op.add_public_id("customer")')

    with pytest.raises(ConfigurationError, match=r"into a separate revision, or pass online=False"):
        project.upgrade()

    assert columns(project) == ["id", "name"]
    project.rewrite('add_public_id("customer")', 'add_public_id("customer", online=False)')
    project.upgrade()
    assert "public_id" in columns(project)


@on("sqlite")
def test_mixed_with_rows(project: Project) -> None:
    """Rows that a revision has inserted are not committed by an operation that follows."""
    project.write(f'{WRITES["a row"]}\n    op.add_public_id("customer")')

    with pytest.raises(ConfigurationError, match=r"into a separate revision"):
        project.upgrade()

    assert columns(project) == ["id", "name"]
    with project.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM customer")) == 3


def test_reads_and_earlier_revisions(project: Project) -> None:
    """Earlier revisions of the same upgrade, and reads in the same revision, do not count as writes."""
    project.write(WRITES["a column"])
    project.write('op.get_bind().execute(sa.text("SELECT * FROM customer")).all()\n    op.add_public_id("customer")')
    project.write(WRITES["a row"])

    project.upgrade()

    assert columns(project) == ["id", "name", "nick", "public_id"]


def test_first_revision(new_project: Callable[..., Project]) -> None:
    """The version table, which Alembic creates in the same transaction, does not count as a write."""
    project = new_project(template=PLAIN)
    project.config.attributes["metadata"] = MetaData()
    project.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name VARCHAR(20))")
    project.write('op.add_public_id("customer")')

    project.upgrade()

    assert columns(project) == ["id", "name", "public_id"]


@on("postgresql")
def test_versions_in_another_schema(new_project: Callable[..., Project]) -> None:
    """The table of versions is looked for where ``version_table`` and ``version_table_schema`` say."""
    project = new_project()
    project.execute("DROP SCHEMA IF EXISTS attic CASCADE")
    project.execute("CREATE SCHEMA attic")
    project.configure('version_table="versions of \'us\'", version_table_schema="attic",')
    project.config.attributes["metadata"] = MetaData()
    project.execute("CREATE TABLE customer (id SERIAL PRIMARY KEY, name VARCHAR(20))")
    try:
        project.write(WRITES["a column"])
        project.write('op.add_public_id("customer")')
        project.upgrade()
        assert columns(project) == ["id", "name", "nick", "public_id"]

        project.write(f'{WRITES["a row"]}\n    op.drop_public_id("customer")')
        with pytest.raises(ConfigurationError, match="into a separate revision"):
            project.upgrade()
    finally:
        project.engine.dispose()
        project.execute("DROP SCHEMA attic CASCADE")


@pytest.mark.parametrize("begins", ["before", "after"])
def test_transaction_of_the_program(engine: Engine, begins: str) -> None:
    """The operation is refused in a transaction that the program began, before or after Alembic got the connection."""
    with people(engine, 3) as table:
        refused = pytest.raises(ConfigurationError, match=r"a transaction that Alembic did not begin; pass connectable")
        with engine.connect() as connection, refused:
            if begins == "before":
                send(connection, "SELECT * FROM person")
            operations = Operations(MigrationContext.configure(connection))
            send(connection, "SELECT * FROM person")
            add_public_id(operations, "person")

        assert table.columns() == ["id", "name"]
