"""What operators see: the log, and a counter for metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from sqlalchemy import MetaData, insert
from sqlalchemy.dialects.mssql import dialect as mssql_dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, Session

from sqlalchemy_public_id import NanoId, PublicIdCollision, PublicIdMixin, guard, testing

NAME = "sqlalchemy_public_id"
A = "a" * 12


class Base(DeclarativeBase):
    metadata = MetaData()


class Invoice(PublicIdMixin, Base):
    __tablename__ = "watched_invoice"
    number: Mapped[int | None]


class Letter(PublicIdMixin, Base):
    __tablename__ = "watched_letter"
    __public_id__ = NanoId(length=1, alphabet="AB")


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == NAME]


def test_replaced_ids(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """Each replaced id is logged with its table and the number of tries, without the id, and counted."""
    before = guard.collisions().get("watched_invoice", 0)
    with caplog.at_level(logging.DEBUG, NAME):
        session.add(Invoice(public_id=A))
        session.flush()
    assert logged(caplog) == []
    with caplog.at_level(logging.INFO, NAME), testing.fixed_ids(Invoice, A, A, "b" * 12):
        session.add(Invoice())
        session.flush()
    with caplog.at_level(logging.INFO, NAME), testing.fixed_ids(Invoice, "c" * 12, A, "d" * 12):
        session.execute(insert(Invoice), [{"number": 1}, {"number": 2}])

    message = "watched_invoice: a public_id was already taken, and is replaced (try {})"
    assert logged(caplog)[0] == ("INFO", message.format(2))  # the second A is not sent again
    assert logged(caplog)[-1] == ("INFO", message.format(1))
    assert guard.collisions()["watched_invoice"] - before == len(logged(caplog)) == 2
    assert A not in caplog.text


def test_row_without_an_id(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """A row that has used up its retries is an error in the log, too."""
    session.add_all([Letter(), Letter()])
    session.flush()
    caplog.clear()  # of two letters, both may have drawn the same id
    with caplog.at_level(logging.ERROR, NAME), pytest.raises(PublicIdCollision):
        session.execute(insert(Letter))

    assert logged(caplog) == [("ERROR", "watched_letter: a row has got no free public_id in 1000 tries")]


def test_database_without_a_retry(caplog: pytest.LogCaptureFixture) -> None:
    """The first use of a database whose collisions are not retried is a warning, and the second one is silent."""
    dialect = mssql_dialect()
    with caplog.at_level(logging.WARNING, NAME):
        for _ in range(2):
            guard.warn_if_unguarded(dialect)

    [(level, message)] = logged(caplog)
    assert level == "WARNING"
    assert message == (
        "public ids on mssql: a collision is raised instead of retried, because the library does not know how this "
        "database reports one; ids are generated and validated as usual"
    )
