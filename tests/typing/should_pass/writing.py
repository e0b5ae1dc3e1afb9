"""Objects of any models are inserted in bulk; engines of both kinds are guarded."""

from __future__ import annotations

from models import Customer, User
from sqlalchemy import Column, Engine, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session
from typing_extensions import assert_type

from sqlalchemy_public_id import NanoId, PublicIdType, bulk, guard

format = NanoId(prefix="usr")
table = Table("user", MetaData(), Column("public_id", PublicIdType(format), default=format.generate, unique=True))


def write(session: Session) -> None:
    bulk.insert(session, [User(name="Ada"), Customer()])
    bulk.insert(session, (User(name=name) for name in ("Grace", "Edsger")))
    assert_type(bulk.insert_many(session, (User(name=name) for name in ("Barbara", "Donald"))), int)
    bulk.insert_many(session, [User(name="Tony"), Customer()], batch=1, progress=print)


def protect(engine: Engine, async_engine: AsyncEngine) -> None:
    guard.install(engine)
    guard.install(async_engine)
    guard.uninstall(engine)
    guard.uninstall(async_engine)
