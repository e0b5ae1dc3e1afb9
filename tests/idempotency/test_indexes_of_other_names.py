"""Unique indexes that have another name for a while: REINDEX CONCURRENTLY calls the old one ``uq_…_ccold``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, delete, event, text
from sqlalchemy.orm import DeclarativeBase, Session
from support.marks import on

from sqlalchemy_public_id import PublicIdMixin
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = [pytest.mark.backend, on("postgresql")]

A = "a" * 12


class Base(DeclarativeBase):
    metadata = MetaData()


class Payment(PublicIdMixin, Base):
    __tablename__ = "payment"


INDEX = "uq_payment_public_id"


@pytest.mark.parametrize("name", [INDEX, f"{INDEX}_ccold", "of_another_name"])
def test_row_that_is_deleted_meanwhile(
    create: Callable[[MetaData], None], engine: Engine, new_engine: Callable[..., Engine], name: str
) -> None:
    """``insert_once()`` inserts again if the row that it has met is gone, whatever the name of the index is."""
    create(Base.metadata)
    with Session(engine) as session:
        if name != INDEX:
            session.execute(text(f"ALTER INDEX {INDEX} RENAME TO {name}"))
        session.add(Payment(public_id=A))
        session.commit()
    meeting = new_engine("postgresql", engine.url)

    @event.listens_for(meeting, "handle_error")
    def delete_row(context: Any) -> None:
        with engine.begin() as connection:
            connection.execute(delete(Payment.__table__))

    with Session(meeting) as session:
        assert insert_once(session, Payment(public_id=A))[1] is True
