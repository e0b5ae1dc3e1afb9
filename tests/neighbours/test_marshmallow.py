"""marshmallow-sqlalchemy: schemas generated from models, and references as fields."""

from __future__ import annotations

from typing import Any

import pytest
from marshmallow import ValidationError, fields
from marshmallow_sqlalchemy import SQLAlchemyAutoSchema
from neighbours.models import ADA, FIRST, Customer, CustomerId, Order, OrderId
from sqlalchemy import select
from sqlalchemy.orm import Session

from sqlalchemy_public_id import InvalidPublicId, TypedId


class Id(fields.String):
    """The field of the documentation, which loads a typed id or raises a validation error."""

    def __init__(self, type_: type[TypedId], **options: Any) -> None:
        super().__init__(**options)
        self.type = type_

    def _deserialize(self, value: Any, attr: Any, data: Any, **options: Any) -> Any:
        try:
            return self.type(super()._deserialize(value, attr, data, **options))
        except InvalidPublicId as error:
            raise ValidationError(f"not a public id: {error.reason}") from error


def schema(session: Session) -> Any:
    class Orders(SQLAlchemyAutoSchema):
        class Meta:
            model = Order
            sqla_session = session
            load_instance = True
            exclude = ("id",)

        public_id = Id(OrderId)
        customer_public_id = Id(CustomerId)

    return Orders()


def test_dump_and_load(session: Session) -> None:
    """A schema dumps public ids in place of keys, and loads a reference by its public id."""
    order = session.scalars(select(Order)).one()
    shown = {"public_id": FIRST, "customer_public_id": ADA, "total": 950}
    assert schema(session).dump(order) == shown
    loaded = schema(session).load({"customer_public_id": ADA, "total": 1})
    session.add(loaded)
    session.flush()
    assert loaded.customer_id == order.customer_id


@pytest.mark.parametrize("wrong", ["nonsense", "1", 1, None, FIRST])
def test_malformed(session: Session, wrong: Any) -> None:
    """A malformed id raises a validation error for its field."""
    with pytest.raises(ValidationError) as raised:
        schema(session).load({"customer_public_id": wrong, "total": 1})
    assert list(raised.value.normalized_messages()) == ["customer_public_id"]


def test_generated_field(session: Session) -> None:
    """The field that the package generates for a public id is a string, and the model refuses a malformed one."""

    class Customers(SQLAlchemyAutoSchema):
        class Meta:
            model = Customer
            sqla_session = session
            load_instance = True
            exclude = ("id",)

    assert Customers().load({"name": "Grace", "public_id": "nbcus_0000000grace"}).public_id == "nbcus_0000000grace"
    with pytest.raises(InvalidPublicId):
        Customers().load({"name": "Grace", "public_id": "nonsense"})
