"""Whatever happens in a flush, the next rows on its connection get ids that are drawn for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, event, insert, select
from sqlalchemy.exc import IntegrityError, SAWarning
from sqlalchemy.orm import Session
from support.recorded import Base, Note, Recorded, ids_by_name, notes, rows, table
from support.ways import Way, execute, flush

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]

D = "dddddddd"


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)
    Recorded.drawn.clear()


def fail_by_constraint(session: Session) -> None:
    with pytest.raises(IntegrityError):
        flush(session, Note, [{"name": "stored"}, {"name": "other"}])
    session.rollback()


def fail_in_a_savepoint(session: Session) -> None:
    with suppress(IntegrityError), session.begin_nested():
        flush(session, Note, [{"name": "other"}, {"name": "stored"}])


def fail_in_a_listener(session: Session) -> None:
    def fail(mapper: object, connection: object, target: Note) -> None:
        if target.name == "fails":
            raise ZeroDivisionError

    _with_listener(fail, session, "before", "fails", error=ZeroDivisionError)


def assign_in_a_listener(session: Session) -> None:
    def give(mapper: object, connection: object, target: Note) -> None:
        target.public_id = D

    _with_listener(give, session, "given")


def set_past_the_events(session: Session) -> None:
    def give(mapper: object, connection: object, target: Note) -> None:
        vars(target)["public_id"] = D

    _with_listener(give, session, "given")


def expunge_in_a_listener(session: Session) -> None:
    def expunge(mapper: object, connection: object, target: Note) -> None:
        if target.name == "gone":
            session.expunge(target)

    _with_listener(expunge, session, "gone")


def expunge_in_an_early_listener(session: Session) -> None:
    def expunge(mapper: object, connection: object, target: Note) -> None:
        session.expunge(target)

    _with_listener(expunge, session, "gone", error=Exception, insert=True)


def switch_rows(session: Session) -> None:
    stored = session.scalars(select(Note)).one()
    session.delete(stored)
    session.add(Note(id=stored.id, name="stored"))
    session.flush()  # an UPDATE, after before_insert


def fail_in_an_inner_session(session: Session) -> None:
    def write(mapper: object, connection: Connection, target: Note) -> None:
        if target.name == "outer":
            with Session(connection, join_transaction_mode="create_savepoint") as inner:
                inner.add_all(notes("inner", "stored"))
                with suppress(IntegrityError):
                    inner.flush()

    _with_listener(write, session, "outer")


def save_objects(session: Session) -> None:
    session.bulk_save_objects(notes("saved"))


def insert_in_a_listener(session: Session) -> None:
    def write(mapper: object, connection: Connection, target: Note) -> None:
        connection.execute(insert(table), [{"name": "core 1"}, {"name": "core 2"}])

    _with_listener(write, session, "object")


def add_in_a_listener(session: Session) -> None:
    def add(mapper: object, connection: object, target: Note) -> None:
        if target.name == "first":
            with pytest.warns(SAWarning, match="not currently supported"):
                session.add(Note(name="second"))

    _with_listener(add, session, "first")
    session.flush()


def _with_listener(
    function: Callable[..., Any], session: Session, *names: str, error: type[Exception] | None = None, **options: Any
) -> None:
    event.listen(Note, "before_insert", function, **options)
    session.add_all(notes(*names))
    try:
        with nullcontext() if error is None else pytest.raises(error):
            session.flush()
    finally:
        if error is not None:
            session.rollback()
        event.remove(Note, "before_insert", function)


@pytest.mark.parametrize(
    "happens",
    [
        fail_by_constraint,
        fail_in_a_savepoint,
        fail_in_a_listener,
        assign_in_a_listener,
        set_past_the_events,
        expunge_in_a_listener,
        expunge_in_an_early_listener,
        switch_rows,
        fail_in_an_inner_session,
        save_objects,
        insert_in_a_listener,
        add_in_a_listener,
    ],
    ids=lambda function: function.__name__,
)
@pytest.mark.parametrize("write", [flush, execute], ids=["flush", "execute"])
def test_nothing_is_left(session: Session, write: Way, happens: Callable[[Session], None]) -> None:
    """After anything that can happen in a flush, the next rows on the connection get ids that are drawn for them."""
    flush(session, Note, [{"name": "stored"}])
    session.commit()
    connection = session.connection()
    happens(session)
    if session.connection() is not connection:
        session.rollback()

    Recorded.drawn.clear()
    write(session, Note, [{"name": "next 1"}, {"name": "next 2"}])

    found = rows(session, Note)
    assert {found["next 1"], found["next 2"]} == set(Recorded.drawn)
    assert len(Recorded.drawn) == 2


def test_sessions_on_one_connection(session: Session, listen: Callable[..., None]) -> None:
    """A session that flushes inside the flush of another one, on the same connection, has ids of its own."""
    kept: list[dict[str, str]] = []

    def write(mapper: object, connection: Connection, target: Note) -> None:
        if target.name.startswith("outer"):
            with Session(connection, join_transaction_mode="create_savepoint") as inner:
                before = len(Recorded.drawn)
                objects = flush(inner, Note, [{"name": f"of {target.name}, {number}"} for number in range(2)])
                kept.append(ids_by_name(objects))
                assert list(kept[-1].values()) == Recorded.drawn[before:]
                inner.commit()

    listen(Note, "before_insert", write)
    objects = flush(session, Note, [{"name": f"outer {number}"} for number in range(3)])

    assert rows(session, Note) == {**ids_by_name(objects), **kept[0], **kept[1], **kept[2]}
    assert len(Recorded.drawn) == 9
