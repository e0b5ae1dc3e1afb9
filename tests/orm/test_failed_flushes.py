"""A flush that fails inside a savepoint: the ids that it has generated are forgotten, and the next one begins anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from support.members import A, B, Base, C, User
from support.ways import Way, each_way, execute, flush, insert_in_bulk

from sqlalchemy_public_id import bulk, testing

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]
both_ways = each_way(flush, insert_in_bulk)


@pytest.fixture
def tables(create: Callable[[MetaData], None], session: Session) -> None:
    create(Base.metadata)
    flush(session, User, [{"name": "taken", "email": "taken", "public_id": A}])


def fail(session: Session, write: Way, rows: int = 1) -> None:
    """Write rows that the database refuses, in a savepoint, which is rolled back."""
    with pytest.raises(IntegrityError), session.begin_nested():
        write(session, User, [{"email": "taken"}] * rows)


@both_ways
@pytest.mark.parametrize("rows", [1, 2])
def test_given_id_after_a_failed_flush(session: Session, write: Way, rows: int) -> None:
    """An id that a failed flush has generated is a given one when the program inserts it: a collision is an error."""
    flush(session, User, [{"name": "other", "public_id": B}])
    with testing.fixed_ids(User, *[B, C][:rows]):
        fail(session, write, rows)
    with pytest.raises(IntegrityError), session.begin_nested():
        execute(session, User, [{"name": "new", "public_id": B}])

    assert sorted(session.scalars(select(User.name))) == ["other", "taken"]


@pytest.mark.parametrize("insert", [Session.add_all, bulk.insert])
def test_objects_after_a_failed_flush(session: Session, insert: Callable[[Session, list[Any]], None]) -> None:
    """Failed objects have no ids; those of the next flush, and they when they are added again, have those of rows."""
    failed = [User(name="failed", email="taken"), User(name="beside")]
    with pytest.raises(IntegrityError), session.begin_nested():
        insert(session, failed)
        session.flush()
    assert ["public_id" in vars(each) for each in failed] == [False, False]

    failed[0].email = "free"
    others = [User(name="one"), User(name="two")]
    insert(session, others)
    insert(session, failed)
    session.commit()

    shown = {user.name: user.public_id for user in [*failed, *others]}
    session.expunge_all()
    stored = {user.name: user.public_id for user in session.scalars(select(User).where(User.name != "taken"))}
    assert shown == stored


@both_ways
def test_collision_after_a_failed_flush(session: Session, write: Way) -> None:
    """A collision in the next flush is retried, and an id that only a failed flush has generated is free."""
    with testing.fixed_ids(User, B):
        fail(session, write)
    with testing.fixed_ids(User, A, B, C):
        users = write(session, User, [{"name": "one"}, {"name": "two"}])
    session.commit()

    assert {user.public_id for user in users} == {B, C}
