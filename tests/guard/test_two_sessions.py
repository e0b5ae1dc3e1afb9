"""Two sessions on one connection, one of which flushes inside the other's flush: each keeps its own ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import pytest
from sqlalchemy import Connection, event, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from support.members import A, Animal, B, C, D, E, User
from support.rows import agree
from support.ways import Way, execute, flush, insert_in_bulk

from sqlalchemy_public_id import testing

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("stored")]


@pytest.fixture
def stored(members: None, session: Session) -> None:
    """Store one row, whose id will be generated again."""
    session.add(User(public_id=A, email="stored"))
    session.commit()


@contextmanager
def inner_session(
    model: type[Any],
    write: Callable[[Session], object],
    *,
    when: Literal["before_insert", "after_insert"] = "before_insert",
    **options: Any,
) -> Iterator[None]:
    """Call *write* with another session on the same connection whenever a *model* is flushed, like an audit log.

    Rows that *write* itself flushes do not call it again. *options* are passed to the session, which works in a
    savepoint: if *write* does not commit, it is rolled back.
    """
    is_inside = False

    def listen(mapper: Any, connection: Connection, target: Any) -> None:
        nonlocal is_inside
        if is_inside:
            return
        is_inside = True
        try:
            with Session(connection, join_transaction_mode="create_savepoint", **options) as inner:
                write(inner)
        finally:
            is_inside = False

    event.listen(model, when, listen)
    try:
        yield
    finally:
        event.remove(model, when, listen)


def committed(write: Way, rows: int) -> Callable[[Session], None]:
    """Return a function that writes animals and commits."""

    def act(inner: Session) -> None:
        write(inner, Animal, [{"name": str(number)} for number in range(rows)])
        inner.commit()

    return act


def rolled_back(inner: Session) -> None:
    inner.add(Animal(name="rolled back"))
    inner.flush()
    inner.rollback()


def failed(inner: Session) -> None:
    inner.add(User(public_id=E, email="stored"))
    with suppress(IntegrityError):
        inner.flush()
    inner.rollback()


INNER = {
    "one object": committed(flush, 1),
    "many objects": committed(flush, 5),
    "in bulk": committed(insert_in_bulk, 5),
    "by a statement": committed(execute, 5),
    "rolled back": rolled_back,
    "failed": failed,
}


@pytest.mark.parametrize("when", ["before_insert", "after_insert"])
@pytest.mark.parametrize("write", INNER.values(), ids=INNER)
@pytest.mark.parametrize("number", [1, 3])
def test_collision_of_the_outer_flush(session: Session, write: Callable[..., None], number: int, when: Any) -> None:
    """A collision of the outer flush is retried although an inner session has written rows in the meantime."""
    with testing.fixed_ids(User, A, B, C, D), inner_session(User, write, when=when):
        users = flush(session, User, [{}] * number)

    agree(session, users)
    assert {user.public_id for user in users} == {*[B, C, D][:number]}


@pytest.mark.parametrize("when", ["before_insert", "after_insert"])
def test_collision_of_the_inner_flush(session: Session, when: Any) -> None:
    """A collision of the inner flush is retried, and the outer objects keep their ids."""
    inner_ids: list[str] = []

    def write(inner: Session) -> None:
        with testing.fixed_ids(Animal, E):
            [animal] = flush(inner, Animal, [{"name": "inner"}])
        inner_ids.append(animal.public_id)
        inner.commit()

    session.add(Animal(public_id=E, name="stored"))
    session.commit()
    with testing.fixed_ids(User, B, C), inner_session(User, write, when=when):
        users = flush(session, User, [{}, {}])

    assert {user.public_id for user in users} == {B, C}
    agree(session, users)
    assert sorted([E, *inner_ids]) == sorted(session.scalars(select(Animal.public_id)))


@pytest.mark.parametrize("rows", [1, 2])
def test_no_id_is_lost(session: Session, rows: int) -> None:
    """The ids that the outer flush has drawn for its objects wait there until the inner flush has ended."""

    emails = iter(["inner 1", "inner 2"])

    def act(inner: Session) -> None:
        flush(inner, User, [{"email": next(emails)}])
        inner.commit()

    ids = [B, C, D, E][: 2 * rows]
    with testing.fixed_ids(User, *ids), inner_session(User, act):
        flush(session, User, [{"email": f"outer {number}"} for number in range(rows)])

    assert sorted(session.scalars(select(User.public_id).where(User.public_id != A))) == sorted(ids)
