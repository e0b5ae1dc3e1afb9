"""A column that is unique by a constraint or index of another name keeps it, unless it guards the column less well."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Column, Engine, Index, Integer, MetaData, Table, UniqueConstraint, inspect
from sqlalchemy.exc import IntegrityError
from support.marks import on
from support.people import migrating
from support.projects import Project, downgrade_of, upgrade_of

from sqlalchemy_public_id import NanoId, PublicIdType
from sqlalchemy_public_id.alembic import drop_public_id
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.databases import live_table
from sqlalchemy_public_id.migrating.state import IndexFacts

pytestmark = pytest.mark.backend

KINDS = ["index", "constraint"]
ID = "izkpm55j3341"


class Invoices:
    """A table whose public ids are unique already, and a project for it."""

    def __init__(self, project: Project, old: str, nulls: str = "NOT NULL") -> None:
        self.project, self.engine = project, project.engine
        key = {"sqlite": "integer PRIMARY KEY NOT NULL", "postgresql": "serial PRIMARY KEY"}.get(
            self.engine.name, "integer AUTO_INCREMENT PRIMARY KEY"
        )
        type_ = traits_for(self.engine.dialect).text_type(12).compile(self.engine.dialect)
        constraint = ", CONSTRAINT old_name UNIQUE (public_id)" if old == "constraint" else ""
        project.execute(f"CREATE TABLE invoice (id {key}, public_id {type_} {nulls}{constraint})")
        if old == "index":
            project.execute("CREATE UNIQUE INDEX old_name ON invoice (public_id)")
        project.execute(f"INSERT INTO invoice (public_id) VALUES ('{ID}')")

    def unique(self) -> list[tuple[str, str]]:
        """The names and kinds of what keeps duplicates out."""
        with self.engine.connect() as connection:
            indexes = live_table(connection, PublicIdColumn("invoice")).read_state().indexes
        return [
            (kind(self.engine, index), index.name) for index in indexes if index.can_be_unique_index_of("public_id")
        ]

    def accepts_duplicate(self) -> bool:
        try:
            self.project.execute(f"INSERT INTO invoice (public_id) VALUES ('{ID}')")
        except IntegrityError:
            return False
        return True


def kind(engine: Engine, index: IndexFacts) -> str:
    return "index" if not index.constraint or engine.name in {"mysql", "mariadb"} else "constraint"


def model(unique: str) -> MetaData:
    """The model, whose public ids are unique by an index or a constraint called ``new_name``."""
    table = Table(
        "invoice",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("public_id", PublicIdType(NanoId()), default=NanoId().generate, nullable=False),
    )
    if unique == "index":
        Index("new_name", table.c.public_id, unique=True)
    else:
        table.append_constraint(UniqueConstraint("public_id", name="new_name"))
    return table.metadata


@pytest.mark.parametrize("unique", KINDS)
@pytest.mark.parametrize("old", KINDS)
def test_there_and_back(new_project: Callable[..., Project], old: str, unique: str) -> None:
    """A nullable column is filled, and keeps what makes it unique; so does its downgrade, which allows NULL again."""
    project = new_project()
    invoices = Invoices(project, old, "NULL")
    project.execute("INSERT INTO invoice (public_id) VALUES (NULL)")
    before = invoices.unique()

    written = project.migrate(model(unique))

    assert upgrade_of(written)[0].startswith("op.add_public_id('invoice'")
    assert downgrade_of(written) == ["op.loosen_public_id('invoice', keeps='unique', server_default='none')"]
    assert len(upgrade_of(written)) == 1
    assert project.check(model(unique)) is None
    assert invoices.unique() == before
    project.downgrade()
    assert invoices.unique() == before
    assert not invoices.accepts_duplicate()
    project.execute("INSERT INTO invoice (public_id) VALUES (NULL)")
    project.upgrade()
    assert project.check(model(unique)) is None


@pytest.mark.parametrize("old", KINDS)
def test_drop(new_project: Callable[..., Project], old: str) -> None:
    """``op.drop_public_id()`` drops a column that something of another name makes unique."""
    project = new_project()
    Invoices(project, old)
    with project.engine.connect() as connection, migrating(connection) as op:
        drop_public_id(op, "invoice")

    assert [column["name"] for column in inspect(project.engine).get_columns("invoice")] == ["id"]


@on("postgresql")
@pytest.mark.parametrize("defect", ["DEFERRABLE", "INVALID"])
def test_worse_is_replaced(new_project: Callable[..., Project], defect: str) -> None:
    """A constraint that is checked late, or an index that is not valid, is not taken for the new one."""
    project = new_project()
    invoices = Invoices(project, "none")
    if defect == "DEFERRABLE":
        project.execute("ALTER TABLE invoice ADD CONSTRAINT old_name UNIQUE (public_id) DEFERRABLE")
    else:
        project.execute("CREATE UNIQUE INDEX old_name ON invoice (public_id)")
        project.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'old_name'::regclass")
    project.migrate(model("index"))

    assert invoices.unique() == [("index", "new_name")]
    assert project.check(model("index")) is None
