"""``insert_once()`` in transactions that the caller began, and with statements that fail."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, insert, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.orm import Session
from support.connections import number_of
from support.interrupt import interrupted
from support.marks import on
from support.purchases import A, B, C, Customer, Line, Order, Tag, stored
from support.server_faults import end_session

from sqlalchemy_public_id import ConfigurationError, IdempotencyConflict
from sqlalchemy_public_id.guard import is_retryable
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend


@pytest.fixture
def rollbacks(engine: Engine) -> list[Any]:
    """Return the connections whose transactions were rolled back, other than to a savepoint."""
    rolled_back: list[Any] = []
    event.listen(engine, "rollback", rolled_back.append)
    return rolled_back


def test_rest_of_the_transaction(db: Session) -> None:
    """Earlier writes and pending changes of the session are written, and are not rolled back."""
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
    """After a rollback to a savepoint, the insert can be repeated, with the same or a new object, links included."""
    ada = Customer(name="Ada")
    db.add(ada)
    db.commit()
    for is_new in (True, False, True):
        with db.begin_nested() as savepoint:
            if is_new:
                each = Order(public_id=A, customer=ada, lines=[Line()])
            assert insert_once(db, each) == (each, True)
            assert ada.orders == ([each] if is_new else [])
            savepoint.rollback()
        assert ada.orders == []
    assert insert_once(db, each) == (each, True)
    db.commit()

    assert (stored(engine), len(stored(engine, Line))) == ([A], 1)


@on("postgresql", "mysql", "mariadb")
def test_two_phases(db: Session, engine: Engine) -> None:
    """A session with two-phase commits works, because it has savepoints, too."""
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
    """A session on a connection in a transaction finds the row that an earlier session on the connection wrote."""
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
        connection.get_transaction().commit()

    assert (stored(engine), len(stored(engine, Customer))) == ([A], 1)


@pytest.mark.parametrize("mode", ["conditional_savepoint", "create_savepoint", "control_fully"])
@on("postgresql")
def test_snapshot_of_a_connection(db: Session, engine: Engine, mode: Any) -> None:
    """A session on a connection in a transaction does not roll back what the connection wrote to see a later row."""
    db.close()
    with engine.execution_options(isolation_level="REPEATABLE READ").connect() as connection:
        connection.execute(insert(Customer), {"name": "earlier"})
        insert_once(db, Order(public_id=A))
        db.commit()
        session = Session(connection, join_transaction_mode=mode)
        with pytest.raises(IntegrityError):
            insert_once(session, Order(public_id=A))
        connection.commit()

    assert (stored(engine), len(stored(engine, Customer))) == ([A], 1)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@on("postgresql", "mysql", "mariadb")
def test_snapshots(db: Session, database: str, engine: Engine, level: str) -> None:
    """A row committed after the snapshot is found, after a rollback if the database cannot read past the snapshot."""
    with Session(engine.execution_options(isolation_level=level)) as early:
        early.scalars(select(Line)).all()
        insert_once(db, Order(public_id=A))
        db.commit()
        # since 11.6, MariaDB does not read past its snapshot either, unless configured otherwise
        setting = "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'"
        if database == "postgresql" or "ON" in (early.execute(text(setting)).one_or_none() or ()):
            with pytest.raises(IntegrityError if database == "postgresql" else OperationalError):
                insert_once(early, Order(public_id=A))
            assert early.scalar(select(func.count()).select_from(Line)) == 0
            early.rollback()
        assert insert_once(early, Order(public_id=A))[1] is False


@pytest.mark.parametrize("said", ["to the engine", "to a copy of it", "to the connection"])
def test_autocommit(db: Session, engine: Engine, new_engine: Callable[..., Engine], said: str) -> None:
    """In autocommit mode, the call is rejected before anything is sent, however the mode was set."""
    auto: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
    used = new_engine(engine.name, engine.url, **auto) if said == "to the engine" else engine
    used.connect().close()  # the first connection queries settings
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
    """SQLAlchemy's recipe for SQLite, which emits BEGIN in an event listener, is not autocommit."""
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
    """If the INSERT violates another constraint, the database's error is raised at once; only the INSERT is undone."""
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
    """If a row of a child or of a listener violates a constraint, the object is not stored."""

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
    """Rows that a listener writes before the INSERT of a repetition are rolled back with it."""
    db.add(Line(public_id=B))
    db.flush()
    listen(Line, "before_insert", lambda mapper, connection, line: connection.execute(insert(Line.__table__), {}))
    assert insert_once(db, Line(public_id=B))[1] is False
    db.commit()

    assert stored(engine, Line) == [B]


@pytest.mark.parametrize("error", [IntegrityError, RuntimeError, KeyboardInterrupt])
def test_flush_that_fails_before_the_insert(db: Session, engine: Engine, error: type[BaseException]) -> None:
    """If the flush before the insert fails, the object keeps its parent, and can be inserted later."""
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
    """If the insert is interrupted, the object keeps its parent, no row is stored, and the call can be repeated."""
    db.add(ada := Customer(name="Ada"))
    db.commit()
    order = Order(public_id=A, customer=ada)
    with pytest.raises(error), interrupted(engine, 1, error, when, only=("INSERT INTO",)):
        insert_once(db, order)
    if error is RuntimeError:
        assert insert_once(db, Line(public_id=A))[1] is True  # the transaction continues
    db.rollback()
    gc.collect()  # after a KeyboardInterrupt, the SQLite file stays locked until the connection is collected

    assert stored(engine) == []
    assert vars(order)["customer"] is ada
    assert insert_once(db, order) == (order, True)


@pytest.mark.parametrize("is_stored", [False, True], ids=["new row", "stored row"])
@on("postgresql", "mysql", "mariadb")
def test_connection_lost_at_each_statement(
    db: Session, engine: Engine, listen: Callable[..., None], is_stored: bool
) -> None:
    """If the server ends the connection before any statement of a call, its loss is raised, and the call may repeat."""
    if is_stored:
        insert_once(db, Order(public_id=A))
    db.commit()
    statements: list[str] = []
    losses: list[DBAPIError] = []
    left, number = 0, -1

    def lose(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            statements.append(statement)
            end_session(engine, number)

    listen(engine, "before_cursor_execute", lose)
    created = None
    while created is None:
        number = number_of(db)
        db.commit()
        left = len(statements) + 1
        try:
            _, created = insert_once(db, Order(public_id=A))
        except DBAPIError as loss:
            losses.append(loss)
            db.rollback()
    left = 0
    db.commit()

    assert created is not is_stored
    assert len(losses) == len(statements) > 2
    assert [loss for loss in losses if not loss.connection_invalidated] == []
    assert stored(engine) == [A]


@pytest.mark.backend
def test_connection_lost_with_the_duplicate(db: Session, engine: Engine, listen: Callable[..., None]) -> None:
    """If the connection is lost while the INSERT reports a duplicate, the error says both, and the call may repeat.

    psycopg reads the end of a session together with the answer to its last statement.
    """
    insert_once(db, Order(public_id=A))
    db.commit()
    losses = [True]

    def lose(context: Any) -> None:
        if losses and isinstance(context.sqlalchemy_exception, IntegrityError):
            context.is_disconnect = losses.pop()

    listen(engine, "handle_error", lose)
    with pytest.raises(IntegrityError) as caught:
        insert_once(db, Order(public_id=A))
    assert caught.value.connection_invalidated
    assert is_retryable(caught.value, idempotent=True)
    db.rollback()

    order, created = insert_once(db, Order(public_id=A))
    assert (order.public_id, created) == (A, False)


@on("mysql", "mariadb")
def test_interrupted_turn(db: Session, engine: Engine, listen: Callable[..., None]) -> None:
    """An error ends the turn of the call, even while the connection is still in use."""
    locks: list[Any] = []
    listen(engine, "before_cursor_execute", lambda _, cursor, statement, values, *rest: locks.append(values))
    with pytest.raises(RuntimeError), interrupted(engine, 1, RuntimeError, only=("INSERT INTO",)):
        insert_once(db, Order(public_id=A))
    [lock] = {value for values in locks for value in values.values() if str(value).startswith("public_id_")}

    with engine.connect() as other:
        assert other.scalar(select(func.is_free_lock(lock))) == 1


def test_sessions_of_other_habits(db: Session, engine: Engine) -> None:
    """The call does not need autoflush, expiration on commit, or autobegin."""
    db.close()
    with Session(engine, autoflush=False, expire_on_commit=False, autobegin=False) as session:
        for created in (True, False):
            session.begin()
            customer = Customer(name=f"created {created}")
            session.add(customer)
            assert insert_once(session, Order(public_id=A))[1] is created
            session.commit()

    assert len(stored(engine, Customer)) == 2
