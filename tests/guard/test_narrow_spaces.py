"""Formats whose ids are nearly all taken: few statements find the free ones, and the rows are right."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.retrying import run_transaction

from sqlalchemy_public_id import NanoId, PublicIdMixin, bulk
from sqlalchemy_public_id.formats import BASE36

IDS = ["".join(letters) for letters in itertools.product(BASE36, repeat=2)]
FREE = 60
ROWS = 40


class Base(DeclarativeBase):
    metadata = MetaData()


class Narrow(PublicIdMixin, Base):
    """1 296 ids, of which 60 are free."""

    __tablename__ = "narrow"
    __public_id__ = NanoId(length=2)
    number: Mapped[int]
    name: Mapped[str | None] = mapped_column(String(50), unique=True)


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("taken")]


@pytest.fixture
def taken(create: Callable[[MetaData], None], engine: Engine) -> None:
    create(Base.metadata)
    ids = random.Random(4).sample(IDS, len(IDS) - FREE)
    with engine.begin() as connection:
        connection.execute(insert(Narrow), [{"public_id": each, "number": -1} for each in ids])


def flush(session: Session) -> list[Narrow]:
    objects = [Narrow(number=number) for number in range(ROWS)]
    session.add_all(objects)
    session.flush()
    return objects


def insert_in_bulk(session: Session) -> list[Narrow]:
    objects = [Narrow(number=number) for number in range(ROWS)]
    bulk.insert(session, objects)
    return objects


def insert_by_core(session: Session) -> list[Narrow]:
    session.execute(insert(Narrow), [{"number": number} for number in range(ROWS)])
    return list(session.scalars(select(Narrow).where(Narrow.number >= 0).order_by(Narrow.number)))


def test_last_ids(session: Session) -> None:
    """One flush fills the space up to 99 percent."""
    session.add_all([Narrow(number=number) for number in range(FREE - 12)])
    session.flush()

    assert session.scalar(select(func.count(Narrow.public_id.distinct()))) == len(IDS) - 12


def test_another_constraint_is_reported(session: Session, engine: Engine) -> None:
    """A row that also violates another constraint raises the error of that one, and nothing is stored."""
    session.add(Narrow(number=0, name="taken"))
    session.commit()
    stored = session.scalar(select(func.count()).select_from(Narrow))
    session.add_all([Narrow(number=number, name="taken" if number == 7 else None) for number in range(20)])
    with pytest.raises(IntegrityError, match="name"):
        session.flush()
    session.rollback()

    assert session.scalar(select(func.count()).select_from(Narrow)) == stored


def test_given_ids_are_not_replaced(session: Session) -> None:
    """Among generated ids that collide, one that the application gave and that is taken is an error."""
    given = session.scalars(select(Narrow.public_id).limit(1)).one()
    session.add_all([Narrow(number=number) for number in range(20)])
    session.add(Narrow(number=20, public_id=given))
    with pytest.raises(IntegrityError):
        session.flush()


@on("postgresql", "mysql", "mariadb")
def test_several_writers(engine: Engine) -> None:
    """Four threads share the free ids, in transactions that are repeated after a deadlock."""
    stored: list[Any] = []

    def write(number: int) -> None:
        def work(session: Session) -> list[tuple[int, str]]:
            objects = [Narrow(number=number) for _ in range(4)]
            session.add_all(objects)
            session.flush()
            return [(each.id, each.public_id) for each in objects]

        for _ in range(3):
            stored.extend(run_transaction(lambda: Session(engine), work, attempts=20))

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    with Session(engine) as session:
        rows = {
            (row.id, row.public_id)
            for row in session.execute(select(Narrow.id, Narrow.public_id).where(Narrow.number >= 0))
        }
    assert len(stored) == 4 * 3 * 4
    assert rows == set(stored)
