"""The awaitable functions and ids that two tenants share: the row of the tenant that is named, or an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import select, true
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from support.async_sessions import tell
from support.shared_ids import (
    OF_BOTH,
    ONLY_OURS,
    ONLY_THEIRS,
    OURS,
    THEIRS,
    Base,
    Note,
    expected,
    fill,
    is_of,
    public_id,
    text_of,
)

from sqlalchemy_public_id import ConfigurationError, InvalidCursor, PublicIdNotFound
from sqlalchemy_public_id.asyncio import bulk, idempotency, lookup
from sqlalchemy_public_id.errors import AmbiguousPublicId

pytestmark = pytest.mark.backend

Find = Callable[..., Awaitable[Any]]


def text(note: Any) -> str | None:
    return None if note is None else note.text


def only(found: dict[str, Any]) -> Any:
    return next(iter(found.values()), None)


async def get_one(session: AsyncSession, id: str, **where: Any) -> Any:
    try:
        return text(await lookup.get_one(session, Note, id, **where))
    except PublicIdNotFound:
        return None


async def text_by_key(session: AsyncSession, id: str, **where: Any) -> Any:
    key = only(await lookup.keys_of(session, Note, [id], **where))
    if key is not None:
        assert only(await lookup.public_ids_of(session, Note, [key])) == id
    return await session.scalar(select(Note.text).where(Note.id == key))


async def text_of_page(session: AsyncSession, id: str, **where: Any) -> Any:
    """Return the text of the row at a cursor, which is on neither side of it."""
    try:
        sides = [*await lookup.page(session, Note, limit=100, after=id, **where)]
        sides += [*await lookup.page(session, Note, limit=100, before=id, **where)]
    except InvalidCursor:
        return None
    [left] = [note for note in await lookup.page(session, Note, limit=100, **where) if note not in sides]
    return left.text


async def get(session: AsyncSession, id: str, **where: Any) -> Any:
    return text(await lookup.get(session, Note, id, **where))


async def get_many(session: AsyncSession, id: str, **where: Any) -> Any:
    return text(only(await lookup.get_many(session, Note, [id], **where)))


async def resolve(session: AsyncSession, id: str, **where: Any) -> Any:
    return text(await lookup.resolve(session, id, base=Base, **where))


async def resolve_many(session: AsyncSession, id: str, **where: Any) -> Any:
    return text(only(await lookup.resolve_many(session, [id], models=[Note], **where)))


LOOKUPS: list[Find] = [get, get_one, get_many, text_by_key, text_of_page, resolve, resolve_many]


@pytest.mark.parametrize("find", LOOKUPS)
def test_lookups(async_engine: AsyncEngine, find: Find) -> None:
    """Each lookup finds the row of the tenant in where=, refuses to choose without it, and reports two rows."""

    async def story(session: AsyncSession) -> None:
        await session.run_sync(fill)
        for tenant in (OURS, THEIRS):
            for number in (ONLY_OURS[3], OF_BOTH[0], ONLY_THEIRS[4], 99):
                session.expunge_all()
                found = await find(session, public_id(number), where=is_of(tenant))
                assert found == expected(tenant, number)
        with pytest.raises(ConfigurationError, match=r"does not name Note\.tenant_id"):
            await find(session, public_id(OF_BOTH[0]))
        with pytest.raises(AmbiguousPublicId):
            await find(session, public_id(OF_BOTH[0]), where=true())

    tell(async_engine, Base.metadata, story)


def test_writes(async_engine: AsyncEngine) -> None:
    """A bulk insert takes equal ids of two tenants, and insert_once() compares the row of its own tenant."""

    async def story(session: AsyncSession) -> None:
        notes = [Note(tenant_id=tenant, public_id=public_id(1), text=text_of(tenant, 1)) for tenant in (OURS, THEIRS)]
        await bulk.insert(session, notes)
        for tenant, stored in zip((OURS, THEIRS), notes, strict=True):
            again = Note(tenant_id=tenant, public_id=public_id(1), text=text_of(tenant, 1))
            note, created = await idempotency.insert_once(session, again)
            assert (note.id, created) == (stored.id, False)
        other, created = await idempotency.insert_once(session, Note(tenant_id=3, public_id=public_id(1), text="new"))
        assert created
        assert other.id not in {note.id for note in notes}

    tell(async_engine, Base.metadata, story)
