"""Column defaults that read the id of their row, which is replaced if it collides."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
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


def decorated(function: Callable[[Any], str]) -> Callable[[Any], str]:
    @wraps(function)
    def call(context: Any) -> str:
        return function(context)

    return call


@decorated
def slug(context: Any) -> str:
    public_id: str = context.get_current_parameters()["public_id"]
    return f"page-{public_id}"


def link(context: Any) -> str:
    slug: str = context.get_current_parameters().get("slug")
    return f"/{slug}"


def first_version(context: Any) -> str:
    return json.dumps(context.get_current_parameters() | {"version": 1})


class Page(PublicIdMixin, Base):
    """A model with few possible ids, which stand in other values by way of another default, and in JSON."""

    __tablename__ = "page_with_link"
    __public_id__ = NanoId(length=2, alphabet="0123456789")
    number: Mapped[int]
    slug: Mapped[str] = mapped_column(String(20), default=slug)
    link: Mapped[str] = mapped_column(String(20), default=link)
    first_version: Mapped[str] = mapped_column(String(200), default=first_version)


@each_way(flush, flush_one_by_one, execute, execute_core, insert_in_bulk)
def test_values_made_from_other_values(create: Callable[[MetaData], None], session: Session, write: Way) -> None:
    """A default is called again with what it was given at first: a dictionary without its own value and later ones.

    So is a default that has read the value of another one, and one that a decorator has wrapped.
    """
    create(Base.metadata)
    before = guard.collisions().get(Page.__tablename__, 0)
    for first in range(0, 80, 20):
        write(session, Page, numbers(20, first=first))

    assert guard.collisions().get(Page.__tablename__, 0) > before
    for public_id, number, slug, link, version in session.execute(select(*Page.__table__.columns[1:])):
        assert (slug, link) == (f"page-{public_id}", f"/page-{public_id}")
        before_it = {"public_id": public_id, "number": number, "slug": slug, "link": link}
        assert json.loads(version) == {**before_it, "first_version": None, "version": 1}
