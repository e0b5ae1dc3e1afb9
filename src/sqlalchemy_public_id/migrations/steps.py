"""Run each step in its own transaction with a short lock timeout, and retry if the lock was not acquired.

While a statement waits for a strong lock, all other users of the table queue behind it. So the wait ends after
``lock_timeout``, the others proceed, and the step is tried again after a pause. Pauses grow, and are random, so that
two processes do not collide again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import DBAPIError
from typing_extensions import TypeVar

from sqlalchemy_public_id.dialects import Outcome, begin_to_write, traits_for
from sqlalchemy_public_id.errors import LockNotAvailable, Obstacle
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.plan import Lock, Migration, Step
from sqlalchemy_public_id.migrations.session import MigrationSession, send
from sqlalchemy_public_id.migrations.state import State
from sqlalchemy_public_id.migrations.table import LiveTable

Result = TypeVar("Result")

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrations")


class Runner:
    """Runs steps on *table*, and knows the state of its column until a step changes it.

    :param session: for a connection in AUTOCOMMIT mode; without it, the steps run inside the open transaction.
    """

    def __init__(self, table: LiveTable, session: MigrationSession | None = None) -> None:
        self.table: LiveTable = table
        self.session: MigrationSession | None = session
        self.target: PublicIdColumn = table.target
        self.connection: Connection = table.connection
        self._known: State | None = None

    @property
    def state(self) -> State:
        """The state of the column; it is read if a step has run since the last time."""
        self._known = self._known or self.table.read_state()
        return self._known

    def forget(self) -> None:
        """Discard the state, which may have changed, so that it is read again when it is needed."""
        self._known = None

    def run(self, steps: Sequence[Step]) -> None:
        """Run the *steps* that are still needed.

        :raises LockNotAvailable: if others keep the table locked.
        """
        for step in steps:
            if self.session is not None:
                self._run_alone(step, self.session)
            elif step.statements(self.state):
                log.info("%s: %s", self.target, step.name)
                begin_to_write(self.connection)  # the driver of SQLite begins no transaction for DDL
                self._execute(step)

    def _run_alone(self, step: Step, session: MigrationSession) -> None:
        timeout = session.timeout_of(step, self.state)
        is_announced = False

        def attempt() -> None:
            nonlocal is_announced
            if not step.statements(self.state):
                return
            if not is_announced:
                log.info("%s: %s", self.target, step.name)
                is_announced = True
            if step.lock is Lock.BUILD and self.state.builder is not None:
                self.forget()
                raise _TableInUse
            if step.probe:
                self._probe(step, session)
            try:
                with session.begin_step(step.lock, timeout):
                    if session.is_exclusive:
                        self.forget()  # others may have changed the table before
                    self._execute(step)
            except DBAPIError as error:
                is_locked = can_be_retried(error, self.connection.dialect)
                if is_locked and step.probe:  # hours of work may be lost, so only the user repeats it
                    users = _users_of(self.target, session)
                    raise LockNotAvailable(
                        step=step.name, table=self.target.table, attempts=1, timeout=timeout, users=users
                    ) from error
                can_tell = not self.connection.invalidated and not is_locked
                if can_tell and not step.statements(self.state):
                    return  # a killed process had sent the statement, and the server has completed it
                raise

        until_locked(attempt, step.name, self.target, session, timeout)

    def _probe(self, step: Step, session: MigrationSession) -> None:
        """Take the lock of *step* for a moment. A database that does not know the statement takes it in the step."""
        try:
            with session.begin_step(Lock.STRONG, session.timeouts.lock_timeout):
                send(self.connection, step.probe)
        except DBAPIError as error:
            if error.connection_invalidated or can_be_retried(error, self.connection.dialect):
                raise
            log.info("%s: %s, without looking for other users of the table first", self.target, step.name)

    def _execute(self, step: Step) -> None:
        state = self.state
        self.forget()
        try:
            for sql in step.statements(state):
                send(self.connection, sql)
        except BaseException:
            self.table.restore_settings(state)
            raise


class _TableInUse(Exception):
    """Another session builds an index of the table: a deadlock would end one of the two builds."""


def until_locked(
    action: Callable[[], Result],
    name: str,
    target: PublicIdColumn,
    session: MigrationSession,
    timeout: float | None = None,
) -> Result:
    """Call *action*, and repeat it after a pause as long as it fails because others have locked the table.

    :param timeout: how many seconds each attempt waits for its lock, as the error reports it.
    :raises LockNotAvailable: after the last attempt.
    """
    attempts, users = session.timeouts.attempts, ""
    for attempt in range(1, attempts + 1):
        try:
            return action()
        except _TableInUse:
            pass
        except DBAPIError as error:
            if not can_be_retried(error, session.connection.dialect):
                raise
        users = _users_of(target, session)
        if attempt < attempts:
            pause, by = min(0.1 * 2**attempt, 30) * random.uniform(0.5, 1.5), f" by {users}" if users else ""
            log.warning(
                "%s: the table is in use%s; attempt %d of %d in %.1f s", target, by, attempt + 1, attempts, pause
            )
            time.sleep(pause)
    timeout = timeout or session.timeouts.lock_timeout
    raise LockNotAvailable(step=name, table=target.table, attempts=attempts, timeout=timeout, users=users)


def _users_of(target: PublicIdColumn, session: MigrationSession) -> str:
    """Return which other sessions keep the table locked; empty if the database does not say it."""
    try:
        return ", ".join(session.read_users(target.table, target.schema))
    except DBAPIError as error:
        if error.connection_invalidated:
            raise  # another connection would not have the turn
        return ""


def can_be_retried(error: DBAPIError, dialect: Dialect) -> bool:
    """Return True if *error* is a lock timeout, a deadlock, or a commit that a cluster refused, in AUTOCOMMIT mode."""
    traits, cause = traits_for(dialect), error.orig
    if not isinstance(cause, Exception):
        return False
    code = traits.error_code(cause)
    is_refused = code in traits.commit_errors and traits.outcome(cause) is Outcome.RETRYABLE
    return is_refused or code in traits.lock_errors | traits.conflict_errors


# --- rehearsals: a statement that the server refuses on an empty copy of the table would fail halfway through


def is_accepted(connection: Connection, sql: str) -> bool:
    """Execute *sql*, and return False if the server refuses it."""
    try:
        send(connection, sql)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
    return True


def refused(migration: Migration, step: Step, error: DBAPIError) -> Obstacle:
    """Return the obstacle for the *error* of a *step*, or raise the error if others only hold a lock."""
    dialect = migration.table.connection.dialect
    if can_be_retried(error, dialect):
        raise error
    reason = str(getattr(error.orig, "args", [error.orig])[-1])
    problem = f"{dialect.name} refuses to {step.name}: {reason}"
    return Obstacle("refused", problem, "change what its message names, in an earlier revision")


@contextmanager
def without_translated_schemas(connection: Connection) -> Generator[None]:
    """Switch off ``schema_translate_map``, which changes SELECTs, but not the DDL of Alembic and of this library."""
    translated = connection.get_execution_options().get("schema_translate_map")
    connection.execution_options(schema_translate_map=None)
    try:
        yield
    finally:
        connection.execution_options(schema_translate_map=translated)


def list_statements(steps: Sequence[Step], session: MigrationSession, state: State) -> Iterator[str]:
    """Yield the statements of *steps* for *state*, with comments, and with the session settings that they need."""
    during, before = session.changes()
    yield from during
    for step in steps:
        yield f"-- {step.name}"
        seconds, usual = session.timeout_of(step, state), session.timeouts.lock_timeout
        if step.probe:
            yield step.probe
        yield from [session.lock_limit(seconds)] if seconds != usual else []
        yield from step.statements(state)
        yield from [session.lock_limit(usual)] if seconds != usual else []
    yield from before
