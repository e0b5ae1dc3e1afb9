"""Fixture for tests of ``insert_once()``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import MetaData
from sqlalchemy.orm import Session
from support.purchases import Base


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    """Return a session with empty tables of customers and their orders."""
    create(Base.metadata)
    return session
