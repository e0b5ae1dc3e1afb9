"""The context managers for tests take a model, a typed id class or a format."""

from __future__ import annotations

from models import Card, Customer, CustomerId, User
from typing_extensions import assert_type

from sqlalchemy_public_id import NanoId, testing

format = NanoId()
with testing.fixed_ids(format, "izkpm55j334u") as nothing:
    assert_type(nothing, None)
with testing.fixed_ids(CustomerId, "cus_izkpm55j334u"), testing.fixed_ids(User):
    assert_type(CustomerId(), CustomerId)
with testing.collisions(Customer, CustomerId(), times=3):
    pass
with testing.collisions(Card, "izkpm55j33", attribute="slug"):
    pass
