"""Objects that are merged, made transient, pickled or stored without a flush show the id of a row, or none."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    make_transient,
    make_transient_to_detached,
    mapped_column,
    relationship,
)
from support.marks import on
from support.rows import agree, stored

from conftest import Statements
from sqlalchemy_public_id import ImmutablePublicId, NanoId, PublicIdMixin, TypedId, bulk, testing


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(50))
    kind: Mapped[str] = mapped_column(String(10))
    notes: Mapped[list[Note]] = relationship(back_populates="user")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "user"}  # noqa: RUF012


class Admin(User):
    __tablename__ = "admin"
    id: Mapped[int] = mapped_column(ForeignKey("user.id"), primary_key=True)
    level: Mapped[int | None]
    __mapper_args__ = {"polymorphic_identity": "admin"}  # noqa: RUF012


class NoteId(TypedId, prefix="copied_note"): ...


class Note(PublicIdMixin[NoteId], Base):
    __tablename__ = "note"
    user_id: Mapped[int | None] = mapped_column(ForeignKey("user.id"))
    user: Mapped[User | None] = relationship(back_populates="notes")


A, B = "a" * 12, "b" * 12
EVERYWHERE = on("sqlite", "postgresql", "mysql", "mariadb")
READ = pytest.mark.parametrize("read", [True, False], ids=["read", "not read"])
pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def user(read: bool = False, **values: Any) -> User:
    """A new object whose id was read, or not."""
    made = User(**values)
    if read:
        assert made.public_id
    return made


def make_clone(session: Session, row: User) -> None:
    """Make an object of a stored row one of a row to come, as SQLAlchemy's recipe does."""
    session.expunge(row)
    make_transient(row)
    row.id = None  # type: ignore[assignment]  # there is none until the flush


# --- make_transient()


@READ
def test_clone_keeps_the_id_of_its_row(session: Session, read: bool) -> None:
    """The id of a stored row stays with a clone, whether or not it was read before the first flush."""
    original = user(read)
    session.add(original)
    session.commit()
    published = original.public_id
    make_clone(session, original)
    session.add(original)

    with pytest.raises(IntegrityError):
        session.flush()
    session.rollback()
    session.add(original)  # and once more, as it was rolled back
    with pytest.raises(IntegrityError):
        session.flush()
    assert original.public_id == published


@on("sqlite")
@READ
def test_clone_keeps_its_id_when_it_was_pending(session: Session, read: bool) -> None:
    """Neither ``expunge()`` of the pending clone nor an expired session makes the id the library's again."""
    original = user(read)
    session.add(original)
    session.commit()
    published = original.public_id
    make_clone(session, original)
    for _ in range(2):
        session.add(original)
        session.expunge(original)
    session.add(original)

    with pytest.raises(IntegrityError):
        session.flush()
    assert original.public_id == published


@on("sqlite")
@READ
def test_flushed_row_made_transient_keeps_its_id(session: Session, read: bool) -> None:
    """A flush is enough: the row may be published before the commit."""
    original = user(read)
    session.add(original)
    session.flush()
    flushed = original.public_id
    make_clone(session, original)
    session.add(original)

    with pytest.raises(IntegrityError):
        session.flush()
    assert original.public_id == flushed


@EVERYWHERE
def test_failed_flush_leaves_no_id(session: Session) -> None:
    """The object of a row that was refused for another reason has no id, and gets one in the next flush."""
    session.add(User(public_id=A))
    session.commit()
    with testing.fixed_ids(User, B):
        refused = User(id=1)
        session.add(refused)
        with pytest.raises(IntegrityError):
            session.flush()
    session.rollback()
    session.connection().execute(text(f"UPDATE {_table(session)} SET public_id = '{B}'"))
    session.commit()
    refused.id = None  # type: ignore[assignment]
    session.add(refused)
    session.commit()

    assert refused.public_id not in (A, B)
    agree(session, [refused])


def _table(session: Session) -> str:
    return session.get_bind().dialect.identifier_preparer.quote("user")


# --- make_transient_to_detached()


def test_stub_shows_the_id_of_its_row(session: Session) -> None:
    """An object whose key is known shows the id of that row once it is attached."""
    session.add(User(id=5, public_id=A))
    session.commit()
    session.expunge_all()
    stub = User(id=5)
    make_transient_to_detached(stub)
    session.add(stub)

    assert stub.public_id == A


@on("sqlite")
def test_given_id_of_a_stub_stays(session: Session) -> None:
    """An id that the caller gave to a stub is as good as a loaded one, and costs no statement."""
    session.add(User(id=5, public_id=A))
    session.commit()
    stub = User(id=5, public_id=A)
    session.expunge_all()
    make_transient_to_detached(stub)
    session.add(stub)

    assert stub.public_id == A


@on("sqlite")
def test_id_of_a_stub_that_was_read(session: Session) -> None:
    """An id that was read before is like a given one: the stub shows it until it is refreshed, and never writes it."""
    session.add(User(id=5, public_id=A))
    session.commit()
    session.expunge_all()
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


@pytest.mark.parametrize("autoflush", [True, False])
def test_one_object_merged_twice(session: Session, autoflush: bool) -> None:
    """``merge()`` of one new object, twice, makes two rows with two ids."""
    session.autoflush = autoflush
    template = User()
    rows = [session.merge(template), session.merge(template)]
    session.commit()

    agree(session, rows)


@on("sqlite")
def test_object_with_an_id_merged_twice(session: Session) -> None:
    """An id that was read is copied as any value, so the second row is a duplicate."""
    template = user(read=True)
    assert session.merge(template).public_id == template.public_id
    session.flush()
    session.merge(template)

    with pytest.raises(IntegrityError):
        session.flush()


def test_merged_object_has_the_id_of_its_row(session: Session) -> None:
    """What ``merge()`` returns shows the id of the row, also if the flush had to replace it."""
    session.add(User(public_id=A))
    session.commit()
    with testing.collisions(User, A):
        merged = session.merge(User())
        session.commit()

    agree(session, [merged])
    assert merged.public_id != A


@pytest.mark.parametrize("loaded", ["loaded", "expired", "not in the session"])
def test_merge_by_key_leaves_the_id(session: Session, loaded: str) -> None:
    """``merge()`` of an object with the key of a row, and without an id, leaves that of the row."""
    session.add(User(id=5, public_id=A))
    session.commit()
    if loaded == "loaded":
        session.get(User, 5).public_id  # type: ignore[union-attr]  # noqa: B018
    elif loaded == "not in the session":
        session.expunge_all()
    merged = session.merge(User(id=5, name="Ada"))
    session.commit()

    assert (merged.public_id, merged.name) == (A, "Ada")


def test_merge_keeps_a_given_id(session: Session) -> None:
    """A given id is given after ``merge()`` as well, whoever else shows it: its duplicate is an error."""
    draft = user(read=True)
    shown = draft.public_id
    session.add(User(public_id=str(shown)))
    session.commit()
    session.merge(User(public_id=str(shown), name="second"))

    with pytest.raises(IntegrityError):
        session.flush()


@on("sqlite")
def test_merge_of_a_given_id_that_another_draws(session: Session) -> None:
    """A given id that an unflushed object draws later is given."""
    session.add(User(public_id=A))
    session.commit()
    given = User(public_id=A)
    with testing.fixed_ids(User, A):
        assert user(read=True).public_id == A
        session.merge(given)

        with pytest.raises(IntegrityError):
            session.flush()


@on("sqlite")
def test_merge_again_after_a_rollback(session: Session) -> None:
    """After a rollback the source still has the id, and its next copy gets it."""
    source = user(read=True)
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
    source = User(notes=[Note(), Note()])
    read = source.notes[0].public_id
    merged = session.merge(source)
    session.commit()

    agree(session, merged.notes)
    assert merged.notes[0].public_id == read
    assert {type(note.public_id) for note in merged.notes} == {NoteId}


@on("sqlite")
def test_merge_without_load(session: Session) -> None:
    """``merge(load=False)`` of a detached object copies what it shows."""
    original = User(public_id=A)
    session.add(original)
    session.commit()
    session.refresh(original)
    session.expunge(original)

    assert session.merge(original, load=False).public_id == A


@on("sqlite")
def test_merge_of_an_object_whose_row_is_gone(session: Session) -> None:
    """A detached object whose row was deleted is written again with the id that it had."""
    original = User(public_id=A)
    session.add(original)
    session.commit()
    session.refresh(original)
    session.expunge(original)
    session.connection().execute(text('DELETE FROM "user"'))
    merged = session.merge(original)
    session.commit()

    assert merged.public_id == A


# --- pickle and deepcopy


@on("sqlite", "postgresql")
@pytest.mark.parametrize("way", [lambda each: pickle.loads(pickle.dumps(each)), copy.deepcopy], ids=["pickle", "deep"])
def test_copies_of_a_new_object(session: Session, way: Callable[[User], User]) -> None:
    """Two copies of a new object whose id was not read are two rows."""
    template = User(name="Ada")
    rows = [way(template), way(template)]
    for row in rows:
        session.add(row)
        session.flush()
    session.commit()

    agree(session, rows)


@on("sqlite")
def test_pickled_copy_of_a_given_id(session: Session) -> None:
    """An id that the caller gave is given in each copy."""
    given = User(public_id=A)
    for each in (given, pickle.loads(pickle.dumps(given))):
        session.add(each)

    with pytest.raises(IntegrityError):
        session.flush()


# --- bulk_save_objects()


@EVERYWHERE
@pytest.mark.parametrize("model", [User, Admin])
@pytest.mark.parametrize("return_defaults", [True, False])
def test_rows_of_bulk_saved_objects(session: Session, model: type[User], return_defaults: bool) -> None:
    """``bulk_save_objects()`` gives ids to the rows; only an object whose id was read before has that of its row."""
    objects = [model(), model(name="Ada"), model(name="Grace"), model()]
    shown = objects[1].public_id
    session.bulk_save_objects(objects, return_defaults=return_defaults)
    session.commit()

    rows = session.execute(select(User.name, User.public_id)).all()
    assert ("Ada", shown) in [tuple(row) for row in rows]
    assert len({row.public_id for row in rows}) == 4
    assert ["public_id" in vars(each) for each in objects] == [False, True, False, False]


@EVERYWHERE
def test_bulk_saved_rows_that_collide(session: Session) -> None:
    """A row whose id is taken gets another one."""
    session.add(User(public_id=A, name="first"))
    session.commit()
    with testing.fixed_ids(User, "c" * 12, A, "d" * 12, B):
        session.bulk_save_objects([User(name=str(number)) for number in range(3)])
    session.commit()

    rows = {row.name: row.public_id for row in session.execute(select(User.name, User.public_id))}
    assert sorted(rows) == ["0", "1", "2", "first"]
    assert len(set(rows.values())) == 4


@on("sqlite")
def test_bulk_save_objects_that_fails(session: Session) -> None:
    """Objects of a refused statement show nothing, and can be saved again."""
    session.add(User(id=1))
    session.commit()
    objects = [User(id=2), User(id=1)]
    with pytest.raises(IntegrityError):
        session.bulk_save_objects(objects)
    session.rollback()

    assert ["public_id" in vars(each) for each in objects] == [False, False]


@on("sqlite")
def test_bulk_insert_mappings_leaves_the_dictionaries(session: Session) -> None:
    """Dictionaries of the caller stay as they are."""
    rows = [{"name": "Ada"}, {"name": "Grace"}]
    session.bulk_insert_mappings(User.__mapper__, rows)

    assert rows == [{"name": "Ada"}, {"name": "Grace"}]


@EVERYWHERE
def test_bulk_insert_that_fails(session: Session) -> None:
    """An object whose row was rolled back keeps its id, and one that was not inserted has none."""
    session.add(User(id=7, public_id=A))
    session.commit()
    with testing.fixed_ids(User, B, "c" * 12):
        objects = [User(name="Ada"), User(id=7)]
        with pytest.raises(IntegrityError):
            bulk.insert(session, objects)
    session.rollback()

    assert [vars(each).get("public_id") for each in objects] in ([B, None], [None, None])
    objects[1].id = None  # type: ignore[assignment]  # the database makes another one
    bulk.insert(session, objects)
    agree(session, objects)


@on("sqlite")
def test_statements_of_a_merge(session: Session, statements: Statements) -> None:
    """``merge()`` of a new object sends what it sends without the library: one INSERT."""
    session.merge(User())
    session.flush()

    assert len(statements) == 1


# --- found by review


@on("sqlite")
def test_two_objects_of_one_key_merged(session: Session) -> None:
    """Two objects with one key in a graph are one row: a given id is kept."""
    session.add(User(id=1))
    session.commit()
    given = NoteId()
    source = User(id=1, notes=[Note(id=1, public_id=given), Note(id=1)])
    merged = session.merge(source)
    session.commit()

    assert [note.public_id for note in merged.notes] == [given]


@on("sqlite")
def test_template_of_many_rows(session: Session) -> None:
    """A template that is merged again and again makes a row with an id of its own each time."""
    template = User()
    for _ in range(4):
        session.merge(template)
        session.commit()

    assert len(set(stored(session, User).values())) == 4


@on("sqlite")
def test_template_of_several_keys(session: Session) -> None:
    """An object that is merged with one key after the other takes the id of none of the rows along."""
    session.add(User(id=1))
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


@on("sqlite")
def test_bulk_saved_object_keeps_its_id(session: Session) -> None:
    """An id that was read before ``bulk_save_objects()`` is that of the row."""
    saved = user(read=True)
    shown = saved.public_id
    session.bulk_save_objects([saved])
    session.commit()
    session.add(saved)

    with pytest.raises(IntegrityError):
        session.flush()
    assert saved.public_id == shown


@on("sqlite")
def test_subclass_compares_its_own_row(session: Session) -> None:
    """The id of a joined subclass, assigned while it is not loaded, is compared with that of its own row."""
    admins = [Admin(), Admin(), Admin()]
    session.add_all(admins)
    session.commit()
    ids = [each.public_id for each in admins]
    session.expire_all()
    admins[1].public_id = ids[1]
    session.commit()
    for other in (ids[0], ids[2]):
        admins[1].public_id = other
        with pytest.raises(ImmutablePublicId):
            session.flush()
        session.rollback()

    assert [each.public_id for each in admins] == ids


@on("sqlite")
def test_own_id_after_another_one(session: Session) -> None:
    """Of two ids that are assigned while that of the row is not loaded, the last one counts."""
    row = User(public_id=A)
    session.add(row)
    session.commit()
    row.public_id = B
    row.public_id = A
    session.commit()

    assert row.public_id == A


@on("sqlite")
def test_id_asked_for_by_a_row_without_one(session: Session) -> None:
    """A row from before the backfill is given an id by ``None``, which a refresh of other attributes leaves."""
    session.connection().execute(
        text("CREATE TABLE unfilled (id INTEGER PRIMARY KEY, public_id VARCHAR(12), name TEXT)")
    )
    session.connection().execute(text("INSERT INTO unfilled (id) VALUES (1)"))

    class Own(DeclarativeBase): ...

    class Unfilled(PublicIdMixin, Own):
        __tablename__ = "unfilled"
        name: Mapped[str | None] = mapped_column()

    row = session.scalars(select(Unfilled)).one()
    row.public_id = None  # type: ignore[assignment]
    made = row.public_id
    session.refresh(row, ["name"])
    session.flush()

    assert made
    assert session.scalar(text("SELECT public_id FROM unfilled")) == made
    session.rollback()
