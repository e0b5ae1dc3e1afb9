"""A typed id is a str with its own type."""

from __future__ import annotations

from uuid import UUID

from models import CustomerId, OrderId
from typing_extensions import assert_type

from sqlalchemy_public_id import Format, NanoId, TypedId, Uuid7


def as_text(text: str) -> str:
    return text


made = CustomerId()
assert_type(made, CustomerId)
assert_type(CustomerId(made), CustomerId)
assert_type(CustomerId(str(made)), CustomerId)
assert_type(CustomerId.parse(made), CustomerId)
assert_type(CustomerId.parse(str(made), field="customer"), CustomerId)
assert_type(TypedId.parse(made), TypedId)
assert_type(OrderId.id_format, Format)
assert_type(OrderId.prefix, str)
assert_type(made.upper(), str)
as_text(made)
as_text(TypedId.parse(made))


class EntityId(TypedId):
    """An abstract type, whose subclasses have prefixes."""


class InvoiceId(EntityId, format=NanoId(prefix="inv")): ...


entity: EntityId = InvoiceId()
assert_type(InvoiceId.parse(entity), InvoiceId)
assert_type(EntityId.parse(entity), EntityId)


class DeedId(TypedId, format=Uuid7(prefix="deed")): ...


def of(value: UUID) -> DeedId:
    return DeedId(value)
