"""Retry collisions: if the unique index refuses a generated id, the INSERT is executed again with a new one.

Sessions guard an engine when they first use it, so an ORM program does not need this module. With Core alone, call
:func:`install` once for each engine:

>>> from sqlalchemy import create_engine
>>> from sqlalchemy_public_id import guard
>>> engine = create_engine("sqlite://")
>>> guard.install(engine)

A row whose *generated* id collides gets a new one, up to ``max_retries`` times (1,000 by default), and the transaction
continues. Ids that the application set, and violations of any other constraint, raise SQLAlchemy's error as usual.
Without a collision, the guard adds no SQL, with three exceptions (see ``docs/guides/collisions.md``):

* A call with many parameter sets is executed inside a savepoint, which adds two short statements.
* On PostgreSQL, ``ON CONFLICT DO NOTHING`` is added to an INSERT of one row, and to a flush of several rows with keys
  from the database, after the statement was logged; every other INSERT is executed inside a savepoint.
* On PostgreSQL, the triggers of a table are looked up before an engine's first INSERT into it.

None of this happens on a connection in ``AUTOCOMMIT`` mode, where an ``executemany`` of the driver is not retried.

The logger ``sqlalchemy_public_id`` reports each replaced id (INFO), a row for which no free id was found (ERROR), and
databases or drivers whose collisions are not retried, with the reason (WARNING). :func:`collisions` counts the replaced
ids, for metrics.

:func:`is_retryable` returns True if the database aborted the transaction, which only the application can repeat.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from sqlalchemy import event
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id.dialects import is_retryable, missing_for_retries, traits_for
from sqlalchemy_public_id.guard import on_conflict
from sqlalchemy_public_id.guard.call import DriverCall
from sqlalchemy_public_id.guard.collision import collisions, insert_until_stored, note_own_id, warn_unguarded
from sqlalchemy_public_id.guard.statement import (
    MADE_IDS,
    InsertStatement,
    cached_statements,
    may_replace_ids,
    statement_of,
)
from sqlalchemy_public_id.weak import RefDict

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import Session

__all__ = ["collisions", "install", "is_retryable", "uninstall"]

guarded_dialects: RefDict[Dialect, None] = RefDict()
"""The dialects of guarded engines."""
_unwanted: weakref.WeakSet[Dialect] = weakref.WeakSet()
_lock = threading.RLock()


def install(engine: Engine | AsyncEngine) -> None:
    """Retry collided INSERTs on *engine*. Safe to call repeatedly, and from several threads."""
    dialect = _sync_engine(engine).dialect
    warn_if_unguarded(dialect)
    with _lock:
        _unwanted.discard(dialect)
        _install(dialect)


def uninstall(engine: Engine | AsyncEngine) -> None:
    """Undo :func:`install`, for *engine* and its ``execution_options()`` copies; sessions will not guard it again."""
    dialect = _sync_engine(engine).dialect
    with _lock:
        _unwanted.add(dialect)
        if ref(dialect) in guarded_dialects:
            del guarded_dialects[ref(dialect)]
            for name, handler in _EVENTS.items():
                event.remove(dialect, name, handler)


def after_begin(session: Session, transaction: object, connection: Connection) -> None:
    """Guard the engine of *connection*. Runs when a session has begun a transaction, before its first statement."""
    guard_connection(connection)


def guard_connection(connection: Connection) -> None:
    """Guard the engine of *connection*, unless :func:`uninstall` was called for it.

    Called before the library draws ids for objects, too: if a signal interrupts the first session of a class, such as
    each ``sessionmaker()`` makes, sessions of the class can lack an event of ``Session`` for the rest of the process.
    """
    dialect = connection.dialect
    if ref(dialect) not in guarded_dialects:
        with _lock:
            if dialect not in _unwanted:
                _install(dialect)
        warn_if_unguarded(dialect)


def warn_if_unguarded(dialect: Dialect) -> None:
    """Log a warning, once for each engine, if collisions are not retried with its database or driver."""
    missing = missing_for_retries(dialect)
    if missing is not None:
        warn_unguarded(dialect, missing)


def _install(dialect: Dialect) -> None:
    if ref(dialect) not in guarded_dialects and missing_for_retries(dialect) is None:
        for name, handler in _EVENTS.items():
            event.listen(dialect, name, handler)
        guarded_dialects.keep(dialect, None)


def _sync_engine(engine: Any) -> Engine:
    sync_engine = getattr(engine, "sync_engine", engine)
    if not isinstance(sync_engine, Engine):
        raise TypeError(f"expected an Engine or an AsyncEngine, not {type(engine).__name__}")
    return sync_engine


# --- handlers

_rows_sent: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""Execution of "insertmanyvalues" → how many of its rows were sent in earlier batches."""


def do_execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool | None:
    """Execute an INSERT with public ids; return None for any other statement, which SQLAlchemy executes.

    Runs whenever a guarded engine executes a statement with one set of parameters, or a batch of "insertmanyvalues".
    """
    # runs for every statement of a program, and on MySQL for each row of a flush: every function call counts
    if context is None or not context.compiled:
        return None
    insert = cached_statements.get(ref(context.compiled)) or statement_of(context)
    # the SELECT of a sequence for the INSERT has the context of the INSERT, but no parameters
    if not insert.ids or not parameters:
        return None
    if context.execute_style is not ExecuteStyle.INSERTMANYVALUES:
        _execute(cursor, statement, parameters, context, insert)
        return True
    first, rows = _rows_sent.get(context, 0), insert.shape_of(context, parameters)[1]
    if not rows:
        return None
    call = _execute(cursor, statement, parameters, context, insert, first)
    if call is not None:
        call.return_rows_by_sent_ids()
    _rows_sent[context] = first + rows
    return True


def _execute(
    cursor: Any, statement: str, parameters: Any, context: Any, insert: InsertStatement, first: int = 0
) -> DriverCall | None:
    """Execute an INSERT with public ids: one row, or the batch that begins at row *first*.

    SQLite, MySQL and MariaDB undo only the statement that fails, so it can simply be executed again. On PostgreSQL an
    error aborts the transaction, so the statement must not fail, except inside a savepoint.

    :returns: the call, if some of its ids may have been replaced.
    """
    dialect = context.dialect
    traits = traits_for(dialect)
    error = None
    if not traits.aborts_transaction:
        try:  # the database rolls back the failed statement alone, so no savepoint is needed
            dialect.do_execute(cursor, statement, parameters, context)
        except dialect.dbapi.IntegrityError as raised:
            error = raised
        if error is None:
            return None
    elif not (insert.has_defaults or context.execution_options.get(MADE_IDS)) or traits.defers_result(context):
        try:
            dialect.do_execute(cursor, statement, parameters, context)
        except dialect.dbapi.IntegrityError as raised:
            note_own_id(DriverCall(context, cursor, statement, parameters, first), raised)
            raise
        return None
    elif on_conflict.insert_rows(context, cursor, statement, parameters, first, insert):
        return None
    call = DriverCall(context, cursor, statement, parameters, first)
    in_savepoint = traits.aborts_transaction and not _in_autocommit(context)
    insert_until_stored(call, in_savepoint=in_savepoint, error=error)
    return call


def do_executemany(cursor: Any, statement: str, parameters: Any, context: Any) -> bool | None:
    """Execute an INSERT with public ids; return None for any other statement, which SQLAlchemy executes.

    Runs whenever a guarded engine executes a statement with a list of parameters that returns no rows.
    """
    if context is None or not (context.compiled and statement_of(context).ids):
        return None
    # under AUTOCOMMIT, no savepoint could roll back the rows before a refused one
    if _in_autocommit(context) or not may_replace_ids(context):
        return None
    insert_until_stored(DriverCall(context, cursor, statement, parameters), in_savepoint=True)
    return True


def _in_autocommit(context: Any) -> bool:
    return traits_for(context.dialect).in_autocommit(context.root_connection.connection.dbapi_connection)


_EVENTS: dict[str, Callable[..., Any]] = {
    "do_execute": do_execute,
    "do_executemany": do_executemany,
}
