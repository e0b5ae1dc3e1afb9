"""An object has its id before the flush; a given id is validated on assignment, and may change until it is stored."""

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


# --- generated


@EVERYWHERE
@pytest.mark.parametrize("is_pending", [False, True])
def test_early_id_is_the_stored_one(session: Session, is_pending: bool) -> None:
    """The id that an object shows before the flush is the one that is stored, and reading it does not flush."""
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
    """An object with two public ids shows each in its own format, and stores the ids it has shown."""
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
    """Reading the unloaded id of a stored object loads it instead of generating one."""
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
    """An id that was read before the flush counts as given, so a collision raises whichever way the row is written."""
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
    """A malformed id raises on assignment, with the name of the attribute, and the object stays usable."""
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
    """After ``None`` or ``del`` the INSERT generates an id, and replaces it if it collides."""
    other = User(public_id=A)
    DISCARDED[way](other)
    if way == "None":
        assert other.public_id is None
    with testing.fixed_ids(User, A, B):
        session.add(other)
        session.commit()

    assert other.public_id == B
    agree(session, [user, other])


# --- no longer stored


@EVERYWHERE
@pytest.mark.parametrize("insert", [Session.add_all, bulk.insert])
def test_objects_after_a_failed_flush(session: Session, insert: Callable[[Session, list[Any]], None]) -> None:
    """Objects of a failed flush have no ids; when they are added again, they show the ids of their rows."""
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
    """After a rollback an object keeps its id, as links with it may be in use, unless it is given another one."""
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
    """A rolled-back object keeps the id that it showed, and raises if it has been taken in the meantime."""
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
    """A row can be copied with ``make_transient`` if the copy is given another id."""
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
    """An object made from a known key shows the id of its row once it is attached to a session."""
    execute(session, User, [{"id": 5, "public_id": A}])
    stub = User(id=5)
    make_transient_to_detached(stub)
    session.add(stub)

    assert stub.public_id == A


@on("sqlite", "postgresql")
@pytest.mark.parametrize("autoflush", [True, False])
def test_one_object_merged_twice(session: Session, autoflush: bool, statements: Statements) -> None:
    """Merging one new object twice stores two rows with two ids, without a SELECT."""
    session.autoflush = autoflush
    template = User()
    rows = [session.merge(template), session.merge(template)]
    session.flush()
    assert len(statements) == len(statements.starting("INSERT"))
    session.commit()

    agree(session, rows)


@EVERYWHERE
def test_merged_object_has_the_id_of_its_row(session: Session) -> None:
    """The result of ``merge()`` shows the id of its row, even if the flush had to replace it."""
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
    """``merge()`` by key keeps the id of the row if the merged object has no id or the id of the row."""
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
    """``bulk_save_objects()`` stores ids, but only an object whose id was read before shows it."""
    objects = [model(), model(name="Ada"), model(name="Grace"), model()]
    shown = objects[1].public_id
    session.bulk_save_objects(objects, return_defaults=return_defaults)
    session.commit()

    rows = session.execute(select(model.name, model.public_id)).all()
    assert ("Ada", shown) in [tuple(row) for row in rows]
    assert len({row.public_id for row in rows}) == 4
    assert ["public_id" in vars(each) for each in objects] == [False, True, False, False]
