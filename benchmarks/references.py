"""References to other rows: the number of statements for a page of orders, and for a hundred new orders.

They are counted as SQLAlchemy sends them, without BEGIN and COMMIT. The rival looks up each customer, by key or by
public id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Engine, ForeignKey, event, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from benchmarks.databases import ALL, Bench
from benchmarks.measure import Comparison
from sqlalchemy_public_id import NanoId, PublicIdMixin, lookup
from sqlalchemy_public_id.references import eager, public_ref

__all__ = ["run"]

ORDERS = 100


class Base(DeclarativeBase):
    """Tables of this suite."""


class Customer(PublicIdMixin, Base):
    """The target of references."""

    __tablename__ = "reference_customer"
    __public_id__ = NanoId(prefix="cus")


class Order(PublicIdMixin, Base):
    """A model with a reference."""

    __tablename__ = "reference_order"
    __public_id__ = NanoId(prefix="ord")
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[str] = public_ref("customer")


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the statements for a hundred orders of a hundred customers: read, read with the option, created."""
    for database in bench.on(*ALL):
        with database.engines() as (guarded, _):
            Base.metadata.create_all(guarded)
            try:
                with Session(guarded) as session, session.begin():
                    customers = [Customer() for _ in range(ORDERS)]
                    session.add_all(Order(customer=customer) for customer in customers)
                    ids = [customer.public_id for customer in customers]
                insert = _sent(guarded, _created_with_keys, ids)
                for what, ours, rival, goal in (
                    ("read", _read, _read_one_by_one, 2),
                    ("read with eager()", _read_eagerly, _read_one_by_one, 2),
                    ("created", _created, _created_one_by_one, 1 + insert),
                ):
                    sent, by_rival = _sent(guarded, ours, ids), _sent(guarded, rival, ids)
                    yield Comparison(
                        f"{ORDERS} orders {what}, {database.name}",
                        *("public_ref()", "one by one", "sent"),
                        *([float(sent)], [float(by_rival)]),
                        goal=goal / by_rival,
                    )
            finally:
                Base.metadata.drop_all(guarded)


def _sent(engine: Engine, work: Callable[[Session, list[str]], object], ids: list[str]) -> int:
    """Count the statements of *work*, and roll back."""
    sent: list[str] = []

    def listen(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    with Session(engine) as session:
        session.connection()
        event.listen(engine, "before_cursor_execute", listen)
        work(session, ids)
        event.remove(engine, "before_cursor_execute", listen)
    return len(sent)


def _read(session: Session, ids: list[str]) -> None:
    assert sorted(order.customer_public_id for order in session.scalars(select(Order)).all()) == sorted(ids)


def _read_eagerly(session: Session, ids: list[str]) -> None:
    orders = session.scalars(select(Order).options(eager(Order.customer_public_id))).all()
    assert sorted(order.customer_public_id for order in orders) == sorted(ids)


def _read_one_by_one(session: Session, ids: list[str]) -> None:
    assert sorted(order.customer.public_id for order in session.scalars(select(Order)).all()) == sorted(ids)


def _created(session: Session, ids: list[str]) -> None:
    session.add_all(Order(customer_public_id=public_id) for public_id in ids)
    session.flush()


def _created_one_by_one(session: Session, ids: list[str]) -> None:
    customers = [lookup.get_one(session, Customer, public_id) for public_id in ids]
    session.add_all([Order(customer=customer) for customer in customers])
    session.flush()


def _created_with_keys(session: Session, ids: list[str]) -> None:
    """Count the INSERTs, whose number depends on the database."""
    session.add_all([Order(customer_id=key) for key in range(1, ORDERS + 1)])
    session.flush()
