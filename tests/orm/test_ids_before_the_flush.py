"""The id of an object is known before the flush, checked where it is given, and its own until it is stored."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer, load_only, make_transient, make_transient_to_detached
from support.marks import on
from support.members import A, B, Dog, Link, Team, TeamId, User
from support.rows import agree, stored
from support.ways import execute, flush

from conftest import Statements
from sqlalchemy_public_id import InvalidPublicId, bulk, testing

EVERYWHERE = on("sqlite", "postgresql", "mysql", "mariadb")
pytestmark = pytest.mark.usefixtures("members")


# --- made


@EVERYWHERE
@pytest.mark.parametrize("is_pending", [False, True])
def test_early_id_is_the_stored_one(session: Session, is_pending: bool) -> None:
    """The id that an object shows before the flush is the one its row gets, and reading it does not flush."""
    user = User()
    if is_pending:
        session.add(user)
    early = user.public_id
    session.add(user)
    assert user in session.new
    session.commit()

    assert User.__public_id__.is_valid(early)
    assert {user.id: early} == stored(session, User)


@on("sqlite")
def test_each_attribute_has_its_own_early_id(session: Session) -> None:
    """An object with two public ids shows both, each in its own format, and stores what it has shown."""
    link = Link()
    shown = link.short, link.long
    session.add(link)
    session.commit()

    assert [len(text) for text in shown] == [8, 20]
    assert shown == session.connection().execute(select(Link.__table__.c.short, Link.__table__.c.long_text)).one()
    assert TeamId is type(Team().public_id)


@on("sqlite")
@pytest.mark.parametrize("option", [load_only(User.name), defer(User.public_id)], ids=["load_only", "defer"])
def test_no_early_id_for_a_loaded_object(session: Session, user: User, option: Any) -> None:
    """A stored object whose id is not loaded loads it, rather than making one up."""
    session.expunge_all()
    found = session.scalars(select(User).options(option)).one()
    assert "public_id" not in found.__dict__
    assert found.public_id == A


MOVES: dict[str, Callable[[Session, User], Any]] = {
    "add": lambda session, user: session.add(user),
    "merge": lambda session, user: session.merge(user),
    "bulk.insert": lambda session, user: bulk.insert(session, [user, User(name="Edsger")]),
    "bulk.insert alone": lambda session, user: bulk.insert(session, [user]),
    "bulk_save_objects": lambda session, user: session.bulk_save_objects([user]),
    "pickle": lambda session, user: session.add(pickle.loads(pickle.dumps(user))),
    "given to another object": lambda session, user: session.add(User(public_id=user.public_id)),
    "given to a pending object": lambda session, user: give(session, user.public_id),
}


def give(session: Session, public_id: str) -> None:
    other = User()
    session.add(other)
    other.public_id = public_id


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


# --- given


@on("sqlite")
@pytest.mark.parametrize("bad", ["", "short", "A" * 12, f"{A}\n", 1, b"a" * 12, True])
def test_malformed_id_is_refused(session: Session, bad: Any) -> None:
    """What is not an id is refused where it is given, naming the attribute; the object stays usable."""
    with pytest.raises(InvalidPublicId) as caught:
        User(public_id=bad)
    assert ("User.public_id", bad) == (caught.value.field, caught.value.value)

    user = User(public_id=A)
    with pytest.raises(InvalidPublicId):
        user.public_id = bad
    session.add(user)
    session.commit()
    assert {user.id: A} == stored(session, User)


DISCARDED: dict[str, Callable[[User], None]] = {
    "None": lambda user: setattr(user, "public_id", None),
    "del": lambda user: delattr(user, "public_id"),
}


@on("sqlite", "postgresql")
@pytest.mark.parametrize("way", DISCARDED)
def test_given_id_is_discarded(session: Session, user: User, way: str) -> None:
    """After ``None`` or ``del`` the id is the library's again: the INSERT makes it, and replaces it if it collides."""
    other = User(public_id=A)
    DISCARDED[way](other)
    if way == "None":
        assert other.public_id is None
    with testing.fixed_ids(User, A, B):
        session.add(other)
        session.commit()

    assert other.public_id == B
    agree(session, [user, other])


# --- stored no more


@EVERYWHERE
@pytest.mark.parametrize("insert", [Session.add_all, bulk.insert])
def test_objects_after_a_failed_flush(session: Session, insert: Callable[[Session, list[Any]], None]) -> None:
    """Failed objects have no ids; those of the next flush, and they when they are added again, have those of rows."""
    flush(session, User, [{"name": "taken", "email": "taken"}])
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


@on("sqlite", "postgresql")
@pytest.mark.parametrize("given", [None, B], ids=["its own", "another one"])
def test_id_of_a_rolled_back_object(session: Session, given: str | None) -> None:
    """A rollback takes the row away; the object keeps its id, as links may be out already, or is given another one."""
    [user] = flush(session, User, [{}])
    made = user.public_id
    session.rollback()
    if given is not None:
        user.public_id = given
    session.add(user)
    session.commit()

    assert {user.id: given or made} == stored(session, User)


@on("sqlite", "postgresql")
@pytest.mark.parametrize("given", [{}, {"public_id": A}], ids=["made", "given"])
def test_id_that_is_taken_after_a_rollback(session: Session, given: dict[str, str]) -> None:
    """An object that was rolled back keeps the id that it showed: if it is taken meanwhile, that is an error."""
    [user] = flush(session, User, [given])
    shown = user.public_id
    session.rollback()
    assert user.public_id == shown
    execute(session, User, [{"id": 99, "public_id": shown}])
    session.add(user)
    with pytest.raises(IntegrityError):
        session.flush()

    assert user.public_id == shown


@on("sqlite")
def test_transient_copy_may_be_given_another_id(session: Session, user: User) -> None:
    """``make_transient`` is SQLAlchemy's way to copy a row; the copy takes another id."""
    session.expunge(user)
    make_transient(user)
    user.id = None
    user.public_id = B
    session.add(user)
    session.commit()

    assert stored(session, User) == {1: A, 2: B}


# --- merged, or stored without a flush


@on("sqlite")
def test_stub_shows_the_id_of_its_row(session: Session) -> None:
    """An object whose key is known shows the id of that row once it is attached."""
    execute(session, User, [{"id": 5, "public_id": A}])
    stub = User(id=5)
    make_transient_to_detached(stub)
    session.add(stub)

    assert stub.public_id == A


@on("sqlite", "postgresql")
@pytest.mark.parametrize("autoflush", [True, False])
def test_one_object_merged_twice(session: Session, autoflush: bool, statements: Statements) -> None:
    """``merge()`` of one new object, twice, makes two rows with two ids, and reads nothing."""
    session.autoflush = autoflush
    template = User()
    rows = [session.merge(template), session.merge(template)]
    session.flush()
    assert len(statements) == len(statements.starting("INSERT"))
    session.commit()

    agree(session, rows)


@EVERYWHERE
def test_merged_object_has_the_id_of_its_row(session: Session) -> None:
    """What ``merge()`` returns shows the id of the row, also if the flush had to replace it."""
    flush(session, User, [{"public_id": A}])
    session.commit()
    with testing.collisions(User, A):
        merged = session.merge(User())
        session.commit()

    agree(session, [merged])
    assert merged.public_id != A


@on("sqlite", "postgresql")
@pytest.mark.parametrize("state", ["loaded", "expired", "not in the session"])
@pytest.mark.parametrize("given", [{}, {"public_id": A}], ids=["no id", "its own id"])
def test_merge_by_key_leaves_the_id(session: Session, state: str, given: dict[str, str]) -> None:
    """``merge()`` of an object with the key of a row, and without an id or with its own, leaves that of the row."""
    [user] = flush(session, User, [{"id": 5, "public_id": A}])
    session.commit()
    if state == "loaded":
        session.refresh(user)
    elif state == "not in the session":
        session.expunge_all()
    merged = session.merge(User(id=5, name="Ada", **given))
    session.commit()

    assert (merged.public_id, merged.name) == (A, "Ada")


@EVERYWHERE
@pytest.mark.parametrize("model", [User, Dog])
@pytest.mark.parametrize("return_defaults", [True, False])
def test_rows_of_bulk_saved_objects(session: Session, model: type[User | Dog], return_defaults: bool) -> None:
    """``bulk_save_objects()`` gives ids to the rows; only an object whose id was read before has that of its row."""
    objects = [model(), model(name="Ada"), model(name="Grace"), model()]
    shown = objects[1].public_id
    session.bulk_save_objects(objects, return_defaults=return_defaults)
    session.commit()

    rows = session.execute(select(model.name, model.public_id)).all()
    assert ("Ada", shown) in [tuple(row) for row in rows]
    assert len({row.public_id for row in rows}) == 4
    assert ["public_id" in vars(each) for each in objects] == [False, True, False, False]
