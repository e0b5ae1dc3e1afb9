"""Every way to write a row generates a missing public id, keeps a given one, and validates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support import ways
from support.marks import on
from support.members import A, B, Team, TeamId, User
from support.rows import agree, stored
from support.ways import Rows, Way, flush

from sqlalchemy_public_id import InvalidPublicId, NanoId, PublicIdMixin

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("members")]
table = User.__table__


def cascade(session: Session, model: Any, rows: Rows) -> Any:
    session.add(Team(users=[model(**row) for row in rows]))


def merge(session: Session, model: Any, rows: Rows) -> Any:
    session.merge(Team(users=[model(**row) for row in rows]))


def inline(session: Session, model: Any, rows: Rows) -> Any:
    for row in rows:
        session.connection().execute(insert(table).inline().values(**row))


def core_values(session: Session, model: Any, rows: Rows) -> Any:
    session.connection().execute(insert(table).values(rows))


def parameters_of_other_names(session: Session, model: Any, rows: Rows) -> Any:
    statement = insert(table).values({name: bindparam(f"my_{name}") for name in rows[0]})
    session.connection().execute(statement, [{f"my_{name}": value for name, value in row.items()} for row in rows])


def values_returning(session: Session, model: Any, rows: Rows) -> Any:
    session.execute(insert(model).values(rows).returning(model.public_id)).all()


def core_returning(session: Session, model: Any, rows: Rows) -> Any:
    session.connection().execute(insert(table).returning(table.c.public_id), rows).all()


UNIT_OF_WORK = [flush, ways.flush_one_by_one, cascade, merge]
BULK = [ways.insert_in_bulk, ways.save_in_bulk, ways.insert_mappings]
CORE = [ways.execute_core, core_values, parameters_of_other_names, inline]
RETURNING = [ways.execute_returning, values_returning, core_returning]
WAYS = [*UNIT_OF_WORK, *BULK, ways.execute, ways.execute_values, *CORE, *RETURNING]


def written_by(way: Way, session: Session, rows: Rows) -> dict[str, str]:
    """Write *rows* with *way*; return name → public id of the rows in the table."""
    if way in RETURNING and not session.get_bind().dialect.insert_returning:
        pytest.skip("MySQL has no RETURNING")
    way(session, User, [dict(row) for row in rows])
    session.flush()
    return dict(session.connection().execute(select(table.c.name, table.c.public_id)).all())


def check_made(ids: dict[str, str]) -> None:
    assert ids.keys() == {"Ada", "Grace", "Edsger"}
    assert len(set(ids.values())) == 3
    assert all(map(User.__public_id__.is_valid, ids.values()))


NAMES = [{"name": "Ada"}, {"name": "Grace"}, {"name": "Edsger"}]
GIVEN = [row | {"public_id": f"{number:012}"} for number, row in enumerate(NAMES)]


@ways.each_way(*WAYS)
def test_id_is_made(session: Session, write: Way) -> None:
    """Each row without an id gets a generated one."""
    check_made(written_by(write, session, NAMES))


@ways.each_way(*WAYS)
def test_given_id_is_kept(session: Session, write: Way) -> None:
    """An id given by the caller is stored unchanged."""
    assert {row["name"]: row["public_id"] for row in GIVEN} == written_by(write, session, GIVEN)


@on("sqlite", "postgresql")
@ways.each_way(*WAYS)
def test_malformed_id_is_refused(session: Session, write: Way) -> None:
    """A malformed id raises ``InvalidPublicId``, not a StatementError of SQLAlchemy, and nothing is written."""
    with pytest.raises(InvalidPublicId) as caught:
        written_by(write, session, [*GIVEN[:2], NAMES[2] | {"public_id": "nonsense"}])
    session.rollback()

    assert caught.value.value == "nonsense"
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
    "query.update": lambda session, key, new: session.query(User).where(User.id == key).update({"public_id": new}),
}


@on("sqlite", "postgresql")
@pytest.mark.parametrize("way", UPDATES)
def test_update_changes_an_id_on_purpose(session: Session, way: str) -> None:
    """An UPDATE statement validates an id and stores it, as the message of ``ImmutablePublicId`` says."""
    [user] = flush(session, User, [{"public_id": A}])
    session.commit()
    with pytest.raises(InvalidPublicId) as caught:
        UPDATES[way](session, user.id, "nonsense")
    session.rollback()
    assert not isinstance(caught.value, StatementError)
    assert stored(session, User) == {1: A}
    UPDATES[way](session, user.id, B)
    session.commit()

    assert user.public_id == B
    assert stored(session, User) == {1: B}


@on("sqlite", "postgresql")
@ways.each_way(flush, merge, *BULK)
def test_none_means_make_one(session: Session, write: Way) -> None:
    """``public_id=None`` generates an id, because dataclasses and SQLModel pass None for a missing one."""
    check_made(written_by(write, session, [row | {"public_id": None} for row in NAMES]))


@ways.each_way(ways.execute_core, core_values)
def test_null_in_core_is_refused_by_the_database(session: Session, write: Way) -> None:
    """In a Core statement ``None`` is NULL, which the NOT NULL column rejects."""
    with pytest.raises(IntegrityError):
        write(session, User, [row | {"public_id": None} for row in NAMES])


def test_typed_ids_are_written_as_text(session: Session) -> None:
    """A typed id, generated or given, is shown by the attribute and stored as text."""
    given = TeamId()
    teams = flush(session, Team, [{"name": "made"}, {"name": "given", "public_id": given}])
    session.commit()

    assert [TeamId, TeamId] == [type(team.public_id) for team in teams]
    assert given == teams[1].public_id
    agree(session, teams)
    with pytest.raises(InvalidPublicId, match="the prefix is 'usr'"):
        Team(public_id=f"usr_{A}")


@on("postgresql")
def test_insert_in_a_cte(session: Session) -> None:
    """An INSERT inside a CTE generates ids as well."""
    written = insert(User).values(name="Ada").returning(User.public_id).cte("written")
    shown = session.scalar(select(written.c.public_id))

    assert [shown] == list(stored(session, User).values())


@on("sqlite")
def test_foreign_key_to_a_public_id(session: Session) -> None:
    """A foreign key to a public id is not a public id itself: it may be NULL, and may change."""

    class Own(DeclarativeBase): ...

    class Owner(PublicIdMixin, Own):
        __tablename__ = "owner"
        __public_id__ = NanoId()

    class Pet(PublicIdMixin, Own):
        __tablename__ = "pet"
        owner_public_id: Mapped[str | None] = mapped_column(ForeignKey("owner.public_id"), default=lambda: None)

    Own.metadata.create_all(session.connection())
    [owner] = flush(session, Owner, [{}])
    pet, stray = flush(session, Pet, [{"owner_public_id": owner.public_id}, {}])
    session.commit()
    assert stray.owner_public_id is None
    stray.owner_public_id, pet.owner_public_id = owner.public_id, None
    session.commit()

    assert session.scalars(select(Pet.owner_public_id).order_by(Pet.id)).all() == [None, owner.public_id]
