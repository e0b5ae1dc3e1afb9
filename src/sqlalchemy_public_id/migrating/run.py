"""Run each step in its own transaction with a short lock timeout, and retry if the lock was not acquired.

While a statement waits for a strong lock, all other users of the table queue behind it. So the wait ends after
``lock_timeout``, the others proceed, and the step is tried again after a pause. Pauses grow, and are random, so that
two processes do not meet again.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import DBAPIError
from typing_extensions import TypeVar

from sqlalchemy_public_id.dialects import Outcome, is_autocommit, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, LockNotAvailable, safe_repr
from sqlalchemy_public_id.migrating.column import Patience, PublicIdColumn
from sqlalchemy_public_id.migrating.column_state import State
from sqlalchemy_public_id.migrating.mysql import MySQLPlan
from sqlalchemy_public_id.migrating.nodes import restore
from sqlalchemy_public_id.migrating.plan import Lock, Plan, Step
from sqlalchemy_public_id.migrating.postgresql import PostgreSQLPlan
from sqlalchemy_public_id.migrating.sqlite import SQLitePlan

Result = TypeVar("Result")

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.migrating")

_PLANS: dict[str, type[Plan]] = {
    "mariadb": MySQLPlan,
    "mysql": MySQLPlan,
    "postgresql": PostgreSQLPlan,
    "sqlite": SQLitePlan,
}


def plan_for(target: PublicIdColumn, dialect: Dialect, *, online: bool = True, allow_lock: bool = False) -> Plan:
    """Build the plan for the database of *dialect*.

    :raises ConfigurationError: if it is not supported, or does not accept one of the names.
    """
    plan = _PLANS.get(dialect.name)
    if plan is None:
        raise ConfigurationError(f"there are no steps for {dialect.name}; expected one of {', '.join(sorted(_PLANS))}")
    for kind in ("schema", "table", "column", "unique_name"):
        name: str | None = getattr(target, kind)
        problem = None if name is None and kind == "schema" else _problem(name or "", kind, dialect.name)
        if problem is not None:
            raise ConfigurationError(f"the name of the {kind}, {safe_repr(name)}, {problem}: choose another one")
    return plan(target, dialect, online=online, allow_lock=allow_lock)


def _problem(name: str, kind: str, dialect: str) -> str | None:
    """Return why the database would refuse or cut *name*."""
    problems = {
        "is empty": not name,
        "contains NUL, which no database accepts in a name": "\0" in name,
        "ends with a newline, and SQLAlchemy does not quote it": name.endswith("\n"),
    }
    if dialect == "postgresql":
        problems["has more than 63 bytes, after which PostgreSQL cuts names"] = len(name.encode()) > 63
    elif dialect != "sqlite":
        has_lines = kind != "schema" and bool({"\n", "\r"} & set(name))
        problems |= {
            f"has more than 64 characters, which {dialect} does not accept": len(name) > 64,
            f"has several lines, and SQLAlchemy does not reflect it from {dialect}": has_lines,
            f"ends with a blank, which {dialect} does not accept": name.endswith(" "),
        }
    return next((problem for problem, applies in problems.items() if applies), None)


def list_statements(steps: Sequence[Step], connection: Connection, state: State, patience: Patience) -> Iterator[str]:
    """Yield comments and the statements of *steps* for the *state*, with the settings of the session that they take."""
    is_postgresql = connection.dialect.name == "postgresql"
    setting = "lock_timeout" if is_postgresql else "SESSION lock_wait_timeout"
    others: dict[str, str] = {}
    if not is_postgresql:
        mode = _send(connection, "SELECT @@SESSION.sql_mode").scalar()
        others["SESSION sql_mode"] = f"'{mode_for_old_rows(mode)}'"
    if state.versioned:
        others["SESSION system_versioning_alter_history"] = "KEEP"
    yield from (f"SET {name} = {value}" for name, value in others.items())
    for step in steps:
        yield f"-- {step.name}"
        with_probe = [(patience.lock_timeout, [step.probe])] if step.probe else []
        for seconds, statements in [*with_probe, (_timeout(step, patience), step.sql(connection, state))]:
            yield f"SET {setting} = {math.ceil(seconds * 1000) if is_postgresql else _whole(seconds)}"
            yield from statements
    yield from (f"SET {name} = DEFAULT" for name in (setting, *others))


def run_inside(steps: Sequence[Step], target: PublicIdColumn, connection: Connection) -> None:
    """Run the *steps* that are still needed inside the open transaction."""
    state: State | None = None
    for step in steps:
        state = state or target.read_state(connection)
        if step.needed(state):
            log.info("%s: %s", target, step.name)
            _execute(connection, step, state)
            state = None


def run(steps: Sequence[Step], target: PublicIdColumn, connection: Connection, patience: Patience) -> None:
    """Run the *steps* that are still needed on a *connection* in AUTOCOMMIT mode.

    :raises LockNotAvailable: if others keep the table locked.
    """
    state: State | None = None
    for step in steps:
        state = _run_one(step, target, connection, patience, state)


def _run_one(
    step: Step, target: PublicIdColumn, connection: Connection, patience: Patience, known: State | None
) -> State | None:
    """Run *step*, and return the state if it changes nothing.

    :param known: the state, if nothing was changed since it was read.
    """
    settings = _SESSION_SETTINGS[connection.dialect.name]
    timeout = _timeout(step, patience)
    is_announced = False

    def attempt() -> State | None:
        nonlocal is_announced, known
        state, known = known or target.read_state(connection), None
        if not step.needed(state):
            return state
        if not is_announced:
            log.info("%s: %s", target, step.name)
            is_announced = True
        if step.lock is Lock.BUILD and state.builder is not None:
            raise _TableInUse
        if step.probe:
            with settings(connection, Lock.STRONG, patience.lock_timeout):
                _send(connection, step.probe)
        try:
            with settings(connection, step.lock, timeout):
                if connection.dialect.name == "sqlite":
                    state = target.read_state(connection)  # its turn is the lock to write, which it has only now
                if step.needed(state):
                    _execute(connection, step, state)
        except DBAPIError as error:
            is_locked = can_be_retried(error, connection.dialect)
            if is_locked and step.probe:  # hours of work may be lost, so nobody repeats them without being asked
                raise LockNotAvailable(step=step.name, table=target.table, attempts=1, timeout=timeout) from error
            can_tell = not connection.invalidated and not is_locked
            if can_tell and not step.needed(target.read_state(connection)):
                return None  # a process that was killed had sent it, and the server has completed it
            raise
        return None

    return until_locked(attempt, step.name, target, connection, patience, timeout)


class _TableInUse(Exception):
    """Another session builds an index of the table: a deadlock with it would end the one or the other build."""


def until_locked(
    action: Callable[[], Result],
    name: str,
    target: PublicIdColumn,
    connection: Connection,
    patience: Patience,
    timeout: float | None = None,
) -> Result:
    """Call *action* again, after pauses, as long as it fails because others have locked the table.

    :param timeout: how many seconds it waits for its lock.
    :raises LockNotAvailable: after the last attempt.
    """
    for attempt in range(1, patience.attempts + 1):
        try:
            return action()
        except _TableInUse:
            pass
        except DBAPIError as error:
            if not can_be_retried(error, connection.dialect):
                raise
        if attempt < patience.attempts:
            pause = min(0.1 * 2**attempt, 30) * random.uniform(0.5, 1.5)
            log.warning("%s: the table is in use; trying again in %.1f s", target, pause)
            time.sleep(pause)
    raise LockNotAvailable(
        step=name, table=target.table, attempts=patience.attempts, timeout=timeout or patience.lock_timeout
    )


def _timeout(step: Step, patience: Patience) -> float:
    if step.lock is Lock.REWRITE:  # the time of all attempts: it is tried once
        return patience.lock_timeout * patience.attempts
    return patience.index_timeout if step.lock is Lock.BUILD else patience.lock_timeout


def _execute(connection: Connection, step: Step, state: State) -> None:
    for sql in step.sql(connection, state):
        _send(connection, sql)


def _send(connection: Connection, sql: str) -> Any:
    return connection.exec_driver_sql(sql, execution_options={"no_parameters": True})


def can_be_retried(error: DBAPIError, dialect: Dialect) -> bool:
    """Return True after a lock timeout, a deadlock, or the refusal of a cluster, in AUTOCOMMIT mode."""
    traits, cause = traits_for(dialect), error.orig
    if not isinstance(cause, Exception):
        return False
    code = traits.error_code(cause)
    is_refused = code in traits.commit_errors and traits.outcome(cause) is Outcome.RETRYABLE
    return is_refused or code in traits.lock_errors | traits.conflict_errors


@contextmanager
def transaction(connection: Connection, begin: str) -> Generator[None]:
    """Send *begin*, and COMMIT or ROLLBACK, which SQLAlchemy does not send in AUTOCOMMIT mode."""
    _send(connection, begin)
    try:
        yield
        _send(connection, "COMMIT")
    except BaseException:
        # SQLite may have rolled back already, or refused the COMMIT because others read
        if not connection.invalidated and traits_for(connection.dialect).in_transaction(
            connection.connection.dbapi_connection
        ):
            restore(connection, "ROLLBACK")
        raise


# --- settings for a whole operation, restored afterwards

_LIMITS = {
    "postgresql": "SELECT name, setting FROM pg_settings WHERE name IN"
    " ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'lock_timeout')",
    "mariadb": "SHOW SESSION VARIABLES WHERE Variable_name IN ('max_statement_time', 'lock_wait_timeout')",
    "mysql": "SHOW SESSION VARIABLES WHERE Variable_name IN ('max_execution_time', 'lock_wait_timeout')",
}
"""The query of the limits that a role or a server sets: for statements and transactions, where 0 is none, for locks."""


@contextmanager
def without_translated_schemas(connection: Connection) -> Generator[None]:
    """Switch ``schema_translate_map`` off, which DDL of Alembic and of this library ignores, and a SELECT does not."""
    translated = connection.get_execution_options().get("schema_translate_map")
    connection.execution_options(schema_translate_map=None)
    try:
        yield
    finally:
        connection.execution_options(schema_translate_map=translated)


@contextmanager
def limits_of_operation(connection: Connection, patience: Patience) -> Generator[None]:
    """Let no statement wait longer than ``lock_timeout`` for a lock, and lift the time limits of the role.

    An index takes longer to build than a request of a program may last. Steps have limits of their own for locks.
    """
    query = _LIMITS.get(connection.dialect.name)
    rows: Sequence[Any] = _send(connection, query).all() if query else ()
    wanted = {
        "lock_timeout": math.ceil(patience.lock_timeout * 1000),
        "lock_wait_timeout": _whole(patience.lock_timeout),
    }
    changed = {name: value for name, value in rows if float(value) != wanted.get(name, 0)}
    before = [f"SET SESSION {name} = {value}" for name, value in changed.items()]
    for name in changed:
        _send(connection, f"SET SESSION {name} = {wanted.get(name, 0)}")
    try:
        yield
    except BaseException:
        if connection.dialect.name != "postgresql" or is_autocommit(connection):
            restore(connection, *before)  # a transaction of PostgreSQL that has failed takes them back
        raise
    restore(connection, *before)


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))  # MySQL and MariaDB wait for whole seconds


# --- settings for one step, restored afterwards


@contextmanager
def _postgresql(connection: Connection, lock: Lock, timeout: float) -> Generator[None]:
    milliseconds = math.ceil(timeout * 1000)
    if lock is Lock.BUILD:  # CREATE INDEX CONCURRENTLY is refused inside a transaction
        before = _send(connection, "SHOW lock_timeout").scalar()
        _send(connection, f"SET lock_timeout = {milliseconds}")
        try:
            yield
        finally:
            restore(connection, f"SET lock_timeout = '{before}'")
        return
    with transaction(connection, "BEGIN"):
        _send(connection, f"SET LOCAL lock_timeout = {milliseconds}")
        yield


def mode_for_old_rows(mode: str) -> str:
    """Return the *mode* of SQL without what refuses zero dates: old rows and defaults have them, and are written again.

    Strict mode stays, or comes: otherwise a value that does not fit is cut. TRADITIONAL would bring the others back.
    """
    left_out = {"NO_ZERO_DATE", "NO_ZERO_IN_DATE", "TRADITIONAL"}
    return ",".join(
        dict.fromkeys([*(each for each in mode.split(",") if each and each not in left_out), "STRICT_ALL_TABLES"])
    )


@contextmanager
def _mysql(connection: Connection, lock: Lock, timeout: float) -> Generator[None]:
    before = _send(connection, "SELECT @@SESSION.lock_wait_timeout, @@SESSION.sql_mode").one()
    _send(connection, f"SET SESSION lock_wait_timeout = {_whole(timeout)}")
    _send(connection, f"SET SESSION sql_mode = '{mode_for_old_rows(before[1])}'")
    history: str | None = None
    if getattr(connection.dialect, "is_mariadb", False):  # system-versioned tables refuse every ALTER otherwise
        history = _send(connection, "SELECT @@SESSION.system_versioning_alter_history").scalar()
        _send(connection, "SET SESSION system_versioning_alter_history = KEEP")
    try:
        yield
    finally:
        if history is not None:
            restore(connection, f"SET SESSION system_versioning_alter_history = {history}")
        restore(connection, f"SET SESSION lock_wait_timeout = {before[0]}")
        restore(connection, f"SET SESSION sql_mode = '{before[1]}'")


@contextmanager
def _sqlite(connection: Connection, lock: Lock, timeout: float) -> Generator[None]:
    legacy = _send(connection, "PRAGMA legacy_alter_table").scalar()
    with transaction(connection, "BEGIN IMMEDIATE"):
        try:
            yield
        except BaseException:
            restore(connection, f"PRAGMA legacy_alter_table={legacy}")  # is not rolled back
            raise


_SESSION_SETTINGS = {"mariadb": _mysql, "mysql": _mysql, "postgresql": _postgresql, "sqlite": _sqlite}
