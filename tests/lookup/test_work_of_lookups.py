"""The cost of a lookup depends neither on the number of other objects in the session nor on that of types."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, insert, inspect, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from support.calls import calls_of

from conftest import Statements
from sqlalchemy_public_id import PublicIdMixin, TypedId, lookup, public_ref
from sqlalchemy_public_id.errors import InvalidCursor


class Base(DeclarativeBase):
    metadata = MetaData()


class Customer(PublicIdMixin, Base):
    __tablename__ = "customer"


class Order(PublicIdMixin, Base):
    __tablename__ = "order"
    customer_id: Mapped[int] = mapped_column(ForeignKey("customer.id"))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[str] = public_ref("customer")


class Other(Base):
    """A model without public ids."""

    __tablename__ = "other"
    id: Mapped[int] = mapped_column(primary_key=True)


OTHERS = 1000


@pytest.fixture
def stored(create: Callable[[MetaData], None], session: Session) -> tuple[str, str]:
    """Return the public ids of a customer and an order, stored beside many other rows."""
    create(Base.metadata)
    session.add(order := Order(customer=Customer()))
    session.execute(insert(Other), [{"id": number} for number in range(1, OTHERS + 1)])
    session.commit()
    ids = order.customer.public_id, order.public_id
    session.close()
    return ids


# --- work is counted instead of timed


def at_each_step(call: Callable[[], object], step: Callable[[FrameType], None]) -> None:
    """Call *call*, and call *step* before every bytecode instruction that it executes."""

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            step(frame)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def steps_of(call: Callable[[], object]) -> int:
    """Return how many bytecode instructions *call* executes, including those of the functions that it calls."""
    steps = 0

    def count(frame: FrameType) -> None:
        nonlocal steps
        steps += 1

    at_each_step(call, count)
    return steps


def get(session: Session, customer: str, order: str) -> Callable[[], object]:
    return lambda: lookup.get(session, Customer, customer)


def get_many(session: Session, customer: str, order: str) -> Callable[[], object]:
    return lambda: lookup.get_many(session, Customer, [customer])


def read_reference(session: Session, customer: str, order: str) -> Callable[[], object]:
    found = lookup.get_one(session, Order, order)
    return lambda: found.customer_public_id


@pytest.mark.parametrize("text", ["nonsense!", "000000000000"])
@pytest.mark.parametrize(
    "ask",
    [lookup.get, lambda *it: lookup.page(*it[:2], limit=2, after=it[2]), lambda *it: lookup.keys_of(*it[:2], it[2:])],
)
def test_a_text_is_judged_once(
    session: Session, stored: tuple[str, str], ask: Callable[..., object], text: str
) -> None:
    """A lookup judges a text once, and builds the words of an error only if it raises that error.

    A cursor that is no id is judged again without the mark of its order.
    """

    def call() -> None:
        with suppress(InvalidCursor):
            ask(session, Customer, text)

    call()  # work done once per process
    assert calls_of(call, "_accepts") <= 1 + (ask.__name__ == "<lambda>" and text == "nonsense!")
    assert calls_of(call, "_reason", "_explain") == 0


@pytest.mark.parametrize("prepare", [get, get_many, read_reference])
def test_large_session(session: Session, stored: tuple[str, str], prepare: Callable[..., Callable[[], object]]) -> None:
    """A lookup of one row does not iterate over the other objects of the session."""
    # Statements are compiled once per process, and newer Pythons trace a function from its second call on.
    steps_of(prepare(session, *stored))
    session.close()
    alone = steps_of(prepare(session, *stored))
    session.close()
    others = session.scalars(select(Other)).all()
    among_others = steps_of(prepare(session, *stored))

    assert len(others) == OTHERS
    assert among_others <= 1.2 * alone


def test_objects_that_are_collected_meanwhile(session: Session, stored: tuple[str, str]) -> None:
    """``get_many()`` returns its rows even if other objects of the session are collected meanwhile.

    The garbage collector can run at any time, in another thread as well.
    """
    others = list(session.scalars(select(Other)))
    found: dict[str, Any] = {}

    def collect_one(frame: object) -> None:
        if others:
            others.pop()

    at_each_step(lambda: found.update(lookup.get_many(session, Customer, [stored[0]])), collect_one)

    assert [stored[0]] == list(found)


def test_parsing_among_many_types() -> None:
    """``TypedId.parse()`` finds the type by its prefix, without trying every type."""
    types: list[type[TypedId]] = []

    def steps_among(number: int) -> int:
        while len(types) < number:
            prefix = f"rptparse{chr(97 + len(types) // 26)}{chr(97 + len(types) % 26)}"
            types.append(type(f"Parsed{len(types)}", (TypedId,), {}, prefix=prefix))
        text = str(types[0]())
        TypedId.parse(text)
        return steps_of(lambda: TypedId.parse(text))

    few = steps_among(1)

    assert steps_among(200) <= 1.2 * few


def test_objects_that_nobody_read(session: Session, stored: tuple[str, str], statements: Statements) -> None:
    """References are loaded together even if thousands of other objects were collected before they were read."""
    key = session.scalars(select(Customer.id)).one()
    session.execute(insert(Order), [{"customer_id": key} for _ in range(1500)])
    for _ in session.scalars(select(Order).execution_options(yield_per=100)):
        pass
    orders = session.scalars(select(Order).limit(20)).all()
    statements.clear()

    assert {order.customer_public_id for order in orders} == {stored[0]}
    assert len(statements.starting("SELECT")) == 1


def test_keys_that_were_assigned(session: Session, stored: tuple[str, str], statements: Statements) -> None:
    """References are loaded together after foreign keys were assigned, for new and for stored objects."""
    customers = [Customer() for _ in range(40)]
    session.add_all(customers)
    session.flush()
    ids = {customer.id: customer.public_id for customer in customers}
    orders = [Order(customer_id=key) for key in ids]
    session.add_all(orders)
    session.flush()
    session.expunge_all()
    session.add_all(orders)
    statements.clear()

    assert [order.customer_public_id for order in orders] == [ids[order.customer_id] for order in orders]
    for order, key in zip(orders, reversed(ids), strict=True):
        order.customer_id = key
    assert [order.customer_public_id for order in orders] == [ids[order.customer_id] for order in orders]
    assert len(statements.starting("SELECT")) == 2


def test_malformed_text_is_not_inspected(session: Session) -> None:
    """SQLAlchemy is not asked whether a malformed text is an object of a model: it would ask each of its inspectors."""
    lookup.get(session, Customer, "malformed!")
    inspected: list[object] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code is inspect.__code__:
            inspected.append(frame.f_locals["subject"])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert lookup.get(session, Customer, "malformed!") is None
        assert lookup.get_many(session, Customer, ["malformed!", "neither!"]) == {}
    finally:
        sys.setprofile(before)
    assert {*inspected} == {Customer}
