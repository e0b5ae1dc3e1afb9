"""Formats whose ids are nearly all taken: few statements find the free ones, and the rows are right."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, func, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on
from support.retrying import run_transaction
from support.ways import Way, each_way, flush, insert_in_bulk, numbers

from sqlalchemy_public_id import NanoId, PublicIdMixin
from sqlalchemy_public_id.formats import BASE36

IDS = ["".join(letters) for letters in itertools.product(BASE36, repeat=2)]
FREE = 60


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


@each_way(flush, insert_in_bulk)
def test_last_ids(session: Session, write: Way) -> None:
    """One call fills the space up to 99 percent."""
    write(session, Narrow, numbers(FREE - 12))

    assert session.scalar(select(func.count(Narrow.public_id.distinct()))) == len(IDS) - 12


@on("postgresql", "mysql", "mariadb")
def test_several_writers(engine: Engine) -> None:
    """Four threads share the free ids, in transactions that are repeated after a deadlock."""
    stored: list[Any] = []

    def write(number: int) -> None:
        def work(session: Session) -> list[tuple[int, str]]:
            return [(each.id, each.public_id) for each in flush(session, Narrow, [{"number": number}] * 4)]

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
