"""What tests of the ORM share."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session
from support.members import A, User
from support.ways import flush


@pytest.fixture
def user(session: Session, members: None) -> User:
    """A stored user, loaded, whose public id is A."""
    [user] = flush(session, User, [{"name": "Ada", "public_id": A}])
    session.commit()
    session.refresh(user)
    return user
