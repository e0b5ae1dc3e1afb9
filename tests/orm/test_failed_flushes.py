"""A flush that fails inside a savepoint: the ids that it has generated are forgotten, and the next one begins anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.interrupt import interrupted

from sqlalchemy_public_id import NanoId, PublicIdMixin, bigint_key, bulk, public_id_column, testing


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    name: Mapped[str] = mapped_column(String(50), unique=True)


class Only(Base):
    """There is one id."""

    __tablename__ = "only"
    id: Mapped[int] = bigint_key()
    public_id: Mapped[str] = public_id_column(NanoId(length=1, alphabet="a"), max_retries=3)
    name: Mapped[str] = mapped_column(String(50))


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]
A, B, C = (letter * 12 for letter in "abc")


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def flush(session: Session, *objects: Any) -> None:
    session.add_all(objects)
    session.flush()


def insert_in_bulk(session: Session, *objects: Any) -> None:
    bulk.insert(session, objects)


WAYS = [flush, insert_in_bulk]
each_way = pytest.mark.parametrize("write", WAYS, ids=lambda write: write.__name__)


def fail(session: Session, write: Callable[..., None], *objects: Any, error: Any = IntegrityError) -> None:
    """Write *objects* in a savepoint, which is rolled back."""
    with pytest.raises(error), session.begin_nested():
        write(session, *objects)


@each_way
@pytest.mark.parametrize("rows", [1, 2])
def test_given_id_after_a_failed_flush(session: Session, write: Callable[..., None], rows: int) -> None:
    """An id that a failed flush has generated is a given one when the program inserts it: a collision is an error."""
    flush(session, User(name="taken"), User(name="other", public_id=B))
    with testing.fixed_ids(User, *[B, C][:rows]):
        fail(session, write, *(User(name="taken") for _ in range(rows)))

    with pytest.raises(IntegrityError), session.begin_nested():
        session.execute(insert(User), [{"name": "new", "public_id": B}])

    assert sorted(session.scalars(select(User.name))) == ["other", "taken"]


@each_way
def test_id_of_a_failed_flush_is_free(session: Session, engine: Engine, write: Callable[..., None]) -> None:
    """The id that a failed flush has generated is free, since no row has it."""
    with interrupted(engine, 1, RuntimeError, only=("INSERT",)):
        fail(session, write, Only(name="first"), error=RuntimeError)
    session.expunge_all()

    write(session, Only(name="second"))
    session.commit()

    assert session.execute(select(Only.public_id, Only.name)).all() == [("a", "second")]


@each_way
def test_objects_after_a_failed_flush(session: Session, write: Callable[..., None]) -> None:
    """Objects of the next flush show the ids of their rows, and so does the failed one when it is added again."""
    flush(session, User(name="taken"))
    failed = User(name="taken")
    fail(session, write, failed)

    failed.name = "free"
    others = [User(name="one"), User(name="two")]
    write(session, *others)
    write(session, failed)
    session.commit()

    shown = {user.name: user.public_id for user in [failed, *others]}
    session.expunge_all()
    stored = {user.name: user.public_id for user in session.scalars(select(User).where(User.name != "taken"))}
    assert shown == stored


@each_way
def test_collision_after_a_failed_flush(session: Session, write: Callable[..., None]) -> None:
    """A collision in the next flush is retried, and only the row that has collided gets another id."""
    flush(session, User(name="taken", public_id=A))
    fail(session, write, User(name="taken"))

    with testing.fixed_ids(User, A, B, C):
        users = [User(name="one"), User(name="two")]
        write(session, *users)
    session.commit()

    assert {user.public_id for user in users} == {B, C}
