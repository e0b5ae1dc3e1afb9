"""Upserts of many rows: how many statements are sent, and how many rows the result counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, String, func, select, text
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from support.marks import on

from sqlalchemy_public_id import PublicIdMixin, guard

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Contact(PublicIdMixin, Base):
    __tablename__ = "contact"
    email: Mapped[str] = mapped_column(String(50), unique=True)
    name: Mapped[str | None] = mapped_column(String(50))


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def inserts_of(connection: Connection) -> int:
    """Return the number of INSERTs that the server has executed for *connection*."""
    _, value = connection.execute(text("SHOW SESSION STATUS LIKE 'Com_insert'")).one()
    return int(value)


def upsert_many(engine: Engine) -> int:
    """Send an upsert of 50 rows whose SET reads the new row. Return how many INSERTs the server has executed."""
    upsert = mysql.insert(Contact.__table__)
    upsert = upsert.on_duplicate_key_update(name=upsert.inserted.name)
    with engine.begin() as connection:
        connection.execute(Contact.__table__.delete())
        before = inserts_of(connection)
        connection.execute(upsert, [{"email": f"{n}@example.org", "name": "a"} for n in range(50)])
        assert connection.scalar(select(func.count()).select_from(Contact)) == 50
        return inserts_of(connection) - before


@on("mysql", "mariadb")
def test_upsert_of_many_rows(engine: Engine) -> None:
    """An upsert of many rows is as many statements with the guard as without."""
    guard.uninstall(engine)
    without_guard = upsert_many(engine)
    guard.install(engine)

    assert without_guard == upsert_many(engine)


@pytest.mark.parametrize("switch", [guard.uninstall, guard.install])
@on("sqlite")
def test_count_of_rows_that_are_skipped(engine: Engine, switch: Callable[[Engine], Any]) -> None:
    """``result.rowcount`` leaves out the rows that ON CONFLICT DO NOTHING has skipped."""
    switch(engine)
    skip_known = sqlite.insert(Contact.__table__).on_conflict_do_nothing(index_elements=["email"])
    with engine.connect() as connection:
        result = connection.execute(skip_known, [{"email": email} for email in ("a", "b", "a")])

        assert (result.rowcount, connection.scalar(select(func.count()).select_from(Contact))) == (2, 2)
