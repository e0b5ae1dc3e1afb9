"""Autogenerate refuses a table that cannot have the unique index, because of partitions or inheritance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from sqlalchemy import Column, Engine, Index, Integer, MetaData, Table, UniqueConstraint, inspect
from support.marks import on
from support.projects import Project

from sqlalchemy_public_id import NanoId, PublicIdType
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.table import LiveTable

pytestmark = [pytest.mark.backend]

COLUMNS = "id integer NOT NULL, paid_at timestamp NOT NULL, PRIMARY KEY (id, paid_at)"
OF_POSTGRESQL = [
    f"CREATE TABLE payment ({COLUMNS}) PARTITION BY RANGE (paid_at)",
    "CREATE TABLE payment_2026 PARTITION OF payment FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
    "CREATE TABLE vehicle (id integer PRIMARY KEY)",
    "CREATE TABLE car (PRIMARY KEY (id)) INHERITS (vehicle)",
]
OF_MYSQL = [f"CREATE TABLE payment ({COLUMNS.replace('timestamp', 'datetime')}) PARTITION BY HASH (id) PARTITIONS 4"]


@pytest.fixture
def project(new_project: Callable[..., Project], engine: Engine) -> Project:
    """A project with partitioned tables, and a table that can have public ids."""
    made = new_project()
    for statement in OF_POSTGRESQL if engine.name == "postgresql" else OF_MYSQL:
        made.execute(statement)
    made.execute("CREATE TABLE customer (id integer PRIMARY KEY)")
    made.execute("INSERT INTO payment VALUES (1, '2026-01-01')")
    return made


def public_id() -> Column[str]:
    return Column("public_id", PublicIdType(NanoId()), default=NanoId().generate, nullable=False)


def model(engine: Engine, *names: str) -> MetaData:
    """Return the reflected schema, with a unique public id on each table of *names*."""
    metadata = MetaData()
    metadata.reflect(engine, only=lambda name, _: name != "alembic_version")
    for name in names:
        column = public_id()
        metadata.tables[name].append_column(column, replace_existing=True)
        Index(f"uq_{name}_public_id", column, unique=True)
    return metadata


def refused(project: Project, metadata: MetaData) -> str:
    """Return the error of autogenerate, after asserting that it wrote no revision."""
    with pytest.raises(MigrationRefused) as of_revision:
        project.revision(metadata)
    assert not [*(project.folder / "versions").glob("*.py")]
    with pytest.raises(MigrationRefused) as of_check:
        project.check(metadata)
    assert str(of_check.value) == str(of_revision.value)
    return str(of_revision.value)


@on("postgresql", "mysql", "mariadb")
def test_partitioned_table(project: Project, engine: Engine) -> None:
    """Autogenerate refuses a partitioned table before it writes a revision; the error names the table and a remedy."""
    error = refused(project, model(engine, "customer", "payment"))

    assert error.startswith("payment.public_id: 1 obstacle, and nothing was changed:\n- payment is partitioned")
    assert "keep the ids in a separate table" in error


@on("postgresql")
def test_all_tables_at_once(project: Project, engine: Engine) -> None:
    """Partitioned tables, their partitions and tables that inherit are refused in one error."""
    error = refused(project, model(engine, "payment", "payment_2026", "car", "vehicle", "customer"))

    assert "4 obstacles" in error
    problems = ["payment is partitioned", "payment_2026 is a partition", "vehicle inherits, or", "car inherits, or"]
    assert [problem for problem in problems if f"\n- {problem}" not in error] == []


@on("postgresql", "mysql", "mariadb")
def test_column_of_a_partitioned_table(project: Project, engine: Engine) -> None:
    """An existing column that the model declares unique is refused as well."""
    project.execute("ALTER TABLE payment ADD COLUMN public_id varchar(12)")
    assert "payment is partitioned" in refused(project, model(engine, "payment"))


@on("postgresql", "mysql", "mariadb")
def test_operation_on_a_partitioned_table(project: Project, engine: Engine) -> None:
    """A revision that was written by hand is refused with the same error, and changes nothing."""
    words = refused(project, model(engine, "payment"))
    project.write("op.add_public_id('payment')")

    with pytest.raises(MigrationRefused) as caught:
        project.upgrade()
    assert str(caught.value) == words
    assert [column["name"] for column in inspect(engine).get_columns("payment")] == ["id", "paid_at"]


@on("postgresql", "mysql", "mariadb")
def test_excluded_column(project: Project, engine: Engine) -> None:
    """A column that include_object excludes is not refused, and the other tables get their operation."""
    excluded = ("payment.public_id", "uq_payment_public_id")
    project.configure(
        f"include_object=lambda item, name, *rest: name not in {excluded} and str(item) not in {excluded},"
    )
    metadata = model(engine, "customer", "payment")

    assert "op.add_public_id('customer'" in project.migrate(metadata)
    assert project.check(metadata) is None


@on("postgresql", "mysql", "mariadb")
def test_unique_with_the_columns_of_the_partitions(project: Project, engine: Engine) -> None:
    """A unique constraint on the id and the partition key is left to Alembic."""
    project.execute("DELETE FROM payment")  # Alembic adds the NOT NULL column at once, which needs an empty table
    if engine.name == "postgresql":
        project.execute("DROP TABLE payment_2026")
    metadata = model(engine)
    payment = metadata.tables["payment"]
    payment.append_column(public_id())
    payment.append_constraint(UniqueConstraint("public_id", "id", "paid_at", name="uq_payment"))

    assert "op.add_column('payment'" in project.migrate(metadata)
    assert project.check(metadata) is None


@on("postgresql")
def test_partitions_by_the_id(new_project: Callable[..., Project]) -> None:
    """A table that is partitioned by its public id can have the unique index, and ``alembic check`` is clean."""
    project = new_project()
    columns = 'id integer, public_id varchar(12) COLLATE "C" NOT NULL'
    project.execute(f"CREATE TABLE item ({columns}) PARTITION BY HASH (public_id)")
    project.execute("CREATE UNIQUE INDEX uq_item_public_id ON item (public_id)")
    metadata = MetaData()
    item = Table("item", metadata, Column("id", Integer), public_id())
    Index("uq_item_public_id", item.c.public_id, unique=True)

    assert project.check(metadata) is None


@on("postgresql", "mysql", "mariadb")
def test_columns_are_read_once(project: Project, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autogenerate reads each table once, whether or not its column exists, and whether or not it is refused."""
    read = Counter[str]()
    read_state = LiveTable.read_state

    def counted(live: LiveTable) -> State:
        read[live.target.table] += 1
        return read_state(live)

    project.execute("ALTER TABLE payment ADD COLUMN public_id varchar(12)")
    monkeypatch.setattr(LiveTable, "read_state", counted)
    with pytest.raises(MigrationRefused):
        project.revision(model(engine, "customer", "payment"))
    assert read == {"customer": 1, "payment": 1}
