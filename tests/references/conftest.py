"""Fixture for the tests of references."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session


@pytest.fixture
def db(session: Session) -> Session:
    """Return a session whose transaction has begun."""
    session.connection()
    return session
