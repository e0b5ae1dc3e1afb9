# expect mypy union-attr, pyright reportOptionalMemberAccess
from __future__ import annotations

from models import User
from sqlalchemy.orm import Session

from sqlalchemy_public_id import lookup


def name_of(session: Session, public_id: str) -> str:
    return lookup.get(session, User, public_id).name  # wrong
