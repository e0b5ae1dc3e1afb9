"""SQLModel models as users write them, and other kinds of sessions."""

from __future__ import annotations

from models import User
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlmodel import Field, SQLModel
from typing_extensions import assert_type

from sqlalchemy_public_id import TypedId, lookup
from sqlalchemy_public_id.asyncio import lookup as awaited
from sqlalchemy_public_id.ext.sqlmodel import PublicIdSQLModel


class BandId(TypedId, prefix="band"): ...


class Band(PublicIdSQLModel, SQLModel, table=True):
    public_id: BandId = Field(default=None)
    name: str


class BandOut(SQLModel):
    public_id: BandId
    name: str = Field(default="", max_length=50)


band = Band(name="Ada and the Engines")
assert_type(band.public_id, BandId)
assert_type(BandOut(public_id=band.public_id).name, str)


def in_a_scope(session: scoped_session[Session]) -> User | None:
    return lookup.get(session, User, "izkpm55j334u")


async def in_an_asynchronous_scope(session: async_scoped_session[AsyncSession]) -> User:
    assert_type(await awaited.page(session, User, limit=5), lookup.Page[User])
    return await awaited.get_one(session, User, "izkpm55j334u")
