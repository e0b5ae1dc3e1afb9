"""Tables of MySQL and MariaDB whose storage engine has no transactions: no row is stored twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
from sqlalchemy import Engine, MetaData, String, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import fast_ways, on
from support.rights import user_with
from support.ways import (
    Way,
    execute,
    execute_returning,
    execute_values,
    flush,
    flush_one_by_one,
    insert_in_bulk,
    numbers,
)

from sqlalchemy_public_id import PublicIdMixin, guard, testing
from sqlalchemy_public_id.errors import ConfigurationError


class Base(DeclarativeBase):
    metadata = MetaData()


class Item(PublicIdMixin, Base):
    __tablename__ = "item"
    number: Mapped[int]
    code: Mapped[str | None] = mapped_column(String(20), unique=True)


TAKEN = "t" * 12
IDS = ["a" * 12, "b" * 12, TAKEN, "d" * 12, "e" * 12]
ROWS = numbers(5, first=1)
COLUMNS = "id BIGINT AUTO_INCREMENT, public_id VARCHAR(12) NOT NULL, number INT, code VARCHAR(20)"
item = Item.__table__


def store(engine: Engine, storage: str) -> None:
    """Create the table in the storage engine *storage*, with one row."""
    with engine.begin() as connection:
        Base.metadata.drop_all(connection)
        Base.metadata.create_all(connection)
        connection.execute(text(f"ALTER TABLE item ENGINE={storage}"))
        connection.execute(insert(item).values(public_id=TAKEN, number=0))


@pytest.fixture(params=["MyISAM", "MEMORY", "Aria"])
def storage(request: pytest.FixtureRequest, database: str, engine: Engine) -> Iterator[str]:
    """Create the table in each storage engine without transactions; MySQL has no Aria."""
    storage = "MyISAM" if (request.param, database) == ("Aria", "mysql") else request.param
    store(engine, storage)
    yield storage
    Base.metadata.drop_all(engine)


def stored(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(item.c.number).order_by(item.c.id)))


@on("mysql", "mariadb")
@pytest.mark.parametrize(
    "write", [pytest.param(insert_in_bulk, marks=fast_ways), execute, execute_values, execute_returning, flush]
)
def test_several_rows_are_not_sent_again(engine: Engine, storage: str, write: Way) -> None:
    """An INSERT of several rows that collides raises, and the rows before the collision are stored once."""
    if write is flush and not engine.dialect.insert_executemany_returning:
        pytest.skip("MySQL gets the rows of a flush one by one")
    with (
        Session(engine) as session,
        testing.fixed_ids(Item, *IDS),
        pytest.raises(ConfigurationError, match=rf"5 rows into item .* engine {storage} .*\(3 of the 5 ids") as caught,
    ):
        write(session, Item, ROWS)

    assert "use_insertmanyvalues=False" in str(caught.value)
    assert stored(engine) == [0, 1, 2]


@on("mysql", "mariadb")
@pytest.mark.parametrize("write", [flush_one_by_one, flush])
def test_row_by_row_is_retried(new_engine: Callable[..., Engine], engine: Engine, storage: str, write: Way) -> None:
    """An INSERT of one row is retried, also in a flush with ``use_insertmanyvalues=False``, as the guide advises."""
    own = new_engine(engine.dialect.name, engine.url, use_insertmanyvalues=False)
    with Session(own if write is flush else engine) as session, testing.fixed_ids(Item, *IDS):
        write(session, Item, ROWS)
        session.commit()

    assert stored(engine) == [0, 1, 2, 3, 4, 5]


@on("mysql", "mariadb")
@pytest.mark.parametrize("name", ["code", "unknown"])
def test_other_constraint(engine: Engine, storage: str, name: str) -> None:
    """A duplicate in another column raises the usual error, even for an index that the model lacks."""
    with engine.begin() as connection:
        connection.execute(text("CREATE UNIQUE INDEX uq_unknown ON item (number)"))
    second = {"code": {"number": 2, "code": "a"}, "unknown": {"number": 1, "code": "b"}}
    with Session(engine) as session, pytest.raises(IntegrityError, match=name):
        session.execute(insert(Item), [{"number": 1, "code": "a"}, second[name]])

    assert stored(engine) == [0, 1]


@on("mysql", "mariadb")
def test_user_who_may_not_read(new_engine: Callable[..., Engine], engine: Engine, storage: str) -> None:
    """The storage engine is detected even for a user who has only the INSERT privilege."""
    with user_with(engine, "INSERT", "item") as url:
        own = new_engine(engine.name, url)
        guard.install(own)
        with (
            own.begin() as connection,
            testing.fixed_ids(Item, *IDS),
            pytest.raises(ConfigurationError, match="rows before the collision stay"),
        ):
            connection.execute(insert(item).inline(), ROWS)

    assert stored(engine) == [0, 1, 2]


@on("mysql", "mariadb")
def test_temporary_table(engine: Engine) -> None:
    """The storage engine of a temporary table is detected, although no catalog lists the table."""
    guard.install(engine)
    with engine.connect() as connection:
        keys = "PRIMARY KEY (id), UNIQUE uq_item_public_id (public_id)"
        connection.execute(text(f"CREATE TEMPORARY TABLE item ({COLUMNS}, {keys}) ENGINE=MEMORY"))
        connection.execute(insert(item).values(public_id=TAKEN, number=0))
        with testing.fixed_ids(Item, *IDS), pytest.raises(ConfigurationError, match="MEMORY"):
            connection.execute(insert(item), ROWS)

        assert list(connection.scalars(select(item.c.number).order_by(item.c.id))) == [0, 1, 2]


@on("mysql", "mariadb")
def test_table_in_another_database(engine: Engine, database: str) -> None:
    """The storage engine is looked up for the table that the statement is sent to."""
    name = f"public_id_other_{os.getpid()}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    there = engine.execution_options(schema_translate_map={None: name})
    try:
        store(engine, "InnoDB")
        Base.metadata.create_all(there)
        with engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {name}.item ENGINE=MyISAM"))
            for schema in ("", f"{name}."):
                connection.execute(text(f"REPLACE INTO {schema}item (public_id, number) VALUES ('{TAKEN}', 0)"))
        for bind, refused in ((engine, False), (there, True), (engine, False)):
            with Session(bind) as session, testing.fixed_ids(Item, *IDS):
                with pytest.raises(ConfigurationError, match="MyISAM") if refused else nullcontext():
                    execute(session, Item, ROWS)
                session.rollback()
        assert stored(there) == [0, 1, 2]
    finally:
        Base.metadata.drop_all(engine)
        with engine.begin() as connection:
            connection.execute(text(f"DROP DATABASE {name}"))
