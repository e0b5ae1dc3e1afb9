"""SQL expressions as the value of a public id, as for any other attribute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, func, literal_column, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from support.marks import on
from support.members import A, Base, User
from support.rows import agree

from sqlalchemy_public_id import ConfigurationError, ImmutablePublicId, bulk, testing
from sqlalchemy_public_id.idempotency import insert_once

UPPER = {"an expression": func.lower("A" * 12), "a query": select(func.lower("A" * 12)).scalar_subquery()}
EVERYWHERE = on("sqlite", "postgresql", "mysql", "mariadb")


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def after_a_read(value: Any) -> User:
    user = User()
    assert user.public_id
    user.public_id = value
    return user


@EVERYWHERE
@pytest.mark.parametrize("value", UPPER)
@pytest.mark.parametrize("make", [lambda value: User(public_id=value), after_a_read], ids=["constructor", "assignment"])
def test_expression_is_evaluated_by_the_database(session: Session, make: Callable[[Any], User], value: str) -> None:
    """The database evaluates the expression, and the object shows the result."""
    user = make(UPPER[value])
    others = [User(), User()]
    session.add_all([others[0], user, others[1]])
    session.commit()

    assert user.public_id == A
    agree(session, [user, *others])


@EVERYWHERE
def test_expression_whose_value_is_taken(session: Session) -> None:
    """An id that was given as an expression and is already taken raises IntegrityError."""
    session.add(User(public_id=A))
    session.commit()
    session.add(User(public_id=func.lower("A" * 12)))

    with pytest.raises(IntegrityError):
        session.flush()


@on("sqlite", "postgresql")
def test_expression_beside_a_collision(session: Session) -> None:
    """A collision of another object in the same flush is retried."""
    session.add(User(public_id=A))
    session.commit()
    with testing.collisions(User, A):
        users = [User(), User(public_id=func.lower("B" * 12)), User()]
        session.add_all(users)
        session.commit()

    agree(session, users)


@on("sqlite")
def test_expression_in_bulk_insert(session: Session) -> None:
    """``bulk.insert()`` leaves objects with expressions to the unit of work."""
    users = [User(public_id=func.lower("A" * 12)), User()]
    bulk.insert(session, users)

    agree(session, users)


@on("sqlite")
@pytest.mark.parametrize("expire", [True, False])
def test_expression_for_a_stored_row(session: Session, expire: bool) -> None:
    """Assigning an expression to the id of a stored row raises, whether or not the id is loaded."""
    user = User()
    session.add(user)
    session.commit()
    if not expire:
        session.refresh(user)

    with pytest.raises(ImmutablePublicId):
        user.public_id = literal_column("'abcdefghijkl'")


@on("sqlite")
def test_expression_in_insert_once(session: Session) -> None:
    """``insert_once()`` refuses an expression, because it is not an id that a client could send again."""
    with pytest.raises(ConfigurationError):
        insert_once(session, User(public_id=func.lower("A" * 12)))
