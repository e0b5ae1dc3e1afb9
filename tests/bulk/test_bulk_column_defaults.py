"""Columns that ``bulk.insert()`` fills in: their types and listeners see them as after a flush."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import JSON, MetaData, String, select
from sqlalchemy.ext.mutable import MutableDict
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on

from sqlalchemy_public_id import PublicIdMixin, bulk


class Base(DeclarativeBase):
    metadata = MetaData()


class Document(PublicIdMixin, Base):
    __tablename__ = "document"
    data: Mapped[dict[str, Any]] = mapped_column(MutableDict.as_mutable(JSON), default=dict)


class Letter(PublicIdMixin, Base):
    __tablename__ = "letter"
    text: Mapped[str] = mapped_column(String(9), default="Dear")


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def flush(session: Session, objects: list[Any]) -> None:
    session.add_all(objects)
    session.flush()


@pytest.mark.backend
@pytest.mark.parametrize("write", [flush, bulk.insert])
@on("sqlite", "postgresql", "mysql", "mariadb")
def test_default_of_a_mutable_column(session: Session, write: Callable[[Session, list[Any]], None]) -> None:
    """A change in place of a value that a column default has made is stored."""
    documents = [Document(), Document()]
    write(session, documents)
    documents[0].data["pages"] = 3
    session.commit()

    assert session.scalar(select(Document.data).where(Document.id == documents[0].id)) == {"pages": 3}


@pytest.mark.parametrize("write", [flush, bulk.insert])
def test_listeners_see_what_was_filled_in(
    session: Session, listen: Callable[..., None], write: Callable[[Session, list[Any]], None]
) -> None:
    """A listener to ``refresh_flush`` is called for each object whose columns the INSERT has filled in."""
    seen: list[Any] = []
    listen(Letter, "refresh_flush", lambda target, context, attributes: seen.append(target.text))
    write(session, [Letter(), Letter()])

    assert seen == ["Dear", "Dear"]
