# expect mypy return-value, pyright reportReturnType
from __future__ import annotations

from models import Order, User
from sqlalchemy.orm import Session

from sqlalchemy_public_id import lookup


def order_of(session: Session, public_id: str) -> Order:
    return lookup.get_one(session, User, public_id)  # wrong
