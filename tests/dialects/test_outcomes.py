"""What an error says of its transaction, without a server."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from sqlalchemy_public_id.dialects import Outcome, Traits
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import CockroachDB, PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite
from sqlalchemy_public_id.guard import is_retryable
from sqlalchemy_public_id.migrating.steps import can_be_retried


class WithState(Exception):
    """An error as PostgreSQL's drivers give it."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("…")
        self.sqlstate = sqlstate


RETRY = "Lock deadlock; Retry transaction"
PREVENTED = "The MySQL server is running with the {} option so it cannot execute this statement"
OUTCOMES: list[tuple[str, Traits, Exception, Outcome]] = [
    ("a deadlock", MySQL(), Exception(1213, "…"), Outcome.RETRYABLE),
    ("a lock timeout", MySQL(), Exception(1205, "…"), Outcome.RETRYABLE),
    ("a node that is not ready", MySQL(), Exception(1047, "…"), Outcome.RETRYABLE),
    ("an old snapshot of MariaDB", MySQL(), Exception(1020, "…"), Outcome.RETRYABLE),
    ("a write conflict of TiDB", MySQL(), Exception(9007, "…"), Outcome.RETRYABLE),
    ("a server that is gone", MySQL(), Exception(2006, "…"), Outcome.UNKNOWN),
    ("an error during commit", MySQL(), Exception(1180, "…"), Outcome.UNKNOWN),
    (
        "a lock lost in a commit",
        MySQL(),
        Exception(1180, f"Got error 149 - {RETRY!r} during COMMIT"),
        Outcome.RETRYABLE,
    ),
    ("the same in German", MySQL(), Exception(1180, f"Fehler 149 - {RETRY!r} beim COMMIT"), Outcome.RETRYABLE),
    ("the same of MariaDB", MySQL(), Exception(1180, f'Got error 149 "{RETRY}" during COMMIT'), Outcome.RETRYABLE),
    ("no device at a commit", MySQL(), Exception(1180, 'Got error 6 "… 149" during COMMIT'), Outcome.UNKNOWN),
    ("a longer number at a commit", MySQL(), Exception(1180, "Got error 1490 - '…' during COMMIT"), Outcome.UNKNOWN),
    ("a refused certification", MySQL(), Exception(3101, "…"), Outcome.RETRYABLE),
    ("a node that left the group in a commit", MySQL(), Exception(3100, "…"), Outcome.UNKNOWN),
    (
        "a node that has left the group",
        MySQL(),
        Exception(1290, PREVENTED.format("--super-read-only")),
        Outcome.RETRYABLE,
    ),
    ("a replica", MySQL(), Exception(1290, PREVENTED.format("--read-only")), Outcome.RETRYABLE),
    ("an option of the server", MySQL(), Exception(1290, PREVENTED.format("--secure-file-priv")), Outcome.FAILED),
    ("a node that recovers", MySQL(), Exception(3799, "…"), Outcome.RETRYABLE),
    ("a node that is behind", MySQL(), Exception(3797, "…"), Outcome.RETRYABLE),
    ("an offline server", MySQL(), Exception(3032, "…"), Outcome.UNKNOWN),
    ("a killed session", MySQL(), Exception(3169, "…"), Outcome.UNKNOWN),
    ("a group that cannot be begun", MySQL(), Exception(3092, "…"), Outcome.FAILED),
    ("a table without a key in a group", MySQL(), Exception(3098, "…"), Outcome.FAILED),
    ("a transaction that only reads", MySQL(), Exception(1792, "…"), Outcome.FAILED),
    ("a code without a text", MySQL(), Exception(1290), Outcome.FAILED),
    ("a duplicate of MySQL", MySQL(), Exception(1062, "…"), Outcome.FAILED),
    ("no code at all", MySQL(), Exception(), Outcome.FAILED),
    ("a serialization failure", PostgreSQL(), WithState("40001"), Outcome.RETRYABLE),
    ("a deadlock of PostgreSQL", PostgreSQL(), WithState("40P01"), Outcome.RETRYABLE),
    ("an administrator's command", PostgreSQL(), WithState("57P01"), Outcome.UNKNOWN),
    ("a lost connection of PostgreSQL", PostgreSQL(), WithState("08006"), Outcome.UNKNOWN),
    ("a duplicate of PostgreSQL", PostgreSQL(), WithState("23505"), Outcome.FAILED),
    ("a retry of CockroachDB", CockroachDB(), WithState("40001"), Outcome.RETRYABLE),
    ("an ambiguous commit of CockroachDB", CockroachDB(), WithState("40003"), Outcome.UNKNOWN),
    ("a busy file", SQLite(), Exception("database is locked"), Outcome.RETRYABLE),
    ("a duplicate of SQLite", SQLite(), Exception("UNIQUE constraint failed: t.c"), Outcome.FAILED),
    ("an unknown database", Traits(), WithState("40001"), Outcome.FAILED),
]


@pytest.mark.parametrize(
    ("traits", "error", "expected"), [each[1:] for each in OUTCOMES], ids=[each[0] for each in OUTCOMES]
)
def test_outcomes(traits: Traits, error: Exception, expected: Outcome) -> None:
    """Each database's traits tell from an error what became of the transaction."""
    assert traits.outcome(error) is expected


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (Exception(1205, "…"), True),
        (Exception(1213, "…"), True),
        (Exception(3101, "…"), True),
        (Exception(1180, f"Got error 149 - {RETRY!r} during COMMIT"), True),
        (Exception(1180, 'Got error 6 "…" during COMMIT'), False),
        (Exception(1290, PREVENTED.format("--read-only")), False),
        (Exception(1054, "…"), False),
    ],
    ids=str,
)
def test_steps_of_migrations(cause: Exception, expected: bool) -> None:
    """A step or a batch is tried again after locks and refused commits, and not on a server that is read-only."""
    assert can_be_retried(OperationalError("…", {}, cause), mysql.dialect()) is expected


class OfConnector(Exception):
    """An error of MariaDB Connector: the number is an attribute."""

    errno = 1213


class Error(Exception):
    """An error of MySQL Connector: the text in ``args`` begins with the number."""

    def __init__(self, msg: str, errno: int) -> None:
        super().__init__(errno, f"{errno} (HY000): {msg}", "HY000")
        self.msg, self.errno = msg, errno


CODES: list[tuple[str, Exception]] = [
    ("psycopg, asyncpg", WithState("40001")),
    ("pg8000", Exception({"S": "ERROR", "C": "40001", "M": "…"})),
    ("PyMySQL, mysqlclient, asyncmy", Exception(1213, "…")),
    ("MariaDB Connector", OfConnector("Deadlock found")),
    ("MariaDB Connector, 1180", type("Error", (Exception,), {"errno": 1180})(f"Got error 149 - {RETRY!r}")),
    ("MySQL Connector, 1180", Error(f"Got error 149 - {RETRY!r} during COMMIT", 1180)),
    ("sqlite3", Exception("database is locked")),
]


@pytest.mark.parametrize("cause", [each for _, each in CODES], ids=[name for name, _ in CODES])
def test_drivers(cause: Exception) -> None:
    """The code is found where each driver keeps it."""
    assert is_retryable(OperationalError("…", {}, cause))


OTHERS: list[tuple[str, BaseException]] = [
    ("an error that is not of a database", ValueError(1213)),
    ("a driver's error by itself", WithState("40001")),
    ("a duplicate", IntegrityError("…", {}, Exception(1062, "…"))),
    ("pg8000", ProgrammingError("…", {}, Exception({"C": "42P01"}))),
    ("a cause that is no exception", OperationalError("…", {}, KeyboardInterrupt())),
    ("no arguments", OperationalError("…", {}, Exception())),
    ("an interruption", KeyboardInterrupt()),
]


@pytest.mark.parametrize("error", [each for _, each in OTHERS], ids=[name for name, _ in OTHERS])
@pytest.mark.parametrize("idempotent", [False, True])
def test_other_errors(error: BaseException, idempotent: bool) -> None:
    """Whatever else was raised is no reason to run the transaction again."""
    assert not is_retryable(error, idempotent=idempotent)


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("COMMIT", {}, Exception(2013, "Lost connection"), connection_invalidated=True),
        OperationalError("COMMIT", {}, Exception("any driver"), connection_invalidated=True),
        OperationalError("COMMIT", {}, WithState("08006")),
        OperationalError("COMMIT", {}, Exception(1180, "Got error 6")),
    ],
    ids=str,
)
def test_unknown_outcome(error: OperationalError) -> None:
    """A transaction that may have been committed is run again only if that does no harm."""
    assert (is_retryable(error), is_retryable(error, idempotent=True)) == (False, True)


def test_hidden_error() -> None:
    """An error behind another one, such as that of a savepoint that went with its transaction, is seen."""
    error = OperationalError("…", {}, Exception("no such savepoint"))
    assert not is_retryable(error)
    error.__context__ = OperationalError("…", {}, Exception("database is locked"))
    assert is_retryable(error)
