"""Collisions: the row gets another id, the transaction survives, and no other error is swallowed."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from concurrent import futures
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, UniqueConstraint, delete, event, func, insert, select, text
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.attached_databases import OTHER, attach
from support.marks import on
from support.members import A, B, Tiny, User
from support.retrying import run_transaction
from support.rows import agree, stored
from support.ways import (
    Way,
    each_way,
    execute,
    execute_core,
    execute_values,
    flush,
    flush_one_by_one,
    insert_in_bulk,
    insert_mappings,
    numbers,
    save_in_bulk,
)

from sqlalchemy_public_id import NanoId, PublicIdCollision, PublicIdMixin, PublicIdType, bigint_key, guard, testing
from sqlalchemy_public_id.dialects.sqlite import SQLite

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("members")]


def count(session: Session, model: Any) -> int:
    return session.scalar(select(func.count()).select_from(model)) or 0


def test_collision_with_a_row_of_the_same_transaction(session: Session) -> None:
    """Retrying a collision keeps earlier writes of the same transaction, including the caller's savepoints."""
    [first] = flush(session, User, [{"name": "first"}])
    with session.begin_nested():
        [between] = flush(session, User, [{"name": "between"}])
        with testing.collisions(User, first.public_id, times=5):
            [second] = flush(session, User, [{"name": "second"}])
    session.commit()

    agree(session, [first, between, second])
    assert count(session, User) == 3


@each_way(flush, execute)
def test_full_space(session: Session, write: Way) -> None:
    """A full space raises after a bounded number of attempts, with the facts, and the transaction stays usable."""
    write(session, Tiny, numbers(36))
    for rows in (1, 3, 40):
        with pytest.raises(PublicIdCollision) as caught:
            if write is execute:  # which needs no savepoint
                write(session, Tiny, numbers(rows))
            else:
                with session.begin_nested():
                    write(session, Tiny, numbers(rows))
        assert (caught.value.model, caught.value.column, caught.value.attempts) == ("Tiny", "public_id", 1000)
        assert caught.value.capacity == 36
        assert caught.value.format == NanoId(length=1)
    flush(session, User, [{"name": "after"}])
    session.commit()

    assert (count(session, Tiny), count(session, User)) == (36, 1)


def execute_core_values(session: Session, model: Any, rows: list[dict[str, Any]]) -> list[Any]:
    session.connection().execute(insert(model.__table__).values(rows))
    return []


@each_way(
    execute,
    execute_core,
    execute_values,
    execute_core_values,
    insert_mappings,
    save_in_bulk,
    insert_in_bulk,
    flush_one_by_one,
)
def test_every_way_to_write_is_retried(session: Session, write: Way) -> None:
    """Whichever call sends the INSERT, all rows are stored, each with its own id, in a space with many collisions."""
    write(session, Tiny, numbers(18))
    write(session, Tiny, numbers(18, first=18))

    assert session.scalars(select(Tiny.number).order_by(Tiny.number)).all() == list(range(36))
    assert session.scalar(select(func.count(Tiny.public_id.distinct()))) == 36


@on("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("rows", [1, 20])
def test_returned_rows_are_the_stored_ones(session: Session, rows: int) -> None:
    """``insert(Model).returning(Model)`` returns the ids that are finally stored."""
    session.execute(insert(Tiny), numbers(15))
    statement = insert(Tiny).returning(Tiny, sort_by_parameter_order=True)
    objects = session.scalars(statement, numbers(rows, first=100)).all()

    agree(session, list(objects))
    assert [each.number for each in objects] == list(range(100, 100 + rows))


@pytest.mark.parametrize("rows", [1, 5])
def test_other_constraints_are_not_swallowed(session: Session, rows: int) -> None:
    """A duplicate in another column raises the usual error without a retry, even if the public id collides too."""
    flush(session, User, [{"public_id": A, "email": "a@example.org"}])
    session.commit()
    with pytest.raises(IntegrityError, match="email"), session.begin_nested():
        flush(session, User, [{"email": "a@example.org"}] * rows)
    with testing.collisions(User, A, times=2), pytest.raises(IntegrityError, match="email"), session.begin_nested():
        flush(session, User, [{"email": "a@example.org"}] * rows)
    flush(session, User, [{"email": "b@example.org"}])
    session.commit()

    assert count(session, User) == 2


@pytest.mark.parametrize("rows", [1, 3])
def test_given_duplicate_is_an_integrity_error(session: Session, rows: int) -> None:
    """An id that the caller gave is never replaced."""
    flush(session, User, [{"public_id": A}])
    session.commit()
    with pytest.raises(IntegrityError):
        flush(session, User, [{"public_id": A}, *[{}] * (rows - 1)])
    for write in (execute, execute_core):
        session.rollback()
        with pytest.raises(IntegrityError):
            write(session, User, [{"public_id": A}, *({"public_id": f"{at:012}"} for at in range(rows - 1))])
    session.rollback()
    with pytest.raises(IntegrityError):
        execute_values(session, User, [*[{"name": "made"}] * (rows - 1), {"name": "given", "public_id": A}])


@on("postgresql", "mysql", "mariadb")
def test_waiting_for_another_transaction(engine: Engine) -> None:
    """A row that another transaction commits while this one waits for its lock is a collision like any other."""

    def second() -> list[User]:
        with Session(engine, expire_on_commit=False) as session, testing.fixed_ids(User, A):
            users = flush(session, User, [{"name": "second"}])
            session.commit()
        return users

    with Session(engine) as session, futures.ThreadPoolExecutor(1) as threads:
        flush(session, User, [{"public_id": A}])
        users = threads.submit(second)
        with pytest.raises(futures.TimeoutError):  # the INSERT is blocked
            users.result(0.3)
        session.commit()

        agree(session, users.result(20))
    assert users.result()[0].public_id != A


@on("postgresql", "mysql", "mariadb")
def test_several_writers(engine: Engine) -> None:
    """Four threads share a small space of ids, in transactions that are run again after a deadlock."""

    def write(number: int) -> list[tuple[int, str]]:
        def work(session: Session) -> list[tuple[int, str]]:
            return [(each.id, each.public_id) for each in flush(session, Tiny, [{"number": number}] * 4)]

        return [row for _ in range(2) for row in run_transaction(lambda: Session(engine), work, attempts=20)]

    with futures.ThreadPoolExecutor(4) as threads:
        rows = [row for written in threads.map(write, range(4)) for row in written]

    with Session(engine) as session:
        assert stored(session, Tiny) == dict(rows)
    assert len(rows) == 4 * 2 * 4


@pytest.mark.parametrize("rows", [1, 28])
def test_autocommit(new_engine: Callable[..., Engine], engine: Engine, rows: int) -> None:
    """Under AUTOCOMMIT there is no transaction and no savepoint, so only single statements are executed again."""
    auto = new_engine(engine.dialect.name, engine.url, isolation_level="AUTOCOMMIT")
    with Session(auto) as session:
        objects = flush(session, Tiny, numbers(rows))
        execute_values(session, Tiny, numbers(5, first=50))
        with testing.fixed_ids(Tiny, objects[0].public_id):
            objects += insert_in_bulk(session, Tiny, numbers(2, first=70))
        with testing.fixed_ids(Tiny, objects[0].public_id), pytest.raises(IntegrityError):
            session.execute(insert(Tiny.__table__), numbers(2, first=60))

    with Session(engine) as session:
        agree(session, objects)
        assert session.scalar(select(func.count()).select_from(Tiny).where(Tiny.number < 60)) == rows + 5


def test_engine_copies_and_options(engine: Engine) -> None:
    """Copies made by ``execution_options()`` are guarded, whether they or the original engine are used first."""
    copy = engine.execution_options(logging_token="copy")
    for bind in (copy, engine, copy):
        with Session(bind) as session:
            agree(session, flush(session, Tiny, numbers(10)) + flush_one_by_one(session, Tiny, numbers(5)))


@on("postgresql", "mysql", "mariadb")
def test_two_phase(engine: Engine) -> None:
    """Retries happen inside a two-phase transaction."""
    with Session(engine, twophase=True) as session:
        objects = flush(session, Tiny, numbers(20)) + flush(session, Tiny, numbers(1))
        session.commit()
        agree(session, objects)


def test_nothing_more_is_sent_without_a_collision(session: Session, statements: list[str]) -> None:
    """One row takes one INSERT, without a SELECT before it or a savepoint around it."""
    session.connection()
    statements.clear()
    flush(session, User, [{}])

    [statement] = statements
    assert statement.startswith("INSERT")


def test_core_needs_install(new_engine: Callable[..., Engine], engine: Engine) -> None:
    """Core statements are retried after ``guard.install`` and until ``guard.uninstall``, and not otherwise."""
    own = new_engine(engine.dialect.name, engine.url)
    statement, events = insert(Tiny.__table__), own.dialect.dispatch
    before = [*events.do_execute], [*events.do_executemany]  # listeners of all engines

    def fill() -> None:
        with own.begin() as connection:
            connection.execute(delete(Tiny.__table__))
            connection.execute(statement, numbers(20))
            connection.execute(statement, numbers(16))

    for _ in range(2):
        guard.install(own)
        guard.install(own)
        fill()
        guard.uninstall(own)
        with pytest.raises(IntegrityError):
            fill()
        guard.uninstall(own)
    assert not list(own.dispatch.before_execute)
    assert ([*events.do_execute], [*events.do_executemany]) == before
    with Session(own) as session, pytest.raises(IntegrityError):  # a session does not guard it again
        session.execute(statement, numbers(2))


@on("sqlite")
def test_schema_that_a_statement_translates(session: Session, engine: Engine, tmp_path: Path) -> None:
    """If one execution translates the schema of the table, collided ids are looked up in the translated schema."""
    engine.dispose()
    attach(engine, tmp_path / "other.db")
    there = {"schema_translate_map": {"program": OTHER}}

    class Own(DeclarativeBase): ...

    class Parcel(PublicIdMixin, Own):
        __tablename__ = "parcel"
        __table_args__ = {"schema": "program"}  # noqa: RUF012

    Own.metadata.create_all(engine.execution_options(**there))
    with testing.fixed_ids(Parcel, A, A, B, "c" * 12):
        session.execute(insert(Parcel), [{}], execution_options=there)
        session.execute(insert(Parcel).values([{}, {}]), execution_options=there)

    ids = session.scalars(select(Parcel.public_id).order_by(Parcel.id), execution_options=there).all()
    assert sorted(ids) == [A, B, "c" * 12]


def test_id_that_is_unique_with_other_columns(session: Session, create: Callable[[MetaData], None]) -> None:
    """If the unique constraint also has a tenant column, an id collides only with ids of its own tenant."""

    form = NanoId()

    class Base(DeclarativeBase): ...

    class Invoice(Base):
        __tablename__ = "invoice"
        __table_args__ = (UniqueConstraint("tenant_id", "public_id", name="uq_invoice"),)
        id: Mapped[int] = bigint_key()
        tenant_id: Mapped[int]
        public_id: Mapped[str] = mapped_column(PublicIdType(form), default=form.generate)

    create(Base.metadata)
    session.add(Invoice(tenant_id=1, public_id=A))
    with testing.collisions(Invoice, A, times=2):
        session.execute(insert(Invoice), [{"tenant_id": 1}, {"tenant_id": 2}])
    with testing.collisions(Invoice, A, times=1):
        session.add(Invoice(tenant_id=3))
        session.flush()

    ids = dict(session.execute(select(Invoice.tenant_id, Invoice.public_id).order_by(Invoice.id.desc())).all())
    assert (ids[3], ids[1]) == (A, A)
    assert count(session, Invoice) == 4


@on("sqlite")
def test_unique_index_on_an_expression(session: Session) -> None:
    """A violation of a unique index that the metadata lacks raises the database's error and is not retried."""
    session.execute(text("CREATE UNIQUE INDEX uq_lower ON user (lower(name))"))
    flush(session, User, [{"name": "Ada"}])
    with pytest.raises(IntegrityError, match="uq_lower"):
        flush(session, User, [{"name": "ADA"}])


@on("sqlite", "postgresql")
@pytest.mark.parametrize("is_upsert", [False, True])
def test_two_equal_ids_in_one_statement(session: Session, is_upsert: bool) -> None:
    """The default generates no id twice in one INSERT, so ``ON CONFLICT DO NOTHING`` skips none of its rows."""
    dialect = import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")
    with testing.fixed_ids(User, A, A, B):
        statement = dialect.insert(User).values([{"name": "first"}, {"name": "second"}])
        session.execute(statement.on_conflict_do_nothing() if is_upsert else statement)

    assert dict(session.execute(select(User.name, User.public_id)).all()) == {"first": A, "second": B}


@pytest.mark.parametrize("given", [A, func.lower(A.upper())], ids=["text", "SQL"])
@pytest.mark.parametrize("order", [1, -1])
def test_values_with_one_made_id(session: Session, order: int, given: Any) -> None:
    """If ``insert().values([…])`` has an id twice, the generated one is replaced, whichever comes first."""
    rows: list[dict[str, Any]] = [{"name": "made"}, {"name": "given", "public_id": given}]
    with testing.fixed_ids(User, A, B):
        session.execute(insert(User).values(rows[::order]))

    assert dict(session.execute(select(User.name, User.public_id)).all()) == {"made": B, "given": A}


@pytest.mark.parametrize("kind", [list, tuple])
def test_listener_that_passes_rows_of_its_own(session: Session, engine: Engine, kind: type[Any]) -> None:
    """An ``executemany`` is retried whatever sequence a listener returns, and that sequence is not modified."""
    passed: list[tuple[Any, Any]] = []

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def pass_on(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> Any:
        parameters = kind(parameters) if many else parameters
        passed.append((parameters, deepcopy(parameters)))
        return statement, parameters

    flush(session, User, [{"public_id": A}])
    with testing.collisions(User, A):
        session.execute(insert(User), [{"name": "first"}, {"name": "second"}])

    assert count(session, User) == 3
    assert all(parameters == before for parameters, before in passed)


@on("sqlite")
def test_savepoint_of_many_rows(new_engine: Callable[..., Engine], engine: Engine) -> None:
    """Many rows are sent inside a savepoint, after the program's own BEGIN, and it is always released."""
    own = new_engine("sqlite", engine.url, connect_args={"isolation_level": "IMMEDIATE"})
    guard.install(own)
    sent: list[str] = []
    with own.connect() as connection:
        connection.connection.driver_connection.set_trace_callback(sent.append)
        with pytest.raises(IntegrityError):
            connection.execute(insert(User.__table__), [{"email": "same"}] * 2)
        connection.execute(insert(User.__table__), [{"email": "one"}, {"email": "two"}])

    name = "SAVEPOINT sqlalchemy_public_id"
    assert sent[0] == "BEGIN IMMEDIATE"
    assert sent.count(name) == sent.count(f"RELEASE {name}") == 2


@on("sqlite")
@pytest.mark.parametrize(
    ("known", "error"), [(set(), "not authorized"), ({"not authorized"}, "UNIQUE")], ids=["unknown", "known"]
)
def test_savepoint_that_cannot_be_set(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, known: set[str], error: str
) -> None:
    """A failed SAVEPOINT raises; if the engine is known to have none, a collision of many rows raises instead."""
    monkeypatch.setattr(SQLite, "savepoint_errors", frozenset(known))
    guard.install(engine)
    with engine.connect() as connection:
        connection.execute(insert(User.__table__), {"public_id": A})
        driver: Any = connection.connection.driver_connection
        driver.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_SAVEPOINT else 0)
        with testing.collisions(User, A), pytest.raises(DatabaseError, match=error):
            connection.execute(insert(User.__table__), [{"name": "one"}, {"name": "two"}])


@on("sqlite", "mysql", "mariadb")
def test_row_count_of_many_rows(session: Session) -> None:
    """``result.rowcount`` counts all rows, however many batches they were sent in and whichever collided."""
    [first] = flush(session, User, [{}])
    with testing.fixed_ids(User, B, first.public_id):
        result = session.connection().execute(insert(User.__table__), [{"name": "z" * 150} for _ in range(9000)])

    assert result.rowcount == 9000


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
@each_way(flush, insert_in_bulk, execute, execute_core, execute_values)
def test_note_about_an_id_of_the_program(session: Session, write: Way) -> None:
    """The error of the database for an id that the program has set has a note about ``insert_once()``."""
    taken = "n" * len(NanoId().generate())
    write(session, User, [{"name": "first", "public_id": taken}])
    for rows in ([{"name": "again", "public_id": taken}], [{"name": "new"}, {"name": "again", "public_id": taken}]):
        if write in (execute, execute_core, execute_values):
            rows = rows[-1:]  # the rows of a statement have equal names
        with pytest.raises(IntegrityError) as error, session.begin_nested():
            write(session, User, rows)
        note = str(getattr(error.value.orig, "__notes__", None))
        assert "insert_once(" in note
        assert "merge() finds rows by key" in note
        assert "set the id of the copy to None" in note
