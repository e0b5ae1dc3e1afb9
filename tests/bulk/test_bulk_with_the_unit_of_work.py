"""``bulk.insert`` of objects that multi-row statements cannot store correctly: the unit of work inserts them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
from sqlalchemy import ForeignKey, MetaData, String, event, func, select, text
from sqlalchemy.exc import DBAPIError, SAWarning
from sqlalchemy.orm import DeclarativeBase, Mapped, Mapper, Session, column_property, mapped_column, relationship
from support.members import Animal, Cat, Dog, Team, Tiny, User
from support.rows import agree, stored
from support.ways import flush, insert_in_bulk

from sqlalchemy_public_id import PublicIdMixin, bulk


class Base(DeclarativeBase):
    metadata = MetaData()


class Draft(PublicIdMixin, Base):
    __tablename__ = "draft"
    version: Mapped[int] = mapped_column()
    __mapper_args__: ClassVar[dict[str, Any]] = {"version_id_col": version}


class Crew(PublicIdMixin, Base):
    __tablename__ = "crew"

    def __len__(self) -> int:
        return 0


class Sailor(PublicIdMixin, Base):
    __tablename__ = "sailor"
    crew_id: Mapped[int | None] = mapped_column(ForeignKey("crew.id"))
    crew: Mapped[Crew | None] = relationship()


class Named(PublicIdMixin, Base):
    __tablename__ = "named"
    first: Mapped[str] = mapped_column(String(50))
    last: Mapped[str] = mapped_column(String(50))
    full: Mapped[str] = column_property(first + " " + last)


ROWS = 30
"""Enough rows to be sent in arrays on PostgreSQL."""

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("members")]


@pytest.fixture
def others(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def test_relationships(session: Session) -> None:
    """Related objects are inserted too, and foreign keys are set."""
    teams = [Team(name=str(number), users=[User(name=f"member {number}")]) for number in range(3)]
    users = [User(name=str(number), team=teams[number]) for number in range(3)]
    bulk.insert(session, [*users, *teams])

    assert [len(team.users) for team in teams] == [2, 2, 2]
    session.expire_all()
    assert [user.team_id for user in users] == [team.id for team in teams]


@pytest.mark.parametrize("model", [Animal, Dog])
def test_inheritance_of_one_class(session: Session, model: type[Animal]) -> None:
    """Objects of one class are inserted with joined tables, or with the discriminator of another class."""
    animals = [model(kind="cat") if model is Animal else model() for _ in range(ROWS)]
    bulk.insert(session, animals)
    session.commit()
    session.expunge_all()

    assert {type(animal) for animal in session.scalars(select(Animal))} == {Cat if model is Animal else Dog}


def test_wrong_mark_of_a_class(session: Session) -> None:
    """An object with the discriminator of another class is stored as is, with the warning of a flush."""
    with pytest.warns(SAWarning, match="incompatible polymorphic identity"):
        cats = insert_in_bulk(session, Cat, [{"kind": "dog"}, {"kind": "dog"}])

    assert stored(session, Cat) == {cat.id: cat.public_id for cat in cats}


def test_sql_expressions(session: Session) -> None:
    """A value may be an SQL expression, which the database evaluates."""
    users = [User(name=func.lower("ADA")), User(name="grace")]
    bulk.insert(session, users)

    assert [user.name for user in users] == ["ada", "grace"]


@pytest.mark.parametrize(
    ("target", "name"),
    [(User, "before_insert"), (User, "after_insert"), (Mapper, "after_insert"), (None, "before_flush")],
    ids=["model before", "model after", "all mappers", "session"],
)
def test_listeners_of_the_caller(session: Session, listen: Callable[..., None], name: str, target: Any) -> None:
    """Listeners to INSERTs or flushes, such as for an audit trail, are called for each object."""
    seen: list[object] = []
    if target is None:
        listen(session, name, lambda session, *rest: seen.extend(session.new))
    else:
        listen(target, name, lambda mapper, connection, instance: seen.append(instance))
    objects = [User(name=str(number)) for number in range(3)]
    bulk.insert(session, objects)

    assert len(seen) == 3
    assert set(seen) == set(objects)


@pytest.mark.parametrize("count", [3, 30])
def test_listeners_to_the_objects_of_a_session(session: Session, statements: list[str], count: int) -> None:
    """Session events for attached and pending objects precede the INSERT; others follow it."""
    told: list[tuple[str, int]] = []
    for name in ("before_attach", "after_attach", "transient_to_pending", "pending_to_persistent"):
        event.listen(session, name, lambda *_, name=name: told.append((name, len(statements))))
    statements.clear()
    users = [User(name=str(number)) for number in range(count)]
    bulk.insert(session, users)
    before = {name for name, sent in told if sent == 0}

    assert before == {"before_attach", "after_attach", "transient_to_pending"}
    assert [name for name, sent in told if sent > 0] == ["pending_to_persistent"] * count
    assert len(told) == 4 * count
    agree(session, users)


@pytest.mark.parametrize("count", [3, 30])
def test_listeners_to_objects_that_leave_a_session(session: Session, count: int) -> None:
    """Session events are called for each object whose INSERT failed or was rolled back."""
    told: list[str] = []
    for name in ("pending_to_transient", "persistent_to_transient"):
        event.listen(session, name, lambda *_, name=name: told.append(name))
    users = [User(name="x" * 60 if number == 1 else "y", team_id=-1) for number in range(count)]
    if session.get_bind().name == "sqlite":
        session.execute(text("PRAGMA foreign_keys = ON"))
    with pytest.raises(DBAPIError):
        bulk.insert(session, users)
    session.rollback()
    assert told == ["pending_to_transient"] * count
    for user in users:
        user.name = user.team_id = None
    bulk.insert(session, users)
    session.rollback()

    assert told == ["pending_to_transient"] * count + ["persistent_to_transient"] * count


def test_keys_that_come_again(session: Session) -> None:
    """If the key of a row deleted outside the session is reused, the new object gets it, with a flush's warning."""
    gone = [Team() for _ in range(3)]
    bulk.insert(session, gone)
    keys = [each.id for each in gone]
    session.connection().execute(Team.__table__.delete())
    new = [Team(id=None) for _ in range(3)]
    is_reused = session.get_bind().name == "sqlite"
    with pytest.warns(SAWarning, match="Identity map already had an identity") if is_reused else nullcontext():
        bulk.insert(session, new)

    assert is_reused == ([each.id for each in new] == keys)
    assert [session.get(Team, each.id) for each in new] == new


def test_version_counter(session: Session, others: None) -> None:
    """The version counter starts at 1."""
    drafts = [Draft() for _ in range(3)]
    bulk.insert(session, drafts)

    assert [draft.version for draft in drafts] == [1, 1, 1]


def test_given_keys(session: Session) -> None:
    """A given primary key is kept."""
    users = [User(id=number, name=str(number)) for number in (70, 60, 50)]
    bulk.insert(session, users)

    assert stored(session, User).keys() == {50, 60, 70}
    agree(session, users)


def test_rows_that_refer_to_later_objects(session: Session) -> None:
    """Objects of several models are inserted in the order of their foreign keys, not of the arguments."""
    if session.get_bind().name == "sqlite":
        session.execute(text("PRAGMA foreign_keys = ON"))
    users = [User(name=str(number), team_id=7) for number in range(ROWS)]
    bulk.insert(session, [*users, Team(id=7), *(Tiny() for _ in range(ROWS))])
    session.commit()

    assert session.scalars(select(User.team_id)).all() == [7] * ROWS
    assert len(stored(session, Tiny)) == ROWS


def test_relationship_that_is_set_to_none(session: Session) -> None:
    """A relationship set to None has the same effect on its foreign key as in a flush."""
    [team] = flush(session, Team, [{}])
    rows = [{"team_id": team.id, "team": None}] * ROWS
    flushed, inserted = flush(session, User, rows), insert_in_bulk(session, User, rows)
    session.expire_all()

    assert [user.team_id for user in inserted] == [user.team_id for user in flushed]


@pytest.mark.parametrize("count", [3, ROWS])
def test_related_object_that_is_false(session: Session, others: None, count: int) -> None:
    """A related object that is falsy, because its length is zero, is related like any other."""
    crew = Crew()
    insert_in_bulk(session, Sailor, [{"crew": crew}] * count)
    session.commit()

    assert crew.id is not None
    assert session.scalars(select(Sailor.crew_id)).all() == [crew.id] * count


def test_attributes_that_are_expressions(session: Session, others: None) -> None:
    """A ``column_property()`` shows the value from the database, even if it was read before."""
    named = [Named(first="Ada", last=str(number)) for number in range(ROWS)]
    assert named[0].full is None
    bulk.insert(session, named)

    assert [each.full for each in named] == [f"Ada {number}" for number in range(ROWS)]
