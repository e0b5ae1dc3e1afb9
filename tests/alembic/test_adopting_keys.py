"""A UUID primary key becomes a public id by its type alone: nothing is migrated, and the old program keeps working."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Engine, ForeignKey, Integer, String, Table, Uuid, select
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column, relationship
from support.marks import on
from support.projects import Project
from support.raw_uuids import RawUuid, of_uuid

from sqlalchemy_public_id import NanoId, PublicIdType, Uuid4, lookup
from sqlalchemy_public_id.errors import InvalidPublicId
from sqlalchemy_public_id.formats import Format

pytestmark = pytest.mark.backend

PREFIXED = Uuid4(prefix="inv").accepting(Uuid4(encoding="hyphenated"))


class Programs:
    """Models of invoices and their lines: the old ones with UUIDs as keys, the new ones with public ids as keys."""

    def __init__(self, engine: Engine, type_: Any, format: Format) -> None:
        class Before(DeclarativeBase): ...

        class OldInvoice(Before):
            __tablename__ = "invoice"
            id = mapped_column(type_, primary_key=True, default=uuid.uuid4)
            title = mapped_column(String(20))

        class OldLine(Before):
            __tablename__ = "line"
            id = mapped_column(Integer, primary_key=True)
            invoice_id = mapped_column(type_, ForeignKey("invoice.id"), nullable=False)

        class After(DeclarativeBase): ...

        class Invoice(After):
            __tablename__ = "invoice"
            id = mapped_column(PublicIdType(format), primary_key=True, default=format.generate)
            title = mapped_column(String(20))
            lines = relationship("Line", back_populates="invoice", order_by="Line.id")

        class Line(After):
            __tablename__ = "line"
            id = mapped_column(Integer, primary_key=True)
            invoice_id = mapped_column(PublicIdType(format), ForeignKey("invoice.id"), nullable=False)
            invoice = relationship("Invoice", back_populates="lines")

        self.engine, self.format = engine, format
        self.old, self.old_line, self.new, self.new_line = OldInvoice, OldLine, Invoice, Line
        self.before, self.metadata = Before.metadata, After.metadata

    def text(self, key: uuid.UUID) -> str:
        return self.format.validate(str(key) if self.format.is_valid(str(key)) else key.hex)


@pytest.fixture(params=["uuid", "prefixed"])
def programs(request: pytest.FixtureRequest, engine: Engine, new_project: Callable[..., Project]) -> Programs:
    """Both programs, with SQLAlchemy's Uuid(), or with 16 bytes and a prefix that no row stores."""
    arguments: Any = (Uuid(), of_uuid(engine)) if request.param == "uuid" else (RawUuid(), PREFIXED)
    made = Programs(engine, *arguments)
    made.before.create_all(engine)
    return made


def test_nothing_to_migrate(programs: Programs, new_project: Callable[..., Project]) -> None:
    """Autogenerate finds no difference: neither in the key, nor in the columns that refer to it."""
    project = new_project()

    assert project.differences(programs.metadata) == []
    assert project.check(programs.metadata) is None


def test_lookups(programs: Programs) -> None:
    """All functions of ``lookup``, and ``session.get()``, accept a public id that is the primary key."""
    with Session(programs.engine) as session:
        session.add_all(programs.old(title=f"{number}") for number in range(5))
        session.commit()
        keys = [*session.scalars(select(programs.old.id))]
    texts = [programs.text(key) for key in keys]
    with Session(programs.engine) as session:
        rows = lookup.get_many(session, programs.new, [*texts, "nonsense"])
        assert [*rows] == texts
        assert lookup.keys_of(session, programs.new, texts) == dict(zip(texts, texts, strict=True))
        assert lookup.public_ids_of(session, programs.new, texts) == dict(zip(texts, texts, strict=True))
        assert session.get(programs.new, texts[0]) is rows[texts[0]]
        assert lookup.get(session, programs.new, "nonsense") is None
        assert lookup.get(session, programs.new, programs.format.generate()) is None
        assert lookup.get(session, programs.new, texts[0], with_for_update=True) is rows[texts[0]]
        if programs.format.is_native:
            with pytest.raises(InvalidPublicId):
                session.get(programs.new, "nonsense")


@on("mysql")
def test_later_table(new_project: Callable[..., Project], engine: Engine) -> None:
    """A table that is added later can refer to a key by the type of its column, and ``alembic check`` is clean."""
    project, programs = new_project(), Programs(engine, Uuid(), of_uuid(engine))
    programs.before.create_all(engine)
    Table(
        "payment",
        programs.metadata,
        Column("id", Integer, primary_key=True),
        Column("invoice_id", PublicIdType(programs.format), ForeignKey("invoice.id"), nullable=False),
    )
    project.revision(programs.metadata)
    written = next((project.folder / "versions").glob("*.py"))
    type_ = re.compile(r"sa\.Column\('invoice_id', .*, nullable=False\)")
    changed, number = type_.subn("sa.Column('invoice_id', sa.CHAR(32), nullable=False)", written.read_text())
    assert number == 1
    written.write_text(changed)

    project.upgrade()

    assert project.check(programs.metadata) is None


def test_collisions_of_keys(engine: Engine, create: Any) -> None:
    """A key that collides is replaced like any public id, and so are the foreign keys that refer to it."""
    format = NanoId(length=2, alphabet="01")

    class Base(DeclarativeBase): ...

    class Parent(Base):
        __tablename__ = "parent"
        id = mapped_column(PublicIdType(format), primary_key=True, default=format.generate)
        children = relationship("Child")

    class Child(Base):
        __tablename__ = "child"
        id = mapped_column(Integer, primary_key=True)
        parent_id = mapped_column(PublicIdType(format), ForeignKey("parent.id"), nullable=False)

    create(Base.metadata)
    for rows in (1, 1, 2):
        with Session(engine) as session:
            parents: list[Any] = [Parent(children=[Child(), Child()]) for _ in range(rows)]
            session.add_all(parents)
            session.commit()
            pairs = [(parent.id, child.parent_id) for parent in parents for child in parent.children]
            assert [(key, foreign_key) for key, foreign_key in pairs if key != foreign_key] == []
    with Session(engine) as session:
        assert sorted(session.scalars(select(Parent.id))) == ["00", "01", "10", "11"]
        assert len(session.scalars(select(Child)).all()) == 8
