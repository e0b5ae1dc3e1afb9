"""What a lookup costs in a session that holds many objects, and among many models.

``python -m benchmarks.sessions`` prints a table of microseconds of CPU, on SQLite in memory, measured in turns.
"""

from __future__ import annotations

import random
import statistics
import string
import time
from collections.abc import Callable
from types import new_class
from typing import Any

from sqlalchemy import ForeignKey, create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column, relationship

from sqlalchemy_public_id import PublicIdMixin, TypedId, lookup, public_ref

OBJECTS = 10, 1_000, 50_000
MODELS = 1, 50, 500
ROUNDS = 200


class Base(DeclarativeBase):
    """The base of all models."""


class CustomerId(TypedId, prefix="growcus"):
    """The ids of customers."""


class Customer(PublicIdMixin[CustomerId], Base):
    """What the session holds."""

    __tablename__ = "customer"


class Order(PublicIdMixin, Base):
    """Refers to a customer that the session does not hold."""

    __tablename__ = "order"
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id), index=True)
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[CustomerId] = public_ref("customer")


def declare_models(count: int) -> None:
    """Declare models with typed ids until there are *count* beside those above."""
    while len(TypedId.__subclasses__()) <= count:
        letters = "".join(random.choices(string.ascii_lowercase, k=10))
        typed = type(f"Id{letters}", (TypedId,), {}, prefix=letters)
        bases = PublicIdMixin[typed], Base  # type: ignore[valid-type]  # a class that is made at run time
        new_class(f"Model{letters}", bases, exec_body=lambda body, name=letters: body.update(__tablename__=name))
    configure_mappers()


def operations(session: Session, customer: str) -> dict[str, Callable[[], Any]]:
    """Return what is measured, by name."""

    def read() -> str:
        order = session.scalars(select(Order)).one()
        public_id = order.customer_public_id
        session.expunge(order)
        return public_id

    return {
        "`lookup.get`": lambda: lookup.get(session, Customer, customer),
        "`lookup.get_many` of one id": lambda: lookup.get_many(session, Customer, [customer]),
        "`lookup.page` of 20 rows": lambda: lookup.page(session, Customer, limit=20),
        "`lookup.resolve`": lambda: lookup.resolve(session, customer),
        "the first read of a reference": read,
        "`TypedId.parse`": lambda: TypedId.parse(customer),
    }


def microseconds(ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the time of each way that a quarter of the calls stay below."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            times[name].append(time.process_time() - begin)
    return {name: statistics.quantiles(each, n=4)[0] * 1e6 for name, each in times.items()}


def main() -> None:
    """Measure, and print the table."""
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        ids = [CustomerId() for _ in range(max(OBJECTS) + 1)]
        session.execute(insert(Customer), [{"public_id": each} for each in ids])
        session.execute(insert(Order), [{"customer_id": len(ids)}])  # whose customer is no object of the session
        session.commit()
    results: dict[str, list[float]] = {}
    for models in MODELS:
        declare_models(models)
        for objects in OBJECTS:
            if models > 1 and objects not in (OBJECTS[0], OBJECTS[-1]):
                continue
            with Session(engine) as session:
                held = session.scalars(select(Customer).limit(objects)).all()
                ways = operations(session, ids[-1])
                microseconds(ways)  # statements are compiled
                for name, each in microseconds(ways).items():
                    results.setdefault(name, []).append(each)
                assert len(held) == objects
    heads = ["10 objects", "1 000", "50 000", "50 models", "50 000, 50", "500 models", "50 000, 500"]
    print(f"| microseconds | {' | '.join(heads)} |")
    print(f"|---|{'---:|' * len(heads)}")
    for name, each in results.items():
        print(f"| {name} | {' | '.join(f'{one:.0f}' if one >= 10 else f'{one:.1f}' for one in each)} |")


if __name__ == "__main__":
    main()
