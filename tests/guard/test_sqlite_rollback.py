"""Conflicts of SQLite that roll back the whole transaction: https://www.sqlite.org/lang_conflict.html."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, String, UniqueConstraint, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.members import A, B, User
from support.ways import Rows, Way, flush

from sqlalchemy_public_id import NanoId, PublicIdType, bigint_key, testing

pytestmark = on("sqlite")

FORMAT = NanoId()


class Base(DeclarativeBase): ...


class Strict(Base):
    """An existing table whose own constraint rolls back the transaction."""

    __tablename__ = "strict"
    __table_args__ = (UniqueConstraint("public_id", sqlite_on_conflict="ROLLBACK"),)
    id: Mapped[int] = bigint_key()
    public_id: Mapped[str] = mapped_column(PublicIdType(FORMAT), default=FORMAT.generate)
    name: Mapped[str] = mapped_column(String(9))


def or_rollback(session: Session, model: type[Any], rows: Rows) -> list[Any]:
    session.execute(insert(model).prefix_with("OR ROLLBACK"), rows)
    return []


@pytest.mark.parametrize(
    ("model", "write", "rows"), [(User, or_rollback, 1), (User, or_rollback, 2), (Strict, flush, 1)]
)
def test_collision_that_ends_the_transaction(
    create: Callable[[MetaData], None], session: Session, model: type[Any], write: Way, rows: int
) -> None:
    """A collision that has rolled back the transaction raises, because the caller must know its work is lost."""
    create(model.metadata)
    flush(session, model, [{"name": "first", "public_id": A}])
    session.commit()
    flush(session, model, [{"name": "earlier", "public_id": B}])

    with testing.collisions(model, A), pytest.raises(IntegrityError) as caught:
        write(session, model, [{"name": "second"}] * rows)
    assert not getattr(caught.value.orig, "__notes__", ())  # which tell what to do about ids that the program has set
