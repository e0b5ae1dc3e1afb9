"""Collisions: the row gets another id, the transaction survives, nothing else is swallowed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String, delete, event, func, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.attached import OTHER, attach
from support.marks import on
from support.rows import agree

from sqlalchemy_public_id import NanoId, PublicIdCollision, PublicIdMixin, guard, testing


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId()
    name: Mapped[str | None] = mapped_column(String(50))
    email: Mapped[str | None] = mapped_column(String(50), unique=True)


class Tiny(PublicIdMixin, Base):
    """Thirty-six ids in all."""

    __tablename__ = "tiny"
    __public_id__ = NanoId(length=1)
    number: Mapped[int | None]
    user_id: Mapped[int | None] = mapped_column(ForeignKey("user.id"))


pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("tables")]


@pytest.fixture
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


def test_collision_with_a_committed_row(session: Session) -> None:
    """A row that collides with a committed one gets another id."""
    first = User(name="first")
    session.add(first)
    session.commit()
    with testing.collisions(User, first.public_id, times=5):
        second = User(name="second")
        session.add(second)
        session.flush()

    agree(session, [first, second])


def test_collision_with_a_row_of_the_same_transaction(session: Session) -> None:
    """What was written before in the same transaction stays, savepoints of the caller included."""
    first = User(name="first")
    session.add(first)
    session.flush()
    with session.begin_nested():
        between = User(name="between")
        session.add(between)
        session.flush()
        with testing.collisions(User, first.public_id, times=2):
            second = User(name="second")
            session.add(second)
            session.flush()
    session.commit()

    agree(session, [first, between, second])
    assert session.scalar(select(func.count()).select_from(User)) == 3


def test_two_equal_ids_in_one_flush(session: Session) -> None:
    """Two objects of one flush that drew the same id do not keep it both."""
    with testing.fixed_ids(User, *["a" * 12] * 4):
        users = [User(name=str(number)) for number in range(4)]
        session.add_all(users)
        session.flush()

    agree(session, users)


def test_two_equal_early_ids(session: Session) -> None:
    """Ids that were seen before the flush are not replaced: if two are equal, the database raises its error."""
    with testing.fixed_ids(User, *["a" * 12] * 2):
        users = [User(name=str(number)) for number in range(2)]
        assert users[0].public_id == users[1].public_id == "a" * 12
        session.add_all(users)
        with pytest.raises(IntegrityError):
            session.flush()


def test_many_collisions_in_one_batch(session: Session) -> None:
    """Of a thousand rows, every third collides with a committed row."""
    old = [User(name="old") for _ in range(334)]
    session.add_all(old)
    session.commit()
    taken = iter([user.public_id for user in old])
    fresh = NanoId()
    planned = [next(taken) if number % 3 == 0 else fresh.generate() for number in range(1000)]
    # MySQL returns no keys of many rows, so a flush sends one after the other, and a collided one draws before the next
    is_alone = not session.get_bind().dialect.insert_executemany_returning
    drawn = [[one, fresh.generate()] if is_alone and at % 3 == 0 else [one] for at, one in enumerate(planned)]
    with testing.fixed_ids(User, *chain(*drawn)):
        users = [User(name=str(number)) for number in range(1000)]
        session.add_all(users)
        session.flush()

    agree(session, users)
    names = dict(session.connection().execute(select(User.__table__.c.id, User.__table__.c.name)).all())
    assert all(names[user.id] == user.name for user in users)
    kept = [user.public_id for number, user in enumerate(users) if number % 3]
    assert kept == [public_id for number, public_id in enumerate(planned) if number % 3]


def test_space_that_is_nearly_full(session: Session) -> None:
    """Thirty-six rows find thirty-six ids, one by one and in batches."""
    singles = []
    for number in range(18):
        singles.append(Tiny(number=number))
        session.add(singles[-1])
        session.flush()
    batch = [Tiny(number=number) for number in range(18, 36)]
    session.add_all(batch)
    session.flush()

    agree(session, singles + batch)


def test_full_space(session: Session) -> None:
    """A full space is told in bounded time, with the facts, and the transaction stays usable."""
    session.add_all([Tiny(number=number) for number in range(36)])
    session.flush()
    for rows in (1, 3):
        with pytest.raises(PublicIdCollision) as caught, session.begin_nested():
            session.add_all([Tiny(number=100) for _ in range(rows)])
            session.flush()
        assert (caught.value.model, caught.value.column, caught.value.attempts) == ("Tiny", "public_id", 1000)
        assert caught.value.capacity == 36
        assert caught.value.format == NanoId(length=1)
    session.add(User(name="after"))
    session.commit()

    assert session.scalar(select(func.count()).select_from(Tiny)) == 36
    assert session.scalar(select(func.count()).select_from(User)) == 1


@pytest.mark.parametrize("rows", [1, 40])
def test_full_space_through_core(session: Session, rows: int) -> None:
    """The same for INSERT statements with column defaults."""
    session.execute(insert(Tiny), [{"number": number} for number in range(36)])
    with pytest.raises(PublicIdCollision):
        session.execute(insert(Tiny), [{"number": number} for number in range(rows)])

    assert session.scalar(select(func.count()).select_from(Tiny)) == 36


WAYS: dict[str, Callable[[Session, list[dict[str, Any]]], Any]] = {
    "execute(insert(Model), rows)": lambda session, rows: session.execute(insert(Tiny), rows),
    "execute(insert(table), rows)": lambda session, rows: session.connection().execute(insert(Tiny.__table__), rows),
    "insert().values(rows)": lambda session, rows: session.execute(insert(Tiny).values(rows)),
    "core insert().values(rows)": lambda session, rows: session.connection().execute(
        insert(Tiny.__table__).values(rows)
    ),
    "insert().values() one by one": lambda session, rows: [session.execute(insert(Tiny).values(**row)) for row in rows],
    "bulk_insert_mappings": lambda session, rows: session.bulk_insert_mappings(Tiny, rows),  # type: ignore[arg-type]
    "bulk_save_objects": lambda session, rows: session.bulk_save_objects([Tiny(**row) for row in rows]),
    "add one by one": lambda session, rows: [(session.add(Tiny(**row)), session.flush()) for row in rows],
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_is_retried(session: Session, way: str) -> None:
    """Whatever sends the INSERT, all rows arrive, each with its own id, in a space with many collisions."""
    WAYS[way](session, [{"number": number} for number in range(30)])

    numbers = session.scalars(select(Tiny.number).order_by(Tiny.number)).all()
    assert numbers == list(range(30))
    assert session.scalar(select(func.count(Tiny.public_id.distinct()))) == 30


@on("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("rows", [1, 20])
def test_returned_rows_are_the_stored_ones(session: Session, rows: int) -> None:
    """``insert(Model).returning(Model)`` gives the ids that were stored in the end."""
    session.execute(insert(Tiny), [{"number": number} for number in range(15)])
    statement = insert(Tiny).returning(Tiny, sort_by_parameter_order=True)
    objects = session.scalars(statement, [{"number": 100 + number} for number in range(rows)]).all()

    agree(session, list(objects))
    stored = dict(session.connection().execute(select(Tiny.__table__.c.number, Tiny.__table__.c.public_id)).all())
    assert [stored[100 + number] for number in range(rows)] == [each.public_id for each in objects]


@pytest.mark.parametrize("rows", [1, 5])
def test_other_constraints_are_not_swallowed(session: Session, rows: int) -> None:
    """A duplicate in another column is the error it always was, and is not retried."""
    session.add(User(name="first", email="a@example.org"))
    session.commit()
    with pytest.raises(IntegrityError), session.begin_nested():
        session.add_all([User(name=str(number), email="a@example.org") for number in range(rows)])
        session.flush()
    session.add(User(name="after", email="b@example.org"))
    session.commit()

    assert session.scalar(select(func.count()).select_from(User)) == 2


@pytest.mark.parametrize("rows", [1, 5])
def test_collision_and_other_violation_in_one_row(session: Session, rows: int) -> None:
    """A row that collides and violates another constraint ends with the error of that constraint."""
    first = User(name="first", email="a@example.org")
    session.add(first)
    session.commit()
    with testing.collisions(User, first.public_id, times=2), pytest.raises(IntegrityError) as caught:
        session.add_all([User(name=str(number), email="a@example.org") for number in range(rows)])
        session.flush()

    assert "email" in str(caught.value.orig)


@pytest.mark.parametrize("rows", [1, 3])
def test_given_duplicate_is_an_integrity_error(session: Session, rows: int) -> None:
    """An id that the caller gave is never replaced."""
    first = User(name="first")
    session.add(first)
    session.commit()
    with pytest.raises(IntegrityError):
        session.add_all([User(name="again", public_id=first.public_id)] + [User() for _ in range(rows - 1)])
        session.flush()
    session.rollback()
    with pytest.raises(IntegrityError):
        rows_ = [{"name": "again", "public_id": first.public_id}]
        session.execute(insert(User), rows_ + [{"name": "x", "public_id": f"{at:012}"} for at in range(rows - 1)])
    session.rollback()
    with pytest.raises(IntegrityError):
        session.connection().execute(insert(User.__table__), rows_)


def test_foreign_keys_follow(session: Session) -> None:
    """A foreign-key violation is no collision either."""
    with pytest.raises(IntegrityError):
        if session.get_bind().dialect.name == "sqlite":
            session.execute(text("PRAGMA foreign_keys=ON"))
        session.add(Tiny(number=1, user_id=999))
        session.flush()


@on("postgresql", "mysql", "mariadb")
def test_waiting_for_another_transaction(engine: Engine) -> None:
    """A row that another transaction commits while this one waits for it is a collision like any other."""
    taken = "w" * 12
    done = threading.Event()
    result: list[User] = []

    def second() -> None:
        with Session(engine, expire_on_commit=False) as session, testing.fixed_ids(User, taken):
            user = User(name="second")
            session.add(user)
            session.flush()
            session.commit()
            result.append(user)
        done.set()

    with Session(engine) as session:
        session.add(User(name="first", public_id=taken))
        session.flush()
        thread = threading.Thread(target=second)
        thread.start()
        assert not done.wait(0.3), "the second INSERT did not wait"
        session.commit()
        thread.join(20)

    assert done.is_set()
    assert result[0].public_id != taken
    with Session(engine) as session:
        agree(session, result)


@on("mysql", "mariadb")
def test_waiting_in_a_batch_under_repeatable_read(new_engine: Callable[..., Engine], engine: Engine) -> None:
    """MySQL's default isolation hides the committed row from a plain SELECT; the collision is found all the same."""
    other = new_engine(engine.dialect.name, engine.url, isolation_level="REPEATABLE READ")
    taken = "w" * 12
    with Session(other) as session:
        session.execute(select(User)).all()  # the snapshot is taken
        with Session(engine) as first:
            first.add(User(name="first", public_id=taken))
            first.commit()
        with testing.fixed_ids(User, "x" * 12, taken, "y" * 12):
            session.execute(insert(User), [{"name": str(number)} for number in range(3)])
        session.commit()
        assert session.scalar(select(func.count()).select_from(User)) == 4


@pytest.mark.parametrize("rows", [1, 30])
def test_autocommit(new_engine: Callable[..., Engine], engine: Engine, rows: int) -> None:
    """Under AUTOCOMMIT there is no transaction to save, and no savepoint: only single statements are executed again."""
    auto = new_engine(engine.dialect.name, engine.url, isolation_level="AUTOCOMMIT")
    with Session(auto) as session:
        objects = [Tiny(number=number) for number in range(rows)]
        session.add_all(objects)
        session.flush()
        session.execute(insert(Tiny).values([{"number": 50 + number} for number in range(5)]))
        with testing.fixed_ids(Tiny, objects[0].public_id), pytest.raises(IntegrityError):
            session.execute(insert(Tiny.__table__), [{"number": 60}, {"number": 61}])

    with Session(engine) as session:
        agree(session, objects)
        assert session.scalar(select(func.count()).select_from(Tiny).where(Tiny.number < 60)) == rows + 5


def test_engine_copies_and_options(engine: Engine) -> None:
    """Copies made by ``execution_options()`` are guarded, before and after their origin."""
    copy = engine.execution_options(logging_token="copy")
    for bind in (copy, engine, copy):
        with Session(bind) as session:
            objects = [Tiny(number=number) for number in range(10)]
            session.add_all(objects)
            session.flush()
            for _ in range(5):
                objects.append(Tiny())
                session.add(objects[-1])
                session.flush()
            agree(session, objects)


def test_session_bound_to_a_connection(engine: Engine) -> None:
    """The usual test fixture: a session joined to an outer transaction that is rolled back."""
    if engine.dialect.name == "sqlite":
        transactions_by_the_book(engine)
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            objects = [Tiny(number=number) for number in range(30)]
            session.add_all(objects)
            session.commit()
            single = Tiny(number=31)
            session.add(single)
            session.commit()
            agree(session, [*objects, single])
            session.add(Tiny(number=32))
            session.flush()
            session.rollback()
        outer.rollback()

    with Session(engine) as session:
        assert session.scalar(select(func.count()).select_from(Tiny)) == 0


def transactions_by_the_book(engine: Engine) -> None:
    """SQLAlchemy's recipe for savepoints with Python's sqlite3, which begins transactions too late by itself."""
    event.listen(engine, "connect", lambda connection, record: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


@on("postgresql", "mysql", "mariadb")
def test_two_phase(engine: Engine) -> None:
    """Retries happen inside a two-phase transaction."""
    with Session(engine, twophase=True) as session:
        objects = [Tiny(number=number) for number in range(20)]
        session.add_all(objects)
        session.flush()
        session.add(Tiny(number=21))
        session.commit()
        agree(session, objects)


def test_nothing_more_is_sent_without_a_collision(session: Session, statements: list[str]) -> None:
    """One INSERT for one row, with no SELECT before and no savepoint around it."""
    session.connection()
    statements.clear()
    session.add(User(name="one"))
    session.flush()

    assert len(statements) == 1
    assert statements[0].startswith("INSERT")


def test_core_needs_install(new_engine: Callable[..., Engine], engine: Engine) -> None:
    """A Core-only program is retried once ``guard.install`` was called, and not before or after."""
    own = new_engine(engine.dialect.name, engine.url)
    statement = insert(Tiny.__table__)

    def fill() -> None:
        with own.begin() as connection:
            connection.execute(delete(Tiny.__table__))
            connection.execute(statement, [{"number": number} for number in range(20)])
            connection.execute(statement, [{"number": number} for number in range(20, 36)])

    guard.install(own)
    guard.install(own)
    fill()
    guard.uninstall(own)
    with pytest.raises(IntegrityError):
        fill()
    guard.uninstall(own)
    assert not list(own.dispatch.before_execute)
    assert not list(own.dialect.dispatch.do_execute)
    assert not list(own.dialect.dispatch.do_executemany)
    with Session(own) as session, pytest.raises(IntegrityError):
        session.execute(statement, [{"number": number} for number in range(2)])


def test_connection_handed_to_another_thread(engine: Engine) -> None:
    """A connection that goes back to the pool serves another thread without traces of the first."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with Session(engine) as session:
                session.add_all([User(name=str(number)) for _ in range(20)])
                session.commit()
        except BaseException as error:
            failures.append(error)

    for round_ in range(3):
        threads = [
            threading.Thread(target=work, args=(round_,)) for _ in range(1 if engine.dialect.name == "sqlite" else 6)
        ]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]

    assert not failures


def test_added_again_after_a_rollback(session: Session) -> None:
    """An object that was rolled back keeps the id that it showed: if it is taken meanwhile, that is an error."""
    first = User(name="first")
    session.add(first)
    session.commit()
    second = User(name="second")
    session.add(second)
    session.flush()
    session.rollback()
    made = second.public_id
    session.execute(insert(User), [{"name": "thief", "public_id": made}])
    session.commit()
    second.id = None  # the key of the rolled-back row may be the thief's now
    session.add(second)
    with pytest.raises(IntegrityError):
        session.flush()

    assert second.public_id == made


def test_max_retries_is_kept(session: Session) -> None:
    """No more than ``max_retries`` new ids are tried."""
    first = User(name="first")
    session.add(first)
    session.commit()
    User.__table__.c.public_id.info["sqlalchemy_public_id.max_retries"] = 3
    try:
        with testing.collisions(User, first.public_id, times=4), pytest.raises(PublicIdCollision) as caught:
            session.add(User())
            session.flush()
        session.rollback()
        with testing.collisions(User, first.public_id, times=3):
            session.add(User())
            session.flush()
    finally:
        del User.__table__.c.public_id.info["sqlalchemy_public_id.max_retries"]

    assert caught.value.attempts == 3


def test_statement_listeners_of_others_still_run(session: Session, engine: Engine) -> None:
    """Listeners of the program see the INSERTs, and the dialect's own way to execute is used."""
    seen: list[str] = []
    event.listen(engine, "after_cursor_execute", lambda *args: seen.append(args[2]))
    session.add(User(name="x"))
    session.flush()

    assert any(statement.startswith("INSERT") for statement in seen)


@on("sqlite")
def test_given_id_after_a_flush_to_two_databases(
    engine: Engine, new_engine: Callable[..., Engine], create_on: Callable[[Engine, MetaData], None]
) -> None:
    """After a flush to two databases, a given id that a row of either has is an error, and is not replaced."""
    other = new_engine("sqlite")
    create_on(other, Base.metadata)
    with Session(binds={User: engine, Tiny: other}) as session:
        user, tiny = User(), Tiny()
        session.add_all([user, tiny])
        session.flush()

        for each in (user, tiny):
            with pytest.raises(IntegrityError):
                session.execute(insert(type(each)).values(public_id=each.public_id))


@on("sqlite")
def test_schema_that_a_statement_translates(session: Session, engine: Engine, tmp_path: Path) -> None:
    """Where one execution translates the schema of the table, collided ids are looked for in the translated one."""
    engine.dispose()
    attach(engine, tmp_path / "other.db")
    there = {"schema_translate_map": {"program": OTHER}}

    class Own(DeclarativeBase): ...

    class Parcel(PublicIdMixin, Own):
        __tablename__ = "parcel"
        __table_args__ = {"schema": "program"}  # noqa: RUF012

    Own.metadata.create_all(engine.execution_options(**there))
    with testing.fixed_ids(Parcel, "a" * 12, "a" * 12, "b" * 12, "c" * 12):
        session.execute(insert(Parcel), [{}], execution_options=there)
        session.execute(insert(Parcel).values([{}, {}]), execution_options=there)

    ids = session.scalars(select(Parcel.public_id).order_by(Parcel.id), execution_options=there).all()
    assert sorted(ids) == ["a" * 12, "b" * 12, "c" * 12]


@on("sqlite")
def test_unique_index_on_an_expression(session: Session) -> None:
    """A duplicate in a unique index that the metadata lacks is the error of the database, and is not retried."""
    session.execute(text("CREATE UNIQUE INDEX uq_lower ON user (lower(name))"))
    session.add(User(name="Ada"))
    session.flush()
    session.add(User(name="ADA"))

    with pytest.raises(IntegrityError, match="uq_lower"):
        session.flush()


@on("sqlite")
def test_two_equal_ids_in_one_statement(session: Session) -> None:
    """If two rows of one statement have drawn the same id, the first one keeps it, and the other one gets another."""
    with testing.fixed_ids(User, "a" * 12, "a" * 12, "b" * 12):
        session.execute(insert(User).values([{"name": "first"}, {"name": "second"}]))

    found = dict(session.execute(select(User.name, User.public_id)).all())
    assert found == {"first": "a" * 12, "second": "b" * 12}


@on("sqlite", "postgresql")
def test_two_equal_ids_in_an_upsert(session: Session) -> None:
    """The default makes no id twice in one INSERT, so that ``ON CONFLICT DO NOTHING`` leaves out none of its rows."""
    dialect = import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")
    with testing.fixed_ids(User, "a" * 12, "a" * 12, "b" * 12):
        statement = dialect.insert(User).values([{"name": "first"}, {"name": "second"}])
        session.execute(statement.on_conflict_do_nothing())

    assert {*session.scalars(select(User.public_id))} == {"a" * 12, "b" * 12}


@pytest.mark.parametrize("order", [1, -1])
def test_values_with_one_made_id(session: Session, order: int) -> None:
    """The rows of ``insert().values([…])`` are stored if the id of one of them is made, and those of others are SQL."""
    rows: list[dict[str, Any]] = [{"name": "a"}, {"name": "b", "public_id": func.lower("BBBBBBBBBBBB")}]
    session.execute(insert(User).values(rows[::order]))

    assert session.scalars(select(User.name).order_by(User.name)).all() == ["a", "b"]


def test_listener_that_passes_tuples(session: Session, engine: Engine) -> None:
    """Many parameter sets are retried, whatever sequence a listener has made of them."""

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def pass_on(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> Any:
        return statement, tuple(parameters) if many else parameters

    session.add(User(public_id="a" * 12))
    session.flush()
    with testing.collisions(User, "a" * 12):
        session.execute(insert(User), [{"name": "first"}, {"name": "second"}])

    assert session.scalar(select(func.count()).select_from(User)) == 3
