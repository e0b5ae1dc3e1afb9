"""Keys that SQLAlchemy fetches from the database before the INSERT, as it does without RETURNING."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import BigInteger, MetaData, Sequence, String, Uuid, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column
from support.marks import on
from support.members import A
from support.shapes import new_base
from support.ways import Way, each_way, execute_core, flush

from sqlalchemy_public_id import PublicIdColumnMixin, bigint_key, testing

KEYS: dict[str, Callable[[], Any]] = {
    "identity": bigint_key,
    "sequence": lambda: mapped_column(BigInteger, Sequence("keyed_key"), primary_key=True),
    "function": lambda: mapped_column(Uuid, default=func.gen_random_uuid(), primary_key=True),
}


@pytest.mark.backend
@on("postgresql")
@each_way(flush, execute_core)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("key", KEYS)
def test_without_returning(
    create: Callable[[MetaData], None], session: Session, key: str, write: Way, rows: int
) -> None:
    """A table with ``implicit_returning=False`` accepts rows with any kind of key, and retries collisions."""

    class Keyed(PublicIdColumnMixin, new_base()):
        __tablename__ = "keyed"
        __table_args__ = {"implicit_returning": False}  # noqa: RUF012
        id: Mapped[Any] = KEYS[key]()
        name: Mapped[str] = mapped_column(String(9))

    create(Keyed.metadata)
    write(session, Keyed, [{"public_id": A, "name": "first"}])
    with testing.collisions(Keyed, A):
        write(session, Keyed, [{"name": str(number)} for number in range(rows)])
    session.commit()

    assert session.scalar(select(func.count(Keyed.public_id.distinct()))) == 1 + rows
