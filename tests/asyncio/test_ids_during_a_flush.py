"""Ids that are read while another task or thread inserts their rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from support.async_sessions import tell
from support.members import Base, User

from sqlalchemy_public_id import ConfigurationError


@pytest.mark.backend
def test_another_task_is_refused(async_engine: AsyncEngine, listen: Callable[..., None]) -> None:
    """While a task awaits a flush, another one is refused the ids of its objects, which a row gets only then."""
    started: list[object] = []
    listen(User, "before_insert", lambda mapper, connection, user: started.append(user))

    async def story(session: AsyncSession) -> None:
        users = [User(name=name) for name in "ab"]
        session.add_all(users)
        flush = asyncio.create_task(session.flush())
        while not started:
            await asyncio.sleep(0)
        seen, refused = set[str](), list[ConfigurationError]()
        while not flush.done():
            for user in users:
                try:
                    seen.add(user.public_id)
                except ConfigurationError as error:
                    refused.append(error)
            await asyncio.sleep(0)
        await flush
        assert seen <= {user.public_id for user in users}
        assert "read it before the flush, or when the flush is over" in str(refused[0])

    tell(async_engine, Base.metadata, story)


def test_another_thread_is_refused(members: None, engine: Engine) -> None:
    """A thread is refused the id of an object that another one inserts, which stores the row nevertheless."""
    user, errors = User(name="a"), list[Any]()

    with ThreadPoolExecutor() as threads, Session(engine) as session:
        session.add(user)

        @event.listens_for(engine, "before_cursor_execute")
        def read(*statement: object) -> None:
            errors.append(threads.submit(lambda: user.public_id).exception())

        session.flush()
        event.remove(engine, "before_cursor_execute", read)
        assert session.get_one(User, user.id).public_id == user.public_id
    assert [type(error) for error in errors] == [ConfigurationError]
