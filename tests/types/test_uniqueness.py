"""Columns that generate ids, and are or are not unique."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Index, Integer, Table, UniqueConstraint, text
from sqlalchemy.orm import configure_mappers
from support.shapes import new_base

from sqlalchemy_public_id import NanoId, PublicIdType
from sqlalchemy_public_id.errors import PublicIdWarning

FORMAT = NanoId()


def configure(*arguments: Any, **options: Any) -> None:
    """Map a class to a table with a column of ids, which has *options*, and other *arguments*."""
    base = new_base()
    ids = Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, nullable=False, **options)
    table = Table(
        "box", base.metadata, Column("id", Integer, primary_key=True), Column("year", Integer), ids, *arguments
    )
    type("Box", (base,), {"__table__": table})
    configure_mappers()


@pytest.mark.parametrize("options", [{}, {"index": True}], ids=["no index", "index"])
def test_column_that_is_not_unique(options: dict[str, Any]) -> None:
    """A column that generates ids without a unique index, which alone refuses the id of another row, is warned of."""
    with pytest.warns(PublicIdWarning, match=r"box\.public_id .* no unique index .* write unique=True"):
        configure(**options)


UNIQUE: dict[str, tuple[Any, ...]] = {
    "constraint": (UniqueConstraint("public_id"),),
    "with another column": (UniqueConstraint("year", "public_id"),),
    "index": (Index("ux", "public_id", unique=True),),
    "index for some rows": (Index("ux", "public_id", unique=True, sqlite_where=text("year > 2000")),),
    "index of an expression": (Index("ux", text("lower(public_id)"), unique=True),),
}


@pytest.mark.parametrize("kind", UNIQUE)
def test_column_in_a_unique_key(kind: str) -> None:
    """Any unique key with the column is enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicIdWarning)
        configure(*UNIQUE[kind])


@pytest.mark.parametrize("unique", ["UNIQUE (number)", "UNIQUE (year, number)"])
def test_column_declared_for_a_reflected_table(new_engine: Callable[..., Engine], unique: str) -> None:
    """The keys of a reflected table count for a column that the program declares in place of a reflected one."""
    engine, base = new_engine("sqlite"), new_base()
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE box (id INTEGER PRIMARY KEY, year INT, number VARCHAR(12), {unique})")
    ids = Column("number", PublicIdType(FORMAT), key="public_id", default=FORMAT.generate)
    table = Table("box", base.metadata, ids, autoload_with=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicIdWarning)
        type("Box", (base,), {"__table__": table})
        configure_mappers()
