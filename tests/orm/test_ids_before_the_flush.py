"""The id of an object is known before the flush, checked where it is given, and its own until it is stored."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, String, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, defer, load_only, make_transient, mapped_column
from support.marks import on
from support.rows import agree, stored

from sqlalchemy_public_id import (
    ImmutablePublicId,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    PublicIdMixinDataclass,
    TypedId,
    bigint_key,
    bulk,
    public_id_column,
    testing,
)


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(50))


class AccountId(TypedId, prefix="early_account"): ...


class Account(PublicIdMixin[AccountId], Base):
    __tablename__ = "account"


class Link(Base):
    """Two public ids, one under another column name."""

    __tablename__ = "link"
    id: Mapped[int] = bigint_key()
    short: Mapped[str] = public_id_column(NanoId(length=8))
    long: Mapped[str] = public_id_column(NanoId(length=20), name="long_text")


class Note(PublicIdMixinDataclass, Base):
    __tablename__ = "note"
    text: Mapped[str] = mapped_column(String(50))


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


# --- before the flush


@EVERYWHERE
def test_early_id_is_the_stored_one(session: Session) -> None:
    """The id that an object shows before the flush is the one its row gets."""
    user = User()
    early = user.public_id
    session.add(user)
    session.commit()

    assert User.__public_id__.is_valid(early)
    assert {user.id: early} == stored(session, User)


@on("sqlite")
def test_early_ids_of_pending_objects(session: Session) -> None:
    """Looking at a pending object's id makes it, without a flush."""
    user = User()
    session.add(user)
    early = user.public_id

    assert user in session.new
    session.flush()
    assert early == user.public_id


@on("sqlite")
def test_early_typed_id() -> None:
    """An early id has the type of the column."""
    account = Account()

    assert AccountId is type(account.public_id)


@on("sqlite")
def test_each_attribute_has_its_own_early_id(session: Session) -> None:
    """An object with two public ids shows both, each in its own format, and stores what it has shown."""
    link = Link()
    shown = link.short, link.long
    session.add(link)
    session.commit()

    assert [len(text) for text in shown] == [8, 20]
    assert shown == session.connection().execute(select(Link.__table__.c.short, Link.__table__.c.long_text)).one()


@on("sqlite")
def test_early_id_of_a_dataclass(session: Session) -> None:
    """A mapped dataclass, whose constructor sets every field, knows its id early as well."""
    note = Note("remember")
    early = note.public_id
    session.add(note)
    session.commit()

    assert {note.id: early} == stored(session, Note)


@on("sqlite")
def test_early_id_survives_pickling() -> None:
    """A copy made by pickle before the flush shows the same id."""
    user = User(name="Ada")
    early = user.public_id

    assert early == pickle.loads(pickle.dumps(user)).public_id


@on("sqlite")
def test_no_early_id_for_a_loaded_object(session: Session, user: User) -> None:
    """A stored object whose id is not loaded loads it, rather than making one up."""
    session.expunge_all()
    for option in (load_only(User.name), defer(User.public_id)):
        found = session.scalars(select(User).options(option)).one()
        assert "public_id" not in found.__dict__
        assert found.public_id == A
        session.expunge_all()


MOVES: dict[str, Callable[[Session, User], Any]] = {
    "add": lambda session, user: session.add(user),
    "merge": lambda session, user: session.merge(user),
    "bulk.insert": lambda session, user: bulk.insert(session, [user, User(name="Edsger")]),
    "pickle": lambda session, user: session.add(pickle.loads(pickle.dumps(user))),
}


@on("sqlite", "postgresql")
@pytest.mark.parametrize("move", MOVES)
def test_early_id_is_not_replaced(session: Session, user: User, move: str) -> None:
    """An id that was read before the flush is a given one: however its object is written, a collision is an error."""
    with testing.collisions(User, A):
        early = User(name="Grace")
        assert early.public_id == A
        with pytest.raises(IntegrityError):
            MOVES[move](session, early)
            session.commit()

    assert early.public_id == A


@EVERYWHERE
def test_none_discards_an_id_that_collided(session: Session, user: User) -> None:
    """After ``None``, the object of a flush that failed gets another id, and keeps everything else."""
    early = User(name="Grace", public_id=A)
    session.add(early)
    with pytest.raises(IntegrityError):
        session.flush()
    session.rollback()
    early.public_id = None  # type: ignore[assignment]  # discards it
    session.add(early)
    session.commit()

    assert early.name == "Grace"
    agree(session, [user, early])


GIVEN: dict[str, Callable[[Session, str], Any]] = {
    "Core": lambda session, text: session.connection().execute(insert(User.__table__), [{"public_id": text}]),
    "insert(Model)": lambda session, text: session.execute(insert(User), [{"public_id": text}]),
    "values()": lambda session, text: session.execute(insert(User).values(public_id=text)),
    "bulk_insert_mappings": lambda session, text: session.bulk_insert_mappings(User.__mapper__, [{"public_id": text}]),
    "bulk_save_objects": lambda session, text: session.bulk_save_objects([User(public_id=text)]),
}


@EVERYWHERE
@pytest.mark.parametrize("way", GIVEN)
def test_early_id_given_to_a_statement(session: Session, user: User, way: str) -> None:
    """An early id that the caller gives to a statement is a given one, whose duplicate is an error; nothing changes."""
    with testing.fixed_ids(User, A):
        draft = User()
        assert draft.public_id == A

    with pytest.raises(IntegrityError):
        GIVEN[way](session, A)
    session.rollback()

    assert draft.public_id == A
    assert list(stored(session, User).values()) == [A]


@EVERYWHERE
def test_id_of_a_rolled_back_object_given_to_a_statement(session: Session) -> None:
    """Who writes a rolled-back row again by statements, twice, has the error the second time."""
    user = User()
    session.add(user)
    session.flush()
    shown = user.public_id
    session.rollback()
    session.execute(insert(User), [{"public_id": shown}])
    session.commit()

    with pytest.raises(IntegrityError):
        session.execute(insert(User), [{"public_id": shown}])


@on("sqlite", "postgresql")
def test_early_id_given_to_a_pending_object(session: Session, user: User) -> None:
    """An early id that is assigned to another object is a given one, also where that is in the session already."""
    with testing.fixed_ids(User, A):
        draft = User()
        assert draft.public_id == A
    other = User()
    session.add(other)
    other.public_id = draft.public_id

    with pytest.raises(IntegrityError):
        session.flush()


@on("sqlite", "postgresql")
def test_shown_id_and_bulk_save_objects(session: Session, user: User) -> None:
    """``bulk_save_objects()`` does not say whose row it writes, so an id that was shown stays, and its duplicate is an
    error.
    """
    with testing.fixed_ids(User, A):
        early = User(name="Grace")
        assert early.public_id == A

    with pytest.raises(IntegrityError):
        session.bulk_save_objects([early])


@on("sqlite", "postgresql")
def test_stored_early_id_stays(session: Session) -> None:
    """Once its row is stored, an object that showed its id early keeps it, whoever draws the same id later."""
    with testing.fixed_ids(User, A, A):
        early = User()
        assert early.public_id == A
        session.add(early)
        session.flush()
        other = User()
        session.add(other)
        session.flush()

    agree(session, [early, other])


@on("sqlite", "postgresql")
def test_early_id_given_to_another_object(session: Session) -> None:
    """An early id is a given one for every object but its own: the duplicate is the caller's error."""
    early = User()
    session.add_all([early, User(public_id=early.public_id)])

    with pytest.raises(IntegrityError):
        session.flush()


# --- given


@on("sqlite")
@pytest.mark.parametrize("bad", ["", "short", "A" * 12, "a" * 13, f"{A}\n", 1, 1.5, b"a" * 12, True])
def test_malformed_id_is_refused_by_the_constructor(bad: object) -> None:
    """What is not an id is refused where it is given, naming the attribute."""
    with pytest.raises(InvalidPublicId) as caught:
        User(public_id=bad)

    assert ("User.public_id", bad) == (caught.value.field, caught.value.value)


@on("sqlite")
def test_malformed_id_is_refused_by_assignment(session: Session) -> None:
    """A refused assignment leaves the id as it was, and the object usable."""
    user = User(public_id=A)
    with pytest.raises(InvalidPublicId):
        user.public_id = "nonsense"
    session.add(user)
    session.commit()

    assert {user.id: A} == stored(session, User)


@on("sqlite")
def test_given_id_may_change_before_the_flush(session: Session) -> None:
    """The id of an object that is not stored can be given again."""
    user = User(public_id=A)
    user.public_id = B
    session.add(user)
    user.public_id = A
    session.commit()

    assert {user.id: A} == stored(session, User)


@on("sqlite")
def test_none_is_an_id_to_be_made(session: Session) -> None:
    """``None`` leaves the id to the INSERT: the attribute shows none until then."""
    user = User(public_id=None)
    assert user.public_id is None
    session.add(user)
    session.flush()

    assert User.__public_id__.is_valid(user.public_id)
    agree(session, [user])


def test_none_takes_a_given_id_back(session: Session, user: User) -> None:
    """After ``None`` the id is the library's again, which replaces it where it collides."""
    other = User(public_id=A)
    other.public_id = None
    session.add(other)
    session.commit()

    agree(session, [user, other])


@on("sqlite")
def test_deleted_before_the_flush(session: Session) -> None:
    """``del`` on an unstored object leaves it to get another id."""
    user = User(public_id=A)
    del user.public_id
    session.add(user)
    session.commit()

    assert user.public_id != A
    agree(session, [user])


@on("sqlite")
def test_a_stored_id_given_to_another_object(session: Session, user: User) -> None:
    """An id taken from a stored object is a given one: the duplicate is the caller's error."""
    session.add(User(public_id=user.public_id))

    with pytest.raises(IntegrityError):
        session.flush()


# --- merged


@pytest.mark.parametrize("loaded", [True, False])
def test_merged_by_key(session: Session, user: User, loaded: bool) -> None:
    """``merge()`` of an object with the key of a row leaves the row its id, if the object has none."""
    changed = User(id=user.id, name="Lovelace")
    if not loaded:
        session.expunge_all()
    merged = session.merge(changed)
    session.commit()

    assert (merged.public_id, merged.name) == (A, "Lovelace")


@on("sqlite")
def test_merged_by_key_with_another_id(session: Session, user: User) -> None:
    """``merge()`` of an object with the key of a row and an id that was given or read, or None, is refused."""
    read = User(id=user.id)
    assert read.public_id != A
    for changed in (User(id=user.id, public_id=B), User(id=user.id, public_id=None), read):
        with pytest.raises(ImmutablePublicId):
            session.merge(changed)


@on("sqlite")
def test_id_of_a_draft_assigned_to_a_stored_object(session: Session, user: User) -> None:
    """A stored object does not take the id of another object, made or not."""
    draft = User()
    with pytest.raises(ImmutablePublicId):
        user.public_id = draft.public_id

    assert user.public_id == A


# --- stored no more


def test_rolled_back_object_keeps_its_id_when_added_again(session: Session) -> None:
    """A rollback takes the row away and leaves the object its id, as links to it may be out already."""
    user = User()
    session.add(user)
    session.flush()
    made = user.public_id
    session.rollback()
    session.add(user)
    session.commit()

    assert {user.id: made} == stored(session, User)


@on("sqlite")
def test_rolled_back_object_may_be_given_another_id(session: Session) -> None:
    """Without a row there is nothing to protect."""
    user = User(public_id=A)
    session.add(user)
    session.flush()
    session.rollback()
    user.public_id = B
    session.add(user)
    session.commit()

    assert {user.id: B} == stored(session, User)


def test_given_id_is_still_given_after_a_rollback(session: Session) -> None:
    """An id that the caller gave is not replaced in a second attempt either."""
    user = User(public_id=A)
    session.add(user)
    session.flush()
    session.rollback()
    session.execute(insert(User), {"id": 99, "public_id": A})
    session.add(user)

    with pytest.raises(IntegrityError):
        session.flush()


@on("sqlite")
def test_transient_copy_may_be_given_another_id(session: Session, user: User) -> None:
    """``make_transient`` is SQLAlchemy's way to copy a row; the copy takes another id."""
    session.expunge(user)
    make_transient(user)
    user.id = None  # type: ignore[assignment]
    user.public_id = B
    session.add(user)
    session.commit()

    assert stored(session, User) == {1: A, 2: B}


@on("sqlite")
def test_deleted_object_keeps_its_id_when_added_again(session: Session, user: User) -> None:
    """A row that is deleted and written again has the id it had."""
    session.delete(user)
    session.commit()
    make_transient(user)
    session.add(user)
    session.commit()

    assert {user.id: A} == stored(session, User)
