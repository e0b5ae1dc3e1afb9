"""Run a whole transaction, and run it again if the database gave it up in favour of another one.

That is a deadlock, a serialization failure, or a write set that the other nodes of a cluster refuse. Only the
application can repeat the transaction, from the beginning: the rows that it had read may be different now. The
error codes of each database, and what they mean, are in :mod:`sqlalchemy_public_id.dialects`.

The pauses are "full jitter": a random time up to a limit that doubles (M. Brooker, *Exponential Backoff And Jitter*,
AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import inspect
import random
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, TypeVar

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, InvalidRequestError, SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session

from sqlalchemy_public_id.dialects import Outcome, Traits, is_autocommit, traits_for
from sqlalchemy_public_id.dialects.sqlite import begin
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr

T = TypeVar("T")

_SHORTEST = 0.01
_LONGEST = 1.0
"""Seconds: the limit of the first pause, and of all later ones."""

_random = random.SystemRandom()  # the generator of the random module may be seeded
_COMMITS = ("commit", "commit_twophase")

_COMMITS_ITSELF = (
    "the function given to run_transaction() commits, so that it could not be run again as a whole; "
    "leave the commit to run_transaction()"
)


def run_transaction(
    session_factory: Callable[[], Session],
    fn: Callable[[Session], T],
    *,
    attempts: int = 10,
    timeout: float = 30.0,
    idempotent: bool = False,
) -> T:
    """Call *fn* in a transaction, commit it, and return the result. Retry the whole if the database gives it up.

    >>> from sqlalchemy.orm import sessionmaker
    >>> from sqlalchemy_public_id import guard
    >>> def add(session):
    ...     session.add(User(public_id="8w0tnq3c5yzd", name="Grace"))
    ...     return "8w0tnq3c5yzd"
    >>> guard.run_transaction(sessionmaker(engine), add)
    '8w0tnq3c5yzd'

    Each attempt has a new session, which is committed and closed. Retried are deadlocks, serialization failures,
    certification failures of Galera and group replication, nodes that are not ready, lock timeouts of MySQL and MariaDB
    (1205), a busy SQLite file, and connections that were lost before the COMMIT was sent. Every other error, and every
    exception of *fn*, is raised after a rollback.

    :param session_factory: a ``sessionmaker``, or another callable that returns a new session.
    :param fn: takes the session, and neither commits nor closes it. It may be called more than once: its effects
        outside of the database are not undone.
    :param attempts: the maximum number of calls of *fn*.
    :param timeout: no attempt begins after this number of seconds.
    :param idempotent: *fn* may be run again after it was committed, because it looks for its own rows
        (:func:`~sqlalchemy_public_id.idempotency.insert_once`). Then it is retried even if the connection was lost
        during the COMMIT, whose outcome is unknown; otherwise that is an error.
    :raises sqlalchemy.exc.DBAPIError: the last one; the attempts are described before its message.
    :raises ConfigurationError: if *fn* commits, or the session is in a transaction already.
    :raises TypeError: if *session_factory* or *fn* is asynchronous, *session_factory* is a ``scoped_session``, or *fn*
        is a generator function.
    """
    refuse_factory(session_factory)
    refuse_generator(fn)
    if inspect.iscoroutinefunction(fn):
        _refuse_async("fn")
    tries = Tries(attempts, timeout, idempotent)
    while True:
        session = session_factory()
        if not isinstance(session, Session):
            if hasattr(session, "sync_session"):
                _refuse_async("the session")
            raise TypeError(f"expected a function that makes a Session, but it made {safe_repr(session)}")
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
                        session.rollback()  # close() alone keeps a transaction open whose COMMIT failed
                    raise
                return result
        except SQLAlchemyError as error:
            pause = tries.pause_after(error)
            if pause is None:
                raise
        time.sleep(pause)


class Tries:
    """The attempts of one transaction: watches each one, and decides on the next one."""

    def __init__(self, attempts: int, timeout: float, idempotent: bool) -> None:
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise ValueError(f"attempts is {safe_repr(attempts)}, expected a whole number of 1 or more")
        if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not timeout >= 0:
            raise ValueError(f"timeout is {safe_repr(timeout)}, expected a number of 0 or more")
        self.may_commit: bool = False
        """True if *fn* has returned; a COMMIT before is one of *fn*."""
        self._attempts = attempts
        self._timeout = timeout
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
        """Watch one attempt: note the databases that *session* connects to, and count its COMMITs."""
        bind = session.bind
        self._traits = [traits_for(bind.dialect)] if bind is not None else []  # the connect may fail already
        self._joined = isinstance(bind, Connection) and bind.in_transaction()
        self._commits, self.may_commit = 0, False
        connections: list[Connection] = []
        with ExitStack() as stack:

            def listen(target: Session | Connection, name: str, listener: Callable[..., None]) -> None:
                event.listen(target, name, listener)
                stack.callback(event.remove, target, name, listener)

            def after_begin(session: Session, transaction: Any, connection: Connection) -> None:
                if connection in connections:  # a savepoint
                    return
                if is_autocommit(connection):
                    raise ConfigurationError(
                        "run_transaction() cannot undo what AUTOCOMMIT has committed; use an engine without it"
                    )
                connections.append(connection)
                self._traits.append(traits_for(connection.dialect))
                for name in _COMMITS:
                    listen(connection, name, self._on_commit)
                listen(connection, "savepoint", _begin)

            listen(session, "after_begin", after_begin)
            listen(session, "before_commit", self._before_commit)
            yield

    @contextmanager
    def undoing(self, error: BaseException) -> Generator[None]:
        """Keep *error* if the ROLLBACK fails, unless both are errors of the database."""
        try:
            yield
        except InvalidRequestError:
            self._over = True  # "in 'committed' state": a hook has failed, after the COMMIT
        except SQLAlchemyError:
            if not isinstance(error, SQLAlchemyError):
                return
            raise

    def pause_after(self, error: SQLAlchemyError) -> float | None:
        """Return the seconds to wait before the next attempt, or None if *error* has to be raised."""
        if self._commits > 1:
            _add_detail(
                error,
                "the session writes to several databases, and one of them at least may have been committed; look "
                "before you run it again",
            )
            return None
        fate = self._fate(error)
        if fate is Outcome.UNKNOWN:
            if self._commits and not self._idempotent:
                _add_detail(
                    error,
                    "the connection was lost during the COMMIT, so the transaction may have been committed or not; "
                    "look for its rows, or pass idempotent=True if it may be run again",
                )
                return None
        elif fate is not Outcome.RETRYABLE:
            return None
        tried = len(self._errors) + 1
        spent = time.monotonic() - self._begun
        limit = min(_LONGEST, _SHORTEST * 2 ** min(len(self._errors), 10), self._timeout - spent)
        if tried < self._attempts and limit > 0:
            self._errors.append(str(getattr(error, "orig", None) or error).splitlines()[0])
            return _random.uniform(0, limit)
        before = f"; before it: {'; '.join(dict.fromkeys(self._errors))}" if self._errors else ""
        _add_detail(
            error, f"run_transaction() gave up after attempt {tried} of {self._attempts}, {spent:.1f} s{before}"
        )
        return None

    def _fate(self, error: SQLAlchemyError) -> Outcome:
        if self._joined or self._over:
            return Outcome.FAILED  # it is part of the caller's transaction, or committed
        fates: set[Outcome] = set()
        cause: BaseException | None = error
        # The error of the database may be the context of another one: a deadlock ends the savepoints, too, so that the
        # ROLLBACK TO SAVEPOINT of a "with session.begin_nested()" fails after it.
        while cause is not None and cause is not self._outside:
            if isinstance(cause, DBAPIError):
                fates.add(Outcome.UNKNOWN if cause.connection_invalidated else Outcome.FAILED)
                fates.update(traits.outcome(cause.orig) for traits in self._traits if isinstance(cause.orig, Exception))
            cause = cause.__context__
        return next((fate for fate in (Outcome.UNKNOWN, Outcome.RETRYABLE) if fate in fates), Outcome.FAILED)

    def _before_commit(self, session: Session) -> None:
        if not self.may_commit and not session.in_nested_transaction():
            raise ConfigurationError(_COMMITS_ITSELF)

    def _on_commit(self, *_: Any) -> None:
        if not self.may_commit:
            raise ConfigurationError(_COMMITS_ITSELF)
        self._commits += 1


def _begin(connection: Connection, _: str) -> None:
    begin(connection)


def refuse_begun(session: Session) -> None:
    """Refuse a session that is in a transaction, before anything is done to it."""
    if session.in_transaction():
        raise ConfigurationError("the session is in a transaction already; return a new one from each call")


def refuse_generator(fn: object) -> None:
    """Refuse a function with ``yield``: a call of it does nothing."""
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"{safe_repr(fn)} is a generator function, so that calling it does nothing; write it without yield"
        )


def refuse_factory(session_factory: object) -> None:
    """Refuse a factory that returns the same session each time."""
    if isinstance(session_factory, scoped_session):
        raise TypeError("a scoped_session keeps its session; give run_transaction() its session_factory")
    if not callable(session_factory):
        raise TypeError(
            f"expected a sessionmaker, or a function that makes a session, not {safe_repr(session_factory)}"
        )


def _refuse_async(what: str) -> NoReturn:
    raise TypeError(f"{what} is asynchronous; use run_transaction of sqlalchemy_public_id.asyncio.guard")


def _add_detail(error: SQLAlchemyError, detail: str) -> None:
    if isinstance(error, DBAPIError):
        error.add_detail(detail)
