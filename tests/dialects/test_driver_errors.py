"""What errors of drivers say, without a server: the outcome of the transaction, a duplicate, missing rights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError

from sqlalchemy_public_id.dialects import Outcome, Traits, Violation
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import CockroachDB, OtherPostgreSQL, PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite
from sqlalchemy_public_id.guard import is_retryable
from sqlalchemy_public_id.migrations.steps import can_be_retried


class OfPsycopg(Exception):
    """An error as psycopg reports it."""

    def __init__(self, sqlstate: str, detail: str | None = None) -> None:
        super().__init__(sqlstate, detail)
        self.sqlstate = sqlstate
        self.diag = SimpleNamespace(constraint_name="uq_user_public_id", message_detail=detail)


def of_psycopg_alone(message: str) -> Exception:
    """Return an error that psycopg raises by itself, without an answer of the server."""
    return type("OperationalError", (Exception,), {"sqlstate": None, "pgresult": None, "pgconn": None})(message)


def of_mysql(code: int, message: str = "…") -> Exception:
    """Return an error of PyMySQL, mysqlclient and asyncmy."""
    return Exception(code, message)


def of_mariadb_connector(code: int, message: str) -> Exception:
    """Return an error of MariaDB Connector, which has the number as an attribute."""
    return type("OfMariaDBConnector", (Exception,), {"errno": code})(message)


def of_mysql_connector(code: int, message: str) -> Exception:
    """Return an error of MySQL Connector, with a text in ``args`` that begins with the number."""
    made = type("OfMySQLConnector", (Exception,), {"errno": code, "msg": message})
    error: Exception = made(code, f"{code} (HY000): {message}", "HY000")
    return error


# --- the outcome of the transaction

RETRY = "Lock deadlock; Retry transaction"
LOST_LOCK = f"Got error 149 - {RETRY!r} during COMMIT"
PREVENTED = "The MySQL server is running with the {} option so it cannot execute this statement"
OUTCOMES: list[tuple[Traits, Exception, Outcome]] = [
    *(
        (MySQL(), of_mysql(code), Outcome.RETRYABLE)
        for code in (
            *(1020, 1047, 1205, 1213),  # an old snapshot of MariaDB, a node that is not ready, a lock, a deadlock
            *(3101, 3797, 3799),  # a refused certification, a node that is behind, one that recovers
            9007,  # a write conflict of TiDB
        )
    ),
    (MySQL(), of_mysql(1180, LOST_LOCK), Outcome.RETRYABLE),
    (MySQL(), of_mysql(1180, f"Fehler 149 - {RETRY!r} beim COMMIT"), Outcome.RETRYABLE),
    (MySQL(), of_mysql(1180, f'Got error 149 "{RETRY}" during COMMIT'), Outcome.RETRYABLE),
    (MySQL(), of_mysql(1290, PREVENTED.format("--super-read-only")), Outcome.RETRYABLE),
    (MySQL(), of_mysql(1290, PREVENTED.format("--read-only")), Outcome.RETRYABLE),
    *(
        (MySQL(), of_mysql(code), Outcome.UNKNOWN)
        for code in (2006, 1180, 3100, 3032, 3169, 1927)  # gone, a failed commit, left the group, offline, killed
    ),
    (MySQL(), of_mysql(1180, 'Got error 6 "… 149" during COMMIT'), Outcome.UNKNOWN),
    (MySQL(), of_mysql(1180, "Got error 1490 - '…' during COMMIT"), Outcome.UNKNOWN),
    *(
        (MySQL(), of_mysql(code), Outcome.FAILED)
        for code in (3092, 3098, 1792, 1062)  # no group, a table without a key, only reads, a duplicate
    ),
    (MySQL(), of_mysql(1290, PREVENTED.format("--secure-file-priv")), Outcome.FAILED),
    (MySQL(), Exception(1290), Outcome.FAILED),
    (MySQL(), Exception(), Outcome.FAILED),
    (PostgreSQL(), OfPsycopg("40001"), Outcome.RETRYABLE),
    (PostgreSQL(), OfPsycopg("40P01"), Outcome.RETRYABLE),
    (PostgreSQL(), OfPsycopg("57P01"), Outcome.UNKNOWN),
    (PostgreSQL(), OfPsycopg("08006"), Outcome.UNKNOWN),
    (PostgreSQL(), of_psycopg_alone("connection socket closed"), Outcome.UNKNOWN),
    (PostgreSQL(), OfPsycopg("23505"), Outcome.FAILED),
    (CockroachDB(), OfPsycopg("40001"), Outcome.RETRYABLE),
    (CockroachDB(), OfPsycopg("40003"), Outcome.UNKNOWN),
    (SQLite(), Exception("database is locked"), Outcome.RETRYABLE),
    (SQLite(), Exception("UNIQUE constraint failed: t.c"), Outcome.FAILED),
    (Traits(), OfPsycopg("40001"), Outcome.FAILED),
]


@pytest.mark.parametrize(
    ("traits", "error", "expected"),
    OUTCOMES,
    ids=[f"{type(traits).__name__} {error.args}" for traits, error, _ in OUTCOMES],
)
def test_outcomes(traits: Traits, error: Exception, expected: Outcome) -> None:
    """The traits of each database derive the outcome of the transaction from the error."""
    assert traits.outcome(error) is expected


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (of_mysql(1205), True),
        (of_mysql(1213), True),
        (of_mysql(3101), True),
        (of_mysql(1180, LOST_LOCK), True),
        (of_mysql(1180, 'Got error 6 "…" during COMMIT'), False),
        (of_mysql(1290, PREVENTED.format("--read-only")), False),
        (of_mysql(1054), False),
    ],
    ids=str,
)
def test_steps_of_migrations(cause: Exception, expected: bool) -> None:
    """A step or a batch is tried again after lock errors and refused commits, but not on a read-only server."""
    assert can_be_retried(OperationalError("…", {}, cause), mysql.dialect()) is expected


CODES = {
    "psycopg, asyncpg": OfPsycopg("40001"),
    "psycopg2": type("OfPsycopg2", (Exception,), {"pgcode": "40001"})(),
    "pg8000": Exception({"S": "ERROR", "C": "40001", "M": "…"}),
    "PyMySQL, mysqlclient, asyncmy": of_mysql(1213),
    "MariaDB Connector": of_mariadb_connector(1213, "Deadlock found"),
    "MariaDB Connector, 1180": of_mariadb_connector(1180, f"Got error 149 - {RETRY!r}"),
    "MySQL Connector, 1180": of_mysql_connector(1180, LOST_LOCK),
    "sqlite3": Exception("database is locked"),
}


@pytest.mark.parametrize("cause", CODES.values(), ids=CODES)
def test_drivers(cause: Exception) -> None:
    """The error code is found where each driver keeps it."""
    assert is_retryable(OperationalError("…", {}, cause))


OTHERS: dict[str, BaseException] = {
    "an error that is not of a database": ValueError(1213),
    "a driver's error by itself": OfPsycopg("40001"),
    "a duplicate": IntegrityError("…", {}, of_mysql(1062)),
    "pg8000": ProgrammingError("…", {}, Exception({"C": "42P01"})),
    "a cause that is no exception": OperationalError("…", {}, KeyboardInterrupt()),
    "no arguments": OperationalError("…", {}, Exception()),
    "an interruption": KeyboardInterrupt(),
}


@pytest.mark.parametrize("error", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_other_errors(error: BaseException, idempotent: bool) -> None:
    """Any other error is no reason to run the transaction again."""
    assert not is_retryable(error, idempotent=idempotent)


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("COMMIT", {}, Exception("any driver"), connection_invalidated=True),
        OperationalError("COMMIT", {}, OfPsycopg("08006")),
        OperationalError("COMMIT", {}, of_mysql(1180, "Got error 6")),
    ],
    ids=str,
)
def test_unknown_outcome(error: OperationalError) -> None:
    """A transaction that may have been committed is run again only if it is idempotent."""
    assert (is_retryable(error), is_retryable(error, idempotent=True)) == (False, True)


def test_hidden_error() -> None:
    """An error that another one hides, such as that of a lost savepoint, is found."""
    error = OperationalError("…", {}, Exception("no such savepoint"))
    assert not is_retryable(error)
    error.__context__ = OperationalError("…", {}, Exception("database is locked"))
    assert is_retryable(error)


# --- a refused duplicate


@pytest.mark.parametrize(
    ("detail", "entry"),
    [
        ("Key (public_id)=(a1b2c3) already exists.", ("public_id", "a1b2c3")),
        ("Schlüssel »(public_id)=(a1b2c3)« existiert bereits.", ("public_id", "a1b2c3")),
        ('Key ("The ""code"", (short)")=(a1b2c3) already exists.', ('The "code", (short)', "a1b2c3")),
        ("Key (public_id)=(a)b(c) already exists.", ("public_id", "a)b(c")),
        ("Key (public_id)=(a\nb) already exists.", ("public_id", "a\nb")),
        ("Key (public_id)=() already exists.", ("public_id", "")),
        ("Key (tenant, public_id)=(me, a1b2c3) already exists.", None),
        ("Key (lower(public_id::text))=(a1b2c3) already exists.", None),
        ("Key (public_id)=(a)=(b) already exists.", None),
        (None, None),
    ],
)
def test_entry_of_postgresql(detail: str | None, entry: tuple[str, str] | None) -> None:
    """Column and value are read from the detail in any language, unless the detail is ambiguous."""
    of_pg8000 = Exception({"C": "23505", "n": "uq_user_public_id", "D": detail})
    # SQLAlchemy's adapter wraps asyncpg's own error, which has the detail
    of_asyncpg = type("OfAdapter", (Exception,), {"sqlstate": "23505"})()
    names = {"constraint_name": "uq_user_public_id", "detail": detail}
    of_asyncpg.__cause__ = type("OfAsyncpg", (Exception,), names)()
    found = [PostgreSQL().violation(error) for error in (OfPsycopg("23505", detail), of_pg8000, of_asyncpg)]

    assert [each and (each.constraint, each.entry) for each in found] == [("uq_user_public_id", entry)] * 3


@pytest.mark.parametrize("make", [of_mysql, of_mariadb_connector, of_mysql_connector])
def test_index_of_mysql(make: Any) -> None:
    """The name of the index is read from the message, wherever the driver keeps it."""
    violation = MySQL().violation(make(1062, "Duplicate entry 'a1b2c3' for key 'user.uq_user_public_id'"))

    assert violation is not None
    assert violation.constraint == "user.uq_user_public_id"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("UNIQUE constraint failed: user.public_id", Violation(columns="user.public_id")),
        ("UNIQUE constraint failed: a.b, a.c", Violation(columns="a.b, a.c")),
        ("UNIQUE constraint failed: index 'uq_lower'", Violation(constraint="uq_lower")),
        ("UNIQUE constraint failed: index 'it's one'", Violation(constraint="it's one")),
        ("NOT NULL constraint failed: user.public_id", None),
    ],
)
def test_violation_of_sqlite(message: str, expected: Violation | None) -> None:
    """The columns are read from the message, or the name of an index on an expression, whatever its letters."""
    assert SQLite().violation(Exception(message)) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Duplicate entry 'a' for key 'user.it's one'", "user.it's one"),
        ("Duplicate entry 'a for key 'b'' for key 'uq'", "uq"),
        ("Duplicate entry 'a\nb' for key 'u\nq'", "u\nq"),
        ("Duplicate entry", None),
    ],
)
def test_strange_names_of_mysql(message: str, expected: str | None) -> None:
    """The name of an index is the last one in the message, whatever letters it and the refused value have."""
    assert MySQL().violation(of_mysql(1062, message)) == Violation(constraint=expected)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        *((name, True) for name in ("READ COMMITTED", "READ_COMMITTED", "read_committed", "read_uncommitted", 1, 4)),
        *((name, False) for name in ("REPEATABLE READ", "REPEATABLE_READ", "repeatable_read", "serializable", 2, 3)),
    ],
)
@pytest.mark.parametrize("of", ["the connection", "its driver", "the server"])
def test_isolation_of_postgresql(level: Any, expected: bool, of: str) -> None:
    """Whether others' commits are seen depends on the isolation level, whose name each driver spells in its way."""
    driver = SimpleNamespace(isolation_level=level if of == "its driver" else None)
    connection = SimpleNamespace(driver_connection=driver, isolation_level=level if of == "the connection" else None)
    other = "REPEATABLE READ" if expected else "READ COMMITTED"
    dialect: Any = SimpleNamespace(default_isolation_level=level if of == "the server" else other)

    assert PostgreSQL().sees_commits(connection, dialect) is expected
    assert OtherPostgreSQL().sees_commits(connection, dialect) is False


@pytest.mark.parametrize(
    ("level", "autocommit", "begun", "expected"),
    [
        (None, -1, False, True),
        (None, -1, True, False),
        ("", True, False, True),
        ("", True, True, False),
        ("", False, False, False),
        ("DEFERRED", -1, False, False),
        ("", None, False, False),
    ],
)
def test_autocommit_of_sqlite(level: str | None, autocommit: Any, begun: bool, expected: bool) -> None:
    """SQLite's driver commits each statement by either of two settings, unless the program has begun a transaction."""
    driver = SimpleNamespace(isolation_level=level, in_transaction=begun)
    if autocommit is not None:  # which Python has since 3.12
        driver.autocommit = autocommit

    assert SQLite().in_autocommit(driver) is expected
    assert SQLite().in_autocommit(SimpleNamespace(driver_connection=driver)) is expected  # of aiosqlite


def test_another_error_is_no_violation() -> None:
    """A violation of a foreign key is no duplicate, whatever its detail looks like."""
    assert PostgreSQL().violation(OfPsycopg("23503", "Key (user_id)=(7) is not present.")) is None
    assert MySQL().violation(of_mysql(1452, "a foreign key constraint fails")) is None


# --- missing rights


@pytest.mark.parametrize(
    ("traits", "error", "expected"),
    [
        (PostgreSQL(), OfPsycopg("42501"), True),
        (PostgreSQL(), OfPsycopg("23505"), False),
        (PostgreSQL(), None, False),
        (MySQL(), of_mysql(1142, "SELECT command denied to user"), True),
        (MySQL(), of_mysql(1213), False),
        (MySQL(), Exception(), False),
        (MySQL(), None, False),
    ],
)
def test_missing_rights(traits: Traits, error: Exception | None, expected: bool) -> None:
    """A missing right is distinguished from other errors, unless the connection was lost with it."""
    wrapped: list[DBAPIError] = [DBAPIError("", {}, error, connection_invalidated=lost) for lost in (False, True)]

    assert [traits.is_permission_error(each) for each in wrapped] == [expected, False]
