"""The id of a stored row does not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, load_only, mapped_column
from support.marks import on
from support.members import A, B, Dog, Link, Seat, Team, TeamId, User
from support.rows import stored
from support.ways import flush

from conftest import Statements
from sqlalchemy_public_id import ImmutablePublicId, PublicIdMixin

EVERYWHERE = on("sqlite", "postgresql", "mysql", "mariadb")
pytestmark = pytest.mark.usefixtures("members")


@EVERYWHERE
@pytest.mark.parametrize("new", [B, None], ids=["another id", "del"])
def test_persistent_id_cannot_change(session: Session, user: User, new: str | None) -> None:
    """Another id and ``del`` raise at once with all the facts; the object keeps its id, and is not modified."""
    with pytest.raises(ImmutablePublicId) as caught:
        if new is None:
            del user.public_id
        else:
            user.public_id = new
    assert user not in session.dirty
    session.commit()

    error = caught.value
    assert (error.model, error.attribute, error.old, error.new) == ("User", "public_id", A, new)
    remedy = "execute an UPDATE statement" if new else "leave public_id out of the values that you assign"
    assert str(error).endswith(remedy)
    assert user.public_id == A
    assert {user.id: A} == stored(session, User)


def deferred(session: Session, user: User, **options: Any) -> User:
    session.expunge_all()
    return session.scalars(select(User).options(load_only(User.name, **options))).one()


STATES: dict[str, Callable[[Session, User], Any]] = {
    "loaded": lambda session, user: user,
    "expired": lambda session, user: session.expire(user),
    "deferred": deferred,
    "flushed": lambda session, user: flush(session, User, [{"public_id": B}])[0],
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
    """In any state of an object, changing its stored id in any way raises, at the latest in the flush."""
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
def test_id_that_cannot_be_loaded_cannot_change(session: Session, user: User) -> None:
    """Another id on a detached object whose id was not loaded is refused in the flush, which reads the row."""
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
@pytest.mark.parametrize("is_loaded", [True, False])
def test_merge_cannot_change_an_id(session: Session, user: User, is_loaded: bool) -> None:
    """``merge()`` by key raises if the object was given another id, or None; an id that was only read is ignored."""
    for changed in (User(id=user.id, public_id=B), User(id=user.id, public_id=None)):
        if not is_loaded:
            session.expunge_all()
        with pytest.raises(ImmutablePublicId):
            session.merge(changed)


@on("sqlite")
def test_each_of_two_ids_is_immutable(session: Session) -> None:
    """Each public id of a model is protected, even if its column has another name or its value is not loaded."""
    [link] = flush(session, Link, [{}])
    session.commit()
    session.refresh(link)
    for name, new in (("short", "c" * 8), ("long", "c" * 20)):
        with pytest.raises(ImmutablePublicId):
            setattr(link, name, new)
        session.expire(link)
        setattr(link, name, new)
        with pytest.raises(ImmutablePublicId):
            session.flush()
        session.rollback()
        session.refresh(link)


# --- no change

UNLOADED: dict[str, Callable[[Session, User], Any]] = {
    **{state: STATES[state] for state in ("loaded", "expired", "deferred")},
    "detached": lambda session, user: (session.expire(user), session.expunge(user)),
    "raiseload": lambda session, user: deferred(session, user, raiseload=True),
}


@EVERYWHERE
@pytest.mark.parametrize("state", UNLOADED)
def test_same_id_may_be_assigned(session: Session, user: User, state: str, statements: Statements) -> None:
    """Assigning an object's own id, as form libraries do, loads nothing, and the flush updates only other columns."""
    target = UNLOADED[state](session, user)
    target = target if isinstance(target, User) else user
    statements.clear()
    target.public_id = A
    assert not statements
    session.add(target)
    session.flush()
    assert statements.starting("UPDATE") == []
    session.commit()
    target.name, target.public_id = "Grace", A
    session.flush()

    [update] = statements.starting("UPDATE")
    assert "public_id" not in update
    assert (target.public_id, target.name) == (A, "Grace")


@on("sqlite")
def test_own_id_after_another_one(session: Session, user: User) -> None:
    """If two ids are assigned while the stored one is not loaded, only the last one is compared with it."""
    session.expire(user)
    user.public_id = B
    user.public_id = A
    session.commit()

    assert user.public_id == A


@on("sqlite")
def test_same_text_may_be_assigned_to_a_typed_id(session: Session) -> None:
    """Assigning the plain text of a typed id is no change, and the attribute keeps its type."""
    [team] = flush(session, Team, [{}])
    team.public_id = str(team.public_id)

    assert TeamId is type(team.public_id)


@on("sqlite")
def test_same_id_may_be_assigned_to_rows_of_a_composite_key(session: Session) -> None:
    """An id assigned while it is not loaded is compared with the row of the whole composite key."""
    seats = {A: Seat(line=1, place=1, public_id=A), B: Seat(line=1, place=2, public_id=B)}
    session.add_all(seats.values())
    session.commit()
    for public_id, seat in seats.items():
        seat.public_id = public_id
    session.commit()

    assert {public_id: seat.public_id for public_id, seat in seats.items()} == {A: A, B: B}


@on("sqlite")
def test_subclass_compares_its_own_row(session: Session) -> None:
    """An id assigned to a joined subclass while it is not loaded is compared with the object's own row."""
    dogs = flush(session, Dog, [{}, {}, {}])
    session.commit()
    ids = [each.public_id for each in dogs]
    session.expire_all()
    dogs[1].public_id = ids[1]
    session.commit()
    for other in (ids[0], ids[2]):
        dogs[1].public_id = other
        with pytest.raises(ImmutablePublicId):
            session.flush()
        session.rollback()

    assert [each.public_id for each in dogs] == ids


@on("sqlite")
@pytest.mark.parametrize("given", [None, A])
def test_row_from_before_the_column_was_filled(session: Session, given: Any) -> None:
    """A stored row without an id accepts one, or gets one through ``None``; a partial refresh keeps it."""
    connection = session.connection()
    connection.execute(text("CREATE TABLE unfilled (id INTEGER PRIMARY KEY, public_id VARCHAR(12), name TEXT)"))
    connection.execute(text("INSERT INTO unfilled (id) VALUES (1)"))

    class Own(DeclarativeBase): ...

    class Unfilled(PublicIdMixin, Own):
        __tablename__ = "unfilled"
        name: Mapped[str | None] = mapped_column()

    row = session.scalars(select(Unfilled)).one()
    row.public_id = given
    made = row.public_id
    session.refresh(row, ["name"])
    session.flush()

    assert made == (given or made) is not None
    assert session.scalar(text("SELECT public_id FROM unfilled")) == made
    session.rollback()
