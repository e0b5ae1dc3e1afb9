"""With an AsyncSession, a lookup returns objects of the model that it was called with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from models import Customer, CustomerId, User
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import load_only
from typing_extensions import assert_type

from sqlalchemy_public_id.asyncio import bulk, lookup
from sqlalchemy_public_id.asyncio.lookup import Page


async def look_up(session: AsyncSession, public_id: str, customer_id: CustomerId) -> User:
    assert_type(await lookup.get(session, User, public_id), User | None)
    assert_type(await lookup.get(session, Customer, customer_id, options=[load_only(Customer.id)]), Customer | None)
    assert_type(await lookup.get_one(session, User, public_id, with_for_update=True), User)
    assert_type(await lookup.get_many(session, User, [public_id, None]), dict[str, User])
    assert_type(await lookup.get_many(session, User, [public_id], with_for_update={"nowait": True}), dict[str, User])
    assert_type(await lookup.resolve(session, public_id), Any | None)
    assert_type(await lookup.keys_of(session, User, {public_id}), dict[str, Any])
    assert_type(await lookup.public_ids_of(session, User, (1, 2)), dict[Any, str])
    return await lookup.get_one(session, User, public_id)


async def page(session: AsyncSession, after: str | None) -> Page[User]:
    users: lookup.Page[User] = await lookup.page(session, User, limit=9, after=after)
    assert_type(users, Page[User])
    assert_type(await lookup.resolve_many(session, [after], models=[User, Customer]), dict[str, Any])
    return users


async def write(session: AsyncSession) -> None:
    await bulk.insert(session, [User(name="Ada"), Customer()])
    assert_type(await bulk.insert_many(session, [User(name="Ada"), Customer()], progress=print), int)


async def write_what_arrives(session: AsyncSession, users: AsyncIterator[User]) -> None:
    async def commit(count: int) -> None:
        await session.commit()

    await bulk.insert_many(session, users, batch=100, progress=commit)
