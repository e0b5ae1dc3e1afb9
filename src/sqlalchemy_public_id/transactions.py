"""A whole transaction, run again where the database says that it has to be.

Two transactions that cannot both be right are a deadlock, a serialization failure, or a write set that the other nodes
of a cluster refuse. The database gives up one of them, and only its program can repeat it, from the beginning: what it
had read may be different now.

The pauses are "full jitter": a random time up to a limit that doubles (M. Brooker, *Exponential Backoff And Jitter*,
AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import inspect
import random
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, InvalidRequestError, SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session

from sqlalchemy_public_id.dialects import Outcome, Traits, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, shown

__all__ = ["Tries", "refuse_begun", "refuse_factory", "refuse_generator", "run_transaction"]

T = TypeVar("T")

_SHORTEST = 0.01
_LONGEST = 1.0
"""Seconds: the limit of the first pause, and of all later ones."""

_random = random.SystemRandom()  # one of our own: that of the program may be seeded
_COMMITS = ("commit", "commit_twophase")

_COMMITS_ITSELF = (
    "the function given to run_transaction() commits, so that it could not be run again as a whole; "
    "leave the commit to run_transaction()"
)


def run_transaction(
    sessions: Callable[[], Session],
    fn: Callable[[Session], T],
    *,
    attempts: int = 10,
    seconds: float = 30.0,
    idempotent: bool = False,
) -> T:
    """What *fn* returns, after its transaction was committed; run again as a whole where the database asks for it.

    >>> from sqlalchemy.orm import sessionmaker
    >>> from sqlalchemy_public_id import guard
    >>> def add(session):
    ...     session.add(User(public_id="8w0tnq3c5yzd", name="Grace"))
    ...     return "8w0tnq3c5yzd"
    >>> guard.run_transaction(sessionmaker(engine), add)
    '8w0tnq3c5yzd'

    Each attempt has a session of its own, which is committed and closed. Run again is after deadlocks, serialization
    failures, certification failures of Galera and group replication, nodes that are not ready, lock timeouts of MySQL
    and MariaDB (1205), a busy SQLite file, and connections that were lost before the COMMIT was sent. Every other
    error, and every exception of *fn*, goes through after a rollback.

    :param sessions: a ``sessionmaker``, or anything else that makes a new session when it is called.
    :param fn: does its work in the session that it is given, and neither commits nor closes it. It may be called more
        than once: what it does outside of the database is not undone.
    :param attempts: how often *fn* is called at most.
    :param seconds: after this time there is no further attempt.
    :param idempotent: says that *fn* may be run again after it was committed, because it notices
        (:func:`~sqlalchemy_public_id.idempotency.insert_once`). Then a connection that was lost during the COMMIT, so
        that nobody knows what became of it, is a reason to run it again, and an error otherwise.
    :raises sqlalchemy.exc.DBAPIError: the last one, as it is; what was tried is told before its message.
    :raises ConfigurationError: where *fn* commits, or *sessions* gives a session that is in a transaction already.
    :raises TypeError: where *sessions* or *fn* is asynchronous, *sessions* a ``scoped_session``, or *fn* a generator.
    """
    refuse_factory(sessions)
    refuse_generator(fn)
    if inspect.iscoroutinefunction(fn):
        _refuse_async("fn")
    tries = Tries(attempts, seconds, idempotent)
    while True:
        session = sessions()
        if not isinstance(session, Session):
            _refuse_session(session)
        refuse_begun(session)
        try:
            with session, tries.watching(session):
                try:
                    result = fn(session)
                    if inspect.iscoroutine(result):
                        result.close()
                        _refuse_async("fn")
                    tries.may_commit = True
                    session.commit()
                except BaseException as error:
                    with tries.undoing(error):
                        session.rollback()  # close() alone keeps open what a COMMIT could not end
                    raise
                return result
        except SQLAlchemyError as error:
            pause = tries.pause_after(error)
            if pause is None:
                raise
        time.sleep(pause)


class Tries:
    """The attempts of one transaction: what has been tried, and whether there is reason to try again."""

    def __init__(self, attempts: int, seconds: float, idempotent: bool) -> None:
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise ValueError(f"attempts is {shown(attempts)}, expected a whole number of 1 or more")
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds >= 0:
            raise ValueError(f"seconds is {shown(seconds)}, expected a number of 0 or more")
        self.may_commit = False
        """Whether *fn* has returned, so that the COMMIT is ours."""
        self._attempts = attempts
        self._seconds = seconds
        self._idempotent = idempotent
        self._begun = time.monotonic()
        self._errors: list[str] = []
        self._outside = sys.exc_info()[1]
        self._traits: list[Traits] = []
        self._commits = 0
        self._joined = False
        self._over = False

    @contextmanager
    def watching(self, session: Session) -> Generator[None]:
        """Watch one attempt: which databases *session* talks to, and whether a COMMIT was sent."""
        bind = session.bind
        self._traits = [traits_for(bind.dialect)] if bind is not None else []  # the connect may fail already
        self._joined = isinstance(bind, Connection) and bind.in_transaction()
        self._commits, self.may_commit = 0, False
        seen: list[Connection] = []

        def begun(session: Session, transaction: Any, connection: Connection) -> None:
            if connection in seen:  # a savepoint
                return
            self._refuse_autocommit(connection)
            seen.append(connection)
            self._traits.append(traits_for(connection.dialect))
            for name in _COMMITS:
                event.listen(connection, name, self._sending)
            event.listen(connection, "savepoint", _begin)

        event.listen(session, "after_begin", begun)
        event.listen(session, "before_commit", self._committing)
        try:
            yield
        finally:
            event.remove(session, "before_commit", self._committing)
            event.remove(session, "after_begin", begun)
            for connection in seen:
                for name in _COMMITS:
                    event.remove(connection, name, self._sending)
                event.remove(connection, "savepoint", _begin)

    @contextmanager
    def undoing(self, error: BaseException) -> Generator[None]:
        """Let no ROLLBACK that fails take the place of *error*, unless that is one of the database too."""
        try:
            yield
        except InvalidRequestError:
            self._over = True  # "in 'committed' state": a hook has failed, after the COMMIT
        except SQLAlchemyError:
            if not isinstance(error, SQLAlchemyError):
                return
            raise

    def pause_after(self, error: SQLAlchemyError) -> float | None:
        """How many seconds to wait before the next attempt, or ``None`` where *error* is the end."""
        if self._commits > 1:
            _tell(
                error,
                "the session writes to several databases, and one of them at least may have been committed; look "
                "before you run it again",
            )
            return None
        fate = self._fate(error)
        if fate is Outcome.UNKNOWN:
            if self._commits and not self._idempotent:
                _tell(
                    error,
                    "nobody knows how the COMMIT ended, so the transaction may have been committed or not; look, "
                    "or let run_transaction() do it again with idempotent=True if that does no harm",
                )
                return None
        elif fate is not Outcome.RETRYABLE:
            return None
        tried = len(self._errors) + 1
        spent = time.monotonic() - self._begun
        limit = min(_LONGEST, _SHORTEST * 2 ** min(len(self._errors), 10), self._seconds - spent)
        if tried < self._attempts and limit > 0:
            self._errors.append(str(getattr(error, "orig", None) or error).splitlines()[0])
            return _random.uniform(0, limit)
        before = f"; before it: {'; '.join(dict.fromkeys(self._errors))}" if self._errors else ""
        _tell(error, f"run_transaction() gave up after attempt {tried} of {self._attempts}, {spent:.1f} s{before}")
        return None

    def _fate(self, error: SQLAlchemyError) -> Outcome:
        """What became of the transaction that ended with *error*."""
        if self._joined or self._over:
            return Outcome.FAILED  # of someone else, or done
        fates: set[Outcome] = set()
        each: BaseException | None = error
        while each is not None and each is not self._outside:
            # the first error may be behind others: with the transaction, its savepoints are gone as well
            if isinstance(each, DBAPIError):
                fates.add(Outcome.UNKNOWN if each.connection_invalidated else Outcome.FAILED)
                fates.update(traits.outcome(each.orig) for traits in self._traits if isinstance(each.orig, Exception))
            each = each.__context__
        return next((fate for fate in (Outcome.UNKNOWN, Outcome.RETRYABLE) if fate in fates), Outcome.FAILED)

    def _committing(self, session: Session) -> None:
        if not self.may_commit and not session.in_nested_transaction():
            raise ConfigurationError(_COMMITS_ITSELF)

    def _sending(self, *_: Any) -> None:
        if not self.may_commit:
            raise ConfigurationError(_COMMITS_ITSELF)
        self._commits += 1

    def _refuse_autocommit(self, connection: Connection) -> None:
        driver = connection.connection.dbapi_connection
        options = connection.get_execution_options()
        if options.get("isolation_level") == "AUTOCOMMIT" or traits_for(connection.dialect).in_autocommit(driver):
            raise ConfigurationError(
                "run_transaction() cannot undo what AUTOCOMMIT has committed; use an engine without it"
            )


def _begin(connection: Connection, _: str) -> None:
    """Let no savepoint be the transaction itself on SQLite, whose driver says BEGIN only before it writes."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN")


def refuse_begun(session: Session) -> None:
    """Refuse a session with work of somebody else in it, before anything is done to it."""
    if session.in_transaction():
        raise ConfigurationError("the session is in a transaction already; return a new one from each call")


def refuse_generator(fn: object) -> None:
    """Refuse a function with ``yield``: a call of it does nothing."""
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{shown(fn)} is a generator function, so that calling it does nothing; write it without yield")


def refuse_factory(sessions: object) -> None:
    """Refuse what gives the same session each time."""
    if isinstance(sessions, scoped_session):
        raise TypeError("a scoped_session keeps its session; give run_transaction() its session_factory")
    if not callable(sessions):
        raise TypeError(f"expected a sessionmaker, or a function that makes a session, not {shown(sessions)}")


def _refuse_session(session: object) -> NoReturn:
    if hasattr(session, "sync_session"):
        _refuse_async("the session")
    raise TypeError(f"expected a function that makes a Session, but it made {shown(session)}")


def _refuse_async(what: str) -> NoReturn:
    raise TypeError(f"{what} is asynchronous; use run_transaction of sqlalchemy_public_id.asyncio.guard")


def _tell(error: SQLAlchemyError, what: str) -> None:
    if isinstance(error, DBAPIError):
        error.add_detail(what)
