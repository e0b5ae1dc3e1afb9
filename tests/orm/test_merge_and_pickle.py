"""Objects that are merged, made transient, pickled or stored without a flush show the id of a row, or none."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, make_transient, make_transient_to_detached
from support.marks import on
from support.members import A, Dog, User
from support.rows import agree
from support.ways import execute, flush

from conftest import Statements
from sqlalchemy_public_id import testing

EVERYWHERE = on("sqlite", "postgresql", "mysql", "mariadb")
pytestmark = pytest.mark.usefixtures("members")


# --- make_transient()


@on("sqlite", "postgresql")
@pytest.mark.parametrize("finish", [Session.flush, Session.commit])
@pytest.mark.parametrize("is_read", [True, False])
def test_clone_keeps_the_id_of_its_row(session: Session, is_read: bool, finish: Callable[[Session], None]) -> None:
    """The id of a row stays with a clone, from the flush on, and whether or not it was read before.

    Neither ``expunge()`` of the pending clone nor a rollback makes it the library's again.
    """
    original = User()
    assert not is_read or original.public_id
    session.add(original)
    finish(session)
    published = original.public_id
    session.expunge(original)
    make_transient(original)
    original.id = None  # type: ignore[assignment]  # there is none until the flush
    for _ in range(2):
        session.add(original)
        session.expunge(original)
    for _ in range(2 if finish is Session.commit else 1):  # a rollback would take the row of a flush
        session.add(original)
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()

    assert original.public_id == published


# --- make_transient_to_detached()


@on("sqlite")
def test_stub_shows_the_id_of_its_row(session: Session) -> None:
    """An object whose key is known shows the id of that row once it is attached."""
    execute(session, User, [{"id": 5, "public_id": A}])
    stub = User(id=5)
    make_transient_to_detached(stub)
    session.add(stub)

    assert stub.public_id == A


# --- merge()


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


# --- pickle, deepcopy, bulk_save_objects()


@on("sqlite", "postgresql")
@pytest.mark.parametrize("way", [lambda each: pickle.loads(pickle.dumps(each)), copy.deepcopy], ids=["pickle", "deep"])
def test_copies_of_a_new_object(session: Session, way: Callable[[User], User]) -> None:
    """Two copies of a new object whose id was not read are two rows; two of one whose id was read have that id."""
    template = User(name="Ada")
    rows = [way(template), way(template)]
    for row in rows:
        session.add(row)
        session.flush()
    session.commit()

    agree(session, rows)
    assert way(template).public_id != template.public_id == way(template).public_id


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
