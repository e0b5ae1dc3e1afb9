"""Every way to write a row makes it a public id, keeps the one it was given, and checks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from support.marks import on
from support.rows import agree, stored

from sqlalchemy_public_id import InvalidPublicId, NanoId, PublicIdMixin, TypedId


class Base(DeclarativeBase):
    metadata = MetaData()


class TeamId(TypedId, prefix="writing_team"): ...


class Team(PublicIdMixin[TeamId], Base):
    __tablename__ = "team"
    name: Mapped[str | None] = mapped_column(String(50))
    users: Mapped[list[User]] = relationship(back_populates="team")


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId(prefix="usr")
    name: Mapped[str | None] = mapped_column(String(50))
    team_id: Mapped[int | None] = mapped_column(ForeignKey("team.id"))
    team: Mapped[Team | None] = relationship(back_populates="users")


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


Rows = list[dict[str, Any]]
Way = Callable[[Session, Rows], Any]
table = User.__table__


def made(rows: Rows) -> list[User]:
    return [User(**row) for row in rows]


def add_one_by_one(session: Session, rows: Rows) -> None:
    for user in made(rows):
        session.add(user)
        session.flush()


UNIT_OF_WORK: dict[str, Way] = {
    "add one by one": add_one_by_one,
    "add_all": lambda session, rows: session.add_all(made(rows)),
    "cascade to a collection": lambda session, rows: session.add(Team(users=made(rows))),
    "cascade to a parent": lambda session, rows: session.add_all([Team(users=[user]) for user in made(rows)]),
    "collection of a persistent object": lambda session, rows: grow(session, made(rows)),
    "merge": lambda session, rows: [session.merge(user) for user in made(rows)],
    "merge by cascade": lambda session, rows: session.merge(Team(users=made(rows))),
}

BULK: dict[str, Way] = {
    "bulk_save_objects": lambda session, rows: session.bulk_save_objects(made(rows)),
    "bulk_save_objects, return_defaults": lambda session, rows: session.bulk_save_objects(made(rows), True),
    "bulk_insert_mappings": lambda session, rows: session.bulk_insert_mappings(User, rows),  # type: ignore[arg-type]
    "bulk_insert_mappings, return_defaults": lambda session, rows: session.bulk_insert_mappings(User, rows, True),  # type: ignore[arg-type]
}

STATEMENTS: dict[str, Way] = {
    "insert(Model), one row": lambda session, rows: [session.execute(insert(User), row) for row in rows],
    "insert(Model), rows": lambda session, rows: session.execute(insert(User), rows),
    "insert(Model).values(row)": lambda session, rows: [session.execute(insert(User).values(**row)) for row in rows],
    "insert(Model).values(rows)": lambda session, rows: session.execute(insert(User).values(rows)),
    "insert(table), one row": lambda session, rows: [session.connection().execute(insert(table), row) for row in rows],
    "insert(table), rows": lambda session, rows: session.connection().execute(insert(table), rows),
    "insert(table).values(row)": lambda session, rows: [
        session.connection().execute(insert(table).values(**row)) for row in rows
    ],
    "insert(table).values(rows)": lambda session, rows: session.connection().execute(insert(table).values(rows)),
    "insert(table).values(bindparam)": lambda session, rows: session.connection().execute(
        insert(table).values({name: bindparam(f"my_{name}") for name in rows[0]}),
        [{f"my_{name}": value for name, value in row.items()} for row in rows],
    ),
    "insert(table).inline()": lambda session, rows: [
        session.connection().execute(insert(table).inline().values(**row)) for row in rows
    ],
}

RETURNING: dict[str, Way] = {
    "insert(Model).returning(Model)": lambda session, rows: session.scalars(insert(User).returning(User), rows).all(),
    "insert(Model).returning(Model), one row": lambda session, rows: [
        session.scalars(insert(User).returning(User), row).all() for row in rows
    ],
    "insert(Model).values(rows).returning()": lambda session, rows: session.execute(
        insert(User).values(rows).returning(User.public_id)
    ).all(),
    "insert(table).returning()": lambda session, rows: (
        session.connection().execute(insert(table).returning(table.c.public_id), rows).all()
    ),
}

WAYS = UNIT_OF_WORK | BULK | STATEMENTS


def grow(session: Session, users: list[User]) -> None:
    team = Team()
    session.add(team)
    session.commit()
    team.users += users


def write(session: Session, way: Way, rows: Rows) -> dict[str, str]:
    """Write *rows* in this way; the name → public id of the rows that are there afterwards."""
    way(session, [dict(row) for row in rows])  # bulk_insert_mappings() writes into the rows
    session.flush()
    return dict(session.connection().execute(select(table.c.name, table.c.public_id)).all())


def check_made(ids: dict[str, str]) -> None:
    assert ids.keys() == {"Ada", "Grace", "Edsger"}
    assert len(set(ids.values())) == 3
    assert all(map(User.__public_id__.is_valid, ids.values()))


NAMES = [{"name": "Ada"}, {"name": "Grace"}, {"name": "Edsger"}]
GIVEN = [row | {"public_id": f"usr_{number:012}"} for number, row in enumerate(NAMES)]
MALFORMED = [*GIVEN[:2], NAMES[2] | {"public_id": "usr_nonsense"}]


@pytest.mark.parametrize("way", WAYS)
def test_id_is_made(session: Session, way: str) -> None:
    """Rows that bring no id get one each."""
    check_made(write(session, WAYS[way], NAMES))


@on("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("way", RETURNING)
def test_id_is_made_with_returning(session: Session, way: str) -> None:
    """The same for statements that return what they wrote."""
    check_made(write(session, RETURNING[way], NAMES))


@pytest.mark.parametrize("way", WAYS)
def test_given_id_is_kept(session: Session, way: str) -> None:
    """An id that the caller gives is the one that is stored."""
    assert {row["name"]: row["public_id"] for row in GIVEN} == write(session, WAYS[way], GIVEN)


@on("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("way", RETURNING)
def test_given_id_is_kept_with_returning(session: Session, way: str) -> None:
    """The same for statements that return what they wrote."""
    assert {row["name"]: row["public_id"] for row in GIVEN} == write(session, RETURNING[way], GIVEN)


@on("sqlite", "postgresql")
@pytest.mark.parametrize("way", WAYS | RETURNING)
def test_malformed_id_is_refused(session: Session, way: str) -> None:
    """A malformed id is an ``InvalidPublicId`` as such, not hidden in SQLAlchemy's error; nothing is written."""
    with pytest.raises(InvalidPublicId) as caught:
        write(session, (WAYS | RETURNING)[way], MALFORMED)
    session.rollback()

    assert caught.value.value == "usr_nonsense"
    assert not isinstance(caught.value, StatementError)
    assert stored(session, User) == {}


UPDATES: dict[str, Callable[[Session, int, str], Any]] = {
    "update(Model)": lambda session, key, new: session.execute(
        update(User).where(User.id == key).values(public_id=new)
    ),
    "update(Model), rows": lambda session, key, new: session.execute(update(User), [{"id": key, "public_id": new}]),
    "update(table)": lambda session, key, new: session.connection().execute(
        update(table).where(table.c.id == key).values(public_id=new)
    ),
    "bulk_update_mappings": lambda session, key, new: session.bulk_update_mappings(
        User,  # type: ignore[arg-type]
        [{"id": key, "public_id": new}],
    ),
    "query.update": lambda session, key, new: session.query(User).where(User.id == key).update({"public_id": new}),
}


@on("sqlite", "postgresql")
@pytest.mark.parametrize("way", UPDATES)
def test_malformed_id_is_refused_by_update(session: Session, way: str) -> None:
    """UPDATE statements check an id as well."""
    session.add(User(public_id=GIVEN[0]["public_id"]))
    session.commit()
    with pytest.raises(InvalidPublicId) as caught:
        UPDATES[way](session, 1, "usr_nonsense")
    session.rollback()

    assert not isinstance(caught.value, StatementError)
    assert {1: GIVEN[0]["public_id"]} == stored(session, User)


@on("sqlite", "postgresql")
@pytest.mark.parametrize("way", UPDATES)
def test_update_changes_an_id_on_purpose(session: Session, way: str) -> None:
    """An UPDATE statement gives a row another id, as the message of ``ImmutablePublicId`` says."""
    user = User(name="Ada")
    session.add(user)
    session.commit()
    UPDATES[way](session, user.id, GIVEN[0]["public_id"])
    session.commit()

    assert GIVEN[0]["public_id"] == user.public_id
    agree(session, [user])


@on("sqlite", "postgresql")
@pytest.mark.parametrize("way", ["add_all", "merge", *(way for way in BULK)])
def test_none_means_make_one(session: Session, way: str) -> None:
    """``public_id=None`` asks for an id: that is how dataclasses and SQLModel say that none was given."""
    check_made(write(session, WAYS[way], [row | {"public_id": None} for row in NAMES]))


@pytest.mark.parametrize("way", ["insert(table), one row", "insert(table), rows", "insert(table).values(rows)"])
def test_null_in_core_is_refused_by_the_database(session: Session, way: str) -> None:
    """In a Core statement ``None`` is NULL, and the column is NOT NULL."""
    with pytest.raises(IntegrityError):
        WAYS[way](session, [row | {"public_id": None} for row in NAMES])


@on("sqlite")
def test_given_and_made_in_one_batch(session: Session) -> None:
    """Of three objects in one flush, the one with an id keeps it."""
    users = made([NAMES[0], GIVEN[1], NAMES[2]])
    session.add_all(users)
    session.flush()

    assert GIVEN[1]["public_id"] == users[1].public_id
    agree(session, users)


def test_merge_of_an_existing_row_keeps_its_id(session: Session) -> None:
    """Merging by key without an id changes the row and leaves its id alone."""
    user = User(name="Ada")
    session.add(user)
    session.commit()
    before = user.public_id
    merged = session.merge(User(id=user.id, name="Grace"))
    session.commit()

    assert (user, "Grace", before) == (merged, merged.name, merged.public_id)
    agree(session, [merged])


def test_merge_of_an_existing_row_with_its_own_id(session: Session) -> None:
    """Merging a copy that carries the same id is no change of the id."""
    user = User(name="Ada")
    session.add(user)
    session.commit()
    merged = session.merge(User(id=user.id, public_id=user.public_id, name="Grace"))
    session.commit()

    assert (user, "Grace") == (merged, merged.name)


def test_typed_ids_are_written_as_text(session: Session) -> None:
    """A typed id, made or given, is what the attribute shows, and its text is what the table holds."""
    given = TeamId()
    teams = [Team(name="made"), Team(name="given", public_id=given)]
    session.add_all(teams)
    session.commit()

    assert [TeamId, TeamId] == [type(team.public_id) for team in teams]
    assert given == teams[1].public_id
    agree(session, teams)


@on("sqlite")
def test_typed_id_of_another_type_is_refused(session: Session) -> None:
    """An id with another type's prefix is malformed here."""
    with pytest.raises(InvalidPublicId, match="the prefix is 'usr'"):
        Team(public_id=GIVEN[0]["public_id"])


@on("postgresql")
def test_insert_in_a_cte(session: Session) -> None:
    """An INSERT inside a WITH has its ids made as well."""
    written = insert(User).values(name="Ada").returning(User.public_id).cte("written")
    shown = session.scalar(select(written.c.public_id))

    assert [shown] == list(stored(session, User).values())
