"""A database with a customer and an order, for the tests of packages that work with SQLAlchemy models.

``make neighbours`` runs these tests in a separate environment: twenty packages are too many beside all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest
from neighbours.models import ADA, FIRST, Base, Customer, Order
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

collect_ignore_glob = ["test_*.py"] if find_spec("strawberry") is None else []
"""Without the packages, the tests are left to ``make neighbours``, which ``.ci/run`` calls."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Order(public_id=FIRST, total=950, customer=Customer(public_id=ADA, name="Ada")))
        session.commit()
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@pytest.fixture
def sessions(engine: Engine) -> Callable[[], Session]:
    return lambda: Session(engine, expire_on_commit=False)
