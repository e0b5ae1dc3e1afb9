# expect mypy return-value, pyright reportReturnType
from __future__ import annotations

from models import User
from sqlalchemy.ext.asyncio import AsyncSession

from sqlalchemy_public_id.asyncio import lookup


async def find(session: AsyncSession, public_id: str) -> User:
    return lookup.get_one(session, User, public_id)  # wrong
