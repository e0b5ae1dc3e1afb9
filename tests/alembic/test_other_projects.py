"""In a project without public ids, autogenerate does the same with the library as without it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations.ops import (
    DowngradeOps,
    DropColumnOp,
    MigrationScript,
    ModifyTableOps,
    UpgradeOps,
)
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    event,
    text,
)
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdType
from sqlalchemy_public_id.alembic.compare import PLUGIN as NAME
from sqlalchemy_public_id.alembic.ops import AddPublicIdOp
from sqlalchemy_public_id.alembic.revisions import three_revisions, three_revisions_after

pytestmark = pytest.mark.backend

WITHOUT = ["alembic.autogenerate.*", f"~{NAME}"]
NAMES = ["plain", 'Weird "q" t', "a.b", "per%cent", "co:lon", "UPPER", "br{a}ce", "back\\slash"]


@pytest.fixture
def database_of(engine: Engine, new_engine: Callable[..., Engine], database: str) -> Iterator[Callable[..., None]]:
    """Return a function that creates tables in an empty database; they are dropped after the test."""
    made: list[MetaData] = []

    def make(metadata: MetaData) -> None:
        metadata.create_all(engine)
        made.append(metadata)

    yield make
    for metadata in made:
        metadata.drop_all(engine)


def compare(engine: Engine, metadata: MetaData, **options: Any) -> tuple[list[str], str, str, str]:
    """Return the statements that autogenerate sends, the differences it finds, and the code of both directions."""
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", note)
        context = MigrationContext.configure(connection, opts={"compare_server_default": True, **options})
        found = re.sub(r" at 0x\w+", "", repr(compare_metadata(context, metadata)))
        script = produce_migrations(context, metadata)
        assert script.upgrade_ops is not None
        assert script.downgrade_ops is not None
        return sent, found, render_python_code(script.upgrade_ops), render_python_code(script.downgrade_ops)


def assert_same(engine: Engine, metadata: MetaData, **options: Any) -> str:
    """Assert that statements, differences and code are equal without the library; return the differences."""
    compare(engine, metadata)  # a first run, because a dialect looks some things up only once
    without = compare(engine, metadata, autogenerate_plugins=WITHOUT, **options)
    with_it = compare(engine, metadata, **options)

    assert with_it == without
    return with_it[1]


def key(**options: Any) -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, **options)


def test_dropped_tables(engine: Engine, database_of: Callable[..., None]) -> None:
    """A table that is dropped costs no additional statement."""
    metadata = MetaData()
    for name in NAMES:
        Table(name, metadata, key())
    database_of(metadata)

    assert assert_same(engine, MetaData()).count("remove_table") == len(NAMES)


@on("postgresql")
def test_dropped_tables_of_a_schema(engine: Engine, database_of: Callable[..., None]) -> None:
    """A table that is dropped from another schema costs no additional statement."""
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA IF NOT EXISTS "other "" %{x}"'))
    metadata = MetaData(schema='other " %{x}')
    Table("plain", metadata, key(server_default=text("floor(random() * 1000)")))
    database_of(metadata)

    assert "remove_table" in assert_same(engine, MetaData(), include_schemas=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [((), (Identity(),)), ((Identity(),), ()), ((Identity(),), (Identity(start=5),))],
    ids=["gained", "lost", "changed"],
)
def test_identity(
    engine: Engine, database_of: Callable[..., None], before: tuple[Any, ...], after: tuple[Any, ...]
) -> None:
    """A changed IDENTITY is found exactly when it is found without the library."""
    in_database, in_model = MetaData(), MetaData()
    Table("counted", in_database, Column("id", Integer, *before, primary_key=True))
    Table("counted", in_model, Column("id", Integer, *after, primary_key=True))
    database_of(in_database)

    assert_same(engine, in_model)


def test_everything_else(engine: Engine, database_of: Callable[..., None]) -> None:
    """Columns, comments, indexes, constraints, defaults and types are compared as they are without the library."""
    before, after = MetaData(), MetaData()
    Table("parent", before, key(comment="before"), Column("code", String(12), server_default="x"), comment="old")
    Table(
        "child",
        before,
        key(),
        Column("public_id", String(12), nullable=True),
        Column("gone", String(5)),
        Column("parent_id", BigInteger, ForeignKey("parent.id", name="fk_parent")),
        Index("ix_gone", "gone"),
    )
    Table("cluster_config", before, key(), Column("cluster", Integer))
    Table("cluster_sequence_child", before, key(), Column("number", Integer))
    Table("parent", after, key(comment="after"), Column("code", String(20), server_default="y"), comment="new")
    Table(
        "child",
        after,
        key(),
        Column("public_id", String(12), nullable=False),
        Column("parent_id", BigInteger),
        UniqueConstraint("public_id", name="uq_child"),
    )
    Table("more", after, key(), Column("public_id", String(12), index=True, unique=True))
    database_of(before)

    assert "modify_nullable" in assert_same(engine, after)
    assert "cluster_config" not in assert_same(engine, after, include_object=_includes)


def _includes(item: Any, name: str | None, kind: str, reflected: bool, other: Any) -> bool:
    return kind != "table" or not str(name).startswith("cluster")


# --- process_revision_directives


def script_of(*upgrades: Any, down: list[Any]) -> MigrationScript:
    return MigrationScript("1", UpgradeOps(list(upgrades)), DowngradeOps(down), message="m")


@on("sqlite")
def test_revisions_of_others_stay(engine: Engine) -> None:
    """``three_revisions`` leaves a script without public ids unchanged, including an empty operation."""
    empty = ModifyTableOps("plain", [])
    script = script_of(empty, down=[empty])
    directives = [script]

    three_revisions(None, None, directives)

    assert directives == [script]
    assert script.upgrade_ops is not None
    assert script.upgrade_ops.ops == [empty]


@on("sqlite")
def test_changed_downgrade_stays(engine: Engine) -> None:
    """Operations that a project's own hook has put into the downgrade stay when the revision is split."""
    drop = DropColumnOp("parcel", "weight")
    adding = AddPublicIdOp("parcel")

    def own(context: Any, revision: Any, directives: list[MigrationScript]) -> None:
        assert directives[0].downgrade_ops is not None
        directives[0].downgrade_ops.ops[:0] = [drop]

    upgrade = ModifyTableOps("parcel", [adding])
    directives = [script_of(upgrade, down=[ModifyTableOps("parcel", [adding.reverse()])])]
    three_revisions_after(own)(None, None, directives)

    assert directives[0].downgrade_ops is not None
    assert directives[0].downgrade_ops.ops == [drop]
    assert [each.message for each in directives] == ["m", "m: expand", "m: backfill", "m: contract"]


@on("sqlite")
def test_type_of_a_reference(engine: Engine, database_of: Callable[..., None]) -> None:
    """A column of public ids without a default is compared as it would be without the library."""
    before, after = MetaData(), MetaData()
    Table("plain", before, key(), Column("other", String(12), server_default="x"))
    Table("plain", after, key(), Column("other", PublicIdType(NanoId())))
    database_of(before)

    without, with_it = compare(engine, after, autogenerate_plugins=WITHOUT), compare(engine, after)
    assert with_it[1:] == without[1:]  # the library also reads the collation
    assert "modify_default" in with_it[1]
