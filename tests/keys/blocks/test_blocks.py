"""Blocks of keys on real databases: numbers, leases and the table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, inspect, select, update
from sqlalchemy.orm import Session
from support.marks import on

from conftest import Statements
from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.errors import KeySpaceExhausted
from sqlalchemy_public_id.keys import BlockAllocator

pytestmark = pytest.mark.backend

Allocators = Callable[..., BlockAllocator]
END = 2**63 - 1


def counter(engine: Engine, allocator: BlockAllocator) -> int | None:
    """Return the stored counter of *allocator*."""
    with engine.connect() as connection:
        return connection.scalar(select(allocator.table.c.next).where(allocator.table.c.name == allocator.name))


def at_once(work: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """Call *work* with each of *arguments*, in one thread each, all at the same time."""
    together = threading.Barrier(len(arguments))

    def begin(argument: Any) -> Any:
        together.wait()
        return work(argument)

    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(begin, arguments))


# --- numbers


def test_numbers_count_up(allocators: Allocators) -> None:
    """A single program gets all numbers from the start in order, whichever methods it calls."""
    allocator = allocators(start=5)
    got = [allocator.next(), *allocator.take(1)[0], allocator.next()]
    got += [number for numbers in allocator.take(1000) for number in numbers]
    got += [allocator.next() for _ in range(250)]

    assert got == list(range(5, 1258))


def test_names_are_apart(allocators: Allocators) -> None:
    """Sequences whose names differ in one byte have separate counters."""
    got = [allocators(name).next() for name in ("order", "Order", "order.", "orders")]

    assert got == [0, 0, 0, 0]


def test_reserved_numbers_are_in_memory(engine: Engine, allocators: Allocators) -> None:
    """After ``reserve()`` the numbers are issued without the database, and no more were leased than needed."""
    allocator = allocators()
    allocator.reserve(1234)
    reserved = allocator.reserved
    allocator.table.drop(engine)

    assert reserved == 1234
    assert allocator.take(1234) == [range(1234)]


def test_size_doubles(allocators: Allocators, statements: Statements) -> None:
    """Without a block size, the size doubles with each lease while a program takes numbers without a pause."""
    allocator = allocators(block=None)
    for _ in range(20_000):
        allocator.next()

    assert len(statements.starting("UPDATE")) < 15
    assert (allocator.reserved + 20_000) % 100 == 0


def test_one_lease_for_all_who_wait(engine: Engine, allocators: Allocators) -> None:
    """Threads that run out of numbers at the same time wait for the same lease."""
    allocator = allocators(block=10_000)
    got = at_once(lambda _: allocator.next(), range(8))

    assert sorted(got) == list(range(8))
    assert counter(engine, allocator) == 10_000


def test_close(engine: Engine, allocators: Allocators) -> None:
    """``close()`` discards the numbers in memory, and the next call leases new ones."""
    other = allocators()
    with allocators() as allocator:
        first = allocator.next()
        other.next()
        allocator.reserve(150)
    dropped = allocator.reserved

    assert (first, dropped, allocator.next()) == (0, 0, 300)


# --- one lease


def test_a_lease_is_one_transaction(
    engine: Engine, allocators: Allocators, statements: Statements, listen: Callable[..., None]
) -> None:
    """A lease reads the counter, increments it, and commits."""
    allocator = allocators()
    allocator.reserve(1)
    statements.clear()
    listen(engine, "commit", lambda _: statements.append("COMMIT"))
    allocator.reserve(101)

    sent = [statement.split()[0] for statement in statements]
    assert [word for word in sent if word != "PRAGMA"][-3:] == ["SELECT", "UPDATE", "COMMIT"]
    assert sent.count("COMMIT") == 1


def test_threads_of_one_allocator(allocators: Allocators) -> None:
    """Threads that share an allocator get each number once, whichever methods they call."""
    allocator = allocators(block=10)

    def work(is_single: bool) -> list[int]:
        if is_single:
            return [allocator.next() for _ in range(300)]
        return [number for _ in range(20) for numbers in allocator.take(15) for number in numbers]

    got = [number for numbers in at_once(work, [True, False] * 2) for number in numbers]

    assert sorted(got) == list(range(1200))


LEVELS: list[Any] = [
    pytest.param(database, level, id=f"{database}-{level.replace(' ', '-')}")
    for database, *levels in (
        ("sqlite", "SERIALIZABLE", "AUTOCOMMIT"),
        ("postgresql", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"),
        ("mysql", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"),
        ("mariadb", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"),
    )
    for level in levels
]


@pytest.mark.parametrize(("database", "level"), LEVELS, indirect=["database"])
def test_isolation_levels(
    engine: Engine, level: str, new_engine: Callable[..., Engine], allocators: Allocators
) -> None:
    """Concurrent leases issue each number once and raise no error, whatever the isolation level of the engine."""
    own = new_engine(engine.name, engine.url, isolation_level=level)
    with own.connect() as connection:
        before = connection.get_isolation_level()
    several = [allocators(engine=own, block=2) for _ in range(4)]
    taken = at_once(lambda allocator: [allocator.next() for _ in range(40)], several)
    got = [number for numbers in taken for number in numbers]
    with own.connect() as connection:
        after = connection.get_isolation_level()

    assert sorted(got) == list(range(160))
    assert after == before


@on("postgresql", "mysql", "mariadb")
def test_transaction_of_the_caller(engine: Engine, allocators: Allocators) -> None:
    """A lease is independent of the caller's transaction: its numbers are not issued again after a rollback."""
    allocator, other = allocators(), allocators("other")
    other.next()
    with Session(engine) as session:
        session.execute(update(other.table).where(other.table.c.name == "other").values(next=0))
        first = allocator.next()
        session.rollback()
    allocator.close()

    assert (first, allocator.next()) == (0, 100)


def test_end_of_the_numbers(allocators: Allocators) -> None:
    """The last numbers of a BIGINT are issued, and then an error names the sequence."""
    allocator = allocators(start=END - 150)
    first = allocator.take(120)
    with pytest.raises(KeySpaceExhausted, match="'order' has issued its last key"):
        allocator.take(31)

    assert [*first, *allocator.take(30)] == [range(END - 150, END - 30), range(END - 30, END)]


# --- the table


def test_missing_table(engine: Engine, allocators: Allocators) -> None:
    """Without the table an error says how to create it; once it exists, the same allocator works."""
    allocator = allocators(table="elsewhere")
    with pytest.raises(ConfigurationError, match=r"no table elsewhere: call allocator\.create_table\(\), "):
        allocator.next()
    assert not inspect(engine).has_table("elsewhere")
    allocator.create_table()
    got = allocator.next()
    allocator.table.drop(engine)

    assert got == 0


def test_table_at_the_first_lease(engine: Engine, allocators: Allocators) -> None:
    """With ``create=True`` the first lease creates the table, even if several leases are the first."""
    several = [allocators(table="elsewhere", create=True, block=10) for _ in range(4)]
    got = at_once(BlockAllocator.next, several)
    several[0].table.drop(engine)

    assert sorted(got) == [0, 10, 20, 30]


@on("sqlite", "postgresql", "mariadb")  # on MySQL, looking for the table blocks others from creating it
def test_table_that_another_process_creates(
    engine: Engine, new_engine: Callable[..., Engine], allocators: Allocators, listen: Callable[..., None]
) -> None:
    """If another process creates the table at the same moment, the lease uses that table."""
    allocator, other = allocators(table="elsewhere", create=True), new_engine(engine.name, engine.url)

    def create_first(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.strip().startswith("CREATE TABLE"):
            allocator.table.create(other)

    listen(engine, "before_cursor_execute", create_first)
    got = allocator.next()
    allocator.table.drop(engine)

    assert got == 0


def test_table_of_migrations(engine: Engine, allocators: Allocators) -> None:
    """The allocator can use its table after it was copied to another MetaData and created from there."""
    metadata = MetaData()
    allocator = allocators(table="elsewhere")
    allocator.table.to_metadata(metadata)
    metadata.create_all(engine)
    got = allocator.next()
    columns = {column["name"] for column in inspect(engine).get_columns("elsewhere")}
    metadata.drop_all(engine)

    assert (got, columns) == (0, {"name", "next"})
