"""Block allocators without a database: validation of arguments, and the definition of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.pool import AssertionPool, NullPool, SingletonThreadPool, StaticPool
from sqlalchemy.schema import CreateTable

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.errors import LeaseNotAvailable
from sqlalchemy_public_id.keys import BlockAllocator, block_key


@pytest.fixture
def engine() -> Engine:
    """Return an engine that nothing connects to."""
    return create_engine("sqlite:///nowhere/shop.db", poolclass=NullPool)


# --- invalid arguments


@pytest.mark.parametrize("name", ["", " a", "a ", "ä", "a\n", "a" * 101, None], ids=repr)
def test_names(engine: Engine, name: Any) -> None:
    """A name that some database would confuse with another one is refused."""
    with pytest.raises(ConfigurationError, match="name of a sequence"):
        BlockAllocator(engine, name)


@pytest.mark.parametrize(
    "options",
    [
        *({"block": 0}, {"block": True}, {"block": 2**63}, {"start": -1}, {"start": 2**63 - 1}),
        *({"timeout": 0}, {"timeout": float("nan")}, {"timeout": "5"}),
        {"timeout": 10**12},  # more than threading.TIMEOUT_MAX
    ],
    ids=repr,
)
def test_options(engine: Engine, options: dict[str, Any]) -> None:
    """An invalid option raises, with its name and value."""
    [(name, value)] = options.items()
    with pytest.raises(ConfigurationError, match=f"^{name} is {value!r}, expected"):
        BlockAllocator(engine, "order", **options)


@pytest.mark.parametrize("poolclass", [AssertionPool, SingletonThreadPool, StaticPool], ids=lambda pool: pool.__name__)
def test_pools_with_one_connection(poolclass: Any) -> None:
    """A pool that would lease on the caller's connection, or could not lease, is refused at once."""
    engine = create_engine("sqlite:///shop.db", poolclass=poolclass)
    with pytest.raises(ConfigurationError, match=f"cannot work with {poolclass.__name__}"):
        BlockAllocator(engine, "order")


@pytest.mark.parametrize("engine", [None, "sqlite:///shop.db"], ids=repr)
def test_no_engine(engine: Any) -> None:
    """Anything but an engine is refused, and the error shows what was given."""
    with pytest.raises(ConfigurationError, match="expected an Engine or an AsyncEngine, not"):
        BlockAllocator(engine, "order")


@pytest.mark.parametrize("call", [BlockAllocator.take, BlockAllocator.reserve], ids=["take", "reserve"])
def test_counts(engine: Engine, call: Callable[[BlockAllocator, Any], object]) -> None:
    """A count that is not an integer, or is out of range, is refused before a lease; 0 needs no lease."""
    allocator = BlockAllocator(engine, "order")
    for count in (-1, 2**63, 2.5, True, "3"):
        with pytest.raises(ValueError, match=f"count is {count!r}, expected a whole number from 0 to"):
            call(allocator, count)

    assert not call(allocator, 0)


def test_function_for_an_engine(engine: Engine) -> None:
    """A function is called for the engine when it is needed, until it returns one."""
    answers: list[Any] = [None, engine]
    allocator = BlockAllocator(lambda: answers.pop(0), "order", timeout=0.05)
    block_key(allocator)
    assert len(answers) == 2
    with pytest.raises(ConfigurationError, match="not None"):
        allocator.next()
    for _ in range(2):
        with pytest.raises(LeaseNotAvailable):
            allocator.next()

    assert answers == []


@pytest.mark.parametrize("option", ["default", "primary_key", "autoincrement"])
def test_options_of_the_key(engine: Engine, option: str) -> None:
    """Options that ``block_key()`` sets itself are refused."""
    with pytest.raises(ConfigurationError, match=f"sets {option} itself"):
        block_key(BlockAllocator(engine, "order"), **{option: True})


def test_repr(engine: Engine) -> None:
    """``repr`` shows the name and the block size, without the URL and its password."""
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
    """The table of counters has a name that is compared bytewise, and a BIGINT without autoincrement."""
    table = BlockAllocator(engine, "order", table="counter", schema="app").table.to_metadata(MetaData())
    ddl = " ".join(str(CreateTable(table).compile(dialect=dialect)).split())

    assert ddl == f"CREATE TABLE app.counter ( name {type_} NOT NULL, next BIGINT NOT NULL, PRIMARY KEY (name) )"
