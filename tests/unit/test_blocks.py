"""What a block allocator does without a database: how it sizes blocks, keeps numbers, and refuses what cannot work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.pool import AssertionPool, NullPool, SingletonThreadPool, StaticPool
from sqlalchemy.schema import CreateTable

from sqlalchemy_public_id import ConfigurationError, LeaseNotAvailable
from sqlalchemy_public_id.keys import BlockAllocator, block_key
from sqlalchemy_public_id.keys.blocks.buffer import FIRST_SIZE, LARGEST, SMALLEST, BlockSize, Buffer


@pytest.fixture
def engine() -> Engine:
    """An engine that nothing connects to."""
    return create_engine("sqlite:///nowhere/shop.db", poolclass=NullPool)


# --- the size of a block


def test_size_follows_the_rate() -> None:
    """After some blocks, the size is what one second needs."""
    block_size = BlockSize(None)
    for _ in range(5):
        size = block_size.adapt(seconds=0.25, issued=5000)

    assert size == 20_000


@pytest.mark.parametrize(
    ("seconds", "issued", "expected"),
    [(0.0001, 100, FIRST_SIZE * 10), (3600, 50, FIRST_SIZE // 2), (1, 0, FIRST_SIZE), (0, 10**9, FIRST_SIZE * 10)],
    ids=["fast", "slow", "unused", "at-once"],
)
def test_size_changes_step_by_step(seconds: float, issued: int, expected: int) -> None:
    """From one block to the next the size grows tenfold at most, and shrinks by half at most."""
    assert BlockSize(None).adapt(seconds=seconds, issued=issued) == expected


@pytest.mark.parametrize(("seconds", "issued", "bound"), [(1e-6, 10**9, LARGEST), (1e6, 1, SMALLEST)])
def test_size_is_bounded(seconds: float, issued: int, bound: int) -> None:
    """However fast or slow a program is, a block stays between the bounds."""
    block_size = BlockSize(None)
    sizes = [block_size.adapt(seconds=seconds, issued=issued) for _ in range(30)]

    assert sizes[-1] == bound
    assert all(SMALLEST <= size <= LARGEST for size in sizes)


def test_fixed_size_is_fixed() -> None:
    """A size that was given never changes."""
    assert BlockSize(7).adapt(seconds=0.001, issued=10**6) == 7


# --- numbers in memory


def test_numbers_come_in_order() -> None:
    """Numbers leave in the order in which they came, and each once, however they are asked for."""
    buffer = Buffer()
    for start in range(0, 5000, 1000):
        buffer.add(range(start, start + 1000))
    taken = [number for count in (1, 10, 1500, 0, 3000) for numbers in buffer.take(count) for number in numbers]
    loose = [buffer.current.pop() for _ in range(len(buffer.current))]

    assert taken + loose == list(range(4511 + len(loose)))
    assert buffer.left == 5000 - 4511 - len(loose)
    assert buffer.issued == 4511 + len(loose)


def test_no_more_than_there_is() -> None:
    """Who asks for more than there is gets what there is, in as few ranges as possible."""
    buffer = Buffer()
    buffer.add(range(10, 20))
    buffer.add(range(20, 30))
    buffer.add(range(50, 51))

    assert buffer.take(100) == [range(10, 30), range(50, 51)]
    assert buffer.take(1) == []


def test_what_is_given_back_comes_first() -> None:
    """Numbers that were taken in vain are the next ones again."""
    buffer = Buffer()
    buffer.add(range(3000))
    taken = buffer.take(2)
    buffer.give_back(taken)

    assert buffer.take(3000) == [range(3000)]


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("rounds", [500, pytest.param(2000, marks=pytest.mark.slow)])
def test_threads_share_nothing(rounds: int) -> None:
    """Threads that take one number, many, or give some back never get the same one, and none is lost."""
    buffer, got = Buffer(), [[] for _ in range(8)]
    together = threading.Barrier(len(got))
    total = 40 * rounds  # more than the threads take
    for start in range(0, total, total // 10):
        buffer.add(range(start, start + total // 10))

    def work(mine: list[int], number: int) -> None:
        together.wait()
        for _ in range(rounds):
            try:
                mine.append(buffer.current.pop())
            except IndexError:
                mine += [each for numbers in buffer.take(1) for each in numbers]
            taken = buffer.take(3)
            if number % 2:
                buffer.give_back(taken)
            else:
                mine += [each for numbers in taken for each in numbers]

    threads = [threading.Thread(target=work, args=(mine, number)) for number, mine in enumerate(got)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rest = [each for numbers in buffer.take(10**6) for each in numbers]

    assert sorted([number for mine in got for number in mine] + rest) == list(range(total))
    assert (buffer.left, buffer.issued) == (0, total)


# --- what is refused


@pytest.mark.parametrize("name", ["", " a", "a ", "ä", "a\n", "a" * 101, None, 1], ids=repr)
def test_names(engine: Engine, name: Any) -> None:
    """A name that some database would take for another one is refused."""
    with pytest.raises(ConfigurationError, match="name of a sequence"):
        BlockAllocator(engine, name)


@pytest.mark.parametrize(
    "options",
    [
        *({"block": 0}, {"block": True}, {"block": 1.5}, {"block": 2**63}),
        *({"start": -1}, {"start": 2**63 - 1}, {"start": "0"}),
        *({"timeout": 0}, {"timeout": -1}, {"timeout": float("inf")}, {"timeout": float("nan")}, {"timeout": "5"}),
        {"timeout": 10**12},  # more than threading.TIMEOUT_MAX
    ],
    ids=repr,
)
def test_options(engine: Engine, options: dict[str, Any]) -> None:
    """An option that cannot work is refused, by its name and with its value."""
    [(name, value)] = options.items()
    with pytest.raises(ConfigurationError, match=f"^{name} is {value!r}, expected"):
        BlockAllocator(engine, "order", **options)


@pytest.mark.parametrize("poolclass", [AssertionPool, SingletonThreadPool, StaticPool], ids=lambda pool: pool.__name__)
def test_pools_with_one_connection(poolclass: Any) -> None:
    """A pool that would lease on the connection of the caller, or fail to, is refused at once."""
    engine = create_engine("sqlite:///shop.db", poolclass=poolclass)
    with pytest.raises(ConfigurationError, match=f"cannot work with {poolclass.__name__}"):
        BlockAllocator(engine, "order")


@pytest.mark.parametrize("engine", [None, "sqlite:///shop.db"], ids=repr)
def test_no_engine(engine: Any) -> None:
    """What is no engine is refused, with what was given."""
    with pytest.raises(ConfigurationError, match="expected an Engine or an AsyncEngine, not"):
        BlockAllocator(engine, "order")


def test_function_for_an_engine(engine: Engine) -> None:
    """A function that answers the engine is not called before it is needed, so a model can be declared without one."""
    asked: list[int] = []

    def later() -> Engine:
        asked.append(1)
        return engine

    block_key(BlockAllocator(later, "order"))

    assert asked == []


@pytest.mark.parametrize("count", [-1, -(10**9), 2**63, 2.5, True, "3", None], ids=repr)
@pytest.mark.parametrize("call", [BlockAllocator.take, BlockAllocator.reserve], ids=["take", "reserve"])
def test_counts(engine: Engine, call: Callable[[BlockAllocator, Any], object], count: Any) -> None:
    """A count that is no whole number, or that no sequence has, is refused before anything is leased."""
    with pytest.raises(ValueError, match=f"count is {count!r}, expected a whole number from 0 to"):
        call(BlockAllocator(engine, "order"), count)


def test_what_is_asked_for_the_engine_again(engine: Engine) -> None:
    """A function that has no engine yet is asked again, until it answers one."""
    answers: list[Any] = [None, engine]
    allocator = BlockAllocator(lambda: answers.pop(0), "order", timeout=0.05)
    with pytest.raises(ConfigurationError, match="not None"):
        allocator.next()
    for _ in range(2):
        with pytest.raises(LeaseNotAvailable):
            allocator.next()

    assert answers == []


def test_nothing_is_asked_for_nothing(engine: Engine) -> None:
    """No numbers need no lease: the database of this allocator does not exist."""
    allocator = BlockAllocator(engine, "order")
    allocator.reserve(0)

    assert allocator.take(0) == []
    assert allocator.reserved == 0


@pytest.mark.parametrize("option", ["default", "primary_key", "autoincrement"])
def test_options_of_the_key(engine: Engine, option: str) -> None:
    """What a key from blocks says itself cannot be said again."""
    with pytest.raises(ConfigurationError, match=f"sets {option} itself"):
        block_key(BlockAllocator(engine, "order"), **{option: True})


def test_repr(engine: Engine) -> None:
    """An allocator is shown by its name and its block, without the URL and its password."""
    shown = [repr(BlockAllocator(engine, "order")), repr(BlockAllocator(engine, "order", block=5))]

    assert shown == ["BlockAllocator('order')", "BlockAllocator('order', block=5)"]


# --- the table


@pytest.mark.parametrize(
    ("dialect", "type_"),
    [
        (sqlite.dialect(), "VARCHAR(100)"),
        (postgresql.dialect(), 'VARCHAR(100) COLLATE "C"'),
        (mysql.dialect(), "VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin"),
    ],
    ids=["sqlite", "postgresql", "mysql"],
)
def test_table(engine: Engine, dialect: Dialect, type_: str) -> None:
    """The table of counters has a name that is compared byte by byte, and a BIGINT that nothing counts up."""
    table = BlockAllocator(engine, "order", table="counter", schema="app").table.to_metadata(MetaData())
    ddl = " ".join(str(CreateTable(table).compile(dialect=dialect)).split())

    assert ddl == f"CREATE TABLE app.counter ( name {type_} NOT NULL, next BIGINT NOT NULL, PRIMARY KEY (name) )"
