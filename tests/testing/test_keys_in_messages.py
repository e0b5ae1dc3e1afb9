"""What "Keys in errors and logs" in the guide to errors says of messages and logs, on each database and driver."""

from __future__ import annotations

import asyncio
import io
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, ForeignKey, MetaData, String, create_engine, delete, insert, select
from sqlalchemy.exc import DBAPIError, InvalidRequestError, SAWarning
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    Session,
    make_transient_to_detached,
    mapped_column,
)
from sqlmodel import Field, SQLModel

from sqlalchemy_public_id import PublicIdMixin
from sqlalchemy_public_id.testing import assert_no_keys_in

KEY, REFERENCE, THIRD = 777001, 777002, 777003


class Base(DeclarativeBase):
    metadata = MetaData()


class Skipper(PublicIdMixin, Base):
    __tablename__ = "message_skipper"


class Boat(PublicIdMixin, Base):
    __tablename__ = "message_boat"
    skipper_id: Mapped[int] = mapped_column(ForeignKey(Skipper.id), unique=True)
    name: Mapped[str] = mapped_column(String(5))


SKIPPERS = [{"id": REFERENCE, "public_id": "0" * 12}, {"id": THIRD, "public_id": "1" * 12}]
BOAT = {"id": KEY, "public_id": "2" * 12, "skipper_id": REFERENCE, "name": "Argo"}
STATEMENTS = {
    "key": insert(Skipper).values(SKIPPERS[0]),
    "reference": insert(Boat).values({**BOAT, "id": THIRD, "public_id": "3" * 12}),
    "too long": insert(Boat).values({**BOAT, "id": 9, "skipper_id": THIRD, "public_id": "4" * 12, "name": "x" * 9}),
    "referred to": delete(Skipper).where(Skipper.id == REFERENCE),
}
"""Statements that fail, the last two not on SQLite."""

# what the message of the driver says about keys; the parameters are hidden
REPEATED = {"postgresql": ["key", "reference", "referred to"], "mysql": ["key", "reference"], "sqlite": []}
REPEATED["mariadb"] = REPEATED["mysql"]


def rows() -> list[Any]:
    return [Boat(**BOAT), *(Skipper(**values) for values in SKIPPERS)]


def has_keys(text: str) -> bool:
    try:
        assert_no_keys_in(text, rows())
    except AssertionError:
        return True
    return False


@pytest.fixture
def hidden(engine: Engine, create: Callable[[MetaData], None]) -> Iterator[Engine]:
    """Yield an engine that hides parameters, in a database with a boat and two skippers."""
    create(Base.metadata)
    with engine.begin() as connection:
        connection.execute(insert(Skipper), SKIPPERS)
        connection.execute(insert(Boat), BOAT)
    hidden = create_engine(engine.url, hide_parameters=True)
    yield hidden
    hidden.dispose()


def fail(engine: Engine, name: str) -> DBAPIError | None:
    try:
        with engine.begin() as connection:
            connection.execute(STATEMENTS[name])
            connection.rollback()
    except DBAPIError as error:
        return error
    return None


@pytest.mark.backend
def test_messages(engine: Engine, hidden: Engine, database: str) -> None:
    """The parameters show keys unless they are hidden; PostgreSQL, MySQL and MariaDB repeat them in other words."""
    shown = {name: error for name in STATEMENTS if (error := fail(engine, name))}
    errors = {name: error for name in STATEMENTS if (error := fail(hidden, name))}

    assert list(errors) == list(shown) == list(STATEMENTS)[: 2 if database == "sqlite" else 4]
    assert all(has_keys(str(error)) for error in shown.values())
    assert [name for name, error in errors.items() if has_keys(str(error))] == REPEATED[database]
    assert all("[SQL parameters hidden" in str(error) for error in errors.values())
    assert all(error.statement is not None and not has_keys(error.statement) for error in errors.values())


@pytest.mark.backend
def test_a_stack_without_messages(engine: Engine, hidden: Engine) -> None:
    """The stack of an error, and the class of the driver's error, have no keys, where the traceback has some."""
    error = fail(engine, "key")
    assert error is not None

    assert has_keys("".join(traceback.format_exception(error)))
    assert not has_keys("".join(traceback.format_tb(error.__traceback__)) + type(error.orig).__name__)


@pytest.mark.backend
def test_messages_of_asynchronous_drivers(async_engine: Any) -> None:
    """Asynchronous drivers repeat keys as the others do; with SQLAlchemy 2.1, asyncpg only in its own traceback."""
    from sqlalchemy.ext.asyncio import create_async_engine

    database = async_engine.dialect.name

    async def story() -> tuple[list[str], list[str]]:
        hidden = create_async_engine(async_engine.url, hide_parameters=True)
        messages, tracebacks = [], []
        async with async_engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            await connection.execute(insert(Skipper), SKIPPERS)
            await connection.execute(insert(Boat), BOAT)
        try:
            for name, statement in list(STATEMENTS.items())[: 2 if database == "sqlite" else 4]:
                with pytest.raises(DBAPIError) as error:
                    async with hidden.begin() as connection:
                        await connection.execute(statement)
                messages += [name] if has_keys(str(error.value)) else []
                tracebacks += [name] if has_keys("".join(traceback.format_exception(error.value))) else []
        finally:
            await hidden.dispose()
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
        return messages, tracebacks

    messages, tracebacks = asyncio.run(story())
    is_silent = async_engine.driver == "asyncpg" and not sqlalchemy.__version__.startswith("2.0.")
    assert messages == ([] if is_silent else REPEATED[database])
    assert tracebacks == REPEATED[database]


@pytest.mark.parametrize(("is_hidden", "expected"), [(False, [True, True]), (True, [False, True])])
@pytest.mark.backend
def test_logs_of_the_engine(engine: Engine, hidden: Engine, is_hidden: bool, expected: list[bool]) -> None:
    """At INFO, the log of the engine has parameters unless they are hidden; at DEBUG, it has rows all the same."""
    logger, found = logging.getLogger("sqlalchemy.engine"), []
    for level in (logging.INFO, logging.DEBUG):
        written = io.StringIO()
        handler, before = logging.StreamHandler(written), logger.level
        logger.addHandler(handler)
        logger.setLevel(level)
        try:
            with Session(hidden if is_hidden else engine) as session:
                session.scalars(select(Boat).where(Boat.skipper_id == REFERENCE)).one()
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
        found.append(has_keys(written.getvalue()))

    assert found == expected


def test_identity_keys_in_messages(hidden: Engine) -> None:
    """SQLAlchemy's own warnings and errors about two objects of one row have its key."""
    with Session(hidden) as session:
        boat = session.get_one(Boat, KEY)
        other = Boat(id=KEY)
        make_transient_to_detached(other)
        with pytest.raises(InvalidRequestError) as error:
            session.add(other)
        session.add(Boat(**BOAT))
        with pytest.warns(SAWarning) as warned, pytest.raises(DBAPIError):
            session.flush()

    assert has_keys(str(error.value))
    assert any(has_keys(str(each.message)) for each in warned)
    assert not has_keys(repr(boat))


class DataclassBase(MappedAsDataclass, DeclarativeBase):
    metadata = MetaData()


class Oar(DataclassBase):
    __tablename__ = "message_oar"
    id: Mapped[int] = mapped_column(primary_key=True)


class Quiet(DataclassBase):
    __tablename__ = "message_quiet"
    id: Mapped[int] = mapped_column(primary_key=True, repr=False)


class Table(SQLModel, table=True):
    __tablename__ = "message_table"
    id: int | None = Field(default=None, primary_key=True)


class QuietTable(SQLModel, table=True):
    __tablename__ = "message_quiet_table"
    id: int | None = Field(default=None, primary_key=True, repr=False)


def test_representations() -> None:
    """The ``repr()`` of a dataclass and of a table of SQLModel has the key, unless its field says ``repr=False``."""
    shown = [str(KEY) in repr(model(id=KEY)) for model in (Oar, Quiet, Table, QuietTable)]

    assert shown == [True, False, True, False]
