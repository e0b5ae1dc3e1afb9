"""Column defaults that read the id of their row, which is replaced if it collides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, String, TypeDecorator, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.rows import agree
from support.ways import (
    Way,
    each_way,
    execute,
    execute_core,
    execute_returning,
    flush,
    flush_one_by_one,
    insert_in_bulk,
    numbers,
)

from sqlalchemy_public_id import NanoId, PublicIdMixin, guard

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Upper(TypeDecorator[str]):
    """A type that converts what it is given."""

    impl = String(20)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return value.upper()


def path(context: Any) -> str:
    return "files/{public_id}".format(**context.get_current_parameters())


def double(context: Any) -> int:
    number: int = context.get_current_parameters()["number"]
    return 2 * number


class File(PublicIdMixin, Base):
    """A model with few possible ids, whose path contains the id."""

    __tablename__ = "file_with_path"
    __public_id__ = NanoId(length=2, alphabet="0123456789")
    number: Mapped[int]
    path: Mapped[str] = mapped_column(Upper(), default=path)
    double: Mapped[int] = mapped_column(default=double)


@each_way(flush, flush_one_by_one, execute, execute_core, execute_returning, insert_in_bulk)
def test_value_made_from_the_id(create: Callable[[MetaData], None], session: Session, write: Way) -> None:
    """The value that a default makes from the id of its row is made from the id that the row has in the end."""
    create(Base.metadata)
    before = guard.collisions().get(File.__tablename__, 0)
    objects = [each for first in range(0, 80, 20) for each in write(session, File, numbers(20, first=first))]

    assert guard.collisions().get(File.__tablename__, 0) > before
    rows = session.execute(select(File.public_id, File.path, File.number, File.double)).all()
    assert [path for _, path, _, _ in rows] == [f"FILES/{public_id}" for public_id, _, _, _ in rows]
    assert [double for _, _, _, double in rows] == [2 * number for _, _, number, _ in rows]
    if objects:
        agree(session, objects)
