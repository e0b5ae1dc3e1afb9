"""A row with two public ids, and a model that refers to it by both, in one tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import ForeignKey, MetaData, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    public_id_column,
    public_ref,
)


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "two_user"
    org: Mapped[int]
    card: Mapped[str] = public_id_column(NanoId(length=8))


class Ticket(PublicIdMixin, Base):
    __tablename__ = "two_ticket"
    org: Mapped[int]
    user_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    user: Mapped[User | None] = relationship()
    user_public_id: Mapped[str | None] = public_ref("user", attribute="public_id", scope="org")
    user_card: Mapped[str | None] = public_ref("user", attribute="card", scope="org")


@pytest.fixture
def users(create: Callable[[MetaData], None], session: Session) -> Iterator[list[User]]:
    """A user of the first organisation, and one of the second."""
    create(Base.metadata)
    users = [User(org=1), User(org=2)]
    session.add_all(users)
    session.commit()
    for user in users:
        session.refresh(user)
    yield users
    session.rollback()


def test_reading_the_other_id_changes_nothing(session: Session, users: list[User]) -> None:
    """The other id of an assigned row is read, and the flush compares the scope as it is then."""
    ticket = Ticket(org=1, user_public_id=users[0].public_id)
    session.add(ticket)

    assert ticket.user_card == users[0].card
    ticket.org = 2
    with pytest.raises(PublicIdNotFound):
        session.flush()


def test_reading_the_other_id_before_the_scope_is_set(session: Session, users: list[User]) -> None:
    """The scope may be set after the other id was read, and another row assigned."""
    ticket = Ticket(user_public_id=users[0].public_id)
    session.add(ticket)
    assert ticket.user_card == users[0].card
    ticket.user_public_id = users[1].public_id
    assert ticket.user_card == users[1].card
    ticket.org = 2
    session.flush()

    assert ticket.user_id == users[1].id


def test_other_id_of_a_new_row(session: Session, users: list[User]) -> None:
    """The other id of a row that is new, too, is that of its object."""
    user = User(org=1)
    ticket = Ticket(org=1, user_public_id=user.public_id)
    session.add_all([user, ticket])

    assert ticket.user_card == user.card
    session.flush()
    assert ticket.user_id == user.id


def test_key_that_the_program_has_set(session: Session, users: list[User]) -> None:
    """The id of the row whose key the program has set is compared with the scope, whatever the session holds."""
    ticket = Ticket(org=1)
    session.add(ticket)
    session.flush()
    ticket.user_id = users[1].id
    ticket.user_public_id = users[1].public_id

    with pytest.raises(PublicIdNotFound):
        session.flush()


def test_two_references_of_a_row_of_a_statement(session: Session, users: list[User]) -> None:
    """Two references to one row are taken; to two rows, they are refused."""
    first, other = users[0], User(org=1)
    session.add(other)
    session.flush()
    row = {"org": 1, "user_public_id": first.public_id}

    session.execute(insert(Ticket), [{**row, "user_card": first.card}])
    with pytest.raises(ConfigurationError, match=r"has two values for Ticket.user_id: user_card is the id of another"):
        session.execute(insert(Ticket), [{**row, "user_card": other.card}])
