"""What ``run_transaction`` makes of errors and of arguments, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sqlalchemy_public_id import ConfigurationError, guard
from sqlalchemy_public_id.asyncio import guard as asyncio_guard
from sqlalchemy_public_id.dialects import Outcome, Traits
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import CockroachDB, PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite
from sqlalchemy_public_id.online.run import can_be_retried
from sqlalchemy_public_id.transactions import Tries


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


def of_sqlite(message: str) -> OperationalError:
    return OperationalError("…", {}, Exception(message))


@pytest.fixture
def sessions() -> sessionmaker[Session]:
    return sessionmaker(create_engine("sqlite://"))


def test_pauses_have_a_limit(sessions: sessionmaker[Session]) -> None:
    """Pauses are between nothing and a limit, which doubles from 10 ms to one second."""
    limits = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1]
    tries = Tries(10, 30, False)
    with sessions() as session, tries.watching(session):
        pauses = [tries.pause_after(of_sqlite("database is locked")) for _ in range(10)]

    assert pauses[-1] is None
    assert all(pause is not None and 0 <= pause <= limit for pause, limit in zip(pauses, limits, strict=False))


def test_the_first_error_counts(sessions: sessionmaker[Session]) -> None:
    """An error behind another one, such as that of a savepoint that went with its transaction, is seen."""
    error = of_sqlite("no such savepoint")
    error.__context__ = of_sqlite("database is locked")
    tries = Tries(10, 30, False)
    with sessions() as session, tries.watching(session):
        assert tries.pause_after(error) is not None
        assert tries.pause_after(of_sqlite("no such savepoint")) is None


def nothing(session: Session) -> None: ...


async def nothing_async(session: Any) -> None: ...


REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "a scoped_session": (lambda: scoped_session(sessionmaker()), nothing, "session_factory"),
    "a session": (Session, nothing, "expected a sessionmaker"),
    "an async_sessionmaker": (async_sessionmaker, nothing, "asyncio.guard"),
    "an async function": (sessionmaker, nothing_async, "asyncio.guard"),
    "a function that answers a coroutine": (sessionmaker, lambda session: nothing_async(session), "asyncio.guard"),
    "a factory of something else": (lambda: dict, nothing, "makes a Session"),
}


@pytest.mark.parametrize(("make", "fn", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(make: Callable[[], Any], fn: Any, message: str) -> None:
    """What cannot be run again, or not here, is a TypeError that says what to give instead."""
    with pytest.raises(TypeError, match=message):
        guard.run_transaction(make(), fn)


def test_a_session_that_is_in_a_transaction(sessions: sessionmaker[Session]) -> None:
    """A factory that gives a session with a transaction is refused: its work would be committed or lost."""
    with sessions() as session:
        session.begin()
        with pytest.raises(ConfigurationError, match="in a transaction already"):
            guard.run_transaction(lambda: session, nothing)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"timeout": -1}, {"timeout": float("nan")}], ids=str)
def test_limits_that_allow_nothing(wrong: dict[str, Any], sessions: sessionmaker[Session]) -> None:
    """There is one attempt at least, and no negative time."""
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is "):
        guard.run_transaction(sessions, nothing, **wrong)


def test_the_twin_refuses_sessions_that_are_not_async(sessions: sessionmaker[Session]) -> None:
    """The asynchronous twin wants sessions that can be awaited, and new ones."""

    async def run(factory: Any) -> None:
        await asyncio_guard.run_transaction(factory, nothing_async)

    with pytest.raises(TypeError, match="makes an AsyncSession"):
        asyncio.run(run(sessions))
    with pytest.raises(TypeError, match="expected a sessionmaker"):
        asyncio.run(run(AsyncSession()))
