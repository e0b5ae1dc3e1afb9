"""The attributes of a model have the type of its ids."""

from __future__ import annotations

from collections.abc import Sequence

from models import Card, CardId, Country, Customer, CustomerId, Order, OrderId, Team, User
from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session
from typing_extensions import assert_type

assert_type(User().public_id, str)
assert_type(Team().public_id, str)
assert_type(Country().public_id, str)
assert_type(Customer().public_id, CustomerId)
assert_type(Order().public_id, OrderId)
assert_type(Card().number, CardId)
assert_type(Card().slug, str)
assert_type(Card().code, str)

assert_type(User.public_id, InstrumentedAttribute[str])
assert_type(Order.public_id, InstrumentedAttribute[OrderId])


def keys() -> list[int]:
    return [User().id, Order().id, Card().id]


def public_ids(session: Session) -> Sequence[OrderId]:
    ids = session.scalars(select(Order.public_id).where(Order.public_id.startswith("ord_"))).all()
    assert_type(ids, Sequence[OrderId])
    return ids


given = Customer(public_id="cus_izkpm55j334u")
given.public_id = CustomerId("cus_izkpm55j334v")
