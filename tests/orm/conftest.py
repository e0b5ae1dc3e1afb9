"""Fixtures of the ORM tests."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session
from support.members import A, User
from support.ways import flush


@pytest.fixture
def user(session: Session, members: None) -> User:
    """Return a stored and loaded user whose public id is A."""
    [user] = flush(session, User, [{"name": "Ada", "public_id": A}])
    session.commit()
    session.refresh(user)
    return user
