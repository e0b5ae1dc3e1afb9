"""The row at a cursor is hidden by criteria of the session before the next page is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, with_loader_criteria

from sqlalchemy_public_id import InvalidCursor, PublicIdMixin, lookup

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Invoice(PublicIdMixin, Base):
    __tablename__ = "invoice"
    tenant: Mapped[int] = mapped_column(default=1)
    number: Mapped[int]
    is_deleted: Mapped[bool] = mapped_column(default=False)


def hide_deleted_rows(state: Any) -> None:
    """Leave the rows that are marked as deleted out of each SELECT."""
    if state.is_select and not state.is_column_load:
        state.statement = state.statement.options(with_loader_criteria(Invoice, Invoice.is_deleted.is_(False)))


@pytest.mark.parametrize("order_by", [None, [Invoice.number]], ids=["", "order_by"])
@pytest.mark.parametrize("where", [None, Invoice.tenant == 1], ids=["", "where"])
def test_row_that_was_marked_as_deleted(
    create: Callable[[MetaData], None],
    session: Session,
    listen: Callable[..., None],
    where: Any,
    order_by: Any,
) -> None:
    """A page begins behind the row at its cursor, although this row has been marked as deleted in the meantime."""
    create(Base.metadata)
    listen(session, "do_orm_execute", hide_deleted_rows)
    for number in range(6):
        session.add(Invoice(number=number))
        session.flush()

    page = lookup.page(session, Invoice, limit=2, where=where, order_by=order_by)
    page[-1].is_deleted = True
    session.flush()
    following = lookup.page(session, Invoice, limit=2, where=where, order_by=order_by, after=page.next)

    assert [invoice.number for invoice in following] == [2, 3]


def test_literals_of_an_order(create: Callable[[MetaData], None], session: Session) -> None:
    """A cursor of an order by an expression is refused in the order by another value of it."""
    create(Base.metadata)
    session.add_all([Invoice(number=number) for number in range(6)])
    session.flush()

    page = lookup.page(session, Invoice, limit=2, order_by=Invoice.number % 2)

    assert len(lookup.page(session, Invoice, limit=2, order_by=Invoice.number % 2, after=page.next)) == 2
    with pytest.raises(InvalidCursor, match="another order"):
        lookup.page(session, Invoice, limit=2, order_by=Invoice.number % 3, after=page.next)


def test_hidden_row_in_the_order_of_an_expression(
    create: Callable[[MetaData], None], session: Session, listen: Callable[..., None]
) -> None:
    """A page in the order of an expression continues, too, behind a row that the session hides."""
    create(Base.metadata)
    listen(session, "do_orm_execute", hide_deleted_rows)
    for number in range(6):
        session.add(Invoice(number=number))
        session.flush()

    page = lookup.page(session, Invoice, limit=2, order_by=-Invoice.number)
    page[-1].is_deleted = True
    following = lookup.page(session, Invoice, limit=2, order_by=-Invoice.number, after=page.next)

    assert [invoice.number for invoice in following] == [3, 2]
