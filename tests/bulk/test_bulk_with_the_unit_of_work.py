"""``bulk.insert`` of objects that multi-row statements could not write rightly: the unit of work does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from sqlalchemy import ForeignKey, MetaData, String, event, func, select, text
from sqlalchemy.exc import DBAPIError, SAWarning
from sqlalchemy.orm import DeclarativeBase, Mapped, Mapper, Session, column_property, mapped_column, relationship
from support.rows import agree, stored

from sqlalchemy_public_id import PublicIdMixin, bulk


class Base(DeclarativeBase):
    metadata = MetaData()


class Team(PublicIdMixin, Base):
    __tablename__ = "team"
    name: Mapped[str | None] = mapped_column(String(50))
    users: Mapped[list[User]] = relationship(back_populates="team")


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    name: Mapped[str | None] = mapped_column(String(50))
    team_id: Mapped[int | None] = mapped_column(ForeignKey("team.id"))
    team: Mapped[Team | None] = relationship(back_populates="users")


class Animal(PublicIdMixin, Base):
    __tablename__ = "animal"
    kind: Mapped[str] = mapped_column(String(10))
    name: Mapped[str | None] = mapped_column(String(50))
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}


class Cat(Animal):
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "cat"}


class Dog(Animal):
    __tablename__ = "dog"
    id: Mapped[int] = mapped_column(ForeignKey("animal.id"), primary_key=True)  # type: ignore[misc]
    tricks: Mapped[int | None]
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "dog"}


class Draft(PublicIdMixin, Base):
    __tablename__ = "draft"
    version: Mapped[int] = mapped_column()
    __mapper_args__: ClassVar[dict[str, Any]] = {"version_id_col": version}


class Watched(PublicIdMixin, Base):
    __tablename__ = "watched"
    name: Mapped[str | None] = mapped_column(String(50))


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
    full: Mapped[str] = column_property(first + " " + last)  # type: ignore[operator]  # columns, in the class body


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def test_relationships(session: Session) -> None:
    """Related objects are written too, and the foreign keys follow."""
    teams = [Team(name=str(number), users=[User(name=f"member {number}")]) for number in range(3)]
    users = [User(name=str(number), team=teams[number]) for number in range(3)]
    bulk.insert(session, [*users, *teams])

    assert [len(team.users) for team in teams] == [2, 2, 2]
    session.expire_all()
    assert [user.team_id for user in users] == [team.id for team in teams]


def test_single_table_inheritance(session: Session) -> None:
    """Base and subclass share a table, each row with the mark of its class."""
    animals = [Animal(name="a"), Animal(name="b"), Cat(name="c"), Cat(name="d")]
    bulk.insert(session, animals)
    session.commit()
    session.expunge_all()

    assert [type(each) for each in session.scalars(select(Animal).order_by(Animal.id))] == [Animal, Animal, Cat, Cat]


def test_joined_table_inheritance(session: Session) -> None:
    """Rows of two tables belong to one object."""
    dogs = [Dog(name=str(number), tricks=number) for number in range(3)]
    bulk.insert(session, dogs)

    agree(session, dogs)
    assert session.scalars(select(Dog.__table__.c.tricks)).all() == [0, 1, 2]


def test_sql_expressions(session: Session) -> None:
    """A value may be an expression that the database evaluates."""
    users = [User(name=func.lower("ADA")), User(name="grace")]
    bulk.insert(session, users)

    assert [user.name for user in users] == ["ada", "grace"]


@pytest.mark.parametrize("target", [Watched, Mapper], ids=["model", "all mappers"])
@pytest.mark.parametrize("name", ["before_insert", "after_insert"])
def test_listeners_of_the_caller(session: Session, name: str, target: Any) -> None:
    """Listeners to the INSERT are called for each object."""
    seen: list[object] = []

    def listen(mapper: Any, connection: Any, instance: object) -> None:
        seen.append(instance)

    event.listen(target, name, listen)
    try:
        objects = [Watched(name=str(number)) for number in range(3)]
        bulk.insert(session, objects)
    finally:
        event.remove(target, name, listen)

    assert seen == objects


def test_listeners_to_the_flush(session: Session) -> None:
    """A session whose flushes are listened to, for an audit trail say, tells of these objects too."""
    seen: list[object] = []
    event.listen(session, "before_flush", lambda session, *rest: seen.extend(session.new))
    users = [User(name=str(number)) for number in range(3)]
    bulk.insert(session, users)

    assert set(seen) == set(users)


@pytest.mark.parametrize("count", [3, 30])
def test_listeners_to_the_objects_of_a_session(session: Session, statements: list[str], count: int) -> None:
    """They are told of each object that enters the session before its INSERT, and that is persistent after it."""
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
    """They are told of each object whose INSERT has failed, or was rolled back."""
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
    """A key of a row that was deleted past the session goes to the new object; the warning is that of a flush."""
    gone = [Watched(name=str(number)) for number in range(3)]
    bulk.insert(session, gone)
    keys = [each.id for each in gone]
    session.connection().execute(Watched.__table__.delete())  # type: ignore[attr-defined]  # a Table
    new = [Watched(name=str(number), id=None) for number in range(3)]
    if session.get_bind().name != "sqlite":
        bulk.insert(session, new)
        assert not {each.id for each in new} & set(keys)
        return
    with pytest.warns(SAWarning, match="Identity map already had an identity"):
        bulk.insert(session, new)

    assert [each.id for each in new] == keys
    assert [session.get(Watched, key) for key in keys] == new


def test_version_counter(session: Session) -> None:
    """The version counter begins at one, and goes on."""
    drafts = [Draft() for _ in range(3)]
    bulk.insert(session, drafts)

    assert [draft.version for draft in drafts] == [1, 1, 1]


def test_given_keys(session: Session) -> None:
    """A key that the caller gives is kept."""
    users = [User(id=number, name=str(number)) for number in (70, 60, 50)]
    bulk.insert(session, users)

    assert stored(session, User).keys() == {50, 60, 70}
    agree(session, users)


@pytest.mark.parametrize("count", [3, 30])
def test_rows_that_refer_to_later_objects(session: Session, count: int) -> None:
    """Objects of several models are inserted in the order of their foreign keys, whatever order they are given in."""
    if session.get_bind().name == "sqlite":
        session.execute(text("PRAGMA foreign_keys = ON"))
    users = [User(name=str(number), team_id=7) for number in range(count)]
    bulk.insert(session, [*users, Team(id=7), *[Watched(name=str(number)) for number in range(count)]])
    session.commit()

    assert session.scalars(select(User.team_id)).all() == [7] * count
    assert len(stored(session, Watched)) == count


@pytest.mark.parametrize("count", [3, 30])
def test_relationship_that_is_set_to_none(session: Session, count: int) -> None:
    """It empties the foreign key, as in a flush, also one that was given beside it."""
    team = Team()
    session.add(team)
    session.flush()
    flushed, inserted = ([User(team_id=team.id, team=None) for _ in range(count)] for _ in range(2))
    session.add_all(flushed)
    session.flush()
    bulk.insert(session, inserted)
    session.expire_all()

    assert [user.team_id for user in inserted] == [user.team_id for user in flushed]


@pytest.mark.parametrize("count", [3, 30])
def test_related_object_that_is_false(session: Session, count: int) -> None:
    """An object whose class has a length is related as any other, also if that is zero."""
    crew = Crew()
    sailors = [Sailor(crew=crew) for _ in range(count)]
    bulk.insert(session, sailors)
    session.commit()

    assert crew.id is not None
    assert {sailor.crew_id for sailor in sailors} == {crew.id}


@pytest.mark.parametrize("count", [3, 30])
def test_attributes_that_are_expressions(session: Session, count: int) -> None:
    """They have the value that the database computes, also if they were read before."""
    named = [Named(first="Ada", last=str(number)) for number in range(count)]
    assert named[0].full is None
    bulk.insert(session, named)

    assert [each.full for each in named] == [f"Ada {number}" for number in range(count)]
