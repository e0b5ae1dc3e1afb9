"""factory_boy and polyfactory: objects with public ids, and requests with typed ids."""

from __future__ import annotations

import factory
from polyfactory.factories.pydantic_factory import ModelFactory
from polyfactory.factories.sqlalchemy_factory import SQLAlchemyFactory
from pydantic import BaseModel
from sqlalchemy.orm import Session
from support.neighbour_models import FIRST, Customer, CustomerId, Order


def test_factory_boy(session: Session) -> None:
    """Objects of a factory and its subfactories get public ids; a given id finds the existing row."""

    class CustomerFactory(factory.alchemy.SQLAlchemyModelFactory):
        class Meta:
            model = Customer
            sqlalchemy_session = session
            sqlalchemy_session_persistence = "flush"

        name = factory.Sequence(lambda number: f"customer {number}")

    class OrderFactory(factory.alchemy.SQLAlchemyModelFactory):
        class Meta:
            model = Order
            sqlalchemy_session = session
            sqlalchemy_session_persistence = "flush"
            sqlalchemy_get_or_create = ("public_id",)

        total = 1
        customer = factory.SubFactory(CustomerFactory)

    assert len({customer.public_id for customer in CustomerFactory.create_batch(5)}) == 5
    order = OrderFactory(public_id="nbord_000000000two")
    assert order.customer_public_id == order.customer.public_id
    assert OrderFactory(public_id="nbord_000000000two") is order
    assert OrderFactory(public_id=FIRST).total == 950


def test_polyfactory(session: Session) -> None:
    """Objects of a factory get public ids that are stored; a Pydantic model gets ids of its type."""

    class CustomerFactory(SQLAlchemyFactory[Customer]):
        __session__ = session
        __set_primary_key__ = False

    class Wanted(BaseModel):
        customer: CustomerId

    class WantedFactory(ModelFactory[Wanted]): ...

    customers = CustomerFactory.create_batch_sync(5)
    assert len({customer.public_id for customer in customers}) == 5
    assert all(CustomerId(customer.public_id) for customer in customers)
    assert type(WantedFactory.build().customer) is CustomerId
