"""What autogenerate detects, what it renders, and that ``alembic check`` is clean after the migration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import alembic
import pytest
from sqlalchemy import (
    Column,
    Engine,
    FetchedValue,
    ForeignKey,
    Index,
    MetaData,
    String,
    UniqueConstraint,
    exc,
    inspect,
    text,
)
from support.marks import on
from support.projects import Project, downgrade_of, upgrade_of
from support.shops import new_shop, old_shop, shop

from sqlalchemy_public_id import NanoId, ObjectId, PublicIdType, Snowflake, TypedId, Uuid4, Uuid7
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.formats import Format

pytestmark = pytest.mark.backend

FORMAT = NanoId()


def with_column(column: Column[Any], *more: Any) -> MetaData:
    """Return the shop, with *column* added to its table of customers."""
    metadata = old_shop()
    metadata.tables["customer"].append_column(column)
    for each in more:
        metadata.tables["customer"].append_constraint(each)
    return metadata


# --- a model gains a public id


def test_gained(project: Project) -> None:
    """A model that gains a public id yields one operation, with downgrade and imports; ``alembic check`` reports it."""
    format = NanoId(prefix="cus")
    assert str(project.check(shop(format))).endswith("[('add_public_id', None, 'customer', 'public_id')]")
    written = project.revision(shop(format))

    assert upgrade_of(written) == ["op.add_public_id('customer', format=NanoId(prefix='cus'))"]
    assert downgrade_of(written) == ["op.drop_public_id('customer')"]
    assert "from sqlalchemy_public_id import NanoId\n" in written
    # this import adds the methods to op on Alembic before 1.18
    assert ("import sqlalchemy_public_id.alembic  # noqa: F401\n" in written) == (alembic.__version__ < "1.18")


@on("sqlite", "mysql", "mariadb")
def test_column_in_other_letters(project: Project) -> None:
    """A column that differs only in case is refused: no revision drops it and adds another one."""
    project.execute("ALTER TABLE customer ADD COLUMN Public_ID varchar(12)")

    with pytest.raises(MigrationRefused, match="customer has the column Public_ID, which the database does not tell"):
        project.revision(shop(FORMAT))


@on("sqlite")
def test_typed_id_is_written_as_its_format(project: Project) -> None:
    """A typed id is rendered as its format, because the class may be gone when the migration runs."""

    class ShopCustomerId(TypedId, prefix="shopcus"): ...

    assert upgrade_of(project.revision(shop(ShopCustomerId))) == [
        "op.add_public_id('customer', format=NanoId(prefix='shopcus'))"
    ]


@on("sqlite")
@pytest.mark.parametrize(
    ("columns", "unique"), [(["public_id"], False), (["public_id", "name"], False), (["public_id", "name"], True)]
)
def test_other_indexes_stay(project: Project, columns: list[str], unique: bool) -> None:
    """Another index on the column is created beside the unique index, which is part of the operation."""
    metadata = shop()
    Index("one_more", *(metadata.tables["customer"].c[name] for name in columns), unique=unique)

    written = [line for each in project.files(metadata) for line in upgrade_of(each)]

    assert "op.add_public_id('customer')" in written
    assert [line for line in written if "op.create_index('one_more'" in line]


@on("sqlite")
def test_ordinary_column(project: Project) -> None:
    """A nullable column, or one that is not unique in all rows, is treated as an ordinary column."""
    nullable = Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, unique=True, nullable=True)
    common = Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, nullable=False)
    partly = Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, nullable=False)
    some = with_column(partly)
    Index("uq_some", partly, unique=True, sqlite_where=text("id > 5"))

    found = [str(project.check(metadata)) for metadata in (with_column(nullable), with_column(common), some)]
    assert [differences for differences in found if "'add_column'" not in differences] == []


@on("sqlite")
def test_reference_by_public_id(project: Project) -> None:
    """A column that refers to the public id of another row is treated as an ordinary column."""
    metadata = shop()
    key = ForeignKey("customer.public_id", name="fk_friend")
    column = Column("friend", PublicIdType(FORMAT), key, nullable=False)
    metadata.tables["order"].append_column(column)
    metadata.tables["order"].append_constraint(UniqueConstraint("friend", name="uq_friend"))
    ours, after = project.files(metadata)

    assert upgrade_of(ours) == ["op.add_public_id('customer')"]
    assert sum("op.add_column('order'" in statement for statement in upgrade_of(after)) == 1


@on("sqlite")
def test_default_of_the_user(project: Project) -> None:
    """A column whose model declares its own server default is left to Alembic."""
    column = Column("public_id", PublicIdType(FORMAT), server_default=text("'x'"), unique=True, nullable=False)

    assert "'add_column'" in str(project.check(with_column(column)))


@on("postgresql")
def test_column_with_its_name_in_capitals(project: Project) -> None:
    """PostgreSQL tells such a column from the one of the model, so that the ids are added beside it."""
    project.execute('ALTER TABLE customer ADD COLUMN "PUBLIC_ID" VARCHAR(12)')

    assert "op.add_public_id('customer')" in project.migrate(shop())


@on("sqlite")
def test_filters_of_the_user(project: Project) -> None:
    """Columns that ``include_object`` excludes are left out."""
    project.configure("include_object=lambda object, name, *rest: 'public_id' not in name,")
    assert project.check(shop()) is None

    project.execute("ALTER TABLE customer ADD COLUMN public_id VARCHAR(12)")
    assert project.check(shop()) is None


@on("sqlite")
def test_filter_of_what_no_model_has(project: Project) -> None:
    """An ``include_object`` that leaves out what only the database has leaves out no column of a model."""
    project.configure("include_object=lambda object, name, kind, reflected, other: not reflected,")
    project.execute("ALTER TABLE customer ADD COLUMN public_id VARCHAR(12)")

    assert upgrade_of(project.migrate(shop())) == ["op.add_public_id('customer')"]


@on("sqlite", "postgresql")
def test_column_that_becomes_nullable(project: Project) -> None:
    """If a model allows NULL in a column of ids that refuses it, Alembic changes that, as in any column."""
    project.migrate(shop())
    nullable = Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, unique=True, nullable=True)

    assert "'modify_nullable', None, 'customer', 'public_id'" in str(project.differences(with_column(nullable)))


@on("postgresql")
def test_column_that_cannot_be_completed(project: Project) -> None:
    """An unfinished column of a partitioned table, whose ids cannot be unique there, is refused before a revision."""
    project.execute('DROP TABLE "order", customer')
    project.execute(
        "CREATE TABLE customer (id bigint NOT NULL, name varchar(50), public_id varchar(12)) PARTITION BY LIST (id)"
    )

    with pytest.raises(MigrationRefused, match=r"customer\.public_id: 1 obstacle.*\n- customer is partitioned"):
        project.revision(shop())


# --- there and back

SHOPS: dict[str, Callable[[], MetaData]] = {
    "index": shop,
    "name": lambda: shop(name="slug"),
    "unnamed constraint": lambda: with_column(
        Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, unique=True, nullable=False)
    ),
    "named constraint": lambda: with_column(
        Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, nullable=False),
        UniqueConstraint("public_id", name="one_customer"),
    ),
    "database default": lambda: shop(server_default=FetchedValue()),
    "uuid": lambda: shop(Uuid7(prefix="cus")),
    "uuid as text": lambda: shop(Uuid4(encoding="hyphenated", storage="text")),
    "object id": lambda: shop(ObjectId()),
    "snowflake": lambda: shop(Snowflake(machine_id=1)),
}
"""Ways to declare the public id of a customer."""
DIFFERENT_SQL = ["index", "named constraint", "database default", "uuid", "object id", "snowflake"]


@pytest.mark.backend(declared=DIFFERENT_SQL)
@pytest.mark.parametrize("declared", SHOPS)
def test_there_and_back(project: Project, declared: str) -> None:
    """``alembic check`` is clean right after the upgrade, after the downgrade, and after another upgrade."""
    project.configure("compare_server_default=True,")
    wanted = SHOPS[declared]
    project.migrate(wanted())
    assert project.check(wanted()) is None

    project.downgrade()
    assert project.differences(old_shop()) == []

    project.upgrade()
    assert project.check(wanted()) is None


@pytest.mark.parametrize("format", [Snowflake(machine_id=1), Uuid7()], ids=repr)
def test_formats_that_the_database_cannot_make(project: Project, engine: Engine, format: Format) -> None:
    """If the database cannot generate the ids, the migration has ``server_default='none'``, and runs."""
    none = ", server_default='none'" if engine.name == "sqlite" or isinstance(format, Snowflake) else ""

    assert upgrade_of(project.migrate(shop(format))) == [f"op.add_public_id('customer', format={format!r}{none})"]


def test_created_tables_there_and_back(new_project: Callable[..., Project]) -> None:
    """New tables with public ids are created with plain types of SQLAlchemy, and ``alembic check`` is clean."""
    project = new_project()
    project.configure("compare_server_default=True,")
    written = project.migrate(new_shop())
    assert project.check(new_shop()) is None
    assert "sqlalchemy_public_id" not in written.partition("Create Date")[2]

    project.downgrade("base")
    project.upgrade()
    assert project.check(new_shop()) is None


# --- half done


def half_done(project: Project, engine: Engine, *, collated: bool = True, null: bool = True) -> None:
    """Let the customers have a column of public ids that somebody has begun to add."""
    type_ = (traits_for(engine.dialect).text_type(12) if collated else String(12)).compile(engine.dialect)
    if engine.name in {"mysql", "mariadb"} and not collated:
        type_ += " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    if engine.name == "sqlite" and not null:  # a column added as NOT NULL needs a default there, even in an empty table
        project.execute("DROP TABLE customer")
        project.execute(
            f"CREATE TABLE customer (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(50), public_id {type_} NOT NULL)"
        )
        project.execute("INSERT INTO customer VALUES (1, 'Ada', 'izkpm55j334u')")
        return
    project.execute(f"ALTER TABLE customer ADD COLUMN public_id {type_}")
    if not null:
        project.execute("UPDATE customer SET public_id = CONCAT('izkpm55j334', id)")
        if engine.name == "postgresql":
            project.execute("ALTER TABLE customer ALTER COLUMN public_id SET NOT NULL")
        else:
            project.execute(f"ALTER TABLE customer MODIFY COLUMN public_id {type_} NOT NULL")


INDEX = "CREATE UNIQUE INDEX uq_customer_public_id ON customer (public_id)"


@pytest.mark.parametrize(("index", "keeps"), [("SELECT 1", ""), (INDEX, "keeps='unique', ")], ids=["no index", "index"])
def test_column_that_may_be_null(project: Project, engine: Engine, index: str, keeps: str) -> None:
    """A nullable column is completed, with or without its index; the downgrade restores what was there."""
    half_done(project, engine)
    project.execute(index)
    written = project.migrate(shop())

    assert upgrade_of(written) == ["op.add_public_id('customer')"]
    assert downgrade_of(written) == [f"op.loosen_public_id('customer', {keeps}server_default='none')"]
    assert project.check(shop()) is None

    project.downgrade()
    assert "public_id" in {column["name"] for column in inspect(engine).get_columns("customer")}
    project.upgrade()
    assert project.check(shop()) is None


def test_only_the_index_is_missing(project: Project, engine: Engine) -> None:
    """A column that is NOT NULL, but not unique, is only contracted."""
    half_done(project, engine, null=False)
    written = project.migrate(shop())

    assert upgrade_of(written) == ["op.contract_public_id('customer')"]
    assert downgrade_of(written) == ["op.loosen_public_id('customer', keeps='not null', server_default='none')"]
    assert project.check(shop()) is None


@on("postgresql")
def test_invalid_index(project: Project, engine: Engine) -> None:
    """An INVALID index, which a failed build left behind and Alembic takes for a valid one, is built again."""
    half_done(project, engine, null=False)
    project.execute("UPDATE customer SET public_id = 'izkpm55j334u'")
    with pytest.raises(exc.IntegrityError), engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(
            text(INDEX.replace("INDEX", "INDEX CONCURRENTLY"))
        )
    project.execute("UPDATE customer SET public_id = 'izkpm55j334' || id")
    written = project.migrate(shop())

    assert upgrade_of(written) == ["op.contract_public_id('customer')"]
    assert project.check(shop()) is None


@on("mysql", "mariadb")
@pytest.mark.parametrize("null", [True, False], ids=["may be NULL", "NOT NULL"])
def test_collation(project: Project, engine: Engine, null: bool) -> None:
    """A collation that treats different ids as equal is changed, as the revision shows; the downgrade restores it."""
    half_done(project, engine, collated=False, null=null)
    project.execute(INDEX)
    written = project.migrate(shop())

    assert upgrade_of(written) == [f"op.{'add' if null else 'contract'}_public_id('customer', collation='bytes')"]
    assert "collation='utf8mb4_general_ci'" in downgrade_of(written)[0]
    assert project.check(shop()) is None


@pytest.mark.parametrize("default", ["missing", "there"])
def test_default_that_the_model_wants(project: Project, default: str) -> None:
    """A missing server default is a difference only if the model declares one; the migration adds it."""
    project.write(f"op.add_public_id('customer', server_default='{'drop' if default == 'missing' else 'keep'}')")
    project.upgrade()
    assert project.check(shop()) is None

    wanted = shop(server_default=FetchedValue())
    assert (project.check(wanted) is None) == (default == "there")
    project.migrate(wanted)
    assert project.check(wanted) is None
    project.execute("INSERT INTO customer (name) VALUES ('Ada')")


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("change", ["comment", "length"])
def test_changed_column_keeps_its_default(project: Project, change: str) -> None:
    """Alembic's change of a column of public ids keeps the server default, there and back, by which others insert."""
    project.configure("compare_type=True,")
    project.migrate(shop(FORMAT))
    changed = shop(FORMAT if change == "comment" else NanoId(length=20).accepting(FORMAT))
    changed.tables["customer"].c.public_id.comment = "it's 100 %" if change == "comment" else None

    project.migrate(changed)
    assert project.check(changed) is None
    project.execute("INSERT INTO customer (name) VALUES ('Ada')")
    project.downgrade()
    project.execute("INSERT INTO customer (name) VALUES ('Grace')")


@on("mysql", "mariadb")
def test_changed_column_keeps_a_constant_default(project: Project, engine: Engine) -> None:
    """Alembic's change of a column of public ids keeps a text that is its server default, whatever stands in it."""
    project.configure("compare_type=True,")
    project.migrate(shop(FORMAT))
    project.execute("ALTER TABLE customer ALTER public_id SET DEFAULT '%s:it''s'")
    changed = shop(FORMAT)
    changed.tables["customer"].c.public_id.comment = "shown in URLs"
    for step in (lambda: project.migrate(changed), project.downgrade):
        step()
        with engine.connect() as connection:
            assert "DEFAULT '%s:it''s'" in connection.exec_driver_sql("SHOW CREATE TABLE customer").one()[1]


@on("mysql", "mariadb")
@pytest.mark.parametrize("phase", ["expand", "add"])
def test_changed_column_stays_hidden(project: Project, engine: Engine, phase: str) -> None:
    """Alembic's change of a column of public ids leaves it hidden from INSERTs without a list of columns."""
    default = "none" if phase == "expand" else "keep"
    options = f"server_default='{default}', invisible=True, stored_code='ignore'"
    project.write(f"op.{phase}_public_id('customer', {options})")
    project.upgrade()
    extra = "SELECT extra FROM information_schema.columns WHERE table_schema = DATABASE() AND column_name = 'public_id'"

    def is_hidden() -> bool:
        with engine.connect() as connection:
            return "INVISIBLE" in str(connection.exec_driver_sql(extra).scalar_one())

    assert is_hidden()
    changed = shop(FORMAT)
    changed.tables["customer"].c.public_id.comment = "shown in URLs"
    changed.tables["customer"].c.public_id.nullable = phase == "expand"
    project.migrate(changed)
    assert is_hidden()
    project.downgrade()
    assert is_hidden()


@on("sqlite", "postgresql")
def test_case_that_is_ignored(project: Project) -> None:
    """A format that begins to ignore case changes neither the column nor its server default."""
    project.configure("compare_type=True, compare_server_default=True,")
    project.migrate(shop(FORMAT))
    assert project.check(shop(NanoId(ignore_case=True))) is None


@on("sqlite")
def test_other_length(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """A column that is too short is altered by Alembic first, and then completed; that is no rewrite to warn of."""
    project.configure("compare_type=True,")
    project.execute("ALTER TABLE customer ADD COLUMN public_id VARCHAR(8)")
    others, ours = project.files(shop())

    assert upgrade_of(others)[0].startswith("op.alter_column('customer', 'public_id', ")
    assert "nullable=False" not in others
    assert upgrade_of(ours) == ["op.add_public_id('customer')"]
    assert "may rewrite the table" not in caplog.text


@on("sqlite")
def test_column_of_another_key(project: Project) -> None:
    """A column whose ``key`` differs from its name is altered by Alembic as usual, beside the public id."""
    project.configure("compare_type=True,")
    project.execute("ALTER TABLE customer ADD COLUMN town VARCHAR(50)")
    metadata = shop()
    metadata.tables["customer"].append_column(Column("town", String(99), key="city"))
    others, ours = project.files(metadata)

    assert "existing_type=sa.VARCHAR(length=50)" in others
    assert upgrade_of(ours) == ["op.add_public_id('customer')"]


@on("postgresql")
def test_schema(project: Project) -> None:
    """A table in another schema is found there, and not confused with its namesake in the default schema."""

    def wanted() -> MetaData:
        metadata = old_shop()
        shop().tables["customer"].to_metadata(metadata, schema="attic")
        return metadata

    project.configure("include_schemas=True,")
    project.execute("DROP SCHEMA IF EXISTS attic CASCADE")
    project.execute("CREATE SCHEMA attic")
    project.execute(
        "CREATE TABLE attic.customer (id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name VARCHAR(50))"
    )
    written = project.migrate(wanted())

    assert upgrade_of(written) == ["op.add_public_id('customer', schema='attic')"]
    assert project.check(wanted()) is None
    project.execute("DROP SCHEMA attic CASCADE")


def test_comment_is_kept(project: Project, engine: Engine) -> None:
    """The comment of a column is rendered with the operation, and is no difference afterwards."""
    metadata = shop()
    metadata.tables["customer"].c.public_id.comment = "shown in URLs, it's"
    written = project.migrate(metadata)

    assert 'comment="shown in URLs, it\'s"' in written
    assert project.check(metadata) is None


@on("sqlite")
def test_second_unique_index(project: Project) -> None:
    """A unique index that the model lacks, beside that of a complete column, is dropped by Alembic as usual."""
    project.write("op.add_public_id('customer')")
    project.upgrade()
    project.execute("CREATE UNIQUE INDEX extra ON customer (public_id)")

    written = upgrade_of(project.revision(shop()))

    assert [line.replace("op.f('extra')", "'extra'").partition(",")[0] for line in written] == ["op.drop_index('extra'"]


def test_names_of_a_convention(project: Project) -> None:
    """The migration passes the name that a naming convention gives the constraint, and ``alembic check`` is clean."""

    def wanted() -> MetaData:
        metadata = old_shop()
        metadata.naming_convention = {"uq": "only_one_%(table_name)s_%(column_0_name)s"}
        column = Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, unique=True, nullable=False)
        metadata.tables["customer"].append_column(column)
        return metadata

    statements = upgrade_of(project.migrate(wanted()))

    assert statements == ["op.add_public_id('customer', unique_name='only_one_customer_public_id')"]
    assert project.check(wanted()) is None
