"""Columns of ids that are older than the library: what autogenerate writes for them, and what a migration changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations.ops import MigrationScript
from marks import known_defect, on
from people import People, migrating, people, send
from sqlalchemy import BigInteger, Column, Engine, MetaData, String, Table, inspect
from sqlalchemy.exc import IntegrityError

from sqlalchemy_public_id import NanoId, PublicIdType, public_id_column

pytestmark = pytest.mark.backend

FORMAT = NanoId(length=8)
CONVENTION = {"uq": "uq_%(table_name)s_%(column_0_name)s"}


@pytest.fixture
def table(engine: Engine) -> Iterator[People]:
    with people(engine, 0) as made:
        yield made


CONSTRAINT = "ALTER TABLE person ADD UNIQUE (public_id)"
CONSTRAINT_WITH_OUR_NAME = "ALTER TABLE person ADD CONSTRAINT uq_person_public_id UNIQUE (public_id)"
INDEX_WITH_OUR_NAME = "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id)"


def create(table: People, unique: str) -> None:
    """Create the table with ids that are not NULL, and that the statement *unique* makes unique; insert one."""
    table.create(0, more=", public_id varchar(8) NOT NULL")
    table.execute(unique)
    table.execute("INSERT INTO person (name, public_id) VALUES ('Ada', 'abcdefgh')")


def models(column: Column[Any], **options: Any) -> MetaData:
    """The table as a program declares it."""
    metadata = MetaData(**options)
    Table("person", metadata, Column("id", BigInteger, primary_key=True), Column("name", String(50)), column)
    return metadata


def plain() -> Column[Any]:
    """The column without the library: a control."""
    return Column("public_id", String(8), nullable=False, unique=True)


def public_id() -> Column[Any]:
    """The column as the library declares it."""
    column = public_id_column(FORMAT).column
    column.name = column.key = "public_id"
    return column


def declared_with_unique() -> Column[Any]:
    """The column as ``PublicIdType`` declares it, with ``unique=True``."""
    return Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, nullable=False, unique=True)


def autogenerate(engine: Engine, metadata: MetaData) -> MigrationScript:
    """Compare the database with *metadata*."""
    with engine.connect() as connection:
        return produce_migrations(MigrationContext.configure(connection), metadata)


def written(script: MigrationScript) -> str:
    """Return the body of ``upgrade()``."""
    assert script.upgrade_ops is not None
    return render_python_code(script.upgrade_ops)


def run(engine: Engine, operations: Any) -> None:
    """Run what autogenerate has written."""
    with engine.connect() as connection, migrating(connection) as op:
        for each in operations.ops:
            for operation in getattr(each, "ops", [each]):
                op.invoke(operation)


NEVER_CLEAN = known_defect(
    "live tables", "a unique constraint of the name of the index is never replaced", raises=AssertionError
)


@on("postgresql")
@pytest.mark.parametrize(
    ("column", "convention"),
    [
        pytest.param(plain, CONVENTION, id="SQLAlchemy"),
        pytest.param(public_id, None, marks=NEVER_CLEAN, id="without a convention"),
        pytest.param(public_id, CONVENTION, marks=NEVER_CLEAN, id="with a convention"),
    ],
)
def test_constraint_with_the_name_of_the_index(table: People, column: Any, convention: Any) -> None:
    """Autogenerate finds nothing more when the migration that it has written for a unique constraint has run."""
    create(table, CONSTRAINT_WITH_OUR_NAME)
    metadata = models(column(), naming_convention=convention)

    run(table.engine, autogenerate(table.engine, metadata).upgrade_ops)

    assert "op." not in written(autogenerate(table.engine, metadata))


@known_defect("live tables", "the downgrade of an adoption drops what was there before", raises=pytest.fail.Exception)
@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize(
    ("column", "unique"),
    [
        pytest.param(public_id, INDEX_WITH_OUR_NAME, id="index"),
        pytest.param(declared_with_unique, CONSTRAINT, id="constraint"),
    ],
)
def test_downgrade_of_an_adoption(table: People, column: Any, unique: str) -> None:
    """After upgrade and downgrade, a column that was NOT NULL and unique before refuses NULL and duplicates."""
    create(table, unique)
    script = autogenerate(table.engine, models(column()))

    run(table.engine, script.upgrade_ops)
    run(table.engine, script.downgrade_ops)

    with pytest.raises(IntegrityError):
        table.execute("INSERT INTO person (name, public_id) VALUES ('Eve', 'abcdefgh')")
    with pytest.raises(IntegrityError):
        table.execute("INSERT INTO person (name, public_id) VALUES ('Eve', NULL)")


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("column", [plain, declared_with_unique])
def test_constraint_of_another_name(table: People, column: Any) -> None:
    """A column that is declared with ``unique=True`` keeps its one unique constraint, whatever its name is."""
    create(table, CONSTRAINT)

    run(table.engine, autogenerate(table.engine, models(column())).upgrade_ops)

    assert len(inspect(table.engine).get_unique_constraints("person")) == 1


@known_defect("live tables", "adoption changes the collation, and joins lose their index", raises=AssertionError)
@on("postgresql")
@pytest.mark.parametrize("reference", ["", "REFERENCES person (public_id)"], ids=["text", "foreign key"])
def test_join_of_texts(table: People, reference: str) -> None:
    """A join from a text column of ids uses the index of this column, as it did before the ids were adopted."""
    create(table, CONSTRAINT_WITH_OUR_NAME)
    table.execute(f"CREATE TABLE note (person_public_id varchar(8) {reference})")
    table.execute("CREATE INDEX ix_note ON note (person_public_id)")

    def uses_index() -> bool:
        with table.engine.connect() as connection:
            send(connection, "SET LOCAL enable_seqscan = off")
            join = "note JOIN person ON person.public_id = note.person_public_id"
            plan = send(connection, f"EXPLAIN SELECT FROM {join} WHERE person.id = 1").scalars().all()
        return any("Index Cond" in line and "person_public_id" in line for line in plan)

    try:
        before = uses_index()
        table.run("contract_public_id", format=FORMAT)

        assert (before, uses_index()) == (True, True)
    finally:
        table.execute("DROP TABLE note")
