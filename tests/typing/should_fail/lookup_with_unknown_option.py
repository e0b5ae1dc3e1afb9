# expect mypy call-arg, pyright reportCallIssue
from __future__ import annotations

from models import User
from sqlalchemy.orm import Session

from sqlalchemy_public_id import lookup


def locked(session: Session, public_id: str) -> None:
    lookup.get(session, User, public_id, for_update=True)  # wrong
