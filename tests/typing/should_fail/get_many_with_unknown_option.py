# expect mypy call-arg, pyright reportCallIssue
from __future__ import annotations

from models import User
from sqlalchemy.ext.asyncio import AsyncSession

from sqlalchemy_public_id.asyncio import lookup


async def locked(session: AsyncSession, public_id: str) -> None:
    await lookup.get_many(session, User, [public_id], for_update=True)  # wrong
