"""``insert_once`` that fails: the caller's transaction, its other rows and the object are as they were."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, event, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    ORMExecuteState,
    Session,
    mapped_column,
    relationship,
    with_loader_criteria,
)
from support.interrupt import interrupted

from sqlalchemy_public_id import IdempotencyConflict, PublicIdMixin, idempotency


class Base(DeclarativeBase):
    metadata = MetaData()


class Team(PublicIdMixin, Base):
    __tablename__ = "team"
    name: Mapped[str] = mapped_column(String(50), unique=True)


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    name: Mapped[str | None] = mapped_column(String(50))
    email: Mapped[str | None] = mapped_column(String(50), unique=True)
    team_id: Mapped[int | None] = mapped_column(ForeignKey(Team.id))
    team: Mapped[Team | None] = relationship()


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("team")]
ID = "c" * 12


@pytest.fixture
def team(create: Callable[[MetaData], None], engine: Engine) -> None:
    create(Base.metadata)
    with Session(engine) as session:
        session.add(Team(name="stored"))
        session.commit()


@pytest.fixture
def rollbacks(engine: Engine) -> list[Any]:
    """The connections whose transactions were rolled back, and not only to a savepoint."""
    rolled_back: list[Any] = []
    event.listen(engine, "rollback", rolled_back.append)
    return rolled_back


def names(session: Session) -> list[str | None]:
    return list(session.connection().scalars(select(User.__table__.c.name).order_by(text("id"))))


def hide(session: Session) -> None:
    """Let every SELECT of the session leave out the row that is stored."""

    def add_criteria(state: ORMExecuteState) -> None:
        if state.is_select:
            state.statement = state.statement.options(with_loader_criteria(User, User.name != "hidden"))

    event.listen(session, "do_orm_execute", add_criteria)


@pytest.mark.parametrize("first", [True, False], ids=["first in its transaction", "after other work"])
def test_stored_row_that_is_hidden(session: Session, rollbacks: list[Any], first: bool) -> None:
    """A row that no SELECT finds is an error; only a transaction of this call alone is repeated, and not for ever."""
    session.add(User(public_id=ID, name="hidden"))
    session.commit()
    hide(session)
    if not first:
        session.add(User(name="before"))
        session.flush()

    with pytest.raises((IntegrityError, IdempotencyConflict)):
        idempotency.insert_once(session, User(public_id=ID, name="once"))

    assert len(rollbacks) < (10 if first else 1)
    session.commit()
    assert names(session) == (["hidden"] if first else ["hidden", "before"])


@pytest.mark.parametrize("in_transaction", [True, False])
def test_other_constraint(session: Session, rollbacks: list[Any], in_transaction: bool) -> None:
    """The violation of another constraint is raised at once, and undoes the insert alone."""
    session.add(User(name="stored", email="a@example.org"))
    session.commit()
    if in_transaction:
        session.add(User(name="before"))
        session.flush()

    with pytest.raises(IntegrityError):
        idempotency.insert_once(session, User(public_id=ID, name="once", email="a@example.org"))

    assert rollbacks == []
    session.commit()
    assert names(session) == (["stored", "before"] if in_transaction else ["stored"])


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_flush_that_fails_before_the_insert(session: Session, engine: Engine, error: Any) -> None:
    """If the flush before the insert fails, the object still refers to its parent, and can be inserted later."""
    team = session.scalars(select(Team)).one()
    session.add(Team(name="stored" if error is None else "new"))
    user = User(public_id=ID, name="once", team=team)

    if error is None:
        with pytest.raises(IntegrityError):
            idempotency.insert_once(session, user)
    else:
        with pytest.raises(error), interrupted(engine, 1, error, only=("INSERT",)):
            idempotency.insert_once(session, user)

    assert vars(user)["team"] is team
    session.rollback()
    assert idempotency.insert_once(session, user) == (user, True)
    session.commit()
    assert user.team is team


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_interrupted_insert(session: Session, engine: Engine, error: type[BaseException], when: Any) -> None:
    """An error in the insert itself leaves the parent of the object, and no row, and the call can be repeated."""
    team = session.scalars(select(Team)).one()
    user = User(public_id=ID, name="once", team=team)

    with pytest.raises(error), interrupted(engine, 1, error, when, only=("INSERT INTO",)):
        idempotency.insert_once(session, user)
    session.rollback()
    gc.collect()  # SQLAlchemy leaves the lock on an SQLite file to it after a KeyboardInterrupt

    assert names(session) == []
    assert vars(user)["team"] is team
    session.rollback()
    assert idempotency.insert_once(session, user) == (user, True)
