"""A project's naming convention names the unique index, and migrations create, find and keep it under that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, ForeignKeyConstraint, MetaData, String, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from support.marks import on
from support.people import migrating
from support.projects import Project, upgrade_of

from sqlalchemy_public_id import NanoId, PublicIdColumnMixin, PublicIdMixin, PublicIdType
from sqlalchemy_public_id.alembic import add_public_id, contract_public_id, drop_public_id, loosen_public_id
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table

pytestmark = pytest.mark.backend

RECOMMENDED = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""The convention that Alembic's documentation recommends."""
OWN = {"ix": "%(table_name)s_%(column_0_name)s_idx"}
LONG = {"ix": f"%(table_name)s_{'very_' * 14}long_%(column_0_name)s"}
CONVENTIONS = {"recommended": RECOMMENDED, "own": OWN, "long": LONG, "uq": {"uq": "%(table_name)s_%(column_0_name)s"}}
NAMES = {"recommended": "ix_guest_public_id", "own": "guest_public_id_idx", "uq": "uq_guest_public_id"}


def models(convention: Any, *, has_id: bool = True) -> MetaData:
    """Return the models of a project with guests, whose key keeps its type."""

    class Base(DeclarativeBase):
        metadata = MetaData(naming_convention=convention)

    bases: Any = (PublicIdColumnMixin, Base) if has_id else (Base,)

    class Guest(*bases):
        __tablename__ = "guest"
        id: Mapped[int] = mapped_column(primary_key=True)
        name: Mapped[str] = mapped_column(String(50))

    return Base.metadata


def unique_names(engine: Engine) -> list[str]:
    """Return the names of the indexes that keep ``guest.public_id`` unique."""
    with engine.connect() as connection:
        indexes = live_table(connection, PublicIdColumn("guest")).read_state().indexes
    return [index.name for index in indexes if index.can_be_unique_index_of("public_id")]


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Project:
    """A project whose table holds a guest, and has no public ids yet."""
    project = new_project()
    models(None, has_id=False).create_all(project.engine)
    project.execute("INSERT INTO guest (id, name) VALUES (1, 'Ada')")
    return project


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_autogenerate(project: Project, convention: str) -> None:
    """``alembic check`` is clean after the generated migration, and after a downgrade and another upgrade."""
    written = project.migrate(models(CONVENTIONS[convention]))

    assert upgrade_of(written)[0].startswith("op.add_public_id('guest'")
    assert len(upgrade_of(written)) == 1
    assert project.check(models(CONVENTIONS[convention])) is None
    (name,) = unique_names(project.engine)
    assert name == NAMES.get(convention, name)
    assert name.startswith("guest_very" if convention == "long" else name)
    project.downgrade()
    assert unique_names(project.engine) == []
    project.upgrade()
    assert project.check(models(CONVENTIONS[convention])) is None


def test_three_phases(project: Project) -> None:
    """Each phase, and its downgrade, finds the index under the name from the models."""
    project.config.attributes["metadata"] = models(OWN)
    project.write("op.expand_public_id('guest')", "op.drop_public_id('guest')")
    project.upgrade()
    project.write("op.backfill_public_id('guest')")
    project.upgrade()
    project.write("op.contract_public_id('guest')", "op.loosen_public_id('guest')")
    project.upgrade()

    assert project.check(models(OWN)) is None
    project.downgrade()
    assert unique_names(project.engine) == []
    project.upgrade()
    assert unique_names(project.engine) == [NAMES["own"]]
    project.downgrade("base")


def test_table_that_the_models_have_no_more(project: Project) -> None:
    """The naming convention still names the index of a table or column that the models no longer have."""
    project.config.attributes["metadata"] = models(OWN, has_id=False)
    project.write("op.add_public_id('guest')", "op.drop_public_id('guest')")
    project.upgrade()
    assert unique_names(project.engine) == [NAMES["own"]]
    project.config.attributes["metadata"] = MetaData(naming_convention=RECOMMENDED)
    project.downgrade()
    assert unique_names(project.engine) == []
    project.upgrade()

    assert unique_names(project.engine) == [NAMES["recommended"]]


def test_convention_that_comes_later(project: Project) -> None:
    """A project that adopts a naming convention later keeps the name of its index, and ``alembic check`` is clean."""
    project.migrate(models(None))

    assert project.check(models(RECOMMENDED)) is None
    assert unique_names(project.engine) == ["uq_guest_public_id"]


def test_without_models(project: Project) -> None:
    """Without models, the operations find the existing unique index, whatever its name."""
    engine = project.engine
    with engine.connect() as connection, migrating(connection) as op:
        add_public_id(op, "guest", unique_name="called_by_hand")
        add_public_id(op, "guest")
        contract_public_id(op, "guest")
    assert unique_names(engine) == ["called_by_hand"]
    with engine.connect() as connection, migrating(connection) as op:
        loosen_public_id(op, "guest")
    assert unique_names(engine) == []
    with engine.connect() as connection, migrating(connection) as op:
        contract_public_id(op, "guest", unique_name="called_by_hand")
        drop_public_id(op, "guest")

    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM guest")) == 1
    assert unique_names(engine) == []


def test_several_models(project: Project) -> None:
    """Of several MetaData, the one that contains the table names its index; if none does, no convention applies."""
    project.config.attributes["metadata"] = [MetaData(), models(OWN)]
    project.write("op.add_public_id('guest')", "op.drop_public_id('guest')")
    project.upgrade()
    assert unique_names(project.engine) == [NAMES["own"]]

    project.downgrade()
    project.config.attributes["metadata"] = [MetaData(naming_convention=OWN), MetaData()]
    project.upgrade()
    assert unique_names(project.engine) == ["uq_guest_public_id"]


def test_name_of_the_operation(project: Project) -> None:
    """The ``unique_name`` of an operation takes precedence over the models."""
    project.config.attributes["metadata"] = models(OWN)
    project.write("op.add_public_id('guest', unique_name='called_by_hand')")
    project.upgrade()

    assert unique_names(project.engine) == ["called_by_hand"]


# --- a table that refers to its own ids


def nodes(convention: Any, *, has_id: bool = True, others: tuple[str, ...] = ()) -> MetaData:
    """Return the model of a tree, whose nodes refer to the public ids of their parents, and perhaps other columns."""

    class Base(DeclarativeBase):
        metadata = MetaData(naming_convention=convention)

    bases: Any = (PublicIdColumnMixin, Base) if has_id else (Base,)
    parent = ForeignKey("node.public_id", name="fk_parent")
    parents = [f"node.{name}" for name in ("public_id", *others)]

    class Node(*bases):
        __tablename__ = "node"
        __public_id_unique_with__ = others
        id: Mapped[int] = mapped_column(primary_key=True)
        tenant: Mapped[int]
        year: Mapped[int]
        if has_id:
            parent_id: Mapped[str | None] = mapped_column(PublicIdType(NanoId()) if others else parent)
        if others:
            __table_args__ = (ForeignKeyConstraint(["parent_id", *others], parents, name="fk_parent"),)

    return Base.metadata


@pytest.mark.parametrize("convention", [None, RECOMMENDED, OWN], ids=["none", "recommended", "own"])
@pytest.mark.parametrize("others", [(), ("tenant",), ("tenant", "year")], ids=str)
def test_own_reference(new_project: Callable[..., Project], convention: Any, others: tuple[str, ...]) -> None:
    """A table that refers to its own ids is created, copied and migrated; ``alembic check`` is clean."""
    project, metadata = new_project(), nodes(convention, others=others)
    table = metadata.tables["node"]
    (unique,) = (each for each in table.constraints if isinstance(each, UniqueConstraint))
    assert unique.columns.keys() == ["public_id", *others]
    assert unique.name == ("node_public_id_idx" if convention is OWN else "uq_node_public_id")
    assert not table.indexes
    metadata.create_all(project.engine)
    assert project.check(metadata) is None
    metadata.drop_all(project.engine)
    copied = MetaData(naming_convention=convention)
    table.to_metadata(copied)
    copied.create_all(project.engine)
    copied.drop_all(project.engine)

    project.migrate(metadata)
    assert project.check(nodes(convention, others=others)) is None
    assert project.differences(metadata) == []


@on("postgresql", "mysql", "mariadb")  # SQLite adds no foreign key to a table
def test_own_reference_of_a_table_in_use(new_project: Callable[..., Project]) -> None:
    """A table in use gets its ids, and a foreign key to them: ``alembic check`` is clean."""
    project = new_project()
    nodes(None, has_id=False).create_all(project.engine)
    written = project.migrate(nodes(None))

    assert "op.add_public_id('node'" in written
    assert project.check(nodes(None)) is None


@on("postgresql", "mysql", "mariadb")
def test_tables_that_refer_to_each_other(engine: Engine) -> None:
    """Two tables may refer to the public ids of each other: SQLAlchemy adds the foreign keys after both."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Hen(PublicIdMixin, Base):
        __tablename__ = "hen"
        egg: Mapped[str | None] = mapped_column(ForeignKey("egg.public_id", name="fk_egg"))

    class Egg(PublicIdMixin, Base):
        __tablename__ = "egg"
        hen: Mapped[str | None] = mapped_column(ForeignKey("hen.public_id", name="fk_hen"))

    Base.metadata.create_all(engine)
    Base.metadata.drop_all(engine)
