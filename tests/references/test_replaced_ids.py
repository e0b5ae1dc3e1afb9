"""References after an UPDATE that replaces public ids, in the same session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert, update
from sqlalchemy.orm import Session
from support.orders import CUSTOMERS, Base, Customer, CustomerId, Order, Rush, fill, orders_in
from support.shared_tables import filled_engine

from conftest import Statements
from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id._private import IS_FAST

pytestmark = pytest.mark.backend
engine = filled_engine(Base.metadata, fill)
NEW = CustomerId("rfcus_xxxxxxxxxxxx")

of_first = update(Customer).where(Customer.public_id == CUSTOMERS[0])
UPDATES: dict[str, Callable[[Session, int], object]] = {
    "name": lambda db, _: db.execute(of_first.values(public_id=NEW)),
    "attribute": lambda db, _: db.execute(of_first.values({Customer.public_id: NEW, Customer.name: "new"})),
    "ordered": lambda db, _: db.execute(of_first.ordered_values((Customer.name, "new"), (Customer.public_id, NEW))),
    "not synchronized": lambda db, _: db.execute(
        of_first.values(public_id=NEW), execution_options={"synchronize_session": False}
    ),
    "rows": lambda db, key: db.execute(update(Customer), [{"id": key, "public_id": NEW}]),
    "parameters": lambda db, key: db.execute(update(Customer).where(Customer.id == key), {"public_id": NEW}),
    "query": lambda db, key: db.query(Customer).filter_by(id=key).update({"public_id": NEW}),
}


@pytest.mark.parametrize("way", UPDATES)
def test_replaced_id(db: Session, statements: list[str], way: str) -> None:
    """References that were read show the new id, after one SELECT for all of them."""
    orders = orders_in(db)
    key = orders[0].customer_id
    assert [order.customer_public_id for order in orders[:11]] == [CUSTOMERS[0]] * 10 + [CUSTOMERS[1]]
    UPDATES[way](db, key)
    statements.clear()
    assert [order.customer_public_id for order in orders[:11]] == [NEW] * 10 + [CUSTOMERS[1]]
    assert len(statements) == 1


def test_id_of_a_flush_before_the_update(db: Session) -> None:
    """The id that a pending object was assigned is forgotten as well, although the UPDATE itself flushes it."""
    db.add(order := Order(customer_public_id=CUSTOMERS[0]))
    UPDATES["name"](db, 0)
    assert order.customer_public_id == NEW


def test_replaced_id_of_a_subclass(db: Session) -> None:
    """References to a base class show the id that an UPDATE of its subclass has set."""
    db.add(rush := Rush(customer_public_id=CUSTOMERS[0]))
    db.flush()
    key, new = rush.id, NanoId(prefix="rford").generate()
    db.add(second := Rush(customer_public_id=CUSTOMERS[0], replaces_public_id=rush.public_id))
    db.flush()
    db.expunge(rush)
    assert second.replaces_public_id == rush.public_id
    db.execute(update(Rush), [{"id": key, "public_id": new}])
    assert second.replaces_public_id == new


@pytest.mark.skipif(not IS_FAST, reason="the public interface does not tell what values() sets")
@pytest.mark.parametrize(
    "send",
    [
        lambda db: db.execute(update(Customer).values(name="new")),
        lambda db: db.execute(update(Customer).values({Customer.name: Customer.name + "new"})),
        lambda db: db.execute(update(Customer), [{"id": 1, "name": "new"}]),
        lambda db: db.execute(update(Customer), {"name": "new"}),
        lambda db: db.execute(update(Order).values(note="")),
        lambda db: db.execute(insert(Customer), [{"name": "new"}]),
    ],
    ids=["values", "expression", "rows", "parameters", "another model", "insert"],
)
def test_other_statements(db: Session, statements: Statements, send: Callable[[Session], Any]) -> None:
    """After a statement that replaces no such ids, references are not read again."""
    orders = orders_in(db)
    assert [order.customer_public_id for order in orders[::10]] == CUSTOMERS
    send(db)
    statements.clear()
    assert [order.customer_public_id for order in orders[::10]] == CUSTOMERS
    assert statements == []
