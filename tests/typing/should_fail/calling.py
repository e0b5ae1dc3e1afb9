"""Mistakes with lookups, inserts and engines, each with the rules that mypy and Pyright report."""

from __future__ import annotations

from collections.abc import AsyncIterator

from models import Order, User
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_public_id import bulk, guard, lookup, testing
from sqlalchemy_public_id.asyncio import lookup as awaited


def order_of(session: Session, public_id: str) -> Order:
    return lookup.get_one(session, User, public_id)  # wrong: return-value, reportReturnType


def orders_of(session: Session, public_ids: list[str]) -> list[Order]:
    found = lookup.get_many(session, User, public_ids)
    return list(found.values())  # wrong: arg-type, reportReturnType


def name_of(session: Session, public_id: str) -> str:
    return lookup.get(session, User, public_id).name  # wrong: union-attr, reportOptionalMemberAccess


def look_up(session: Session, public_id: str, user: User) -> None:
    lookup.get(session, user, user.public_id)  # wrong: arg-type, reportArgumentType
    lookup.get(session, User, public_id, for_update=True)  # wrong: call-arg, reportCallIssue, not ty
    lookup.get_one(session, User, public_id, for_update=True)  # wrong: call-arg, reportCallIssue, not ty


async def look_up_awaited(session: AsyncSession, public_id: str) -> None:
    lookup.get(session, User, public_id)  # wrong: arg-type, reportArgumentType
    await awaited.get_many(session, User, [public_id], for_update=True)  # wrong: call-arg, reportCallIssue, not ty


async def find(session: AsyncSession, public_id: str) -> User:
    return awaited.get_one(session, User, public_id)  # wrong: return-value, reportReturnType


def write(session: Session, users: AsyncIterator[User]) -> None:
    bulk.insert(session, User(name="Ada"))  # wrong: arg-type, reportArgumentType
    bulk.insert_many(session, users)  # wrong: arg-type, reportArgumentType


guard.install("sqlite://")  # wrong: arg-type, reportArgumentType
with testing.fixed_ids(User, 5):  # wrong: arg-type, reportArgumentType
    pass
