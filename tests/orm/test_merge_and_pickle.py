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
from support.members import A, Dog, Team, TeamId, User
from support.rows import agree, stored
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


@on("sqlite")
def test_id_of_a_stub_that_was_read(session: Session) -> None:
    """An id that was read before is like a given one: the stub shows it until it is refreshed, and never writes it."""
    execute(session, User, [{"id": 5, "public_id": A}])
    stub = User(id=5)
    shown = stub.public_id
    make_transient_to_detached(stub)
    session.add(stub)
    stub.name = "changed"
    session.flush()

    assert stub.public_id == shown != A
    session.refresh(stub)
    assert (stub.public_id, stub.name) == (A, "changed")


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


@on("sqlite")
def test_object_with_an_id_merged_twice(session: Session) -> None:
    """An id that was read is copied as any value, so the second row is a duplicate."""
    template = User()
    read = template.public_id
    assert session.merge(template).public_id == read
    session.flush()
    session.merge(template)

    with pytest.raises(IntegrityError):
        session.flush()


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


@on("sqlite")
def test_merge_again_after_a_rollback(session: Session) -> None:
    """After a rollback the source still has the id, and its next copy gets it."""
    source = User()
    shown = source.public_id
    session.merge(source)
    session.flush()
    session.rollback()
    merged = session.merge(source)
    session.commit()

    assert shown == merged.public_id == source.public_id


@on("sqlite")
def test_merge_along_relationships(session: Session) -> None:
    """``merge()`` cascades, and each copy in the graph shows the id of its row: the one that was read, or a new one."""
    source = Team(users=[User(), User()])
    read = source.users[0].public_id
    merged = session.merge(source)
    session.commit()

    agree(session, merged.users)
    assert merged.users[0].public_id == read
    assert type(merged.public_id) is TeamId


@on("sqlite")
def test_two_objects_of_one_key_merged(session: Session) -> None:
    """Two objects with one key in a graph are one row: a given id is kept."""
    flush(session, Team, [{"id": 1}])
    session.commit()
    merged = session.merge(Team(id=1, users=[User(id=1, public_id=A), User(id=1)]))
    session.commit()

    assert [user.public_id for user in merged.users] == [A]


@on("sqlite")
def test_merge_of_a_detached_object(session: Session) -> None:
    """``merge(load=False)`` copies what the object shows; without its row, it is written again with its id."""
    [original] = flush(session, User, [{"public_id": A}])
    session.commit()
    session.refresh(original)
    session.expunge(original)
    assert session.merge(original, load=False).public_id == A
    session.expunge_all()
    session.connection().execute(User.__table__.delete())  # type: ignore[attr-defined]  # a Table
    merged = session.merge(original)
    session.commit()

    assert merged.public_id == A


@on("sqlite")
def test_template_of_several_keys(session: Session) -> None:
    """An object that is merged with one key after the other takes the id of none of the rows along."""
    flush(session, User, [{"id": 1}])
    session.commit()
    template = User(name="Ada")
    for key in (1, 2, 3):
        template.id = key
        session.merge(template)
        session.commit()
    template.id = None  # type: ignore[assignment]
    session.add(template)
    session.commit()

    assert len(set(stored(session, User).values())) == 4


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
