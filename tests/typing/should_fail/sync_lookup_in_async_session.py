# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from models import User
from sqlalchemy.ext.asyncio import AsyncSession

from sqlalchemy_public_id import lookup


def find(session: AsyncSession, public_id: str) -> User | None:
    return lookup.get(session, User, public_id)  # wrong
