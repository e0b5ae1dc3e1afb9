"""What an operation takes from the models: format, type, unique columns and the name of the index, without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Index, Integer, MetaData, Table, Text, UniqueConstraint, text
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.schema import conv

from sqlalchemy_public_id import NanoId, PublicIdType, Snowflake, Uuid4, public_id_column
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.from_models import (
    format_in_models,
    has_own_default,
    name_in_models,
    others_in_models,
    read_declared,
    sql_type_in_models,
    tables_in_models,
)

FORMAT = NanoId(prefix="inv")
CONVENTION = {"ix": "ix_%(table_name)s_%(column_0_N_name)s", "uq": "uq_%(column_0_N_name)s_of_%(table_name)s"}


def dialect(name: str = "sqlite") -> Dialect:
    made: Dialect = make_url(f"{name}://").get_dialect()()
    return made


def ids(format: Format = FORMAT, name: str = "public_id", **options: Any) -> Column[Any]:
    """Return the column of a model as the library declares it."""
    column = public_id_column(format, **options).column
    column.name = column.key = name
    return column


def by_hand(name: str = "public_id", **options: Any) -> Column[Any]:
    """Return a column of public ids that is declared by its type alone."""
    column: Column[Any] = Column(name, PublicIdType(FORMAT), nullable=False, default=FORMAT.generate, **options)
    return column


def invoices(*items: Any, metadata: MetaData | None = None, schema: str | None = None, tenant: bool = False) -> Table:
    """Return a model of invoices with an integer key and a tenant, which may be NULL."""
    key, of = Column("id", Integer, primary_key=True), Column("tenant_id", Integer, nullable=tenant)
    return Table("invoice", MetaData() if metadata is None else metadata, key, of, *items, schema=schema)


def declared(table: Table, name: str = "sqlite") -> PublicIdColumn:
    found = read_declared(table.columns["public_id"], dialect(name))
    assert found is not None
    return found


# --- what autogenerate reads


def test_whole_declaration() -> None:
    """Everything that a model declares about the column is read from it."""
    column = ids(NanoId(length=8), sql_type="TEXT")
    column.comment = "shown to customers"
    table = invoices(column, UniqueConstraint("public_id", name="of_ids"), schema="shop")

    assert declared(table) == PublicIdColumn(
        "invoice",
        "public_id",
        NanoId(length=8),
        schema="shop",
        unique_name="uq_invoice_public_id",
        sql_type="TEXT",
        server_default="keep",
        comment="shown to customers",
    )


@pytest.mark.parametrize(
    ("format", "database", "default"),
    [
        (NanoId(), "sqlite", "keep"),
        (NanoId(check_digit=True), "sqlite", "none"),
        (Snowflake(machine_id=1), "postgresql", "none"),
        (Uuid4(), "postgresql", "keep"),
        (NanoId(alphabet="ab\\"), "mysql", "none"),
    ],
    ids=str,
)
def test_server_default(format: Format, database: str, default: str) -> None:
    """The database generates ids if it can, and if the model does not declare a default of its own."""
    column = ids(format)
    assert declared(invoices(column), database).server_default == default
    assert not has_own_default(column)
    own = ids(format)
    own.server_default = None
    table = invoices(Column("public_id", own.type, unique=True, nullable=False, server_default=text("'x'")))
    assert has_own_default(table.columns["public_id"])
    assert declared(table, database).server_default == "none"


def test_column_that_is_not_unique() -> None:
    """A column that the model does not declare unique is left to Alembic."""
    assert read_declared(invoices(by_hand()).columns["public_id"], dialect()) is None
    partial = Index("one", "public_id", unique=True, sqlite_where=text("id > 1"))
    assert read_declared(invoices(by_hand(), partial).columns["public_id"], dialect()) is None


OTHERS: dict[str, tuple[Callable[[], list[Any]], bool, tuple[str, ...] | None]] = {
    "alone": (lambda: [by_hand(unique=True)], False, ()),
    "by the library": (lambda: [ids(unique_with=("tenant_id",))], False, ("tenant_id",)),
    "by hand": (lambda: [by_hand(), UniqueConstraint("tenant_id", "public_id")], False, ("tenant_id",)),
    "by an index": (lambda: [by_hand(), Index("of", "tenant_id", "public_id", unique=True)], False, ("tenant_id",)),
    "by hand, may be NULL": (lambda: [by_hand(), UniqueConstraint("tenant_id", "public_id")], True, None),
    "with the key": (lambda: [by_hand(), UniqueConstraint("id", "public_id")], False, None),
    "with the key and others": (lambda: [by_hand(), UniqueConstraint("tenant_id", "id", "public_id")], False, None),
}


@pytest.mark.parametrize("case", OTHERS)
def test_unique_with(case: str) -> None:
    """A unique key by hand counts if its other columns forbid NULL, and are not the primary key."""
    items, tenant, others = OTHERS[case]
    table = invoices(*items(), tenant=tenant)
    found = read_declared(table.columns["public_id"], dialect())

    assert (None if found is None else found.unique_with) == others
    assert others_in_models(table.metadata, PublicIdColumn.of("invoice")) == (others or ())


def test_part_of_a_composite_key() -> None:
    """A unique key with a part of a composite primary key counts, because this part does not identify a row."""
    table = Table(
        "invoice",
        MetaData(),
        Column("tenant_id", Integer, primary_key=True),
        Column("number", Integer, primary_key=True),
        by_hand(),
        UniqueConstraint("tenant_id", "public_id"),
    )
    assert declared(table).unique_with == ("tenant_id",)


# --- what an operation that is written by hand takes


def test_table_of_the_models() -> None:
    """An operation takes format, type and unique columns of the table and column that it names, and nothing else."""
    metadata, other = MetaData(), MetaData()
    invoices(ids(sql_type="TEXT", unique_with=("tenant_id",)), metadata=metadata)
    Table("note", other, Column("id", Integer, primary_key=True), Column("public_id", Text))
    for models in (metadata, [other, metadata], (metadata, other)):
        target = PublicIdColumn.of("invoice")
        assert format_in_models(models, target) == FORMAT
        assert sql_type_in_models(models, target) == "TEXT"
        assert others_in_models(models, target) == ("tenant_id",)
        for missing in (PublicIdColumn.of("note"), PublicIdColumn.of("order"), PublicIdColumn.of("invoice", "number")):
            assert format_in_models(models, missing) is None
            assert sql_type_in_models(models, missing) is None
            assert others_in_models(models, missing) is None
    assert format_in_models(None, PublicIdColumn.of("invoice")) is None
    assert sql_type_in_models(metadata, PublicIdColumn.of("invoice", format=Uuid4())) is None  # its ids are numbers


def test_schemas() -> None:
    """A table is taken from its own schema; models without that schema are translated to it, as for tenants."""
    metadata = MetaData()
    plain, shop = invoices(ids(), metadata=metadata), invoices(ids(), metadata=metadata, schema="shop")
    without = invoices(ids())

    assert tables_in_models(metadata, "invoice", "shop") == [shop]
    assert tables_in_models(metadata, "invoice", None) == [plain]
    assert tables_in_models(metadata, "invoice", "tenant_5") == [plain]
    assert tables_in_models([without.metadata, metadata], "invoice", "shop") == [without, shop]
    assert tables_in_models(metadata, "note", "shop") == []
    Table("note", metadata, Column("id", Integer), schema="other")
    assert tables_in_models(metadata, "invoice", "other") == []  # this schema is declared, without the table
    assert tables_in_models(None, "invoice", None) == []


# --- the name of the unique index


@pytest.mark.parametrize("others", [(), ("tenant_id",)])
@pytest.mark.parametrize("convention", [None, CONVENTION, {"ix": "%(table_name)s_idx"}, {"uq": "key_%(table_name)s"}])
def test_name_by_convention(convention: dict[str, str] | None, others: tuple[str, ...]) -> None:
    """A table that the models have no more gets the name that the index of a model would have."""
    metadata = MetaData(naming_convention=convention)
    target = PublicIdColumn.of("invoice", unique_with=others)
    before = name_in_models(metadata, target, dialect())
    invoices(ids(unique_with=others), metadata=metadata)

    assert before == name_in_models(metadata, target, dialect())
    assert before == declared(metadata.tables["invoice"]).unique_name
    if not (convention or {}).get("ix"):
        assert before == "uq_invoice_public_id"
    assert name_in_models([metadata, MetaData()], target, dialect()) == before
    assert name_in_models(None, target, dialect()) is None


def test_several_models_without_the_table() -> None:
    """If none of several models has the table, no convention applies, because it is not known which one would."""
    target, one = PublicIdColumn.of("invoice"), MetaData(naming_convention=CONVENTION)

    assert name_in_models([one], target, dialect()) == "ix_invoice_public_id"
    assert name_in_models([one, MetaData()], target, dialect()) is None


def test_name_of_several() -> None:
    """Of several unique indexes of the column, the one with a name by convention or by the library counts, or else the
    first one in the order of their names.
    """
    target, name = PublicIdColumn.of("invoice"), "uq_invoice_public_id"

    def named(*names: str) -> str | None:
        for each in (names, names[::-1]):
            indexes = [Index(one, "public_id", unique=True) for one in each[:1]]
            constraints = [UniqueConstraint("public_id", name=one) for one in each[1:]]
            table = invoices(by_hand(), *indexes, *constraints)
            found.add(name_in_models(table.metadata, target, dialect()))
        return found.pop() if len(found) == 1 else f"it depends: {found}"

    found: set[str | None] = set()
    assert named("a", name) == name
    assert named("a", conv("z_of_the_convention")) == "z_of_the_convention"
    assert named("b", "a") == "a"


@pytest.mark.parametrize("kind", ["index", "constraint"])
def test_name_that_is_too_long(kind: str) -> None:
    """A name that a convention has made is cut as SQLAlchemy cuts it; one that is written by hand is not."""
    convention: Any = {"ix": f"ix_{'long_' * 20}%(table_name)s", "uq": f"uq_{'long_' * 20}%(table_name)s"}
    metadata = MetaData(naming_convention=convention)
    unique: Any = Index(None, "public_id", unique=True) if kind == "index" else UniqueConstraint("public_id")
    invoices(by_hand(), unique, metadata=metadata)
    target, lengths = PublicIdColumn.of("invoice"), {"postgresql": 63, "mysql": 64}

    for database, length in lengths.items():
        name = name_in_models(metadata, target, dialect(database))
        assert name is not None
        assert len(name) <= length
        assert name.startswith("ix_long_" if kind == "index" else "uq_long_")
    own = invoices(by_hand(), UniqueConstraint("public_id", name="x" * 100))
    assert name_in_models(own.metadata, target, dialect("postgresql")) == "x" * 100
