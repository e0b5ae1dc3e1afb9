"""Drivers that the library does not name: a collision is retried, and values are stored as SQLAlchemy stores them.

pg8000 is installed with the tests. ``pip install mariadb mysqlclient mysql-connector-python psycopg2-binary
sqlalchemy-libsql libsql-experimental`` adds the others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, func, insert, select
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool
from support import ways
from support.marks import on
from support.members import A, Base, User
from support.rows import agree

from conftest import url_of
from sqlalchemy_public_id import ConfigurationError, guard, testing

pytestmark = pytest.mark.backend

Create = Callable[[MetaData], None]


WAYS = [ways.flush_one_by_one, ways.flush, ways.execute, ways.execute_values, ways.insert_in_bulk]


@pytest.mark.parametrize(
    ("module", "driver", "write", "database"),
    [
        pytest.param(module, driver, write, database, id=f"{driver}-{write.__name__}-{database}")
        for module, driver, databases in (
            ("pg8000", "pg8000", ["postgresql"]),
            ("mariadb", "mariadbconnector", ["mariadb"]),
            ("MySQLdb", "mysqldb", ["mysql", "mariadb"]),
            ("mysql.connector", "mysqlconnector", ["mysql", "mariadb"]),
            ("psycopg2", "psycopg2", ["postgresql"]),
        )
        for write in WAYS
        for database in databases
    ],
    indirect=["database"],
)
def test_collisions(
    database: str,
    create: Create,
    new_engine: Callable[..., Engine],
    module: str,
    driver: str,
    write: ways.Way,
) -> None:
    """A collision is retried, whichever driver reports it."""
    pytest.importorskip(module)
    create(Base.metadata)
    with Session(new_engine(database, url_of(database, driver))) as session:
        ways.flush(session, User, [{"name": "first", "public_id": A}])
        with testing.collisions(User, A, times=2):
            write(session, User, [{"name": "new"}] * 3)

        agree(session, list(session.scalars(select(User))))


@on("postgresql")
def test_text_that_is_null_in_an_array(database: str, create: Create, new_engine: Callable[..., Engine]) -> None:
    """The text 'null' is stored as text by a flush of many objects, through pg8000 too."""
    pytest.importorskip("pg8000")
    create(Base.metadata)
    with Session(new_engine(database, url_of(database, "pg8000"))) as session:
        ways.flush(session, User, [{"name": "null"}] * 25)

        assert session.scalar(select(func.count(User.name))) == 25


@on("postgresql")
def test_driver_that_does_not_count(database: str, create: Create, new_engine: Callable[..., Engine]) -> None:
    """Rows that PostgreSQL may have skipped raise an error if the driver does not count the stored rows."""
    psycopg = pytest.importorskip("psycopg")
    uncounted = type("Uncounted", (psycopg.Cursor,), {"rowcount": -1})
    create(Base.metadata)
    with (
        Session(new_engine(database, url_of(database), connect_args={"cursor_factory": uncounted})) as session,
        pytest.raises(ConfigurationError, match=r"counts -1 rows .* of 1, .* call guard\.uninstall"),
    ):
        ways.flush(session, User, [{}])


class NoClasses(SQLiteDialect_pysqlite):
    """A dialect whose driver has a single class of errors, like libsql."""

    supports_statement_cache = True
    driver = "no_classes"

    @classmethod
    def import_dbapi(cls) -> Any:
        return SimpleNamespace(**{name: value for name, value in vars(sqlite3).items() if name != "IntegrityError"})


class NoNumbers(MySQLDialect_pymysql):
    """A dialect whose driver does not expose the number of an error."""

    supports_statement_cache = True
    driver = "no_numbers"

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        try:
            super().do_execute(cursor, statement, parameters, context)
        except self.loaded_dbapi.IntegrityError as error:
            raise self.loaded_dbapi.IntegrityError(str(error.args[1])) from None


registry.register("sqlite.no_classes", __name__, "NoClasses")
registry.register("mysql.no_numbers", __name__, "NoNumbers")


@pytest.mark.parametrize(
    ("driver", "database", "missing"),
    [
        ("no_classes", "sqlite", "the driver no_classes has no IntegrityError"),
        ("no_numbers", "mysql", "the driver no_numbers reports no number with the error"),
    ],
    indirect=["database"],
)
def test_warning(
    database: str,
    create: Create,
    new_engine: Callable[..., Engine],
    driver: str,
    missing: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A driver with which collisions cannot be retried logs a warning, once, that says what is missing."""
    create(Base.metadata)
    engine = new_engine(database, url_of(database, driver))
    if database == "sqlite":  # a new file, without tables
        Base.metadata.create_all(engine)
    for _ in range(2):
        with Session(engine) as session:
            ways.flush(session, User, [{"name": "first", "public_id": A}])
            with testing.collisions(User, A), pytest.raises(DBAPIError):
                ways.flush(session, User, [{}])

    [warning] = [record for record in caplog.records if record.name == "sqlalchemy_public_id"]
    assert f" because {missing}; " in warning.getMessage()


@on("sqlite")
def test_module_without_an_integrity_error(database: str) -> None:
    """A violation is raised as the driver reports it, if the module of the driver has no IntegrityError."""
    pytest.importorskip("sqlalchemy_libsql")
    engine = create_engine("sqlite+libsql://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    raised = []
    for switch in (guard.uninstall, guard.install):
        switch(engine)
        with engine.connect() as connection, pytest.raises(Exception, match="UNIQUE") as error:
            connection.execute(insert(User.__table__).values([{"public_id": A}, {"public_id": A}]))
        raised.append(type(error.value))

    assert [raised[0]] * 2 == raised
