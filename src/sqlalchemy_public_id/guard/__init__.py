"""Collision retry: the unique index decides, and a collided INSERT is run again with a new id.

ORM programs need nothing of this module: an engine is guarded from the first time a session uses it. Programs that use
Core alone call :func:`install` once for each engine:

>>> from sqlalchemy import create_engine
>>> from sqlalchemy_public_id import guard
>>> engine = create_engine("sqlite://")
>>> guard.install(engine)

A row whose *generated* id is refused by the unique index gets a new one, up to ``max_retries`` times (1 000 where
nothing else is said), inside the caller's transaction, which stays usable. Ids that the caller gave and violations of
any other constraint go through untouched. While nothing collides, nothing more is sent than without the guard, with one
exception: on PostgreSQL, an INSERT of several rows outside of a flush stands inside a savepoint. The INSERTs of a flush
get an ``ON CONFLICT DO NOTHING`` there, after they were logged.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from sqlalchemy import Insert as InsertStatement
from sqlalchemy import event
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.engine.interfaces import ExecuteStyle

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.guard.attempt import Attempt
from sqlalchemy_public_id.guard.batch import id_parameters
from sqlalchemy_public_id.guard.retry import run, run_many
from sqlalchemy_public_id.guard.statements import id_columns, refuse_mistakes

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["install", "uninstall"]

_installed: weakref.WeakKeyDictionary[Dialect, weakref.WeakSet[Engine]] = weakref.WeakKeyDictionary()
_unwanted: weakref.WeakSet[Dialect] = weakref.WeakSet()
_lock = threading.RLock()
_rows_done: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def install(engine: Engine | AsyncEngine) -> None:
    """Guard the INSERTs of *engine*. Safe to call again, and from several threads."""
    engine = _sync(engine)
    with _lock:
        _unwanted.discard(engine.dialect)
        _install(engine)


def uninstall(engine: Engine | AsyncEngine) -> None:
    """Undo :func:`install`, for *engine* and its ``execution_options()`` copies; sessions will not guard it again."""
    dialect = _sync(engine).dialect
    with _lock:
        _unwanted.add(dialect)
        for guarded in _installed.pop(dialect, ()):
            event.remove(guarded, "before_execute", _before_execute)
        for name, handler in _DIALECT_EVENTS.items():
            if event.contains(dialect, name, handler):
                event.remove(dialect, name, handler)


def install_for(connection: Connection) -> None:
    """Guard the engine of *connection*, unless :func:`uninstall` was called for it."""
    engine = connection.engine
    guarded = _installed.get(engine.dialect)
    if guarded is not None and engine in guarded:
        return
    with _lock:
        if engine.dialect not in _unwanted:
            _install(engine)


def _install(engine: Engine) -> None:
    if not traits_for(engine.dialect).retries:
        return
    guarded = _installed.setdefault(engine.dialect, weakref.WeakSet())
    if engine in guarded:
        return
    event.listen(engine, "before_execute", _before_execute)
    for name, handler in _DIALECT_EVENTS.items():
        if not event.contains(engine.dialect, name, handler):
            event.listen(engine.dialect, name, handler)
    guarded.add(engine)


def _sync(engine: Any) -> Engine:
    found = getattr(engine, "sync_engine", engine)
    if not isinstance(found, Engine):
        raise TypeError(f"expected an Engine or an AsyncEngine, not {type(engine).__name__}")
    return found


# --- handlers


def _before_execute(
    connection: Connection, statement: Any, multiparams: Any, params: Any, execution_options: Any
) -> None:
    if isinstance(statement, InsertStatement):
        columns = id_columns(statement)
        if columns:
            refuse_mistakes(statement, columns)


def _do_execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool | None:
    if not _concerns(context):
        return None
    attempt = Attempt(context, cursor, statement)
    if context.execute_style is ExecuteStyle.INSERTMANYVALUES:
        done = _rows_done.get(context, 0)
        _rows_done[context] = done + run(attempt, parameters, done)
    else:
        run(attempt, parameters)
    return True


def _do_executemany(cursor: Any, statement: str, parameters: Any, context: Any) -> bool | None:
    if not _concerns(context):
        return None
    run_many(Attempt(context, cursor, statement), parameters)
    return True


def _concerns(context: Any) -> bool:
    return bool(context is not None and context.isinsert and context.compiled and id_parameters(context.compiled))


_DIALECT_EVENTS = {"do_execute": _do_execute, "do_executemany": _do_executemany}
