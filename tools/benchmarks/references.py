"""References to other rows: the number of statements for a page of orders, and for a hundred new orders.

Statements are counted as SQLAlchemy sends them, without BEGIN and COMMIT. The rival looks up each user, by key or by
public id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Engine, event, select
from sqlalchemy.orm import Session

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.references import eager
from tools.benchmarks.databases import ALL, Bench
from tools.benchmarks.measure import Comparison
from tools.benchmarks.models import Order, User

__all__ = ["run"]

_ORDERS = 100


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the statements for a hundred orders of a hundred users: reading, reading with the option, creating."""
    for database in bench.on(*ALL):
        with database.engines() as (guarded, _):
            with Session(guarded) as session, session.begin():
                users = [User(name=f"name {number}", email=f"{number}@example.org") for number in range(_ORDERS)]
                session.add_all(Order(user=user, number=number) for number, user in enumerate(users))
                session.flush()
                ids = [user.public_id for user in users]
            insert = _sent(guarded, _created_with_keys, ids)
            for what, ours, rival, goal in (
                ("read", _read, _read_one_by_one, 2),
                ("read with eager()", _read_eagerly, _read_one_by_one, 2),
                ("created", _created, _created_one_by_one, 1 + insert),
            ):
                sent, by_rival = _sent(guarded, ours, ids), _sent(guarded, rival, ids)
                yield Comparison(
                    f"{_ORDERS} orders {what}, {database.name}",
                    *("public_ref()", "one by one", "sent"),
                    *([float(sent)], [float(by_rival)]),
                    goal=goal / by_rival,
                )


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
    assert sorted(order.user_public_id for order in session.scalars(select(Order)).all()) == sorted(ids)


def _read_eagerly(session: Session, ids: list[str]) -> None:
    orders = session.scalars(select(Order).options(eager(Order.user_public_id))).all()
    assert sorted(order.user_public_id for order in orders) == sorted(ids)


def _read_one_by_one(session: Session, ids: list[str]) -> None:
    assert sorted(order.user.public_id for order in session.scalars(select(Order)).all()) == sorted(ids)


def _created(session: Session, ids: list[str]) -> None:
    session.add_all(Order(user_public_id=public_id, number=0) for public_id in ids)
    session.flush()


def _created_one_by_one(session: Session, ids: list[str]) -> None:
    users = [lookup.get_one(session, User, public_id) for public_id in ids]
    session.add_all([Order(user=user, number=0) for user in users])
    session.flush()


def _created_with_keys(session: Session, ids: list[str]) -> None:
    """Create the orders by key. The number of INSERTs depends on the database."""
    session.add_all([Order(user_id=key, number=0) for key in range(1, _ORDERS + 1)])
    session.flush()
