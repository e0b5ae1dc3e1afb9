"""Run steps: each in a transaction of its own, with a short wait for its lock, and again when it was not to be had.

While a statement waits for a strong lock, everyone else who wants the table waits behind it. So it gives up after
``lock_timeout``, lets the others pass, and comes back after a pause that grows and is never the same for two processes.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.errors import ConfigurationError, LockNotAvailable, shown
from sqlalchemy_public_id.online.mysql import MySQLPlan
from sqlalchemy_public_id.online.postgresql import PostgreSQLPlan
from sqlalchemy_public_id.online.sqlite import SQLitePlan
from sqlalchemy_public_id.online.state import State, read
from sqlalchemy_public_id.online.steps import Lock, Plan, Step
from sqlalchemy_public_id.online.target import Patience, Target

__all__ = ["is_busy", "plan_for", "run", "run_inside", "script"]

log = logging.getLogger("sqlalchemy_public_id.online")

_PLANS: dict[str, type[Plan]] = {
    "mariadb": MySQLPlan,
    "mysql": MySQLPlan,
    "postgresql": PostgreSQLPlan,
    "sqlite": SQLitePlan,
}
_MYSQL = {"mysql", "mariadb"}
_BUSY = {"55P03", "40P01", 1205, 1213, 3572}
"""Lock timeouts and deadlocks, as PostgreSQL, and MySQL and MariaDB number them."""
_NO_SUCH_ALGORITHM = {1845, 1846, 1221, 4092}


def plan_for(target: Target, dialect: Dialect, *, online: bool = True) -> Plan:
    """The steps for the database of *dialect*.

    :raises ConfigurationError: where it is none that is known.
    """
    plan = _PLANS.get(dialect.name)
    if plan is None:
        raise ConfigurationError(f"there are no steps for {dialect.name}; expected one of {', '.join(sorted(_PLANS))}")
    _refuse_names(target, dialect)
    return plan(target, dialect, online=online)


def _refuse_names(target: Target, dialect: Dialect) -> None:
    """Refuse names that the database does not take, or that it would cut."""
    for kind in ("schema", "table", "column", "unique_name"):
        name: str | None = getattr(target, kind)
        if name is None and kind == "schema":
            continue
        wrong = None
        if not name:
            wrong = "is empty"
        elif "\0" in name:
            wrong = "contains NUL, which no database takes in a name"
        elif name.endswith("\n"):
            wrong = "ends with a newline, and SQLAlchemy does not quote it"
        elif dialect.name == "postgresql" and len(name.encode()) > 63:
            wrong = "has more than 63 bytes, after which PostgreSQL cuts names"
        elif dialect.name in _MYSQL and len(name) > 64:
            wrong = f"has more than 64 characters, which {dialect.name} does not take"
        elif dialect.name in _MYSQL and kind != "schema" and {"\n", "\r"} & set(name):
            wrong = f"has several lines, and SQLAlchemy does not reflect it from {dialect.name}"
        elif dialect.name in _MYSQL and name.endswith(" "):
            wrong = f"ends with a blank, which {dialect.name} does not take"
        if wrong is not None:
            raise ConfigurationError(f"the name of the {kind}, {shown(name)}, {wrong}: give it another one")


def script(steps: Sequence[Step], dialect: Dialect, patience: Patience, write: Callable[[str], None]) -> None:
    """Give the statements of *steps* to *write*, for a script that is run elsewhere.

    It waits for locks as long as :func:`run` does, but does not try again; where it stops, it can be run again.
    """
    limits = _LIMITS[dialect.name]
    for sql in limits.before:
        write(sql)
    for step in steps:
        statements = step.sql(None, State(exists=True))
        if statements:
            write(f"-- {step.name}")
            write(limits.during.format(math.ceil(_timeout(step, patience) * limits.per_second)))
        for sql in statements:
            write(sql)
    for sql in limits.after:
        write(sql)


def run_inside(steps: Sequence[Step], target: Target, connection: Connection) -> None:
    """Run what is still to be done of *steps* inside the transaction that is open."""
    for step in steps:
        state = read(connection, target)
        if step.needed(state):
            log.info("%s: %s", target, step.name)
            _execute(connection, step, state)


def run(steps: Sequence[Step], target: Target, connection: Connection, patience: Patience) -> None:
    """Run what is still to be done of *steps*. *connection* commits by itself.

    :raises LockNotAvailable: where others keep the table busy.
    """
    for step in steps:
        _run_one(step, target, connection, patience)


def _run_one(step: Step, target: Target, connection: Connection, patience: Patience) -> None:
    session = _SESSIONS[connection.dialect.name]
    timeout = _timeout(step, patience)
    for attempt in range(1, patience.attempts + 1):
        state = read(connection, target)
        if not step.needed(state):
            return
        if attempt == 1:
            log.info("%s: %s", target, step.name)
        try:
            with session(connection, step.lock, timeout):
                _execute(connection, step, state)
            return
        except DBAPIError as error:
            if not is_busy(error):
                if not step.needed(read(connection, target)):
                    return  # a process that was killed had sent it, and the server has gone on with it
                raise
            if attempt < patience.attempts:
                pause = min(0.1 * 2**attempt, 30) * random.uniform(0.5, 1.5)
                log.warning("%s: the table is in use; trying again in %.1f s", target, pause)
                time.sleep(pause)
    raise LockNotAvailable(step=step.name, table=target.table, attempts=patience.attempts, timeout=timeout)


def _timeout(step: Step, patience: Patience) -> float:
    return patience.index_timeout if step.lock is Lock.BUILD else patience.lock_timeout


def _execute(connection: Connection, step: Step, state: State) -> None:
    try:
        for sql in step.sql(connection, state):
            _send(connection, sql)
    except DBAPIError as error:
        if step.instead is None or _code(error) not in _NO_SUCH_ALGORITHM:
            raise
        for sql in step.instead(connection, state):
            _send(connection, sql)


def _send(connection: Connection, sql: str) -> Any:
    """Send *sql* as it is: nothing in it is a parameter."""
    return connection.exec_driver_sql(sql, execution_options={"no_parameters": True})


def is_busy(error: DBAPIError) -> bool:
    """Whether *error* says that a lock was not to be had in time."""
    return _code(error) in _BUSY or "database is locked" in str(error.orig)


def _code(error: DBAPIError) -> object:
    """What the database calls the error: a number, or an SQLSTATE."""
    original: Any = error.orig
    arguments = getattr(original, "args", ())
    if arguments and isinstance(arguments[0], int):  # drivers of MySQL; their sqlstate is HY000 for most
        return arguments[0]
    for name in ("sqlstate", "pgcode"):
        if getattr(original, name, None) is not None:
            return getattr(original, name)
    return None


@dataclass(frozen=True)
class _Limits:
    """The statements of a script that say how long to wait."""

    before: tuple[str, ...]
    during: str
    per_second: int
    after: tuple[str, ...]


_STRICT_MODE = "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_ALL_TABLES')"
_ON_MYSQL = _Limits(
    before=(
        "SET @public_id_wait = @@SESSION.lock_wait_timeout, @public_id_mode = @@SESSION.sql_mode",
        _STRICT_MODE,
    ),
    during="SET SESSION lock_wait_timeout = {}",
    per_second=1,
    after=("SET SESSION lock_wait_timeout = @public_id_wait, SESSION sql_mode = @public_id_mode",),
)
_LIMITS = {
    "mariadb": _ON_MYSQL,
    "mysql": _ON_MYSQL,
    "postgresql": _Limits(
        before=("SET statement_timeout = 0",),  # the backfill and the build of the index take their time
        during="SET lock_timeout = {}",
        per_second=1000,
        after=("RESET lock_timeout", "RESET statement_timeout"),
    ),
}


# --- sessions: settings for one step, put back afterwards


@contextmanager
def _postgresql(connection: Connection, lock: Lock, timeout: float) -> Generator[None]:
    milliseconds = math.ceil(timeout * 1000)
    if lock is Lock.BUILD:  # outside of any transaction
        before = _send(connection, "SHOW lock_timeout").scalar()
        _send(connection, f"SET lock_timeout = {milliseconds}")
        try:
            yield
        finally:
            _send(connection, f"SET lock_timeout = '{before}'")
        return
    _send(connection, "BEGIN")
    try:
        _send(connection, f"SET LOCAL lock_timeout = {milliseconds}")
        yield
    except BaseException:
        _send(connection, "ROLLBACK")
        raise
    _send(connection, "COMMIT")


@contextmanager
def _mysql(connection: Connection, lock: Lock, timeout: float) -> Generator[None]:
    before = _send(connection, "SELECT @@SESSION.lock_wait_timeout, @@SESSION.sql_mode").one()
    _send(connection, f"SET SESSION lock_wait_timeout = {max(1, math.ceil(timeout))}")
    if "STRICT_" not in before[1]:
        _send(connection, _STRICT_MODE)
    try:
        yield
    finally:
        _send(connection, f"SET SESSION lock_wait_timeout = {before[0]}")
        _send(connection, f"SET SESSION sql_mode = '{before[1]}'")


@contextmanager
def _sqlite(connection: Connection, lock: Lock, timeout: float) -> Generator[None]:
    legacy = _send(connection, "PRAGMA legacy_alter_table").scalar()
    _send(connection, "BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        _send(connection, "ROLLBACK")
        _send(connection, f"PRAGMA legacy_alter_table={legacy}")  # is not rolled back
        raise
    _send(connection, "COMMIT")


_SESSIONS = {"mariadb": _mysql, "mysql": _mysql, "postgresql": _postgresql, "sqlite": _sqlite}
