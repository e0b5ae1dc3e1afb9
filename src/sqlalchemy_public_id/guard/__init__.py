"""Collision retry: the unique index decides, and a collided INSERT is run again with a new id.

ORM programs need nothing of this module: an engine is guarded from the first time a session uses it. Programs that use
Core alone call :func:`install` once for each engine:

>>> from sqlalchemy import create_engine
>>> from sqlalchemy_public_id import guard
>>> engine = create_engine("sqlite://")
>>> guard.install(engine)

A row whose *generated* id is refused by the unique index gets a new one, up to ``max_retries`` times (1 000 where
nothing else is said), inside the caller's transaction, which stays usable. Ids that the caller gave and violations of
any other constraint go through untouched. While nothing collides, nothing more is sent than without the guard, except
on PostgreSQL: INSERTs of one row, and those of several rows in a flush whose keys the database makes, get an ``ON
CONFLICT DO NOTHING`` there, after they were logged; the others stand inside a savepoint, which is two short statements
more (``docs/guides/collisions.md`` has the list). Statements of an ``AUTOCOMMIT`` connection get neither.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.guard.bulk_saves import show_made_ids
from sqlalchemy_public_id.guard.execution import Attempt
from sqlalchemy_public_id.guard.parameters import id_parameters, rows_of
from sqlalchemy_public_id.guard.refusals import refuse_mistakes
from sqlalchemy_public_id.guard.retry import run, run_again, run_many
from sqlalchemy_public_id.transactions import run_transaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["install", "run_transaction", "uninstall"]

_guarded: weakref.WeakSet[Dialect] = weakref.WeakSet()
_unwanted: weakref.WeakSet[Dialect] = weakref.WeakSet()
_lock = threading.RLock()
_sent: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
"""Execution of "insertmanyvalues" → how many batches were sent, and how many parameters in all."""


def install(engine: Engine | AsyncEngine) -> None:
    """Guard the INSERTs of *engine*. Safe to call again, and from several threads."""
    dialect = _sync(engine).dialect
    with _lock:
        _unwanted.discard(dialect)
        _install(dialect)


def uninstall(engine: Engine | AsyncEngine) -> None:
    """Undo :func:`install`, for *engine* and its ``execution_options()`` copies; sessions will not guard it again."""
    dialect = _sync(engine).dialect
    with _lock:
        _unwanted.add(dialect)
        if dialect in _guarded:
            _guarded.discard(dialect)
            for name, handler in _EVENTS.items():
                event.remove(dialect, name, handler)


def install_for(connection: Connection) -> None:
    """Guard the engine of *connection*, unless :func:`uninstall` was called for it."""
    dialect = connection.dialect
    if dialect not in _guarded:
        with _lock:
            if dialect not in _unwanted:
                _install(dialect)


def _install(dialect: Dialect) -> None:
    if dialect not in _guarded and traits_for(dialect).retries:
        for name, handler in _EVENTS.items():
            event.listen(dialect, name, handler)
        _guarded.add(dialect)


def _sync(engine: Any) -> Engine:
    found = getattr(engine, "sync_engine", engine)
    if not isinstance(found, Engine):
        raise TypeError(f"expected an Engine or an AsyncEngine, not {type(engine).__name__}")
    return found


# --- handlers


def _do_execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool | None:
    if not _concerns(context):
        return None
    calls, sent = _sent.get(context, (0, 0)) if context.execute_style is ExecuteStyle.INSERTMANYVALUES else (0, 0)
    if traits_for(context.dialect).aborts_transaction:
        with Attempt(context, cursor, statement) as attempt:
            run(attempt, parameters, rows_of(context.compiled, sent, calls))
    else:
        try:  # a statement that fails alone: nothing is looked at unless it does
            context.dialect.do_execute(cursor, statement, parameters, context)
        except context.dialect.dbapi.IntegrityError as error:
            with Attempt(context, cursor, statement) as attempt:
                run_again(attempt, parameters, error, rows_of(context.compiled, sent, calls))
    if context.execute_style is ExecuteStyle.INSERTMANYVALUES:
        _sent[context] = calls + 1, sent + len(parameters)
        if rows_of(context.compiled, *reversed(_sent[context])) < len(context.compiled_parameters):
            return True
    show_made_ids(context)
    return True


def _do_executemany(cursor: Any, statement: str, parameters: Any, context: Any) -> bool | None:
    if not _concerns(context):
        return None
    with Attempt(context, cursor, statement) as attempt:
        run_many(attempt, parameters)
    show_made_ids(context)
    return True


def _concerns(context: Any) -> bool:
    if context is None or not context.compiled:
        return False
    if context.isinsert:
        return bool(id_parameters(context.compiled))
    if getattr(context.compiled, "ctes", None):  # there may be an INSERT among them
        refuse_mistakes(context.compiled)
    return False


_EVENTS = {"do_execute": _do_execute, "do_executemany": _do_executemany}
