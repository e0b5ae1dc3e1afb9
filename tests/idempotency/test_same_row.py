"""``insert_once()`` while other transactions write the same row."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from support.marks import on
from support.purchases import A, B, Customer, Line, Order, stored

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend


@pytest.mark.parametrize("is_rolled_back", [False, True], ids=["commit", "some roll back"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first in its transaction", "after other work"])
def test_threads(db: Session, engine: Engine, database: str, is_first: bool, is_rolled_back: bool) -> None:
    """Threads that send the same rows concurrently create each row once, and none of them sees an error."""
    if database == "sqlite" and not is_first:
        pytest.skip("a transaction of SQLite that has read cannot wait to write")
    db.close()
    threads, ids = 4, NanoId().generate_many(15)
    start = threading.Barrier(threads)
    seen: Counter[tuple[str, bool]] = Counter()

    def send(number: int) -> None:
        for round_, public_id in enumerate(ids):
            start.wait(30)
            with Session(engine) as session:
                if not is_first:
                    session.scalars(select(Customer)).all()
                _, created = insert_once(session, Order(public_id=public_id, note="1"))
                if is_rolled_back and round_ % threads == number:
                    session.rollback()
                    _, created = insert_once(session, Order(public_id=public_id, note="1"))
                session.commit()
                seen[public_id, created] += 1

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(threads)))

    assert stored(engine) == sorted(ids)
    assert all(seen[public_id, True] == 1 and seen[public_id, False] == threads - 1 for public_id in ids)


def test_row_that_comes_and_goes(db: Session, engine: Engine) -> None:
    """If the conflicting row is deleted before it is read, the object is inserted, and the transaction continues."""
    insert_once(db, Order(public_id=A))
    db.add(earlier := Customer(name="earlier"))
    seen: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def delete_row(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement.split()[0])
        if seen[-2:] == ["ROLLBACK", "SELECT"] and seen.count("ROLLBACK") == 1:
            connection.execute(Order.__table__.delete())

    order = Order(public_id=A, number="again")
    assert insert_once(db, order) == (order, True)
    ending = ["SAVEPOINT", "INSERT", "RELEASE", *["DO"] * (engine.name in {"mysql", "mariadb"})]
    assert seen[-len(ending) :] == ending
    db.commit()

    assert stored(engine) == [A]
    assert stored(engine, Customer) == [earlier.public_id]


@on("postgresql")
def test_row_that_goes_and_comes(db: Session, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A row that is deleted and inserted again during the lookup is not taken for a hidden row."""
    insert_once(db, Order(public_id=A, number="1"))
    db.commit()
    others = new_engine("postgresql", engine.url)
    work = [Order.__table__.delete(), insert(Order.__table__).values(public_id=A, number="1")]
    seen: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def change(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement.split()[0])
        if work and "ROLLBACK" in seen and seen[-1] == "SELECT":
            with others.begin() as other:
                other.execute(work.pop(0))

    row, created = insert_once(db, Order(public_id=A, number="1"))
    assert (row.number, created) == ("1", False)
    assert seen.count("INSERT") == 1


@on("postgresql")
def test_index_of_another_name(db: Session, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """If REINDEX has renamed the index, and the conflicting row is gone, the row is still inserted again."""
    rename = "ALTER INDEX {} RENAME TO {}"
    db.execute(text(rename.format("uq_line_public_id", "uq_line_public_id_ccold")))
    db.add(Line(public_id=A))
    db.commit()
    meeting = new_engine("postgresql", engine.url)

    @event.listens_for(meeting, "handle_error")
    def delete_row(context: Any) -> None:
        with engine.begin() as connection:
            connection.execute(Line.__table__.delete())

    try:
        with Session(meeting) as session:
            assert insert_once(session, Line(public_id=A))[1] is True
    finally:
        db.execute(text(rename.format("uq_line_public_id_ccold", "uq_line_public_id")))
        db.commit()


@pytest.mark.parametrize("is_first", [True, False], ids=["first in its transaction", "after other work"])
@on("mysql", "mariadb")
def test_deadlock(db: Session, engine: Engine, is_first: bool) -> None:
    """After a deadlock, a call that began its transaction is retried; any other call raises the error."""
    db.close()
    with ThreadPoolExecutor(1) as threads, Session(engine) as other:
        # this transaction has written more, so the server rolls back the one of the call
        other.add_all([Line(public_id=B), *(Customer() for _ in range(50))])
        other.flush()
        other.add(Order(public_id=A))
        committed: list[Future[None]] = []

        @event.listens_for(engine, "before_cursor_execute")
        def meet(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
            if statement.startswith("INSERT INTO line") and not committed:  # the order is inserted, and blocks others
                committed.append(threads.submit(other.commit))

        if not is_first:
            db.scalars(select(Customer)).all()
        order = Order(public_id=A, lines=[Line(public_id=B)])
        if is_first:
            assert insert_once(db, order)[1] is False
        else:
            with pytest.raises(OperationalError, match="1213"):
                insert_once(db, order)
        committed[0].result(30)


@on("mysql", "mariadb")
def test_lock_timeout(db: Session, engine: Engine) -> None:
    """If another transaction blocks the INSERT for too long, only the INSERT is rolled back."""
    # ids of earlier tests may be locked: their deleted rows stay in the index until the server purges them
    taken, own = NanoId().generate_many(2)
    with Session(engine) as other:
        other.add(Order(public_id=taken))
        other.flush()
        db.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))
        db.add(Order(public_id=own))
        db.flush()
        with pytest.raises(OperationalError, match="1205"):
            insert_once(db, Order(public_id=taken))
        db.commit()
        other.rollback()

    assert stored(engine) == [own]


@on("postgresql", "mysql", "mariadb")
def test_repetition_keeps_nobody_waiting(db: Session, engine: Engine) -> None:
    """Until a repetition commits, other sessions can insert rows that sort after its row, and repeat it as well."""
    db.add(Order(public_id=A))
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

    assert stored(engine) == [A, "y" * 12, "z" * 12]
