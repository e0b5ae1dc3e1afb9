"""Blocks of keys on real databases: what a lease is, and what comes of it."""

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
    """Where the counter of *allocator* is, in the table."""
    with engine.connect() as connection:
        return connection.scalar(select(allocator.table.c.next).where(allocator.table.c.name == allocator.name))


def at_once(work: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """Call *work* with each of *arguments*, in as many threads, which begin together."""
    together = threading.Barrier(len(arguments))

    def begin(argument: Any) -> Any:
        together.wait()
        return work(argument)

    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(begin, arguments))


# --- numbers


def test_numbers_count_up(allocators: Allocators) -> None:
    """One program that uses an allocator alone gets all numbers from the start on, in order, however it asks."""
    allocator = allocators(start=5)
    got = [allocator.next(), *allocator.take(1)[0], allocator.next()]
    got += [number for numbers in allocator.take(1000) for number in numbers]
    got += [allocator.next() for _ in range(250)]

    assert got == list(range(5, 1258))


def test_names_are_apart(allocators: Allocators) -> None:
    """Sequences whose names differ in one byte count for themselves."""
    got = [allocators(name).next() for name in ("order", "Order", "order.", "orders")]

    assert got == [0, 0, 0, 0]


def test_reserved_numbers_are_in_memory(engine: Engine, allocators: Allocators) -> None:
    """After ``reserve()``, so many numbers can be had without the database, and no more were leased than needed."""
    allocator = allocators()
    allocator.reserve(1234)
    reserved = allocator.reserved
    allocator.table.drop(engine)

    assert reserved == 1234
    assert allocator.take(1234) == [range(1234)]


def test_size_doubles(allocators: Allocators, statements: Statements) -> None:
    """Where no size is given, a program that takes numbers without a pause gets twice as many with each lease."""
    allocator = allocators(block=None)
    for _ in range(20_000):
        allocator.next()

    assert len(statements.starting("UPDATE")) < 15
    assert (allocator.reserved + 20_000) % 100 == 0


def test_one_lease_for_all_who_wait(engine: Engine, allocators: Allocators) -> None:
    """Threads that run dry at once wait for one lease."""
    allocator = allocators(block=10_000)
    got = at_once(lambda _: allocator.next(), range(8))

    assert sorted(got) == list(range(8))
    assert counter(engine, allocator) == 10_000


def test_close(engine: Engine, allocators: Allocators) -> None:
    """``close()`` drops the numbers, which are lost, and the next call begins anew."""
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
    """A lease reads the counter, moves it, and commits."""
    allocator = allocators()
    allocator.reserve(1)
    statements.clear()
    listen(engine, "commit", lambda _: statements.append("COMMIT"))
    allocator.reserve(101)

    sent = [statement.split()[0] for statement in statements]
    assert [word for word in sent if word != "PRAGMA"][-3:] == ["SELECT", "UPDATE", "COMMIT"]
    assert sent.count("COMMIT") == 1


def test_threads_of_one_allocator(allocators: Allocators) -> None:
    """Threads that share an allocator get each number once, however they ask for it."""
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
    """Whatever isolation level the engine has, those who lease at once never meet, and see no error."""
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
    """A lease is none of the caller's transaction: after a rollback, its numbers are not issued again."""
    allocator, other = allocators(), allocators("other")
    other.next()
    with Session(engine) as session:
        session.execute(update(other.table).where(other.table.c.name == "other").values(next=0))
        first = allocator.next()
        session.rollback()
    allocator.close()

    assert (first, allocator.next()) == (0, 100)


def test_end_of_the_numbers(allocators: Allocators) -> None:
    """The last numbers of a BIGINT are issued, and then there is an error, which says of which sequence."""
    allocator = allocators(start=END - 150)
    first = allocator.take(120)
    with pytest.raises(KeySpaceExhausted, match="'order' has issued its last key"):
        allocator.take(31)

    assert [*first, *allocator.take(30)] == [range(END - 150, END - 30), range(END - 30, END)]


# --- the table


def test_missing_table(engine: Engine, allocators: Allocators) -> None:
    """Without the table there is an error that says how to make it; once it is there, the same allocator works."""
    allocator = allocators(table="elsewhere")
    with pytest.raises(ConfigurationError, match=r"no table elsewhere: call allocator\.create_table\(\), "):
        allocator.next()
    assert not inspect(engine).has_table("elsewhere")
    allocator.create_table()
    got = allocator.next()
    allocator.table.drop(engine)

    assert got == 0


def test_table_at_the_first_lease(engine: Engine, allocators: Allocators) -> None:
    """With ``create=True`` the first lease makes the table, even where several are the first."""
    several = [allocators(table="elsewhere", create=True, block=10) for _ in range(4)]
    got = at_once(BlockAllocator.next, several)
    several[0].table.drop(engine)

    assert sorted(got) == [0, 10, 20, 30]


def test_table_of_migrations(engine: Engine, allocators: Allocators) -> None:
    """The table that was copied into another metadata is the one that the allocator uses."""
    metadata = MetaData()
    allocator = allocators(table="elsewhere")
    allocator.table.to_metadata(metadata)
    metadata.create_all(engine)
    got = allocator.next()
    columns = {column["name"] for column in inspect(engine).get_columns("elsewhere")}
    metadata.drop_all(engine)

    assert (got, columns) == (0, {"name", "next"})
