"""Fixtures of the mistakes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mistakes.models import Base, Customer, Order
from sqlalchemy import MetaData
from sqlalchemy.orm import Session


@pytest.fixture
def ada(create: Callable[[MetaData], None], session: Session) -> Customer:
    """A customer, who is stored with an order."""
    create(Base.metadata)
    ada = Customer(name="Ada", orders=[Order(total=950)])
    session.add(ada)
    session.commit()
    return ada


@pytest.fixture
def order(ada: Customer) -> Order:
    """The order of Ada."""
    return ada.orders[0]
