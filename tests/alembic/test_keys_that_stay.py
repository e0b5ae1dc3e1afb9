"""Autogenerate rewrites no table with an INTEGER key when its model gains ``PublicIdMixin``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import BigInteger, ForeignKey, MetaData, inspect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from support.marks import on
from support.projects import Project, upgrade_of

from sqlalchemy_public_id import PublicIdColumnMixin, PublicIdMixin

pytestmark = pytest.mark.backend
on_servers = on("postgresql", "mysql", "mariadb")


def models(mixin: Any = None, reference: Any = None) -> MetaData:
    """Return models of users with *mixin*, and of their orders, whose foreign keys have the type *reference*."""

    class Base(DeclarativeBase): ...

    bases: Any = (Base,) if mixin is None else (mixin, Base)
    own_key: Any = {} if mixin is PublicIdMixin else {"id": mapped_column(primary_key=True)}
    hints: Any = {"id": Mapped[int]} if own_key else {}
    type("User", bases, {"__tablename__": "user", "__module__": __name__, "__annotations__": hints, **own_key})

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[int] = mapped_column(primary_key=True)
        user_id: Mapped[int] = mapped_column(*([reference] if reference else []), ForeignKey("user.id"))
        seller_id: Mapped[int] = mapped_column(*([reference] if reference else []), ForeignKey("user.id"))

    return Base.metadata


def types(project: Project) -> list[str]:
    """Return the types of the key and of the foreign keys."""
    inspector = inspect(project.engine)
    every = [column for table in ("user", "order") for column in inspector.get_columns(table)]
    return [
        str(column["type"]).partition("(")[0] for column in every if column["name"] in {"id", "user_id", "seller_id"}
    ]


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Project:
    made = new_project()
    made.migrate(models(), "before")
    return made


@on_servers
def test_integer_keys_stay(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """The key and its foreign keys keep their types; a warning, and a comment in the revision, say what to declare."""
    before = types(project)
    caplog.set_level(logging.WARNING)

    written = project.migrate(models(PublicIdMixin))

    assert upgrade_of(written) == ["op.add_public_id('user')"]
    assert types(project) == before
    assert sum("PublicIdColumnMixin" in record.message for record in caplog.records) == 3
    assert "    # user.id keeps its type INTEGER, but the model declares the BIGINT of PublicIdMixin." in written
    assert project.check(models(PublicIdMixin)) is None


@on_servers
def test_mixin_of_the_column(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """With ``PublicIdColumnMixin`` and the existing key, there is no warning."""
    caplog.set_level(logging.WARNING)

    written = project.migrate(models(PublicIdColumnMixin))

    assert upgrade_of(written) == ["op.add_public_id('user')"]
    assert "keeps its type" not in written
    assert not caplog.records


@on("postgresql")
def test_type_of_the_project(project: Project) -> None:
    """A foreign key whose type the model declares itself is altered by Alembic as usual."""
    written = project.revision(models(PublicIdMixin, BigInteger()))

    assert "op.alter_column('order', 'user_id'" in written
    assert "op.alter_column('user', 'id'" not in written
