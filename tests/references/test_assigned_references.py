"""Public ids assigned to references, alone or together with the relationship, in a flush or in rows."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, insert, select, update
from sqlalchemy.orm import Session
from support.marks import fast_ways
from support.orders import (
    ADDRESSES,
    CUSTOMERS,
    UNKNOWN,
    Address,
    Base,
    Customer,
    CustomerId,
    Order,
    fill,
    notes,
    orders_in,
)
from support.shared_tables import filled_engine

from conftest import Statements
from sqlalchemy_public_id import ConfigurationError, InvalidPublicId, PublicIdNotFound, bulk

engine = filled_engine(Base.metadata, fill)


@pytest.mark.backend
def test_a_hundred_orders(db: Session, statements: Statements) -> None:
    """A flush sends one SELECT for its references, whatever the number of rows and of customers."""
    new = [Order(note="new", customer_public_id=CUSTOMERS[number % 10]) for number in range(100)]
    statements.clear()
    db.add_all(new)
    db.flush()

    assert len(statements.starting("SELECT")) == 1
    assert [order.customer_public_id for order in new] == [CUSTOMERS[number % 10] for number in range(100)]
    assert len(statements.starting("SELECT")) == 1
    assert new[3].customer.public_id == CUSTOMERS[3]
    db.expire_all()
    assert len(notes(db, Order.customer_public_id == CUSTOMERS[7], Order.note == "new")) == 10


@fast_ways
@pytest.mark.backend
def test_bulk_insert(db: Session, statements: Statements) -> None:
    """``bulk.insert()`` finds the keys as a flush does, and still inserts the rows with one statement."""
    new = [Order(note="bulk", customer_public_id=CUSTOMERS[number % 10]) for number in range(100)]
    statements.clear()
    bulk.insert(db, new)

    assert len(statements.starting("INSERT")) == 1
    assert len([text for text in statements.starting("SELECT") if "customer.public_id" in text]) == 1

    assert len(notes(db, Order.customer_public_id == CUSTOMERS[7], Order.note == "bulk")) == 10
    assert [order.customer.public_id for order in new[:10]] == CUSTOMERS


def test_reassign(db: Session, statements: Statements) -> None:
    """After the flush, an object and its relationship refer to the new row; assigning the same id changes nothing."""
    order = orders_in(db)[0]
    assert order.customer.public_id == CUSTOMERS[0]
    order.customer_public_id = CUSTOMERS[5]
    assert order.customer_public_id == CUSTOMERS[5]
    db.flush()
    assert order.customer.public_id == order.customer_public_id == CUSTOMERS[5]
    statements.clear()
    order.customer_public_id = CustomerId(CUSTOMERS[5])
    db.flush()
    assert statements == []
    db.rollback()
    assert order.customer_public_id == CUSTOMERS[0]
    assert order.customer.public_id == CUSTOMERS[0]


def test_none_clears(db: Session) -> None:
    """``None`` clears a nullable foreign key until an id is assigned; for other foreign keys, it raises at once."""
    order = orders_in(db)[1]
    assert order.billing is not None
    order.billing = None
    order.billing_public_id = ADDRESSES[2]
    assert order.billing_public_id == ADDRESSES[2]
    db.flush()
    assert order.billing is not None
    order.billing_public_id = None
    assert order.billing_public_id is None
    db.flush()
    assert order.billing is order.billing_id is None
    with pytest.raises(InvalidPublicId) as caught:
        order.customer_public_id = None
    assert caught.value.field == "Order.customer_public_id"
    assert order.customer_public_id == CUSTOMERS[0]


@pytest.mark.parametrize("wrong", ["", "RFCUS_000000000000", 1, True, b"rfcus_000000000000", [CUSTOMERS[0]]], ids=type)
def test_malformed_is_an_error_at_once(wrong: Any) -> None:
    """Assigning a value that cannot be an id raises an error that names the attribute."""
    order = Order(customer_public_id=CUSTOMERS[0])
    with pytest.raises(InvalidPublicId) as caught:
        order.customer_public_id = wrong

    assert caught.value.field == "Order.customer_public_id"
    assert order.customer_public_id == CUSTOMERS[0]


@pytest.mark.backend
def test_unknown_is_an_error_before_anything_is_written(db: Session, statements: Statements) -> None:
    """The flush rejects an unknown id before it writes anything, and succeeds once the id is corrected."""
    order = Order(note="unknown", customer_public_id=UNKNOWN)
    db.add_all([Address(), order])
    statements.clear()
    with pytest.raises(PublicIdNotFound) as caught:
        db.flush()

    assert (caught.value.value, caught.value.field) == (UNKNOWN, "Order.customer_public_id")
    assert caught.value.model == "Customer"
    assert statements.starting("INSERT") == []
    order.customer_public_id = CUSTOMERS[2]
    db.flush()
    assert order.customer.public_id == CUSTOMERS[2]


def test_assigned_again_after_a_rollback(db: Session) -> None:
    """If a key is reused after a rollback, an id that is assigned again still finds its own row."""
    savepoint = db.begin_nested()
    customer = Customer(name="Edsger")
    db.add(customer)
    db.flush()
    order = Order(customer_public_id=customer.public_id)
    db.add(order)
    db.flush()
    key = order.customer_id
    savepoint.rollback()
    db.add(Customer(id=key, name="stranger"))
    db.flush()

    customer.id = order.id = None  # new rows
    order.customer_public_id = customer.public_id
    db.add_all([customer, order])
    db.flush()

    assert order.customer_id == customer.id != key
    db.expire_all()
    assert order.customer.name == "Edsger"


def test_pickled_before_the_flush(db: Session) -> None:
    """An object can be pickled and copied before the flush resolves its reference, even if others were resolved."""
    db.add(Order(customer_public_id=CUSTOMERS[0], shipping_public_id=ADDRESSES[0]))
    db.flush()
    order = Order(customer_public_id=CUSTOMERS[1], shipping_public_id=ADDRESSES[0])

    copies = [pickle.loads(pickle.dumps(order)), copy.deepcopy(order)]
    assert [each.customer_public_id for each in copies] == [CUSTOMERS[1]] * 2
    db.add_all(copies)
    db.flush()
    assert [each.customer.public_id for each in copies] == [CUSTOMERS[1]] * 2


@pytest.mark.parametrize("name", ["customer", "customer_id"])
def test_what_is_set_later_wins(db: Session, name: str) -> None:
    """A related object or an integer key that is set after the id is stored instead of it."""
    customer = db.scalars(select(Customer).where(Customer.public_id == CUSTOMERS[6])).one()
    order = Order(customer_public_id=UNKNOWN)
    setattr(order, name, customer if name == "customer" else customer.id)
    if name == "customer":
        assert order.customer_public_id == CUSTOMERS[6]
    db.add(order)
    db.flush()

    assert order.customer_id == customer.id
    assert order.customer_public_id == CUSTOMERS[6]


def test_the_reference_after_another_object_is_refused(db: Session) -> None:
    """Assigning an id that contradicts the related object raises an error; assigning that object's id does not."""
    order = Order(customer=Customer(name="new"))
    order.customer_public_id = order.customer.public_id
    with pytest.raises(ConfigurationError, match="set only one of the two"):
        order.customer_public_id = CUSTOMERS[0]


def test_merge(db: Session) -> None:
    """``merge()`` copies the assigned reference."""
    first, second, *_ = orders_in(db)
    merged = db.merge(Order(id=first.id, customer_public_id=CUSTOMERS[9]))
    assert merged is first
    assert merged.customer_public_id == CUSTOMERS[9]
    db.flush()

    assert first.customer.public_id == CUSTOMERS[9]
    assert second.customer_public_id == CUSTOMERS[0]


def test_the_relationship_before_the_flush(db: Session) -> None:
    """Before the flush resolves an id, the relationship already loads the right object, even a new one."""
    order = orders_in(db)[0]
    order.customer_public_id = CUSTOMERS[5]
    assert order.customer.public_id == CUSTOMERS[5]
    db.expire(order)
    order.customer_public_id = CUSTOMERS[6]
    with db.no_autoflush:
        assert order.customer.public_id == CUSTOMERS[6]
    db.flush()
    assert order.customer.public_id == CUSTOMERS[6]
    db.expire(order)
    new = Customer(name="new")
    db.add(new)
    order.customer_public_id = new.public_id
    assert order.customer is new


def test_late_assignment(db: Session, listen: Callable[..., None]) -> None:
    """Assigning an id during a flush is rejected, and so is an unresolved foreign key as a value in SQL."""
    order = Order(customer_public_id=CUSTOMERS[0])
    with pytest.raises(ConfigurationError, match="flush the session before"):
        select(Order).where(Order.customer_id == order.customer_id)
    listen(Order, "before_insert", lambda *at: setattr(at[2], "customer_public_id", CUSTOMERS[1]))
    db.add(Order())
    with pytest.raises(ConfigurationError, match="flush the session before"):
        db.flush()


@pytest.mark.backend
def test_random_programs(engine: Engine) -> None:
    """After any sequence of assignments, the reference shows what the next flush stores."""

    @given(steps=st.lists(st.tuples(st.sampled_from(["id", "object", "none", "flush", "expire"]), st.integers(0, 2))))
    @settings(max_examples=40)
    def program(steps: list[tuple[str, int]]) -> None:
        with Session(engine) as session:
            addresses = session.scalars(select(Address).order_by(Address.public_id)).all()
            order = session.scalars(select(Order).order_by(Order.note).limit(1)).one()
            expected = stored = order.billing_public_id
            is_object = False
            for what, number in steps:
                if what == "id":
                    if is_object:
                        continue
                    order.billing_public_id, expected = ADDRESSES[number], ADDRESSES[number]
                elif what == "object":
                    order.billing, expected, is_object = addresses[number], ADDRESSES[number], True
                elif what == "none":
                    order.billing, expected, is_object = None, None, True
                elif what == "flush":
                    session.flush()
                    stored, is_object = expected, False
                else:
                    session.expire(order)
                    expected, is_object = stored, False
                assert order.billing_public_id == expected
            session.flush()
            assert order.billing_public_id == expected
            session.expire_all()
            assert order.billing_public_id == expected
            assert (order.billing.public_id if order.billing else None) == expected

    program()


@pytest.mark.backend
def test_insert_of_rows(db: Session, statements: Statements) -> None:
    """``insert(Model)`` with rows resolves their references with one SELECT per related model."""
    rows = [{"note": "row", "customer_public_id": CUSTOMERS[number % 10]} for number in range(20)]
    statements.clear()
    db.execute(insert(Order), rows)
    db.execute(insert(Order), {"note": "row", "customer_public_id": CUSTOMERS[7], "billing_public_id": ADDRESSES[1]})

    assert len(statements.starting("SELECT")) == 3
    assert len(notes(db, Order.note == "row", Order.customer_public_id == CUSTOMERS[7])) == 3
    assert len(notes(db, Order.note == "row", Order.billing_public_id == ADDRESSES[1])) == 1
    assert rows[0].keys() == {"note", "customer_public_id"}
    returned = db.scalars(insert(Order).returning(Order), rows[:2]) if db.get_bind().name != "mysql" else ()
    assert all(order.customer_public_id in CUSTOMERS for order in returned)


@pytest.mark.backend
@pytest.mark.parametrize(
    ("wrong", "error"), [(UNKNOWN, PublicIdNotFound), ("nonsense", InvalidPublicId), (None, InvalidPublicId)]
)
def test_insert_of_unknown_rows(db: Session, statements: Statements, wrong: Any, error: type[Exception]) -> None:
    """An unknown or malformed id in a row raises an error, and nothing is written."""
    with pytest.raises(error) as caught:
        db.execute(insert(Order), [{"customer_public_id": CUSTOMERS[0]}, {"customer_public_id": wrong}])
    assert caught.value.field == "Order.customer_public_id"
    assert statements.starting("INSERT") == []


@pytest.mark.backend
def test_update_of_rows(db: Session, statements: Statements) -> None:
    """``update(Model)`` by primary key resolves references as well."""
    first, second, *_ = orders_in(db)
    db.execute(
        update(Order),
        [
            {"id": first.id, "customer_public_id": CUSTOMERS[3], "billing_public_id": ADDRESSES[2]},
            {"id": second.id, "customer_public_id": CUSTOMERS[4], "billing_public_id": None},
        ],
    )
    db.expire_all()

    assert (first.customer_public_id, first.billing_public_id) == (CUSTOMERS[3], ADDRESSES[2])
    assert (second.customer_public_id, second.billing_public_id) == (CUSTOMERS[4], None)


@pytest.mark.parametrize(
    "make",
    [
        lambda values: insert(Order).values(values),
        lambda values: insert(Order).values([values]),
        lambda values: update(Order).values(values),
        lambda values: update(Order).values({Order.note: "silent", Order.billing_public_id: ADDRESSES[1]}),
    ],
)
def test_never_silently_null(db: Session, make: Callable[[dict[str, Any]], Any]) -> None:
    """A statement whose references cannot be resolved raises an error instead of storing NULL."""
    values = {"note": "silent", "customer_id": orders_in(db)[0].customer_id, "billing_public_id": ADDRESSES[1]}
    with pytest.raises(ConfigurationError, match=r"billing_public_id.*lookup\.keys_of"):
        db.execute(make(values))
    assert notes(db, Order.note == "silent") == []
