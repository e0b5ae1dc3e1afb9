# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from models import User
from sqlalchemy.orm import Session

from sqlalchemy_public_id import lookup


def again(session: Session, user: User) -> None:
    lookup.get(session, user, user.public_id)  # wrong
