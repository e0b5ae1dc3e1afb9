"""A savepoint that waits for the first statement inside of it, since it would take a round trip of its own.

PostgreSQL, with psycopg: both are sent together. MariaDB undoes a failed statement alone, so there the savepoint is
left out if nothing but one INSERT stands inside, and ROLLBACK TO if the first statement has failed.

SQLAlchemy notices nothing of it: statements are held back where they would be given to the driver.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Select
from sqlalchemy.engine import Connection

from sqlalchemy_public_id._compat import read_pipelined_rows
from sqlalchemy_public_id.dialects import traits_for

_held: weakref.WeakKeyDictionary[Connection, HeldSavepoint] = weakref.WeakKeyDictionary()


@contextmanager
def hold_savepoint(connection: Connection, *, only_insert: bool) -> Generator[None]:
    """Hold back the next SAVEPOINT of *connection*.

    :param only_insert: nothing that writes will follow inside of it but one INSERT.
    """
    traits = traits_for(connection.dialect)
    if traits.aborts_transaction:
        is_possible = traits.pipeline(connection.connection.dbapi_connection) is not None
    else:
        is_possible = traits.can_omit_savepoint(connection.dialect)
    if not is_possible or connection in _held:
        yield
        return
    _held[connection] = HeldSavepoint(connection, only_insert=only_insert)
    try:
        yield
    finally:
        del _held[connection]


def held_by(context: Any) -> HeldSavepoint | None:
    """Return the savepoint that is held back on the connection of an execution."""
    return _held.get(context.root_connection) if _held and context is not None else None


class _State(enum.Enum):
    AWAITED = enum.auto()
    HELD = enum.auto()
    SET = enum.auto()
    """The database has it."""
    LEFT_OUT = enum.auto()
    """The database does not have it, and has executed the INSERT."""
    NOTHING_TO_UNDO = enum.auto()
    """The first statement inside of it has failed, and was rolled back alone."""
    LOST = enum.auto()
    """The database has rolled back the whole transaction, and says so if it is asked for the savepoint."""
    OVER = enum.auto()


class HeldSavepoint:
    """The next savepoint of a connection."""

    def __init__(self, connection: Connection, *, only_insert: bool) -> None:
        # the connection is the key of a weak dictionary, whose value this is
        self._dialect, self._only_insert = connection.dialect, only_insert
        self._traits = traits_for(connection.dialect)
        self._state = _State.AWAITED
        self._command, self._is_set = "", False

    def set(self, context: Any) -> None:
        """Send the savepoint before a statement, if it is still held back."""
        if self._state is _State.HELD:
            self._traits.send(context.root_connection.connection, self._command)
            self._state, self._is_set = _State.SET, True

    def execute(
        self, cursor: Any, statement: str, context: Any, execute: Callable[[], None], *, reads_result: bool
    ) -> None:
        """Execute *statement* by *execute*, unless it is about the savepoint and can wait or be left out.

        :param reads_result: *execute* needs the result before it returns.
        """
        if self._state is _State.AWAITED and statement.startswith("SAVEPOINT "):
            self._command, self._state = statement, _State.HELD
        elif self._is_at_end(statement) and self._end(context, is_undone=statement.startswith("ROLLBACK")):
            self._state = _State.OVER
        elif self._state is not _State.HELD:
            if self._state is _State.NOTHING_TO_UNDO:
                self._state = _State.SET if self._is_set else _State.LEFT_OUT
            execute()
        elif self._traits.aborts_transaction:
            self._execute_with(cursor, context, execute, reads_result)
        elif context.compiled is not None and isinstance(context.compiled.statement, Select):
            execute()
        else:
            self._execute_first(context, execute)

    def _is_at_end(self, statement: str) -> bool:
        return statement in (f"RELEASE {self._command}", f"ROLLBACK TO {self._command}")

    def _end(self, context: Any, *, is_undone: bool) -> bool:
        """Return True if the database need not see the end of the savepoint."""
        if self._state is _State.LEFT_OUT and is_undone:
            # The INSERT was executed, and something else has failed: it must not be committed.
            context.root_connection.invalidate()
        return self._state in (_State.HELD, _State.LEFT_OUT) or (self._state is _State.NOTHING_TO_UNDO and is_undone)

    def _execute_with(self, cursor: Any, context: Any, execute: Callable[[], None], reads_result: bool) -> None:
        dbapi_connection = context.root_connection.connection.dbapi_connection
        pipeline = None if reads_result else self._traits.pipeline(dbapi_connection)
        if pipeline is None:
            self.set(context)
            execute()
            return
        self._state = _State.SET
        with pipeline:
            self._traits.send(context.root_connection.connection, self._command)
            execute()
        read_pipelined_rows(cursor, dbapi_connection)

    def _execute_first(self, context: Any, execute: Callable[[], None]) -> None:
        if self._only_insert and context.isinsert:
            self._state = _State.LEFT_OUT
        else:
            self.set(context)
        try:
            execute()
        except Exception as error:
            reason = getattr(error, "orig", error)  # the guard has executed statements of its own
            is_alone = not isinstance(reason, self._dialect.loaded_dbapi.Error) or self._traits.is_undone_alone(
                reason, context.root_connection.connection
            )
            self._state = _State.NOTHING_TO_UNDO if is_alone else _State.LOST
            raise
