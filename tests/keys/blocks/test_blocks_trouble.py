"""Blocks of keys under adverse conditions: locks, pools, broken connections, the end of the program."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, insert, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.pool import NullPool, QueuePool
from support.interrupt import interrupted, limited_while_locked
from support.marks import on

from sqlalchemy_public_id import ConfigurationError, PublicIdError
from sqlalchemy_public_id.errors import LeaseNotAvailable
from sqlalchemy_public_id.keys import BlockAllocator
from sqlalchemy_public_id.keys.blocks.lease import END, NumberRefusal

pytestmark = pytest.mark.backend

Allocators = Callable[..., BlockAllocator]


def hold(connection: Connection, allocator: BlockAllocator) -> None:
    """Lock the row of *allocator* in the transaction of *connection*, on SQLite the whole file."""
    connection.execute(update(allocator.table).values(next=allocator.table.c.next))


def kill_statement(engine: Engine) -> str:
    """Return the statement that kills a connection, with a placeholder for its number."""
    return "SELECT pg_terminate_backend({})" if engine.name == "postgresql" else "KILL {}"


# --- interrupted


class Stop(Exception):
    """What a signal handler raises, such as that of a task queue with a limit of time."""


@pytest.fixture
def pool_of_one(engine: Engine, new_engine: Callable[..., Engine]) -> Engine:
    """An engine whose pool has one connection, so that the next user gets the one of a lease."""
    impatient = {"connect_args": {"timeout": 0}} if engine.name == "sqlite" else {}
    return new_engine(engine.name, engine.url, poolclass=QueuePool, pool_size=1, max_overflow=0, **impatient)


def driver_connection(engine: Engine) -> Any:
    gc.collect()  # a connection that nobody has closed returns to its pool
    with engine.connect() as connection:
        return connection.connection.driver_connection


def test_interrupted_rollback(
    engine: Engine, pool_of_one: Engine, allocators: Allocators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection whose ROLLBACK was interrupted, after a lease has met a lock, is not used again.

    Its answer may be unread. In a history of 29 November 2026 (seed 398863, MySQL), the next user took it for its own.
    """
    allocator = allocators(engine=pool_of_one, timeout=0.2, block=1)
    assert allocator.next() == 0
    rolled_back: Any = pool_of_one.dialect.do_rollback
    left = [Stop]

    def interrupt(connection: Any) -> None:
        rolled_back(connection)
        if left:
            raise left.pop()

    before = driver_connection(pool_of_one)
    with engine.connect() as connection:
        hold(connection, allocator)
        monkeypatch.setattr(pool_of_one.dialect, "do_rollback", interrupt)
        with pytest.raises(Stop):
            allocator.next()
        connection.rollback()

    assert driver_connection(pool_of_one) is not before
    assert allocator.next() == 1


CALLS: dict[str, Callable[[BlockAllocator, Engine], object]] = {
    "the lease": lambda allocator, _: allocator.next(),
    "the largest number": lambda allocator, engine: NumberRefusal(engine, allocator.table.c.next).largest(),
    "CREATE TABLE": lambda allocator, _: allocator.create_table(),
    "whether there is a table": lambda allocator, _: allocator.next(),
}


@pytest.mark.parametrize("call", CALLS)
def test_interrupted_statement(engine: Engine, pool_of_one: Engine, allocators: Allocators, call: str) -> None:
    """A connection is not used again if any statement of the allocator was interrupted on it."""
    allocator = allocators(engine=pool_of_one, timeout=0.2)
    if call == "whether there is a table":
        allocator.table.drop(engine)
    before = driver_connection(pool_of_one)
    number, when = (2, "before") if call == "whether there is a table" else (1, "after")
    with pytest.raises(Stop), interrupted(pool_of_one, number, Stop, when=when):
        CALLS[call](allocator, pool_of_one)

    assert driver_connection(pool_of_one) is not before


# --- locks


def test_row_is_held(engine: Engine, new_engine: Callable[..., Engine], allocators: Allocators) -> None:
    """While another transaction locks the row, numbers in memory are issued, and then the lease times out. Numbers
    that arrive after the timeout are kept.
    """
    patient = {"connect_args": {"timeout": 60}} if engine.name == "sqlite" else {}
    allocator = allocators(engine=new_engine(engine.name, engine.url, **patient), timeout=0.2)
    allocator.reserve(100)
    with engine.connect() as connection:
        hold(connection, allocator)
        got = [allocator.next() for _ in range(100)]
        before = time.monotonic()
        with pytest.raises(LeaseNotAvailable) as caught:
            allocator.next()
        took = time.monotonic() - before
        connection.rollback()
    allocator.timeout = 30
    after = allocator.next()

    assert got == list(range(100))
    assert 0.2 <= took < 30  # otherwise, the driver waits for 60 s, and a server for 50 s or without a limit
    assert (caught.value.name, caught.value.timeout) == ("order", 0.2)
    assert "no block of 'order' could be leased within 0.2 s" in str(caught.value)
    assert after == 100


@on("sqlite")
def test_caller_holds_the_file(engine: Engine, allocators: Allocators) -> None:
    """A caller that writes to the same SQLite file is told to reserve numbers first, which then works."""
    allocator = allocators(timeout=0.2)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE note (id INTEGER)")
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO note VALUES (1)")
        with pytest.raises(LeaseNotAvailable, match=r"allocator\.reserve\(count\) before its first write"):
            allocator.next()
    allocator.timeout = 30
    allocator.reserve(500)
    with engine.begin() as connection:
        for number in range(500):
            connection.exec_driver_sql("INSERT INTO note VALUES (?)", (number,))
            allocator.next()


# --- pools


@on("sqlite")
@pytest.mark.parametrize("outcome", ["leased", "at its end", "without its table", "locked"])
def test_connection_waits_for_locks_again(
    engine: Engine, new_engine: Callable[..., Engine], allocators: Allocators, outcome: str
) -> None:
    """However a lease ends, the connection that it has borrowed waits at locks as long as before."""
    patient = {"connect_args": {"timeout": 7}, "poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
    own = new_engine("sqlite", engine.url, **patient)
    there = {"table": "elsewhere"} if outcome == "without its table" else {}
    allocator = allocators(engine=own, timeout=0.1, **there)
    if outcome == "at its end":
        with engine.begin() as connection:
            connection.execute(insert(allocator.table).values(name=allocator.name, next=END))
    with own.connect() as connection:
        borrowed = connection.connection.driver_connection
    with engine.connect() as other, nullcontext() if outcome == "leased" else pytest.raises(PublicIdError):
        if outcome == "locked":
            hold(other, allocator)
        allocator.next()

    with own.connect() as connection:
        assert connection.connection.driver_connection is borrowed
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 7000


def test_pool_without_a_spare_connection(
    engine: Engine, new_engine: Callable[..., Engine], allocators: Allocators
) -> None:
    """A caller that holds the only connection of the pool gets an error in time, not a deadlock."""
    own = new_engine(engine.name, engine.url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.5)
    allocator = allocators(engine=own, timeout=0.2)
    with own.connect(), pytest.raises(LeaseNotAvailable, match=r"'order' could be leased within 0\.2 s"):
        allocator.next()
    allocator.timeout = 30

    assert allocator.next() == 0


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///file:blocks?mode=memory&uri=true"])
def test_memory(url: str) -> None:
    """SQLite in memory is refused with any pool, because the counter would be lost with its connection."""
    engine = create_engine(url, poolclass=NullPool)
    with pytest.raises(ConfigurationError, match="cannot work with SQLite in memory"):
        BlockAllocator(engine, "order", create=True).next()


# --- failures


@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")  # not yet in the pool
@on("postgresql", "mysql", "mariadb")
def test_broken_connections(engine: Engine, new_engine: Callable[..., Engine], allocators: Allocators) -> None:
    """If connections break during leases, numbers are skipped but never repeated, and callers see no error."""
    several = [allocators(engine=new_engine(engine.name, engine.url), block=5) for _ in range(4)]
    numbers: set[int] = set()  # of the connections
    done = threading.Event()

    def on_checkout(dbapi_connection: Any, *rest: Any) -> None:
        info = getattr(dbapi_connection, "info", None)
        numbers.add(info.backend_pid if info else dbapi_connection.thread_id())

    for allocator in several:
        event.listen(allocator._lessor.engine, "checkout", on_checkout)

    def kill() -> int:
        killed = 0
        statement = kill_statement(engine)
        with engine.connect() as own:
            while not done.wait(0.005):
                with suppress(DBAPIError, KeyError), own.begin():
                    own.execute(text(statement.format(numbers.pop())))
                    killed += 1
        return killed

    with ThreadPoolExecutor(5) as threads:
        killing = threads.submit(kill)
        try:
            taken = threads.map(lambda allocator: [allocator.next() for _ in range(600)], several)
            got = [number for numbers in taken for number in numbers]
        finally:
            done.set()

    assert len(set(got)) == 2400
    assert killing.result() > 0


@on("postgresql", "mysql", "mariadb")
def test_connection_breaks_before_the_table_is_made(
    engine: Engine, new_engine: Callable[..., Engine], allocators: Allocators
) -> None:
    """A connection that breaks while the table is looked up or created is replaced."""
    own = new_engine(engine.name, engine.url)
    allocator = allocators(engine=own, create=True)
    allocator.table.drop(engine)
    broken: list[str] = []

    def before_execute(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        step = "CREATE" if statement.lstrip().startswith("CREATE") else "look"
        if "FOR UPDATE" not in statement and step not in broken:
            broken.append(step)
            raw = connection.connection.dbapi_connection
            number = raw.info.backend_pid if engine.name == "postgresql" else raw.thread_id()
            with engine.begin() as other:
                other.execute(text(kill_statement(engine).format(number)))

    event.listen(own, "before_cursor_execute", before_execute)
    got = allocator.take(3)

    assert (broken, got) == (["look", "CREATE"], [range(3)])


@on("postgresql")
@pytest.mark.parametrize("step", ["SELECT", "UPDATE"])
def test_broken_sockets(
    step: str, engine: Engine, new_engine: Callable[..., Engine], allocators: Allocators, caplog: Any
) -> None:
    """A connection with a broken socket, which psycopg considers open, is replaced, and nothing is logged."""
    own = new_engine(engine.name, engine.url)
    allocator = allocators(engine=own, block=3)
    allocator.take(3)
    broken: list[Any] = []

    def hang_up(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith(step) and len(broken) < 3:
            broken.append(connection.connection.driver_connection)
            reader, writer = os.pipe()
            os.dup2(writer, broken[-1].fileno())
            os.close(reader)
            os.close(writer)

    event.listen(own, "before_cursor_execute", hang_up)
    got = allocator.take(3)

    assert (len(broken), got) == (3, [range(3, 6)])
    assert all(connection.closed for connection in broken)
    assert caplog.records == []


@on("postgresql", "mysql", "mariadb")
def test_outcome_of_a_commit_is_unknown(engine: Engine, allocators: Allocators) -> None:
    """If the connection breaks after the counter was incremented, its numbers are skipped and others leased."""
    broken: list[int] = []

    def after_update(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("UPDATE") and not broken:
            broken.append(1)
            connection.connection.driver_connection.commit()
            raise connection.dialect.loaded_dbapi.OperationalError(2013, "connection lost: terminating connection")

    allocator = allocators()
    allocator.reserve(1)
    allocator.close()
    event.listen(engine, "after_cursor_execute", after_update)
    engine.dialect.is_disconnect = lambda error, *rest: "connection lost" in str(error)
    first = allocator.next()

    assert broken == [1]
    assert first == 200


@on("postgresql")
def test_other_errors_are_shown_as_they_are(engine: Engine, allocators: Allocators) -> None:
    """An error that is not temporary is raised at once, without a retry."""
    allocator = allocators()
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE public_id_block RENAME next TO following")
    with pytest.raises(ProgrammingError, match="next"):
        allocator.next()


@on("sqlite", "postgresql")
def test_counter_that_the_table_refuses(engine: Engine, allocators: Allocators) -> None:
    """If a constraint rejects the row of a new sequence, the error is raised instead of retried forever."""
    allocator = allocators(timeout=10)
    allocator.table.drop(engine)
    with engine.begin() as connection:
        connection.execute(
            text(f"CREATE TABLE {allocator.table.name} (name varchar(100) PRIMARY KEY, next bigint CHECK (next > 999))")
        )

    with pytest.raises(IntegrityError, match=r"(?i)check"):
        allocator.next()

    with engine.connect() as connection:
        assert connection.execute(allocator.table.select()).all() == []


@pytest.mark.slow
@on("postgresql", "mysql", "mariadb")
def test_server_is_away(engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """If no connection can be opened, an error is raised in time and says why."""
    away = new_engine(engine.name, engine.url.set(port=1))
    with BlockAllocator(away, "order", timeout=0.3) as allocator, pytest.raises(LeaseNotAvailable) as caught:
        allocator.next()

    assert "refused" in str(caught.value)
    assert caught.value.__cause__ is not None


# --- interruptions


def test_close_while_one_waits(allocators: Allocators) -> None:
    """If the allocator is closed during ``take()``, the call still returns as many numbers as requested."""
    allocator = allocators(block=20)
    first = allocator.next()
    leasing, closed = threading.Event(), threading.Event()
    real = allocator._lessor.lease

    def slow(count: int, *rest: Any) -> range:
        leasing.set()
        assert closed.wait(60)
        return real(count, *rest)

    allocator._lessor.lease = slow  # replace the real method
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(allocator.take, 50)
        assert leasing.wait(60)
        allocator.close()
        closed.set()
        numbers = [number for some in taken.result() for number in some]

    assert first == 0
    assert numbers == list(range(20, 70))


@on("postgresql", "mysql", "mariadb")
def test_another_schema(engine: Engine) -> None:
    """With a ``schema_translate_map``, the table is created and used in the translated schema."""
    elsewhere = f"blocks_elsewhere_{os.getpid()}"
    here = BlockAllocator(engine, "order", create=True, timeout=10)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {elsewhere}")
    try:
        there = engine.execution_options(schema_translate_map={None: elsewhere})
        here.create_table()  # a table of that name in the default schema must not be used
        with BlockAllocator(there, "order", create=True, start=0, timeout=10) as allocator:
            got = allocator.take(3)
        with engine.connect() as connection:
            stored = connection.exec_driver_sql(f"SELECT name FROM {elsewhere}.public_id_block").scalars().all()
    finally:
        here.table.drop(engine, checkfirst=True)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {elsewhere}.public_id_block")
            connection.exec_driver_sql(f"DROP SCHEMA {elsewhere}")

    assert (got, stored) == ([range(3)], ["order"])


def test_interrupted_lease(engine: Engine, allocators: Allocators) -> None:
    """An interrupt during a lease keeps the numbers in memory, and leaves no lock."""
    allocator = allocators(block=10, timeout=10)
    assert allocator.take(7) == [range(7)]

    def interrupt(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("UPDATE"):
            raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        allocator.take(5)
    event.remove(engine, "before_cursor_execute", interrupt)

    assert (allocator.reserved, allocator.next()) == (3, 7)
    assert allocator.take(5) == [range(8, 13)]


@on("postgresql", "mysql", "mariadb")
def test_lease_ended_by_a_signal(engine: Engine, allocators: Allocators) -> None:
    """A connection that a signal interrupted before its result was read is not used again."""
    allocator = allocators(block=10, timeout=60)
    is_postgresql = engine.dialect.name == "postgresql"
    lock = "SELECT pg_advisory_lock(40)" if is_postgresql else "SELECT GET_LOCK(DATABASE(), 60)"

    class TimeLimit(Exception):
        """An exception like Celery's SoftTimeLimitExceeded."""

    def wait_first(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        waits = statement.startswith("UPDATE")
        return (f"{statement} AND ({lock}) IS NOT NULL" if waits else statement), parameters

    assert allocator.take(7) == [range(7)]
    with engine.connect() as connection:
        connection.exec_driver_sql(lock)
        event.listen(engine, "before_cursor_execute", wait_first, retval=True)
        try:
            with pytest.raises(TimeLimit), limited_while_locked(engine, TimeLimit):
                allocator.take(5)
        finally:
            event.remove(engine, "before_cursor_execute", wait_first)
        connection.invalidate()  # releases the lock

    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 'of its own'").scalar() == "of its own"
    assert [number for numbers in allocator.take(20) for number in numbers][:3] == [7, 8, 9]


# --- the end of the program

PROGRAM = """
import sys, threading
from sqlalchemy import create_engine
from sqlalchemy_public_id.keys import BlockAllocator

engine = create_engine(sys.argv[1])
allocator = BlockAllocator(engine, "order", block=4, timeout=30)
threads = [threading.Thread(target=lambda: [allocator.next() for _ in range(100000)], daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
print(sum(allocator.next() >= 0 for _ in range(200)))
"""


AT_EXIT = """
import atexit, sys
from sqlalchemy import create_engine
from sqlalchemy_public_id.keys import BlockAllocator

engine = create_engine(sys.argv[1])
atexit.register(engine.dispose)
atexit.register(lambda: print(BlockAllocator(engine, "order", block=4, timeout=30).take(10)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("program", "printed"), [(PROGRAM, "200\n"), (AT_EXIT, "[range(1, 11)]\n")], ids=["in", "at"])
def test_end_of_the_interpreter(engine: Engine, allocators: Allocators, program: str, printed: str) -> None:
    """A program may exit during leases and take numbers at exit, without hanging or printing an error."""
    allocators()
    url = engine.url.render_as_string(hide_password=False)
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_engine_is_disposed_of(engine: Engine, allocators: Allocators) -> None:
    """Numbers continue after ``engine.dispose()``, and no connection stays checked out."""
    allocator = allocators()
    first = allocator.take(150)
    engine.dispose()
    second = allocator.take(150)
    allocator.close()

    assert (first, second) == ([range(150)], [range(150, 300)])
    assert isinstance(engine.pool, QueuePool)
    assert engine.pool.checkedout() == 0
