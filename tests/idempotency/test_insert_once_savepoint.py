"""The savepoint of ``insert_once()``: what it undoes, and what it leaves to the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, event, func, insert, select, text
from sqlalchemy.exc import DataError, IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdMixin
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend

SERVERS = ("postgresql", "mysql", "mariadb")
A, B, C = "izkpm55j334u", "8w0tnq3c5yzd", "cccccccccccc"


class Base(DeclarativeBase):
    metadata = MetaData()


class Order(PublicIdMixin, Base):
    __tablename__ = "order"
    number: Mapped[str | None] = mapped_column(String(10), unique=True)
    lines: Mapped[list[Line]] = relationship(back_populates="order")


class Line(PublicIdMixin, Base):
    __tablename__ = "line"
    order_id: Mapped[int | None] = mapped_column(ForeignKey(Order.id))
    order: Mapped[Order | None] = relationship(back_populates="lines")


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    """A session that has written one order in its transaction."""
    create(Base.metadata)
    session.add(Order(public_id=A, number="earlier"))
    session.flush()
    return session


def stored(engine: Engine, model: Any = Order) -> set[str]:
    with Session(engine) as session:
        return set(session.scalars(select(model.public_id)))


def driven(engine: Engine) -> list[str]:
    """Return the list of statements that reach the driver, which grows."""
    sent: list[str] = []

    def recording(connection: Any, record: Any) -> None:
        if engine.name == "postgresql":

            class Recording(connection.cursor_factory):  # type: ignore[misc]
                def execute(self, query: Any, *rest: Any, **options: Any) -> Any:
                    sent.append(str(query))
                    return super().execute(query, *rest, **options)

            connection.cursor_factory = Recording
        else:
            query = connection.query
            connection.query = lambda sql, *rest: sent.append(str(sql)) or query(sql, *rest)

    engine.dispose()
    event.listen(engine, "connect", recording)
    return sent


# --- insert_once


@on(*SERVERS)
def test_what_is_sent(db: Session, engine: Engine) -> None:
    """The driver gets the usual statements in their order."""
    db.commit()
    sent = driven(engine)
    with Session(engine) as own:
        own.execute(text("SELECT 1"))
        sent.clear()
        insert_once(own, Order(public_id=B))
        first = list(sent)
        own.expunge_all()
        sent.clear()
        insert_once(own, Order(public_id=B))
        again = list(sent)

    created, found = ["SAVEPOINT", "INSERT", "RELEASE"], ["SAVEPOINT", "INSERT", "ROLLBACK"]
    assert [statement.split()[0] for statement in first] == {
        "postgresql": created,
        "mysql": ["SELECT", *created, "DO"],
        "mariadb": ["SELECT", *created, "DO"],
    }[engine.name]
    assert [statement.split()[0] for statement in again] == {
        "postgresql": [*found, "SELECT"],
        "mysql": ["SELECT", *found, "SELECT"],
        "mariadb": ["SELECT", *found, "SELECT"],
    }[engine.name]


@on(*SERVERS)
@pytest.mark.parametrize("number", ["earlier", "x" * 11], ids=["another constraint", "a value that is too long"])
def test_transaction_stays_usable(db: Session, engine: Engine, number: str) -> None:
    """Whatever the INSERT violates, the error is that of the database, and earlier and later work is committed."""
    with pytest.raises((IntegrityError, DataError)):
        insert_once(db, Order(public_id=B, number=number))
    db.add(Order(public_id=C))
    db.commit()

    assert stored(engine) == {A, C}


@on(*SERVERS)
def test_second_statement_fails(db: Session, engine: Engine) -> None:
    """If a row that belongs to the object is refused, the object is not stored either."""
    db.add(Line(public_id=C))
    db.flush()
    with pytest.raises(IntegrityError):
        insert_once(db, Order(public_id=B, lines=[Line(public_id=C)]))
    db.commit()

    assert stored(engine) == {A}


@on(*SERVERS)
def test_listener_that_writes(db: Session, engine: Engine) -> None:
    """What a listener writes in the flush is undone with the row."""

    def write(mapper: Any, connection: Any, line: Any) -> None:
        connection.execute(insert(Order.__table__), {"number": "listener"})
        connection.execute(insert(Order.__table__), {"number": "earlier"})

    event.listen(Line, "after_insert", write)
    try:
        with pytest.raises(IntegrityError):
            insert_once(db, Line(public_id=B))
    finally:
        event.remove(Line, "after_insert", write)
    db.commit()

    assert (stored(engine), stored(engine, Line)) == ({A}, set())


@on(*SERVERS)
def test_listener_that_writes_before(db: Session, engine: Engine) -> None:
    """What a listener writes before the INSERT of a repetition is undone with it."""

    def write(mapper: Any, connection: Any, line: Any) -> None:
        connection.execute(insert(Line.__table__), {})

    db.add(Line(public_id=B))
    db.flush()
    event.listen(Line, "before_insert", write)
    try:
        assert insert_once(db, Line(public_id=B))[1] is False
    finally:
        event.remove(Line, "before_insert", write)
    db.commit()

    assert stored(engine, Line) == {B}


@on(*SERVERS)
def test_failure_after_the_insert(db: Session, engine: Engine) -> None:
    """If a listener fails after the INSERT, the row is undone, and the transaction goes on."""

    def fail(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("INSERT"):
            raise ValueError("of a listener")

    event.listen(engine, "after_cursor_execute", fail)
    with pytest.raises(ValueError, match="of a listener"):
        insert_once(db, Order(public_id=B))
    event.remove(engine, "after_cursor_execute", fail)
    db.commit()

    assert stored(engine) == {A}
    assert insert_once(db, Order(public_id=B))[1] is True


@on("mysql", "mariadb")
def test_lock_timeout(db: Session, engine: Engine) -> None:
    """If the row of another transaction keeps the INSERT waiting too long, only the INSERT fails."""
    db.commit()
    with Session(engine) as other:
        other.add(Order(public_id=B))
        other.flush()
        db.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))
        db.add(Order(public_id=C))
        db.flush()
        with pytest.raises(OperationalError, match="1205"):
            insert_once(db, Order(public_id=B))
        db.commit()
        other.rollback()

    assert stored(engine) == {A, C}


@on(*SERVERS)
def test_repetition_keeps_nobody_waiting(db: Session, engine: Engine) -> None:
    """Until the end of its transaction, others can insert rows that sort behind its own, and repeat the same one."""
    db.commit()
    assert insert_once(db, Order(public_id=A))[1] is False
    setting = "lock_timeout = '2s'" if engine.name == "postgresql" else "SESSION innodb_lock_wait_timeout = 2"
    with Session(engine) as other:
        other.execute(text(f"SET {setting}"))
        other.commit()
        assert insert_once(other, Order(public_id=A))[1] is False
        other.commit()
        other.add_all([Order(public_id="y" * 12), Order(public_id="z" * 12)])
        other.commit()
    db.commit()

    assert stored(engine) == {A, "y" * 12, "z" * 12}


@on(*SERVERS)
def test_savepoint_of_the_caller(db: Session, engine: Engine) -> None:
    """A repetition inside of the caller's savepoint leaves it as it was."""
    with db.begin_nested() as savepoint:
        db.add(Order(public_id=B))
        assert insert_once(db, Order(public_id=A, number="earlier"))[1] is False
        assert insert_once(db, Order(public_id=C))[1] is True
        savepoint.rollback()
    db.commit()

    assert stored(engine) == {A}


@on(*SERVERS)
def test_many_in_one_transaction(db: Session, engine: Engine) -> None:
    """Repetitions and first inserts alternate, more often than drivers need to prepare their statements."""
    ids = NanoId().generate_many(12)
    for public_id in ids:
        assert insert_once(db, Order(public_id=public_id))[1] is True
        db.expunge_all()
        assert insert_once(db, Order(public_id=public_id))[1] is False
    db.commit()

    assert stored(engine) == {A, *ids}


@on("postgresql")
def test_transaction_that_has_failed(db: Session) -> None:
    """In a transaction that has failed before, the error is that of the savepoint, and a rollback heals it."""
    with pytest.raises(Exception, match="division by zero"):
        db.execute(text("SELECT 1 / 0"))
    with pytest.raises(Exception, match="current transaction is aborted"):
        db.execute(insert(Order.__table__), [{"number": "1"}, {"number": "2"}])
    db.rollback()
    for _ in range(9):
        db.execute(insert(Order.__table__), [{}, {}])

    assert db.scalar(select(func.count()).select_from(Order)) == 18
