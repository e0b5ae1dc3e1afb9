"""A column that is unique by a constraint or index of another name stays unique while it gets the one of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from marks import on
from people import migrating
from projects import Project, downgrade_of, upgrade_of
from sqlalchemy import Column, Engine, Index, Integer, MetaData, Table, UniqueConstraint, text
from sqlalchemy.exc import IntegrityError

from sqlalchemy_public_id import LockNotAvailable, NanoId, PublicIdType
from sqlalchemy_public_id.alembic import contract_public_id
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.migrating.indexes import IndexFacts, read_indexes

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
            indexes = read_indexes(connection, "invoice", None)
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


@pytest.fixture
def guarded(engine: Engine) -> Iterator[Callable[[Invoices], None]]:
    """Try to insert a duplicate all the time; fail if it was ever accepted."""
    over, accepted, threads = threading.Event(), [], list[threading.Thread]()

    def watch(invoices: Invoices) -> None:
        def insert() -> None:
            while not over.is_set():
                if invoices.accepts_duplicate():
                    accepted.append(True)

        threads.append(threading.Thread(target=insert))
        threads[0].start()

    yield watch
    over.set()
    for thread in threads:
        thread.join()
    assert not accepted


@pytest.mark.parametrize("unique", KINDS)
@pytest.mark.parametrize("old", KINDS)
def test_there_and_back(
    new_project: Callable[..., Project], guarded: Callable[[Invoices], None], old: str, unique: str
) -> None:
    """Autogenerate writes one operation, which leaves only the new one; its downgrade brings the old one back."""
    project = new_project()
    invoices = Invoices(project, old)
    before = invoices.unique()
    if project.engine.name == "postgresql":  # on the others, a duplicate that waits would end the migration
        guarded(invoices)

    written = project.migrate(model(unique))

    assert upgrade_of(written)[0].startswith("op.contract_public_id('invoice', ")
    assert "replaces='old_name'" in upgrade_of(written)[0]
    assert len(upgrade_of(written)) == 1
    assert len(downgrade_of(written)) == 1
    assert [name for _, name in invoices.unique()] == ["new_name"] or project.engine.name == "sqlite"
    assert len(invoices.unique()) == 1
    assert project.check(model(unique)) is None
    project.downgrade()
    assert invoices.unique() == before or project.engine.name == "sqlite"
    assert len(invoices.unique()) == 1
    assert not invoices.accepts_duplicate()
    project.upgrade()
    assert project.check(model(unique)) is None


@pytest.mark.parametrize("old", KINDS)
def test_column_that_may_be_null(new_project: Callable[..., Project], old: str) -> None:
    """A nullable column is filled, too; its downgrade allows NULL again, and leaves the column unique."""
    project = new_project()
    invoices = Invoices(project, old, "NULL")
    project.execute("INSERT INTO invoice (public_id) VALUES (NULL)")

    written = project.migrate(model("index"))

    assert upgrade_of(written)[0].startswith("op.add_public_id('invoice', ")
    assert project.check(model("index")) is None
    assert not invoices.accepts_duplicate()
    project.downgrade()
    assert not invoices.accepts_duplicate()
    project.execute("INSERT INTO invoice (public_id) VALUES (NULL)")
    project.upgrade()
    assert project.check(model("index")) is None


@on("postgresql", "mysql", "mariadb")
def test_as_good_is_renamed(new_project: Callable[..., Project], statements: Any) -> None:
    """An index that is as good is renamed: nothing is built."""
    invoices = Invoices(new_project(), "index")
    statements.clear()

    with invoices.engine.connect() as connection, migrating(connection) as op:
        contract_public_id(op, "invoice", unique_name="new_name", replaces="old_name", server_default="none")

    assert [statement for statement in statements if "RENAME" in statement]
    of_the_table = [statement for statement in statements if "public_id_rehearsal" not in statement]
    assert not [sql for sql in of_the_table if "ADD UNIQUE" in sql or "CREATE UNIQUE" in sql]
    assert invoices.unique() == [("index", "new_name")]


@on("postgresql")
def test_constraint_that_is_as_good(new_project: Callable[..., Project], statements: Any) -> None:
    """A constraint becomes another one by its name; an index becomes a constraint without a build."""
    project = new_project()
    for old in KINDS:
        Invoices(project, old)
        statements.clear()
        with project.engine.connect() as connection, migrating(connection) as op:
            contract_public_id(op, "invoice", unique="constraint", unique_name="new_name", replaces="old_name")

        assert not [statement for statement in statements if "CREATE UNIQUE" in statement]
        assert project.check(model("constraint")) is None
        project.execute("DROP TABLE invoice")


@on("postgresql")
@pytest.mark.parametrize("defect", ["DEFERRABLE", "INVALID"])
def test_worse_is_replaced(new_project: Callable[..., Project], statements: Any, defect: str) -> None:
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


@on("postgresql")
def test_busy_table(new_project: Callable[..., Project]) -> None:
    """If the old constraint cannot be dropped, both stay; the same revision finishes it later."""
    project = new_project()
    invoices = Invoices(project, "constraint")
    project.revision(model("index"))
    path = next((project.folder / "versions").glob("*.py"))
    path.write_text(
        path.read_text().replace("contract_public_id('invoice'", "contract_public_id('invoice', attempts=2")
    )

    with project.engine.connect() as reader:
        reader.execute(text("SELECT * FROM invoice")).all()
        with pytest.raises(LockNotAvailable):
            project.upgrade()
    assert len(invoices.unique()) == 2
    project.upgrade()

    assert invoices.unique() == [("index", "new_name")]


@on("postgresql", "mysql", "mariadb")
def test_script(new_project: Callable[..., Project]) -> None:
    """A script builds the new index before it drops the old one."""
    project = new_project()
    Invoices(project, "constraint")
    project.revision(model("index"))

    sql = project.script()

    dropped = sql.index(
        "DROP CONSTRAINT IF EXISTS old_name" if project.engine.name == "postgresql" else "DROP INDEX old"
    )
    assert sql.index("new_name ON invoice" if project.engine.name == "postgresql" else "ADD UNIQUE") < dropped
