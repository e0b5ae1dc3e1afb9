"""The id of a stored row does not change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, String, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, load_only, mapped_column
from support.marks import on, on_async
from support.rows import stored

from conftest import Statements
from sqlalchemy_public_id import (
    ImmutablePublicId,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    TypedId,
    bigint_key,
    public_id_column,
)


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(50))


class MemberId(TypedId, prefix="immutable_account"): ...


class Member(PublicIdMixin[MemberId], Base):
    __tablename__ = "member"


class Link(Base):
    """Two public ids, one under another column name."""

    __tablename__ = "link"
    id: Mapped[int] = bigint_key()
    short: Mapped[str] = public_id_column(NanoId(length=8))
    long: Mapped[str] = public_id_column(NanoId(length=20), name="long_text")


A, B = "a" * 12, "b" * 12
EVERYWHERE = on("sqlite", "postgresql", "mysql", "mariadb")
pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


@pytest.fixture
def user(session: Session) -> User:
    """A stored user, loaded, whose public id is A."""
    user = User(name="Ada", public_id=A)
    session.add(user)
    session.commit()
    session.refresh(user)
    return user


@EVERYWHERE
def test_persistent_id_cannot_change(session: Session, user: User) -> None:
    """Another id for a stored row is refused with all the facts, and the row keeps its own."""
    with pytest.raises(ImmutablePublicId) as caught:
        user.public_id = B
    session.commit()

    error = caught.value
    assert (error.model, error.attribute, error.old, error.new) == ("User", "public_id", A, B)
    assert user.public_id == A
    assert {user.id: A} == stored(session, User)


def flushed(session: Session, user: User) -> User:
    other = User(public_id=B)
    session.add(other)
    session.flush()
    return other


def deferred(session: Session, user: User) -> User:
    session.expunge_all()
    return session.scalars(select(User).options(load_only(User.name))).one()


STATES: dict[str, Callable[[Session, User], Any]] = {
    "loaded": lambda session, user: user,
    "expired": lambda session, user: session.expire(user),
    "deferred": deferred,
    "flushed": flushed,
    "detached": lambda session, user: session.expunge(user),
    "modified": lambda session, user: setattr(user, "name", "Grace"),
}
CHANGES: dict[str, Callable[[User], None]] = {
    "another id": lambda user: setattr(user, "public_id", "c" * 12),
    "None": lambda user: setattr(user, "public_id", None),
    "malformed": lambda user: setattr(user, "public_id", "nonsense"),
    "del": lambda user: delattr(user, "public_id"),
}


@on("sqlite")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", STATES)
def test_stored_id_cannot_change(session: Session, user: User, state: str, change: str) -> None:
    """Whatever an object of a stored row went through, and whatever its id would become, by the flush at the latest."""
    target = STATES[state](session, user) or user
    before = set(stored(session, User).values())
    with pytest.raises(ImmutablePublicId):
        CHANGES[change](target)
        session.flush()
    if not session.is_active:
        session.rollback()
    session.commit()

    assert before == set(stored(session, User).values())


@on("sqlite")
def test_refused_change_leaves_the_object_clean(session: Session, user: User) -> None:
    """The object shows the id it had, and is not marked as modified."""
    with pytest.raises(ImmutablePublicId):
        user.public_id = B

    assert user not in session.dirty
    assert user.public_id == A


@on("sqlite")
def test_id_that_cannot_be_loaded_cannot_change(session: Session, user: User) -> None:
    """Another id for an object that left its session without its own is refused when a flush has a row to compare."""
    session.expire(user)
    session.expunge(user)
    user.public_id = B
    session.add(user)

    with pytest.raises(ImmutablePublicId) as caught:
        session.flush()
    assert (caught.value.old, caught.value.new) == (A, B)
    session.rollback()
    assert {user.id: A} == stored(session, User)


@on("sqlite")
def test_merge_cannot_change_an_id(session: Session, user: User) -> None:
    """Merging a copy with another id is refused, whether the row is in the session or not."""
    key = user.id
    with pytest.raises(ImmutablePublicId):
        session.merge(User(id=key, public_id=B))
    session.expunge_all()
    with pytest.raises(ImmutablePublicId):
        session.merge(User(id=key, public_id=B))


@on("sqlite")
def test_each_of_two_ids_is_immutable(session: Session) -> None:
    """A renamed column is watched like any other."""
    link = Link()
    session.add(link)
    session.commit()
    session.refresh(link)
    for name, new in (("short", "c" * 8), ("long", "c" * 20)):
        with pytest.raises(ImmutablePublicId):
            setattr(link, name, new)


@on("sqlite")
def test_same_id_may_be_assigned(session: Session, user: User) -> None:
    """Assigning the id a row has is no change, as form libraries do it."""
    user.public_id = A

    assert not session.is_modified(user)


UNLOADED: dict[str, Callable[[Session, User], Any]] = {
    "expired": lambda session, user: session.expire(user),
    "detached": lambda session, user: (session.expire(user), session.expunge(user)),
    "deferred": deferred,
    "raiseload": lambda session, user: (
        session.expunge_all(),
        session.scalars(select(User).options(load_only(User.name, raiseload=True))).one(),
    )[1],
}


@EVERYWHERE
@pytest.mark.parametrize("state", UNLOADED)
def test_same_id_may_be_assigned_unloaded(session: Session, user: User, state: str, statements: Statements) -> None:
    """Assigning the id of a row loads nothing if it is not loaded, and the flush changes the other columns only."""
    target = UNLOADED[state](session, user)
    target = target if isinstance(target, User) else user
    statements.clear()
    for name, value in {"name": "Grace", "public_id": A}.items():
        setattr(target, name, value)
    assert not statements
    session.add(target)
    session.flush()

    assert [statement for statement in statements.starting("UPDATE") if "public_id" in statement] == []
    assert (target.public_id, target.name) == (A, "Grace")


@on("sqlite")
def test_same_id_assigned_alone_is_no_update(session: Session, user: User, statements: Statements) -> None:
    """Without another change there is no UPDATE."""
    session.expire(user)
    user.public_id = A
    statements.clear()
    session.flush()

    assert statements.starting("UPDATE") == []


@on("sqlite")
@on_async("sqlite")
def test_same_id_may_be_assigned_in_an_async_session(async_engine: AsyncEngine) -> None:
    """After ``commit()`` of an ``AsyncSession`` nothing can be loaded, and nothing has to be."""

    async def story() -> None:
        async with async_engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(async_engine) as session:
            user = User(public_id=A)
            session.add(user)
            await session.commit()
            user.name, user.public_id = "Grace", A
            await session.commit()
            await session.refresh(user)
            assert (user.name, user.public_id) == ("Grace", A)
        await async_engine.dispose()

    asyncio.run(story())


@on("sqlite")
def test_each_of_two_unloaded_ids_is_compared(session: Session) -> None:
    """Each public id of a model is compared with that of the row."""
    link = Link()
    session.add(link)
    session.commit()
    link.short = "c" * 8

    with pytest.raises(ImmutablePublicId):
        session.flush()


@on("sqlite")
def test_same_text_may_be_assigned_to_a_typed_id(session: Session) -> None:
    """The plain text of a typed id is the same id; the attribute keeps its type."""
    member = Member()
    session.add(member)
    session.commit()
    member.public_id = str(member.public_id)  # type: ignore[assignment]

    assert MemberId is type(member.public_id)


@on("sqlite")
def test_update_of_other_columns_leaves_the_id_out(session: Session, user: User, statements: list[str]) -> None:
    """Saving a change of another attribute does not write the id again."""
    user.name = "Grace"
    session.commit()

    assert not any("public_id" in statement for statement in statements if statement.startswith("UPDATE"))
    assert any(statement.startswith("UPDATE") for statement in statements)


class Seat(PublicIdColumnMixin, Base):
    """Has a key of two columns."""

    __tablename__ = "seat"
    line: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@on("sqlite")
def test_same_id_may_be_assigned_to_rows_of_a_composite_key(session: Session) -> None:
    """An id that is not loaded is compared with that of its own row, and not of one with the same first column."""
    seats = {A: Seat(line=1, place=1, public_id=A), B: Seat(line=1, place=2, public_id=B)}
    session.add_all(seats.values())
    session.commit()
    for public_id, seat in seats.items():
        seat.public_id = public_id
    session.commit()

    assert {public_id: seat.public_id for public_id, seat in seats.items()} == {A: A, B: B}


@on("sqlite")
def test_del_is_refused_at_once(session: Session, user: User) -> None:
    """``del`` of the id of a stored row is an error before the flush."""
    with pytest.raises(ImmutablePublicId) as caught:
        del user.public_id

    assert (caught.value.old, caught.value.new) == (A, None)
