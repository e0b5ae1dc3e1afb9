# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from collections.abc import AsyncIterator

from models import User
from sqlalchemy.orm import Session

from sqlalchemy_public_id import bulk


def write(session: Session, users: AsyncIterator[User]) -> None:
    bulk.insert_many(session, users)  # wrong
