"""``insert_once()`` and transactions: others at the same row, what the caller has begun, and what fails."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, event, func, insert, select, text
from sqlalchemy.exc import DataError, IntegrityError, OperationalError
from sqlalchemy.orm import Session
from support.interrupt import interrupted
from support.marks import on
from support.purchases import A, B, Base, C, Customer, Line, Order, Tag, stored

from sqlalchemy_public_id import ConfigurationError, IdempotencyConflict, NanoId
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    return session


@pytest.fixture
def rollbacks(engine: Engine) -> list[Any]:
    """The connections whose transactions were rolled back, and not only to a savepoint."""
    rolled_back: list[Any] = []
    event.listen(engine, "rollback", rolled_back.append)
    return rolled_back


@pytest.mark.parametrize("is_rolled_back", [False, True], ids=["commit", "some roll back"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first in its transaction", "after other work"])
def test_threads(db: Session, engine: Engine, database: str, is_first: bool, is_rolled_back: bool) -> None:
    """Threads that send the same rows at the same time create each row once, and none of them sees an error."""
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
    """The row that has refused an INSERT is deleted before it is looked for: the transaction of the caller goes on."""
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
    assert seen[-3:] == ["SAVEPOINT", "INSERT", "RELEASE"] or seen[-4:] == ["SAVEPOINT", "INSERT", "RELEASE", "DO"]
    db.commit()

    assert stored(engine) == [A]
    assert stored(engine, Customer) == [earlier.public_id]


@on("postgresql")
def test_row_that_goes_and_comes(db: Session, engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """A row that is deleted and stored again while it is looked for is no hidden one."""
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
    """While REINDEX has renamed the index, the row that is gone is inserted again, too."""
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


def test_rest_of_the_transaction(db: Session) -> None:
    """What the session has done before, and what is pending in it, is written and stays so."""
    insert_once(db, Order(public_id=A))
    db.commit()
    db.add(ada := Customer(name="Ada"))
    db.commit()
    db.execute(text("UPDATE customer SET name = 'before'"))
    pending = Customer(name="pending")
    db.add(pending)
    ada.orders  # noqa: B018  loaded
    ada.name = "Countess"
    assert insert_once(db, Order(public_id=A))[1] is False
    with pytest.raises(IdempotencyConflict):
        insert_once(db, Order(public_id=A, number="2"))
    db.commit()

    assert db.scalars(select(Customer.name).order_by(Customer.id)).all() == ["Countess", "pending"]


def test_savepoint_that_is_rolled_back(db: Session, engine: Engine) -> None:
    """What a savepoint of the caller undoes can be sent again, as the same object or another, with its relations."""
    ada = Customer(name="Ada")
    db.add(ada)
    db.commit()
    for is_new in (True, False, True):
        with db.begin_nested() as savepoint:
            if is_new:
                each = Order(public_id=A, customer=ada, lines=[Line()])
            assert insert_once(db, each) == (each, True)
            assert not is_new or ada.orders == [each]
            savepoint.rollback()
        assert ada.orders == []
    assert insert_once(db, each) == (each, True)
    db.commit()

    assert (stored(engine), len(stored(engine, Line))) == ([A], 1)


@on("postgresql", "mysql", "mariadb")
def test_two_phases(db: Session, engine: Engine) -> None:
    """A session with two-phase commits has savepoints, too."""
    db.close()
    for created in (True, False):
        with Session(engine, twophase=True) as session:
            assert insert_once(session, Order(public_id=A))[1] is created
            assert insert_once(session, Order(public_id=A))[1] is False
            assert insert_once(session, Order(public_id=B))[1] is True
            session.rollback()
            assert insert_once(session, Order(public_id=A))[1] is created
            session.prepare()
            session.commit()

    assert stored(engine) == [A]


@pytest.mark.parametrize("mode", ["create_savepoint", "control_fully"])
def test_transaction_of_a_connection(db: Session, engine: Engine, mode: Any) -> None:
    """A session on a connection whose transaction has begun finds the row that another session on it has written."""
    db.close()
    with engine.connect() as connection:
        connection.begin()
        connection.execute(insert(Customer), {"name": "earlier"})
        for created in (True, False):
            session = Session(connection, join_transaction_mode=mode)
            assert insert_once(session, Order(public_id=A, number="1"))[1] is created
            with pytest.raises(IdempotencyConflict):
                insert_once(session, Order(public_id=A, number="2"))
            if mode != "control_fully":
                session.commit()
        connection.get_transaction().commit()  # type: ignore[union-attr]

    assert (stored(engine), len(stored(engine, Customer))) == ([A], 1)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@on("postgresql", "mysql", "mariadb")
def test_snapshots(db: Session, database: str, engine: Engine, level: str) -> None:
    """A row that was committed after the snapshot is found where the transaction can begin anew, or read past it."""
    with Session(engine.execution_options(isolation_level=level)) as early:
        early.scalars(select(Line)).all()
        insert_once(db, Order(public_id=A))
        db.commit()
        # MariaDB reads nothing behind its snapshot either since 11.6, by a setting of the server
        setting = "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'"
        if database == "postgresql" or "ON" in (early.execute(text(setting)).one_or_none() or ()):
            with pytest.raises(IntegrityError if database == "postgresql" else OperationalError):
                insert_once(early, Order(public_id=A))
            assert early.scalar(select(func.count()).select_from(Line)) == 0
            early.rollback()
        assert insert_once(early, Order(public_id=A))[1] is False


@pytest.mark.parametrize("said", ["to the engine", "to a copy of it", "to the connection"])
def test_autocommit(db: Session, engine: Engine, new_engine: Callable[..., Engine], said: str) -> None:
    """Where each statement commits by itself it is refused before anything is sent, however that was chosen."""
    auto: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    used = new_engine(engine.name, engine.url, **auto) if said == "to the engine" else engine
    used.connect().close()  # which asks for settings the first time
    sent: list[str] = []
    event.listen(used, "before_cursor_execute", lambda *call: sent.append(call[2]))
    with Session(used.execution_options(**auto) if said == "to a copy of it" else used) as session:
        if said == "to the connection":
            session.connection(execution_options=auto)
        session.add(Customer(name="pending"))
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
                insert_once(session, Order(public_id=A))

    assert sent == []
    assert stored(engine) == stored(engine, Customer) == []


@on("sqlite")
def test_a_program_that_says_begin_itself(db: Session, engine: Engine) -> None:
    """The recipe of SQLAlchemy for SQLite, BEGIN by an event, is no AUTOCOMMIT."""
    db.close()
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    engine.dispose()

    assert insert_once(db, Order(public_id=A))[1] is True
    db.rollback()
    assert stored(engine) == []


# --- what fails


@pytest.mark.parametrize("is_first", [True, False], ids=["first in its transaction", "after other work"])
@pytest.mark.parametrize("number", ["earlier", "x" * 11], ids=["another constraint", "a value that is too long"])
def test_other_violation(db: Session, engine: Engine, rollbacks: list[Any], number: str, is_first: bool) -> None:
    """Whatever else the INSERT violates, the error is that of the database, at once, and undoes the insert alone."""
    if engine.name == "sqlite" and number != "earlier":
        pytest.skip("SQLite takes any text")
    db.add(Order(public_id=A, number="earlier"))
    db.commit()
    if not is_first:
        db.add(Order(public_id=B))
        db.flush()
    order = Order(public_id=C, number=number)
    with pytest.raises((IntegrityError, DataError), match="number"):
        insert_once(db, order)
    assert rollbacks == []
    order.number = "2"
    assert insert_once(db, order) == (order, True)
    db.commit()

    assert stored(engine) == sorted({A, C} if is_first else {A, B, C})


def test_in_the_handler_of_another_error(db: Session) -> None:
    """The error is the one of the insert, not the one that the caller is handling."""
    db.add(Order(public_id=A, number="earlier"))
    db.commit()
    try:
        raise OperationalError("handled", None, Exception("by the caller"))
    except OperationalError:
        with pytest.raises(IntegrityError, match="number"):
            insert_once(db, Order(public_id=B, number="earlier"))


@pytest.mark.parametrize("name", ["second row", "listener"])
def test_second_statement_fails(db: Session, engine: Engine, listen: Callable[..., None], name: str) -> None:
    """If a row that belongs to the object is refused, or one that a listener writes, the object is not stored."""

    def write(mapper: Any, connection: Any, order: Any) -> None:
        connection.execute(insert(Tag.__table__), {"public_id": B})
        connection.execute(insert(Line.__table__), {"public_id": C})

    db.add_all([Order(public_id=A), Line(public_id=C)])
    db.flush()
    if name == "listener":
        listen(Order, "after_insert", write)
    with pytest.raises(IntegrityError):
        insert_once(db, Order(public_id=B, lines=[Line(public_id=C)] if name == "second row" else []))
    db.commit()

    assert (stored(engine), stored(engine, Line), stored(engine, Tag)) == ([A], [C], [])


def test_listener_that_writes_before(db: Session, engine: Engine, listen: Callable[..., None]) -> None:
    """What a listener writes before the INSERT of a repetition is undone with it."""
    db.add(Line(public_id=B))
    db.flush()
    listen(Line, "before_insert", lambda mapper, connection, line: connection.execute(insert(Line.__table__), {}))
    assert insert_once(db, Line(public_id=B))[1] is False
    db.commit()

    assert stored(engine, Line) == [B]


@on("mysql", "mariadb")
def test_lock_timeout(db: Session, engine: Engine) -> None:
    """If the row of another transaction keeps the INSERT waiting too long, only the INSERT fails."""
    # not those of earlier tests, whose deleted rows are in the index until the server purges them, and are locked, too
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
    """Until the end of its transaction, others can insert rows that sort behind its own, and repeat the same one."""
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


@pytest.mark.parametrize("error", [IntegrityError, RuntimeError, KeyboardInterrupt])
def test_flush_that_fails_before_the_insert(db: Session, engine: Engine, error: type[BaseException]) -> None:
    """If the flush before the insert fails, the object still refers to its parent, and can be inserted later."""
    db.add(ada := Customer(name="Ada"))
    db.commit()
    db.add(Customer(name="Ada" if error is IntegrityError else "new"))
    order = Order(public_id=A, customer=ada)
    stop = nullcontext() if error is IntegrityError else interrupted(engine, 1, error, only=("INSERT",))
    with pytest.raises(error), stop:
        insert_once(db, order)

    assert vars(order)["customer"] is ada
    db.rollback()
    assert insert_once(db, order) == (order, True)
    db.commit()
    assert order.customer is ada


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_interrupted_insert(db: Session, engine: Engine, error: type[BaseException], when: Any) -> None:
    """An error in the insert itself leaves the parent of the object, and no row, and the call can be repeated."""
    db.add(ada := Customer(name="Ada"))
    db.commit()
    order = Order(public_id=A, customer=ada)
    with pytest.raises(error), interrupted(engine, 1, error, when, only=("INSERT INTO",)):
        insert_once(db, order)
    if error is RuntimeError:
        assert insert_once(db, Line(public_id=A))[1] is True  # the transaction goes on
    db.rollback()
    gc.collect()  # SQLAlchemy leaves the lock on an SQLite file to it after a KeyboardInterrupt

    assert stored(engine) == []
    assert vars(order)["customer"] is ada
    assert insert_once(db, order) == (order, True)
