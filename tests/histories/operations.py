"""The tables of a history, and the implementation of its operations."""

# no __future__ import, because the annotations of the models are read

import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from histories.checking import Failure
from histories.plans import BLOCK, CUSTOMERS, Plan, weight_of
from sqlalchemy import ForeignKey, Index, MetaData, String, create_engine, delete, event, select, text
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.pool import NullPool
from support.judge import Row, Stored
from support.retrying import run_transaction
from support.steps import flush

from sqlalchemy_public_id import NanoId, PublicIdMixin, idempotency, lookup
from sqlalchemy_public_id.keys import BlockAllocator, block_key
from sqlalchemy_public_id.references import public_ref

__all__ = ["APPLICATION", "Done", "Settings", "Work", "create_tables", "stored_rows"]

APPLICATION = "history"
"""The ``application_name`` of the workers' connections on PostgreSQL."""


# --- tables


class Base(DeclarativeBase):
    metadata = MetaData()


_engines: dict[str, Engine] = {}

_keys = BlockAllocator(lambda: _engines["counters"], "parcel", table="history_block", block=BLOCK, timeout=4)


class Payment(PublicIdMixin, Base):
    """A model that is inserted with an id of the application."""

    __tablename__ = "history_payment"
    name: Mapped[str] = mapped_column(String(20), index=True)
    """Identifies a row. It is not unique, so that a row that is written twice is stored twice."""
    amount: Mapped[int]


class Customer(PublicIdMixin, Base):
    __tablename__ = "history_customer"


class Parcel(PublicIdMixin, Base):
    """A model with so few possible ids that some collide by chance, and with keys from a block."""

    __tablename__ = "history_parcel"
    __public_id__ = NanoId(length=4, alphabet="0123456789abcdefghij")
    id = block_key(_keys)
    name: Mapped[str] = mapped_column(String(20), index=True)
    shelf: Mapped[int]
    weight: Mapped[int]
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    customer_public_id: Mapped[str] = public_ref("customer")
    __table_args__ = (Index("ix_history_parcel_shelf", "shelf", "id"),)


TABLES = [Payment.__table__, Parcel.__table__]
"""The models whose tables are altered by troubles."""


def create_tables(url: URL, counters: URL) -> None:
    """Drop and create the tables, and insert the customers."""
    engine, other = (create_engine(each, poolclass=NullPool) for each in (url, counters))
    table = _keys.table
    if engine.dialect.name == "sqlite":
        for each in (engine, other):
            with each.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    Base.metadata.drop_all(engine)
    table.drop(other, checkfirst=True)
    Base.metadata.create_all(engine)
    table.create(other)
    with Session(engine) as session:
        session.add_all([Customer(public_id=public_id) for public_id in CUSTOMERS])
        session.commit()


def stored_rows(url: URL) -> list[Stored]:
    """Return all rows, read without the library."""
    payments = "SELECT name, id, public_id, NULL FROM history_payment"
    parcels = """SELECT p.name, p.id, p.public_id, c.public_id FROM history_parcel p
        LEFT JOIN history_customer c ON c.id = p.customer_id"""
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return [
            Stored(name, Row(*rest), from_block=query is parcels)
            for query in (payments, parcels)
            for name, *rest in connection.execute(text(query))
        ]


# --- operations


@dataclass(frozen=True)
class Settings:
    """The settings that all processes of a run share."""

    seed: int
    url: URL
    counters: URL
    records: str
    """The folder of the records."""
    threads: int = 4
    careless: bool = False
    """True if a connection whose statement a signal interrupted returns to the pool."""


class TimeLimit(Exception):
    """The time limit of an operation has expired."""


@dataclass
class Done:
    """The results of an operation so far."""

    told: list[Any] = field(default_factory=list)
    """One result for each of its rows."""
    keys: list[int] = field(default_factory=list)
    seen: list[tuple[str, int, int]] = field(default_factory=list)
    outcome: str = "failed"
    failure: Failure | None = None


class _Watched(Session):
    """A session that records that it commits: an operation that fails from then on may have been committed."""


@event.listens_for(_Watched, "before_commit")
def _before_commit(session: Session) -> None:
    if not session.in_nested_transaction():
        session.info["done"].outcome = "unknown"


class Work:
    """The operations of one process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        name = settings.url.get_backend_name()
        options = connect_options(name)
        size = settings.threads + 3
        level = {"postgresql": "REPEATABLE READ", "sqlite": "SERIALIZABLE"}.get(name, "READ COMMITTED")
        # Separate engines: SQLAlchemy does not wrap the driver's error if it cannot set the level of a transaction.
        self._engines = {
            (repeatable, alone): create_engine(
                settings.url,
                connect_args=options,
                **({"isolation_level": level} if repeatable else {}),
                **({"poolclass": NullPool} if alone else {"pool_size": size, "pool_timeout": 20}),
            )
            for repeatable in (False, True)
            for alone in (False, True)
        }
        _engines["counters"] = (
            self._engines[False, False]
            if settings.counters == settings.url
            else create_engine(settings.counters, pool_size=size, connect_args=options)
        )
        "".encode("idna")  # for the server's name: a signal during the import would leave the codec unknown
        self._is_over = False
        signal.signal(signal.SIGALRM, self._end)

    @staticmethod
    def open_session() -> None:
        """Open and close a session."""
        _Watched().close()

    def perform(self, plan: Plan, is_main: bool) -> Done:
        """Perform one operation; *is_main* is True in the main thread, which receives signals."""
        done = Done()
        limit = plan.limit if is_main else None
        try:
            try:
                if limit:
                    self._is_over = False
                    signal.setitimer(signal.ITIMER_REAL, limit)
                _OPERATIONS[plan.kind](self, plan, done, self._factory(plan, done, limit))
                done.outcome = "ok"
            finally:
                if limit:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    time.sleep(0)  # a signal that has arrived by now is handled here
        except Exception as error:
            done.failure = failure_of(error)
        if limit and self._is_over:
            # PyMySQL may have read the answers of earlier statements: then ROLLBACK TO SAVEPOINT raises the
            # IntegrityError of the INSERT, and a SELECT has no columns.
            text = done.failure.text if done.failure else "it was lost"
            done.failure = Failure("TimeLimit", text=text)
        if done.failure is not None and done.outcome == "ok":
            done.outcome = "unknown"
        return done

    def _end(self, *_: object) -> None:
        self._is_over = True
        raise TimeLimit

    def _factory(self, plan: Plan, done: Done, limit: float | None) -> Callable[[], Session]:
        # The connection is closed, because its driver may not support going on after an answer that was not read.
        engine = self._engines[plan.repeatable, limit is not None and not self.settings.careless]
        return lambda: _Watched(engine, info={"done": done})

    # one transaction each

    def _send(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        [name] = plan.names
        with sessions() as session:
            row, created = idempotency.insert_once(session, Payment(public_id=name, name=name, amount=weight_of(name)))
            assert (row.name, row.amount) == (name, weight_of(name))
            done.told = [(created, Row(row.id, row.public_id))]
            time.sleep(plan.pause)
            session.commit()

    def _give(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        def give(session: Session) -> None:
            payments = [Payment(public_id=name, name=name, amount=weight_of(name)) for name in plan.names]
            flush(session, payments)
            done.told = [Row(payment.id, payment.public_id) for payment in payments]

        self._in_transaction(give, plan, sessions)

    def _add(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        def add(session: Session) -> None:
            parcels = [
                Parcel(name=name, shelf=plan.shelf, weight=weight_of(name), customer_public_id=plan.reference)
                for name in plan.names
            ]
            try:
                flush(session, parcels)
                done.told = [Row(parcel.id, parcel.public_id, parcel.customer_public_id) for parcel in parcels]
                time.sleep(plan.pause)
            finally:
                done.keys += [parcel.__dict__["id"] for parcel in parcels if parcel.__dict__.get("id") is not None]

        self._in_transaction(add, plan, sessions)

    def _remove(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        [name] = plan.names
        with sessions() as session:
            result: Any = session.execute(delete(Payment).where(Payment.public_id == name))
            done.told = [result.rowcount == 1]
            time.sleep(plan.pause)
            session.commit()

    def _drop(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        def drop(session: Session) -> None:
            result: Any = session.execute(delete(Parcel).where(Parcel.name == plan.names[0]))
            assert result.rowcount <= 1
            done.told = [result.rowcount == 1]

        self._in_transaction(drop, plan, sessions)

    def _move(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        def move(session: Session) -> None:
            parcel = session.scalars(select(Parcel).where(Parcel.name == plan.names[0])).one_or_none()
            done.told = [parcel is not None]
            if parcel is not None:
                parcel.customer_public_id = plan.reference or ""

        self._in_transaction(move, plan, sessions)

    def _look(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        with sessions() as session:
            payment = lookup.get(session, Payment, plan.names[0])
            done.told = [payment and Row(payment.id, payment.public_id)]

    def _read(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        with sessions() as session:
            parcel = session.scalars(select(Parcel).where(Parcel.name == plan.names[0])).one_or_none()
            done.told = [parcel and Row(parcel.id, parcel.public_id, parcel.customer_public_id)]

    def _take(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        done.keys = [key for keys in _keys.take(plan.count) for key in keys]

    def _walk(self, plan: Plan, done: Done, sessions: Callable[[], Session]) -> None:
        cursor: str | None = None
        while True:
            with sessions() as session:
                page = lookup.page(
                    session,
                    Parcel,
                    limit=20,
                    after=cursor,
                    where=Parcel.shelf == plan.shelf,
                    order_by=Parcel.weight.desc() if plan.order == "weight" else None,
                    newest_first=plan.order == "newest",
                    references=[Parcel.customer_public_id],
                )
                assert {parcel.customer_public_id for parcel in page} <= set(CUSTOMERS)
                done.seen += [(parcel.name, parcel.id, parcel.weight) for parcel in page]
            cursor = page.next
            if not page.has_more:
                return

    @staticmethod
    def _in_transaction(act: Callable[[Session], None], plan: Plan, sessions: Callable[[], Session]) -> None:
        if plan.repeats:
            run_transaction(sessions, act, timeout=5)
            return
        with sessions() as session:
            act(session)
            session.commit()


_OPERATIONS: dict[str, Callable[..., None]] = {
    "send": Work._send,
    "give": Work._give,
    "add": Work._add,
    "remove": Work._remove,
    "drop": Work._drop,
    "move": Work._move,
    "look": Work._look,
    "read": Work._read,
    "take": Work._take,
    "walk": Work._walk,
}


def connect_options(database: str) -> dict[str, Any]:
    """Return the arguments of the driver, with timeouts, so that nothing waits forever."""
    if database == "sqlite":
        return {"timeout": 10}
    if database == "postgresql":
        limits = "-c lock_timeout=4000 -c statement_timeout=20000"
        return {"connect_timeout": 10, "options": limits, "application_name": APPLICATION}
    limits = "SET SESSION innodb_lock_wait_timeout = 4, lock_wait_timeout = 4"
    return {"connect_timeout": 10, "read_timeout": 30, "write_timeout": 30, "init_command": limits}


# --- errors

_DRIVERS = re.compile(r"[/\\\\](psycopg|pymysql|sqlite3)[/\\\\]")


def failure_of(error: BaseException) -> Failure:
    """Return the facts about an error that the checker needs."""
    chain = list(_chain(error))
    is_lost = any(isinstance(each, DBAPIError) and each.connection_invalidated for each in chain)
    found = next((each for each in chain if isinstance(each, DBAPIError)), None)
    code = _code(found.orig) if found is not None else ""
    return Failure(type(error).__name__, code, is_lost, _line(error), _where(error))


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not _DRIVERS.search(frame.filename)]
    return " ".join(f"{Path(frame.filename).stem}.{frame.name}" for frame in outside[-4:])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _code(error: Any) -> str:
    state = getattr(error, "sqlstate", None)
    if state:
        return str(state)
    first = error.args[0] if getattr(error, "args", ()) else ""
    if isinstance(first, int):
        return str(first)
    message = str(first)
    return "connection failed" if "connection" in message and "failed" in message else message.splitlines()[0][:80]
