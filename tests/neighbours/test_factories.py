"""factory_boy and polyfactory: objects with public ids, and requests with typed ids."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import factory
import pytest
from neighbours.models import FIRST, Customer, CustomerId, Order
from polyfactory.factories.pydantic_factory import ModelFactory
from polyfactory.factories.sqlalchemy_factory import SQLAlchemyFactory
from polyfactory.fields import Ignore
from pydantic import BaseModel
from sqlalchemy.orm import DeclarativeBase, Mapped, Session

from sqlalchemy_public_id import NanoId, PublicIdMixin, PublicIdType, Uuid7


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


M = TypeVar("M")


class Base(DeclarativeBase): ...


class Plain(PublicIdMixin, Base):
    __tablename__ = "plain"
    name: Mapped[str]


class Prefixed(PublicIdMixin, Base):
    __tablename__ = "prefixed"
    __public_id__ = NanoId(prefix="nbpre")
    name: Mapped[str]


class Stored(PublicIdMixin, Base):
    __tablename__ = "stored"
    __public_id__ = Uuid7()
    name: Mapped[str]


class WithoutIds(SQLAlchemyFactory[M], Generic[M]):
    """The base of the documentation."""

    __is_base_factory__ = True

    @classmethod
    def should_column_be_set(cls, column: Any) -> bool:
        return not isinstance(column.type, PublicIdType) and super().should_column_be_set(column)


@pytest.mark.parametrize("model", [Plain, Prefixed, Stored, Customer])
def test_ids_that_polyfactory_leaves_out(model: Any) -> None:
    """With the base of the documentation, or ``Ignore()``, the library makes the ids, of models without a type, too."""
    base = type(f"{model.__name__}Factory", (WithoutIds,), {"__model__": model})
    ignored = type(f"{model.__name__}Ignored", (SQLAlchemyFactory,), {"__model__": model, "public_id": Ignore()})
    built: list[Any] = [each for made in (base, ignored) for each in made.batch(3)]

    assert len({each.public_id for each in built}) == 6
    assert all(model.public_id.type.id_format.is_valid(each.public_id) for each in built)
    assert all(isinstance(each.name, str) for each in built)  # an empty one, too: polyfactory draws its length
    assert base.build(public_id=built[0].public_id).public_id == built[0].public_id
