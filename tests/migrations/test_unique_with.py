"""Ids that are unique with other columns: the operations, and what autogenerate writes for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    insert,
    inspect,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from support.applied_remedies import paste
from support.command import run as command
from support.invoices import raise_counter
from support.marks import SERVERS, on
from support.people import migrating, send
from support.projects import Project, downgrade_of, upgrade_of

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdColumnMixin, PublicIdType, audit, public_id_column
from sqlalchemy_public_id.alembic import AddPublicIdOp
from sqlalchemy_public_id.errors import DryRun, MigrationRefused
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table

pytestmark = [pytest.mark.backend]

IDS = ["aaaaaaaaaaaa", "bbbbbbbbbbbb"]
TARGET = PublicIdColumn.of("invoice", unique_with=("tenant_id",))


def columns() -> list[Column[Any]]:
    """Return the columns of the invoices without ids."""
    key = BigInteger().with_variant(Integer, "sqlite")
    return [Column("id", key, primary_key=True), Column("tenant_id", BigInteger, nullable=False), note()]


def note() -> Column[Any]:
    return Column("note", String(9))


def create(engine: Engine) -> None:
    """Create the table of invoices as it is before the migration: two invoices of one tenant, one of another."""
    invoice = Table("invoice", MetaData(), *columns())
    with engine.begin() as connection:
        invoice.create(connection)
        connection.execute(insert(invoice), [{"id": number, "tenant_id": number // 3} for number in (1, 2, 3)])
        raise_counter(connection, invoice)


def models(*names: str, convention: dict[str, str] | None = None) -> MetaData:
    """Return a model whose ids are unique with the columns *names*."""

    class Base(DeclarativeBase):
        metadata = MetaData(naming_convention=convention)

    class Invoice(PublicIdColumnMixin, Base):
        __tablename__ = "invoice"
        __public_id_unique_with__ = names
        id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
        tenant_id: Mapped[int] = mapped_column(BigInteger)
        note: Mapped[str | None] = mapped_column(String(9))

    return Base.metadata


def indexes(engine: Engine) -> dict[Any, list[Any]]:
    """Return the columns of each unique index of the invoices."""
    with engine.connect() as connection:
        state = live_table(connection, TARGET).read_state()
        return {index.name: [*index.columns] for index in state.indexes if index.unique and not index.primary}


def state_of(engine: Engine, target: PublicIdColumn = TARGET) -> Any:
    with engine.connect() as connection:
        return live_table(connection, target).read_state()


def run(engine: Engine, operation: str, **options: Any) -> None:
    with engine.connect() as connection, migrating(connection) as op:
        getattr(op, operation)("invoice", **options)


def refused(engine: Engine, operation: str, **options: Any) -> str:
    """Return why *operation* is refused, after asserting that it has changed nothing."""
    before = indexes(engine), [column["name"] for column in inspect(engine).get_columns("invoice")]
    with pytest.raises(MigrationRefused) as caught:
        run(engine, operation, **options)
    assert (indexes(engine), [column["name"] for column in inspect(engine).get_columns("invoice")]) == before
    return str(caught.value)


@pytest.fixture
def project(new_project: Callable[..., Project], engine: Engine) -> Project:
    made = new_project()
    create(engine)
    return made


@pytest.fixture
def invoices(project: Project, engine: Engine) -> Engine:
    """The engine of a database with invoices that have no ids."""
    return engine


def test_autogenerate(project: Project, engine: Engine) -> None:
    """Autogenerate writes one operation with the other columns, ``alembic check`` is clean, and it can be undone."""
    metadata = models("tenant_id")
    written = project.migrate(metadata)

    assert upgrade_of(written) == ["op.add_public_id('invoice', unique_with=('tenant_id'))"]  # without the comma
    assert downgrade_of(written) == ["op.drop_public_id('invoice', unique_with=('tenant_id'))"]
    assert project.check(metadata) is None
    assert indexes(engine) == {"uq_invoice_public_id": ["public_id", "tenant_id"]}
    assert state_of(engine).complete
    project.downgrade()
    assert not state_of(engine).exists
    assert indexes(engine) == {}


def test_the_model_provides_the_other_columns(project: Project, engine: Engine) -> None:
    """An operation by hand that names the table alone builds the index that the model declares."""
    project.config.attributes["metadata"] = models("tenant_id")
    project.write("op.add_public_id('invoice')", "op.drop_public_id('invoice')")
    project.upgrade()

    assert indexes(engine) == {"uq_invoice_public_id": ["public_id", "tenant_id"]}
    project.downgrade()
    assert indexes(engine) == {}


def test_old_revision(project: Project, engine: Engine) -> None:
    """A revision from the time before the table had the other column builds the index on the id alone."""
    project.config.attributes["metadata"] = models("tenant_id")
    project.execute("ALTER TABLE invoice DROP COLUMN tenant_id")
    project.write("op.add_public_id('invoice')")
    project.upgrade()

    assert indexes(engine) == {"uq_invoice_public_id": ["public_id"]}


def test_each_operation_twice(invoices: Engine) -> None:
    """Each operation can be run again, and the way back ends where it began."""
    options: dict[str, Any] = {"unique_with": ["tenant_id"]}
    for operation in ("expand", "backfill", "contract", "add", "loosen", "contract", "drop"):
        for _ in range(2):
            run(invoices, f"{operation}_public_id", **options)
        state = state_of(invoices)
        assert state.complete == (operation in {"contract", "add"})
        assert state.index == (operation in {"contract", "add"})
    assert [column["name"] for column in inspect(invoices).get_columns("invoice")] == ["id", "tenant_id", "note"]


def test_in_one_transaction(invoices: Engine) -> None:
    """``online=False`` builds the index inside the open transaction."""
    run(invoices, "add_public_id", unique_with=("tenant_id",), online=False)

    assert state_of(invoices).complete


def test_ids_of_two_tenants(invoices: Engine) -> None:
    """Afterwards, two tenants may have one id, and one tenant may not have it twice."""
    run(invoices, "add_public_id", unique_with=("tenant_id",))
    with invoices.begin() as connection:
        send(connection, f"UPDATE invoice SET public_id = '{IDS[0]}' WHERE id IN (1, 3)")
    with pytest.raises(IntegrityError), invoices.begin() as connection:
        send(connection, f"UPDATE invoice SET public_id = '{IDS[0]}' WHERE id IN (1, 2)")


@pytest.mark.parametrize("order", ["public_id, tenant_id", "tenant_id, public_id"])
def test_index_of_the_project(project: Project, engine: Engine, order: str) -> None:
    """A unique index of the project on exactly these columns is kept, in whatever order it has them."""
    project.execute("ALTER TABLE invoice ADD COLUMN public_id varchar(12)")
    project.execute(f"CREATE UNIQUE INDEX ours ON invoice ({order})")
    project.execute("CREATE UNIQUE INDEX wide ON invoice (public_id, tenant_id, note)")
    metadata = models("tenant_id")
    statements = [statement for written in project.files(metadata) for statement in upgrade_of(written)]

    assert any(each.startswith("op.add_public_id('invoice', unique_with=('tenant_id')") for each in statements)
    assert not any("'ours'" in statement for statement in statements)
    run(engine, "add_public_id", unique_with=("tenant_id",), collation=None if engine.name == "sqlite" else "bytes")
    assert set(indexes(engine)) == {"ours", "wide"}
    run(engine, "loosen_public_id", unique_with=("tenant_id",), keeps="unique")
    assert set(indexes(engine)) == {"ours", "wide"}


@pytest.mark.parametrize("columns", ["public_id", "public_id, note", "tenant_id"])
def test_index_on_other_columns(invoices: Engine, columns: str) -> None:
    """An index with the name of the operation, but on other columns, is refused; it counts as no index."""
    run(invoices, "expand_public_id")
    with invoices.begin() as connection:
        if "tenant" in columns:
            send(connection, "UPDATE invoice SET tenant_id = id")
        send(connection, f"CREATE UNIQUE INDEX uq_invoice_public_id ON invoice ({columns})")

    assert not state_of(invoices).index
    error = refused(invoices, "add_public_id", unique_with=("tenant_id",))
    assert "there is an index uq_invoice_public_id, which is not on public_id and tenant_id" in error
    if columns != "public_id":
        assert "not on public_id alone" in refused(invoices, "add_public_id")


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("shop_id",), "invoice has no column shop_id, with which public_id should be unique; add shop_id in"),
        (("tenant_id", "note"), "note may be NULL, so two rows with NULL may have equal ids; forbid NULL in an"),
        (("id",), "unique_with contains the primary key id, so that no two ids need to differ; leave it out"),
        (("tenant_id", "id"), "unique_with contains the primary key id, so that no two ids need to differ"),
    ],
    ids=["missing", "nullable", "key", "more than the key"],
)
@pytest.mark.parametrize("exists", [False, True])
def test_columns_that_cannot_be(invoices: Engine, names: tuple[str, ...], reason: str, exists: bool) -> None:
    """A column that is missing, may be NULL, or is the primary key, is refused, also if there is such an index."""
    if exists:
        run(invoices, "add_public_id", unique_with=("tenant_id",))
        if "shop_id" not in names:
            with invoices.begin() as connection:
                send(connection, f"CREATE UNIQUE INDEX ours ON invoice (public_id, {', '.join(names)})")

    error = refused(invoices, "add_public_id", unique_with=names)
    assert reason in error
    if "note" in names:
        assert "op.alter_column('invoice', 'note'" in error


def test_duplicates(invoices: Engine) -> None:
    """Equal ids of one tenant are refused or replaced, and those of two tenants stay."""
    run(invoices, "expand_public_id", server_default="none")
    with invoices.begin() as connection:
        send(connection, f"UPDATE invoice SET public_id = '{IDS[0]}'")  # of the tenants 0, 0 and 1

    error = refused(invoices, "contract_public_id", unique_with=("tenant_id",), server_default="none")
    assert "1 id is in several rows with equal tenant_id, such as 'aaaaaaaaaaaa'" in error
    options: dict[str, Any] = {"unique_with": ("tenant_id",), "on_duplicate": "replace", "server_default": "none"}
    run(invoices, "contract_public_id", **options)
    with invoices.connect() as connection:
        ids = send(connection, "SELECT public_id FROM invoice ORDER BY id").scalars().all()
    assert [id == IDS[0] for id in ids] == [True, False, True]


@pytest.mark.parametrize("operation", ["contract_public_id", "loosen_public_id"])
def test_operation_that_is_not_told(invoices: Engine, operation: str) -> None:
    """Without the other columns, the index with them is refused: the one would build another, the other keep it."""
    run(invoices, "add_public_id", unique_with=("tenant_id",))
    run(invoices, "loosen_public_id", unique_with=("tenant_id",), keeps="unique")

    error = refused(invoices, operation)

    assert "there is an index uq_invoice_public_id, which is not on public_id alone" in error
    assert "declare the ids with unique_with=('tenant_id',), rename or drop it" in error
    run(invoices, operation, unique_with=("tenant_id",))


@pytest.mark.parametrize(("before", "after"), [((), ("tenant_id",)), (("tenant_id",), ())])
def test_changed_declaration(project: Project, engine: Engine, before: tuple[str, ...], after: tuple[str, ...]) -> None:
    """If the model becomes unique with a tenant, or alone again, autogenerate replaces the index, and says so."""
    project.migrate(models(*before))
    metadata = models(*after)
    assert project.check(metadata) is not None
    files = project.files(metadata)
    option = ", unique_with=('tenant_id')" if after else ""

    statements = [statement for written in files for statement in upgrade_of(written)]
    assert any("drop_index" in statement for statement in statements[:-1])
    assert statements[-1] == f"op.contract_public_id('invoice'{option})"
    assert "until the new one is built, nothing" in " ".join(files[-1].replace("#", "").split())
    project.upgrade()
    assert indexes(engine) == {"uq_invoice_public_id": ["public_id", *after]}
    assert project.check(metadata) is None
    for _ in files:
        project.downgrade()
    assert indexes(engine) == {"uq_invoice_public_id": ["public_id", *before]}


def test_naming_convention(project: Project, engine: Engine) -> None:
    """The index has the name that the naming convention of the project gives it."""
    metadata = models("tenant_id", convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s"})
    assert "unique_name='ix_invoice_public_id_tenant_id'" in project.migrate(metadata)

    assert list(indexes(engine)) == ["ix_invoice_public_id_tenant_id"]
    assert project.check(metadata) is None


@pytest.mark.backend(names=[("tenant_id", "public_id")], unique=["constraint"])
@pytest.mark.parametrize("names", [*itertools.permutations(("public_id", "tenant_id"))])
@pytest.mark.parametrize("unique", ["constraint", "index"])
def test_unique_by_hand(project: Project, unique: str, names: tuple[str, ...]) -> None:
    """A column that is unique by hand with a tenant, in any order, gets the operation with the tenant, and no other."""
    metadata = MetaData()
    ids = Column("public_id", PublicIdType(NanoId()), default=NanoId().generate, nullable=False)
    table = Table("invoice", metadata, *columns(), ids)
    if unique == "constraint":
        table.append_constraint(UniqueConstraint(*names, name="uq_invoice"))
    else:
        Index("uq_invoice", *(table.c[name] for name in names), unique=True)

    revision = project.migrate(metadata)

    assert "op.add_public_id('invoice', unique_name='uq_invoice', unique_with=('tenant_id',))" in revision
    assert len(upgrade_of(revision)) == 1
    assert project.check(metadata) is None


@on("sqlite")
def test_unique_key_that_allows_duplicates(project: Project) -> None:
    """A unique constraint on the id and a column that may be NULL does not make the ids unique."""
    metadata = MetaData()
    ids = Column("public_id", PublicIdType(NanoId()), default=NanoId().generate, nullable=False)
    Table("invoice", metadata, *columns(), ids, UniqueConstraint("public_id", "note", name="uq_invoice"))

    assert "add_public_id" not in project.revision(metadata)


@on("sqlite")
def test_constraint_of_sqlite(invoices: Engine) -> None:
    """A UNIQUE in the CREATE TABLE of SQLite is recognized, and removed on the way back."""
    with invoices.begin() as connection:
        send(connection, "DROP TABLE invoice")
        both = "CONSTRAINT both UNIQUE (tenant_id COLLATE BINARY, public_id)"
        send(connection, f"CREATE TABLE invoice (id integer PRIMARY KEY, tenant_id NOT NULL, public_id text, {both})")
    options: dict[str, Any] = {"unique_with": ("tenant_id",)}
    run(invoices, "add_public_id", **options)
    assert state_of(invoices).constraint
    run(invoices, "drop_public_id", **options)

    assert indexes(invoices) == {}


@on(*SERVERS)
def test_dry_run_and_script(project: Project, engine: Engine) -> None:
    """The report of a dry run, and the script of the first phase, contain the index and the column."""
    with pytest.raises(DryRun, match=r"UNIQUE INDEX .*uq_invoice_public_id.*\(.?public_id.?, .?tenant_id.?\)"):
        run(engine, "add_public_id", unique_with=("tenant_id",), dry_run=True)
    project.config.attributes["metadata"] = models("tenant_id")
    project.write("op.expand_public_id('invoice', unique_with=('tenant_id',))")
    assert "ADD COLUMN" in project.script()


def test_batch(invoices: Engine) -> None:
    """In ``batch_alter_table``, the operations take the other columns as well."""
    with invoices.connect() as connection, migrating(connection) as op:
        assert isinstance(op, Operations)
        with op.batch_alter_table("invoice") as batch:
            batch.add_public_id(unique_with=("tenant_id",))

    assert state_of(invoices).complete


def test_create_table(new_project: Callable[..., Project], engine: Engine) -> None:
    """A new table gets its index by CREATE TABLE and CREATE INDEX, and no operation."""
    project, metadata = new_project(), models("tenant_id")
    assert "public_id(" not in "".join(upgrade_of(project.migrate(metadata)))

    assert project.check(metadata) is None
    assert indexes(engine) == {"uq_invoice_public_id": ["public_id", "tenant_id"]}


# --- the audit and the command line


def found(engine: Engine, metadata: MetaData | None = None) -> dict[str, str]:
    """Return problem → severity of what an audit finds in the table, but for its default."""
    report = audit.run(engine, tables=["invoice"], models=metadata)
    return {each.problem: each.severity for each in report.findings}


def test_audit(invoices: Engine) -> None:
    """With the model, an audit finds nothing; without it, it says that the ids are unique only with the tenant."""
    run(invoices, "add_public_id", unique_with=("tenant_id",))

    assert found(invoices, models("tenant_id")) == {}
    assert found(invoices) == {"unique-with-others": "warning"}
    assert found(invoices, models()) == {"unique-missing": "error"}


def test_audit_of_a_missing_index(invoices: Engine) -> None:
    """An index that is missing, or on other columns, is an error; the remedy builds it."""
    run(invoices, "add_public_id", unique_with=("tenant_id",))
    run(invoices, "loosen_public_id", unique_with=("tenant_id",), keeps="not null")
    metadata = models("tenant_id")
    assert found(invoices, metadata) == {"unique-missing": "error"}
    with invoices.begin() as connection:
        send(connection, "CREATE UNIQUE INDEX wide ON invoice (public_id, tenant_id, id)")
    assert found(invoices, metadata) == {"unique-missing": "error"}
    assert found(invoices) == {"unique-missing": "error"}
    finding = next(each for each in audit.run(invoices, models=metadata).findings if each.problem == "unique-missing")
    assert "there is no unique index on public_id, tenant_id" in finding.message
    paste(invoices, finding.remedy)
    assert state_of(invoices).valid


def test_audit_of_a_stricter_index(invoices: Engine) -> None:
    """An index that is left from the time when the ids were unique alone refuses what the model allows."""
    run(invoices, "add_public_id", unique_with=("tenant_id",))
    with invoices.begin() as connection:
        send(connection, "CREATE UNIQUE INDEX alone ON invoice (public_id)")

    (finding,) = audit.run(invoices, models=models("tenant_id")).findings
    assert finding.message == "the unique index alone refuses equal ids of rows that differ in tenant_id; drop it"


def test_command_line(invoices: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command takes ``--unique-with``, also several times; what cannot be is refused."""
    monkeypatch.setenv("DATABASE_URL", invoices.url.render_as_string(hide_password=False))
    with invoices.begin() as connection:
        send(connection, "ALTER TABLE invoice ADD COLUMN shop_id integer DEFAULT 1 NOT NULL")
    both = ["--unique-with", "tenant_id", "--unique-with", "shop_id"]

    assert "uq_invoice_public_id" in command("plan", "invoice", *both).stdout
    for operation in (["expand"], ["backfill"], ["contract"], ["loosen"], ["add"], ["add"]):
        done = command(*operation, "invoice", *both)
        assert done.exit_code == 0, done.output
    assert [set(names) for names in indexes(invoices).values()] == [{"public_id", "tenant_id", "shop_id"}]
    assert command("drop", "invoice", "--yes", *both).exit_code == 0
    refused = command("add", "invoice", "--unique-with", "nowhere")
    assert refused.exit_code == 1
    assert "invoice has no column nowhere" in refused.stderr


@pytest.mark.parametrize("names", ["tenant_id", (5,), 5, {"tenant_id"}, ("public_id",), ("tenant_id", "tenant_id")])
def test_wrong_names(names: Any) -> None:
    """A string, what is no sequence of names, the id itself and a repetition are refused where they are written."""
    with pytest.raises(ConfigurationError, match="unique_with is "):
        AddPublicIdOp("invoice", unique_with=names)
    with pytest.raises(ConfigurationError, match="unique_with"):
        models(*names) if isinstance(names, tuple) else public_id_column(unique_with=names)
