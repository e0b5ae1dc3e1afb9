# expect mypy arg-type, pyright reportReturnType
from __future__ import annotations

from models import Order, User
from sqlalchemy.orm import Session

from sqlalchemy_public_id import lookup


def orders_of(session: Session, public_ids: list[str]) -> list[Order]:
    found = lookup.get_many(session, User, public_ids)
    return list(found.values())  # wrong
