# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from models import User
from sqlalchemy.orm import Session

from sqlalchemy_public_id import bulk


def write(session: Session) -> None:
    bulk.insert(session, User(name="Ada"))  # wrong
