"""A model whose format records the ids that are drawn, and functions for its rows."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import MetaData, String, UniqueConstraint, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import NanoId, PublicIdMixin


class Recorded(NanoId):
    """Records the ids that are drawn, in this order."""

    drawn: ClassVar[list[str]] = []

    def generate(self) -> str:
        self.drawn.append(super().generate())
        return self.drawn[-1]

    def generate_many(self, count: int) -> list[str]:
        ids = super().generate_many(count)
        self.drawn.extend(ids)
        return ids


class Base(DeclarativeBase):
    metadata = MetaData()


class Note(PublicIdMixin, Base):
    """A model with a unique name, whose ids are recorded."""

    __tablename__ = "note"
    __table_args__ = (UniqueConstraint("name", name="uq_note_name"),)
    __public_id__ = Recorded(length=8)
    name: Mapped[str] = mapped_column(String(20))


table: Any = Note.__table__


def notes(*names: str) -> list[Note]:
    return [Note(name=name) for name in names]


def rows(session: Session, model: Any = Note) -> dict[str, str]:
    """Return name → id of all rows."""
    found: Any = session.execute(select(model.name, model.public_id)).all()
    return dict(found)


def ids_by_name(objects: list[Any]) -> dict[str, str]:
    return {each.name: each.public_id for each in objects}
