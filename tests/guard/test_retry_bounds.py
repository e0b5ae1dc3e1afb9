"""``max_retries`` of a column: a row gets at most that many other ids, whichever way it is written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from support.marks import on
from support.members import A, B, C, D, E
from support.shapes import new_base
from support.ways import (
    Way,
    each_way,
    execute,
    execute_core,
    execute_returning,
    execute_values,
    flush,
    flush_one_by_one,
    insert_in_bulk,
    insert_mappings,
    numbers,
    save_in_bulk,
)

from sqlalchemy_public_id import PublicIdCollision, bigint_key, public_id_column, testing


class Base(DeclarativeBase):
    metadata = MetaData()


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = bigint_key()
    public_id: Mapped[str] = public_id_column(max_retries=3)
    number: Mapped[int]


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("stored")]


@pytest.fixture
def stored(create: Callable[[MetaData], None], engine: Engine) -> None:
    """Store one row, whose id will be generated again."""
    create(Base.metadata)
    with Session(engine) as session:
        session.add(Item(public_id=A, number=0))
        session.commit()


def outcome(session: Session, write: Way, number: int) -> tuple[list[str], int | None]:
    """Write *number* rows; return all ids that are stored afterwards, and the attempts of the error, if any."""
    attempts = None
    try:
        write(session, Item, numbers(number, first=1))
    except PublicIdCollision as error:
        attempts = error.attempts
        session.rollback()
    session.commit()
    return sorted(session.scalars(select(Item.public_id))), attempts


@each_way(flush, insert_in_bulk, execute, execute_values, execute_core)
@pytest.mark.parametrize("number", [1, 3])
def test_row_that_is_stored(session: Session, write: Way, number: int) -> None:
    """A row whose id is taken gets up to three other ids; if the third is taken as well, the error is raised."""
    others = [B, C][: number - 1]  # the ids of all rows are drawn before the first INSERT
    with testing.fixed_ids(Item, A, *others, A, A, A, D):
        assert outcome(session, write, number) == ([A], 3)
    with testing.fixed_ids(Item, A, *others, A, A, D):
        assert outcome(session, write, number) == ([A, *others, D], None)


def log_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "sqlalchemy_public_id"]


@each_way(
    flush,
    flush_one_by_one,
    insert_in_bulk,
    save_in_bulk,
    insert_mappings,
    execute,
    execute_values,
    execute_core,
    execute_returning,
)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("occupied", [3, 4])
def test_refusals_one_after_another(
    session: Session, write: Way, number: int, occupied: int, caplog: pytest.LogCaptureFixture
) -> None:
    """If the database refuses one id after another, a row gets exactly three others, which the log numbers."""
    taken, free = [A, B, C, D][:occupied], ["y" * 12, "z" * 12]
    flush(session, Item, [{"public_id": id, "number": 0} for id in taken[1:]])
    session.commit()
    before = free[: number - 1]  # of the row before the refused one
    with caplog.at_level(logging.INFO), testing.fixed_ids(Item, *before, A, B, C, D, E):
        ids, attempts = outcome(session, write, number)
        unused = Item(number=9).public_id  # the next id that is drawn

    replaced = [f"item: a public_id was already taken, and was replaced (try {n})" for n in (1, 2, 3)]
    if occupied == 3:
        assert (ids, attempts, unused) == ([A, B, C, D, *before], None, E)
        assert log_of(caplog) == replaced
    else:
        assert (ids, attempts, unused) == ([A, B, C, D], 3, E)
        assert log_of(caplog) == [*replaced, "item: no free public_id was found for a row in 3 tries"]


@each_way(flush, insert_in_bulk)
def test_rows_of_one_flush(session: Session, write: Way) -> None:
    """A row whose id collides with another row of its flush gets at most three other ids, too."""
    with testing.fixed_ids(Item, B, B, B, B, B, D):
        assert outcome(session, write, 2) == ([A], 3)
    with testing.fixed_ids(Item, B, B, B, B, D):
        assert outcome(session, write, 2) == ([A, B, D], None)


@on("sqlite")
def test_two_ids_of_a_row(session: Session) -> None:
    """The retries of each public id of a row are counted separately."""

    class Pair(new_base()):
        __tablename__ = "pair"
        id: Mapped[int] = bigint_key()
        first: Mapped[str] = public_id_column(max_retries=1)
        second: Mapped[str] = public_id_column(max_retries=1)

    Pair.metadata.create_all(session.connection())
    with testing.fixed_ids(Pair, A, A, B, attribute="first"), testing.fixed_ids(Pair, A, A, B, attribute="second"):
        pairs = [flush(session, Pair, [{}])[0] for _ in range(2)]

    assert [(pair.first, pair.second) for pair in pairs] == [(A, A), (B, B)]
    session.rollback()


@on("postgresql")
@pytest.mark.parametrize("error", [PublicIdCollision, IntegrityError])
def test_transaction_continues(session: Session, error: type[Exception]) -> None:
    """An application that catches the error of its own INSERT finds none of its rows, and can go on."""
    ordered: Any = insert(Item).returning(Item.number, sort_by_parameter_order=True)
    rows: list[dict[str, Any]] = [{"number": 1}, {"number": 2}]
    if error is IntegrityError:  # of another constraint
        session.add(Item(id=1_000, number=0))
        session.flush()
        rows[1]["id"] = 1_000
        rows[0]["id"] = 1_001
    before = session.scalars(select(Item.number)).all()
    ids = [B, A, A, A, A] if error is PublicIdCollision else [B]
    with testing.fixed_ids(Item, *ids), pytest.raises(error):
        session.connection().execute(ordered, rows)

    assert session.scalars(select(Item.number)).all() == before


@on("postgresql")
@pytest.mark.parametrize("error", [PublicIdCollision, IntegrityError])
@pytest.mark.parametrize("rows", [3, 4])
def test_batches_before_an_error(session: Session, error: type[Exception], rows: int) -> None:
    """If the second batch of an INSERT fails, the first one is not stored, even if the application commits."""
    values: list[dict[str, Any]] = [{"id": 1_000 + at, "number": at} for at in range(1, rows + 1)]
    if error is IntegrityError:  # of another constraint
        values[-1]["id"] = values[0]["id"]
    query = insert(Item).returning(Item.number)
    ids = [B, C, *([D] * (rows - 3)), *([A] * 4 if error is PublicIdCollision else [])]
    with testing.fixed_ids(Item, *ids), pytest.raises(error):
        session.connection(execution_options={"insertmanyvalues_page_size": 2}).execute(query, values)
    session.commit()

    assert session.scalars(select(Item.number)).all() == [0]


@on("postgresql")
def test_row_that_fails_alone(session: Session) -> None:
    """If one row of an INSERT fails after the others were stored, none remains, even if the application commits."""
    table = Item.__table__
    query: Any = insert(table).return_defaults(table.c.id, sort_by_parameter_order=True)
    with testing.fixed_ids(Item, B, A, A, A, A), pytest.raises(PublicIdCollision):
        session.connection().execute(query, numbers(2, first=1))
    session.commit()

    assert session.scalars(select(Item.number)).all() == [0]
